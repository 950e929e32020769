"""The spine: one batch of calls, from what a model wrote to one outcome each, in order.

Each call goes through the stages in the order of their files: prepare, authorise, schedule, execute, finalise, record.
A call that ends early flows on as a finished entry, so that count and order never change.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from toolwright import jsonx
from toolwright.calls.approach import approach, show
from toolwright.calls.authorise import Judge, authorise
from toolwright.calls.conflicts import ClaimIndex
from toolwright.calls.execute import CallRun, Cancelled
from toolwright.calls.finalise import ask_after, finish, is_plain, to_outcome
from toolwright.calls.hooks import Hooks
from toolwright.calls.host import CallHost
from toolwright.calls.loops import LoopWatch
from toolwright.calls.policy import Policy
from toolwright.calls.prepare import PreparedCall, prepare, read_call
from toolwright.calls.record import CallLog
from toolwright.calls.report import Report
from toolwright.calls.schedule import Limit, Ticket
from toolwright.errors import BatchFailed
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, ToolOutcome
from toolwright.tools.registry import Snapshot
from toolwright.tools.tool import Tool


class BatchSetting:
    """What the batches of a session have in common."""

    __slots__ = ("call_log", "hooks", "host", "judge", "limits_of", "loops", "policy")

    def __init__(
        self,
        *,
        host: CallHost,
        policy: Policy,
        hooks: Hooks,
        loops: LoopWatch,
        call_log: CallLog,
        limits_of: Callable[[Tool, Ticket | None], tuple[Limit, ...]],
    ) -> None:
        self.host = host
        self.policy = policy
        self.judge = Judge(policy, host.session_id)
        self.hooks = hooks
        self.loops = loops
        self.call_log = call_log
        self.limits_of = limits_of


class Batch:
    """A batch that was started: await it for its outcomes, or cancel it."""

    def __init__(
        self,
        calls: Iterable[ToolCall | Mapping[str, Any]],
        snapshot: Snapshot,
        setting: BatchSetting,
        *,
        scope: str = "",
        parent: CallRun | None = None,
        ended: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        self.host = setting.host
        self.policy = setting.policy
        self.scope = scope
        self._setting = setting
        self._parent = parent
        self._ended = ended
        self._waiters: list[asyncio.Future[None]] = []
        self._stop_reason: str | None = None
        self._failed_call: str | None = None
        seen: set[str] = set()
        parent_id = None if parent is None else parent.prepared.call_id
        limit = setting.policy.max_argument_bytes
        self._entries = [
            prepare(read_call(call), snapshot, parent=parent_id, seen=seen, max_bytes=limit) for call in calls
        ]
        self.id = batch_id(self._entries)
        self._outcomes: list[ToolOutcome | None] = [None] * len(self._entries)
        self._left = len(self._entries)
        self._runs: list[CallRun] = []
        self._report = Report(
            self.host.session_id,
            self.id,
            clock=self.host.clock,
            hub=self.host.hub,
            call_log=setting.call_log,
            record_bytes=self.policy.record_bytes,
        )

    # --- the way of the calls

    def start(self) -> Batch:
        """Set every call on its way."""
        if not self._entries:
            self._ended(self)
            return self
        parent = None if self._parent is None else self._parent.prepared.call_id
        self._report.batch_started(self._entries, parent)
        if self._setting.hooks.before or any(e.tool is not None and e.tool.prepare is not None for e in self._entries):
            self.host.keep(self.host.loop.create_task(self._approach()))
        else:
            self._launch()
        return self

    async def _approach(self) -> None:
        """Let hooks and prepare steps see each call before any is authorised; then go on in call order."""
        try:
            await asyncio.gather(
                *(
                    approach(
                        entry,
                        self._setting.hooks.before,
                        session=self.host.session_id,
                        batch=self.id,
                        max_bytes=self.policy.max_argument_bytes,
                    )
                    for entry in self._entries
                    if entry.outcome is None
                )
            )
        except asyncio.CancelledError:
            self.cancel("the program is stopping")
        self._launch()

    def _launch(self) -> None:
        """Authorise and schedule each call. The schedule starts it when its turn comes."""
        queued, siblings = self._report.queued, None if self._parent is None else ClaimIndex()
        limit = Limit("the batch", self.policy.max_concurrency)
        above = None if self._parent is None else self._parent.ticket
        parent = None if above is None or above.done else above
        for position, entry in enumerate(self._entries):
            if entry.outcome is None and entry.answer is None:
                self._watch_loops(entry)
                if entry.outcome is None:
                    authorise(entry, self._setting.judge)
            run = CallRun(self.host, self, entry, position, queued)
            if entry.outcome is not None or entry.answer is not None:
                run.end_now(entry.outcome or entry.answer)
            elif self._stop_reason is not None:
                run.cancel(self._stop_reason)
            else:
                self._runs.append(run)
                tool = run.tool
                claims = tool.claims(jsonx.decode(entry.raw)) if callable(tool.claims) else tool.claims
                run.ticket = Ticket(run, claims, (*self._setting.limits_of(tool, parent), limit), parent)
                self.host.schedule.submit(run.ticket, siblings)
                run.limit_queue(self.policy.queue_timeout)

    def _watch_loops(self, entry: PreparedCall) -> None:
        assert entry.tool is not None
        on_loop = self.policy.on_loop
        if on_loop == "ignore" or entry.tool.definition.hints.polling:
            return
        warning = self._setting.loops.observe(entry.name, entry.raw)
        if warning is not None:
            self._report.warn(entry, "loop", warning)
            if on_loop == "refuse":
                entry.decided_by = "on_loop"
                entry.fail(
                    Failure(
                        category="permission_denied",
                        code="loop",
                        message=f"{warning}; do something else, or change the arguments",
                        source="policy",
                    )
                )

    # --- what each call reports back

    def call_started(self, run: CallRun) -> None:
        """Part of `RunOwner`."""
        self._report.call_started(run)

    def settle(self, run: CallRun, result: Any) -> ToolOutcome | None:
        """Part of `RunOwner`: most outcomes need no check, no cut and no hook, and are done at once."""
        outcome = self._to_outcome(run, result)
        hooks = self._setting.hooks
        if (hooks.after and run.attempt) or not is_plain(outcome, run.prepared.tool, self.policy, hooks.project):
            return None
        return outcome

    async def finish(self, run: CallRun, result: Any) -> ToolOutcome:
        """Part of `RunOwner`: after-hooks, output check, bounds, projection."""
        outcome, hooks = self._to_outcome(run, result), self._setting.hooks
        if hooks.after and run.attempt:
            outcome = await ask_after(hooks.after, show(run.prepared, self.host.session_id, self.id), outcome)
        return await finish(outcome, run.prepared.tool, self.policy, hooks.project)

    def call_concluded(self, run: CallRun, outcome: ToolOutcome, finished: float) -> None:
        """Part of `RunOwner`: the call is over; perhaps the batch is too."""
        self._outcomes[run.position] = outcome
        self._report.call_concluded(run, outcome, finished)
        self._left -= 1
        if outcome.status == "failure" and not self.policy.continue_on_failure and self._stop_reason is None:
            self._failed_call = outcome.call_id
            self.cancel(f"call {outcome.call_id!r} failed")
        if self._left == 0:
            self._report.batch_finished(self._outcomes, finished)
            self._ended(self)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _to_outcome(self, run: CallRun, result: Any) -> ToolOutcome:
        entry = run.prepared
        return to_outcome(entry.call_id, entry.name, result, attempts=run.attempt, decided_by=entry.decided_by)

    # --- what its owner may do

    @property
    def done(self) -> bool:
        """True when every call has its outcome."""
        return self._left == 0

    def cancel(self, reason: str = "the batch was cancelled") -> None:
        """Stop the batch: calls not started never start, running ones get their grace."""
        if self._stop_reason is None:
            self._stop_reason = reason
            for run in self._runs:
                run.cancel(reason)

    async def wait(self) -> list[ToolOutcome]:
        """Wait for all outcomes. Cancelling the waiter cancels the batch and waits for its calls to stop.

        Raises:
            BatchFailed: a call failed, and the policy says to stop then.
        """
        try:
            await self._all_concluded()
        except asyncio.CancelledError:
            self.cancel("its caller was cancelled")
            await self._all_concluded()
            raise
        outcomes: list[ToolOutcome] = self._outcomes  # type: ignore[assignment]
        if self._failed_call is not None:
            raise BatchFailed(f"Call {self._failed_call!r} failed and the batch was stopped", outcomes)
        return list(outcomes)

    def __await__(self) -> Generator[Any, None, list[ToolOutcome]]:
        return self.wait().__await__()

    async def _all_concluded(self) -> None:
        if self._left:
            waiter: asyncio.Future[None] = self.host.loop.create_future()
            self._waiters.append(waiter)
            await waiter


def batch_id(entries: Sequence[PreparedCall]) -> str:
    """Derive the id of a batch from its calls: the same calls give the same id."""
    hashed = hashlib.sha256(b"[")
    for entry in entries:
        hashed.update(jsonx.encode((entry.call_id, entry.name)))
        hashed.update(entry.raw)
    return f"batch_{hashed.hexdigest()[:40]}"
