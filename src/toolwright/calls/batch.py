"""The spine: one batch of calls, from a model's answer to one outcome each, in order.

Each call goes through the stages in the order of their files: prepare, authorise, schedule, execute, finalise, record.
A call that ends early flows on as a finished entry, so that count and order never change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from types import coroutine
from typing import Any

from toolwright import jsonx
from toolwright.argument_checks import require_text, unusable
from toolwright.calls.active_call import UNRECORDED, ActiveCall, OwnerBatch
from toolwright.calls.context import BatchContext
from toolwright.calls.environment import MOST_BATCHES_BEFORE_YIELD
from toolwright.calls.execute.cancel import cancel
from toolwright.calls.launch import Launch
from toolwright.calls.nesting import child_id, nested_too_deeply
from toolwright.calls.prepare.prepare import prepare
from toolwright.calls.record import CallRecord
from toolwright.calls.redact import NOT_SHOWN, learn_secret, shown_arguments, shown_later, written_arguments
from toolwright.calls.redactor import AtOnce
from toolwright.errors import BatchFailed
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import Snapshot


class Batch:
    """A batch that was started: await it for its outcomes, or cancel it."""

    __slots__ = (
        "_all_well",
        "_calls",
        "_ended",
        "_failed_call",
        "_launch",
        "_left",
        "_names",
        "_outcomes",
        "_prepares",
        "_watchers",
        "context",
        "env",
        "failed",
        "id",
        "parent",
        "policy",
        "scope",
        "started_by",
        "stop_reason",
        "timeout",
    )

    id: str

    def __init__(
        self,
        calls: Iterable[ToolCall | Mapping[str, Any]],
        snapshot: Snapshot,
        context: BatchContext[ActiveCall],
        *,
        scope: str = "",
        parent: ActiveCall | None = None,
        started_by: str | None = None,
        timeout: float | None = None,
        nested_source: CallSource = "tool",
        ended: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        self.context = context
        self.env = context.env
        self.policy = context.policy
        self.scope = scope
        self.parent = parent
        # Why no call may start any more; raised where the batch is awaited.
        self.stop_reason: str | None = None
        self.failed: Exception | None = None
        # The id of the call that made these calls, or that started the run which they are.
        self.started_by = started_by if parent is None else parent.call_id
        # Seconds for each of these calls, in place of the timeout of its tool or the policy.
        self.timeout = timeout
        self._ended = ended
        self._failed_call: str | None = None
        self._launch: Launch | None = None
        self._watchers: Watchers | None = None
        self._all_well = True
        self._prepares = False
        self._calls = self._prepare(calls, snapshot, nested_source)
        self._left = left = len(self._calls)
        self._outcomes: list[ToolOutcome | None] = [None] * left

    # --- the way of the calls

    def _prepare(
        self, given: Iterable[ToolCall | Mapping[str, Any]], snapshot: Snapshot, nested_source: CallSource
    ) -> list[ActiveCall]:
        env, parent, most = self.env, self.parent, self.policy.max_argument_bytes
        unchecked, started_by = min(most, jsonx.SHALLOW), self.started_by
        calls: list[ActiveCall] = []
        names: list[tuple[str, str]] = []
        raws: list[bytes] = []
        seen: set[str] = set()
        at_once = None if parent is None else AtOnce()
        if type(given) is not list and (isinstance(given, (str, Mapping)) or not isinstance(given, Iterable)):
            raise unusable("batch", given, "a list of calls")
        for position, each in enumerate(given):
            call = ActiveCall()
            call.fill(env, self, position)
            prepare(call, each, snapshot, seen, most, unchecked)
            raw, tool, given_secret = call.raw, call.tool, False
            if tool is not None:
                if tool.prepare is not None:
                    self._prepares = True
                if tool.definition.secret is not None:
                    given_secret = True
                    learn_secret(call, at_once=at_once)
            if parent is not None:
                call.parent_id, call.source, call.depth = parent.call_id, nested_source, parent.depth + 1
                if call.depth > self.policy.max_nesting and call.outcome is None:
                    call.fail(nested_too_deeply(call.name, self.policy.max_nesting))
                raw = written_arguments(call)
                if not call.named:
                    call.call_id = child_id(parent, call.name, raw)
            else:
                if started_by is not None:
                    call.parent_id = started_by
                if given_secret:
                    raw = written_arguments(call)  # a short secret could be guessed from its hash
            calls.append(call)
            names.append((call.call_id, call.name))
            raws.append(raw)
        self._names = names
        # The same calls give the same id. What follows the first part are objects of JSON: each says where it ends.
        self.id = "batch_" + jsonx.digest(b"".join([jsonx.encode(names), *raws]))[:40]
        return calls

    def start(self, *, at_once: bool = False) -> Batch:
        """Set every call on its way. `at_once`: tools take their first step before this returns."""
        calls = self._calls
        if not calls:
            self._ended(self)
            return self
        try:
            admission = self.env.journal.admit(calls)
        except BaseException:
            self._ended(self)
            raise
        env, clock, id, scope = self.env, self.env.clock, self.id, self.scope
        queued = env.monotonic()
        offset = clock.now() - queued
        redactor, session, recorder = env.redactor, env.session_id, self.context.recorder
        open_record = recorder.open_record
        for call in calls:
            tool = call.tool
            plain = redactor is None and (tool is None or tool.definition.secret is None)
            call.record = record = CallRecord(
                session,
                id,
                call.call_id,
                call.name,
                None if tool is None else tool.definition.id,
                call.source,
                call.parent_id,
                call.raw if plain else NOT_SHOWN if shown_later(call) else shown_arguments(call),
                offset,
                queued,
            )
            if scope:
                record.scope = scope
            open_record(record)
        if recorder.channel.pushes:
            recorder.batch_started(id, scope, self._names, self.started_by)
        self._launch = launch = Launch(self, calls, self._prepares)
        launch.start(admission, at_once)
        return self

    def call_concluded(self, call: ActiveCall, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome; perhaps the batch is done."""
        if call.suspension is not None:
            call.suspension.waiting = False
        self._outcomes[call.position] = outcome
        recorder, ticket = self.context.recorder, call.ticket
        if ticket is not None and ticket.waited_for:
            call.record.waited_for = ticket.waited_for
        recorder.call_concluded(call.record, outcome, finished, call.attempt)
        if outcome.status != "success":
            self._all_well = False
            if outcome.failure is not None and not self.policy.continue_on_failure and self.stop_reason is None:
                self._failed_call = outcome.call_id
                self.cancel(f"call {outcome.call_id!r} failed")
        self._left -= 1
        watchers = self._watchers
        if watchers is not None and (watchers.changes or watchers.quiets):
            watchers.tell_change()
        if self._left == 0:
            recorder.batch_finished(self.id, self.scope, self._outcomes, self._all_well)
            self._calls.clear()
            self._launch = None
            self._ended(self)
            if watchers is not None:
                self._watchers = None
                watchers.tell_end()

    def call_waits(self, call: ActiveCall, waits: bool) -> None:
        """A call begins or ends to wait for something outside."""
        if call.suspension is not None and call.suspension.waiting != waits:
            call.suspension.waiting = waits
            if self._watchers is not None:
                self._watchers.tell_change()

    def start_over(self, call: ActiveCall) -> None:
        """The execution that a call shared was stopped before it ran: let the call run itself."""
        if self._launch is not None:  # else the batch was stopped meanwhile
            self.env.hold_task(self.env.loop.create_task(self._launch.start_over(call)))

    @property
    def fault(self) -> Exception | None:
        """Why the calls, or the call that made them, could not be recorded or run."""
        batch: OwnerBatch = self
        while batch.failed is None and batch.parent is not None:
            batch = batch.parent.owner
        return batch.failed

    def store_failed(self, fault: Exception) -> None:
        """What happened cannot be written down: raise that where the batch is awaited, and start no more."""
        self.machine_failed(fault)
        self.cancel(UNRECORDED)

    def machine_failed(self, fault: Exception) -> None:
        """The machine could not run a call: raise that where the batch is awaited, when the other calls are done."""
        if self.failed is None:
            self.failed = fault

    # --- for its owner

    @property
    def calls(self) -> tuple[ActiveCall, ...]:
        """The calls, while they have no outcome."""
        return tuple(self._calls)

    @property
    def unfinished(self) -> list[ActiveCall]:
        """The calls that have no outcome yet; for a call that shares another's execution, that other."""
        return [call.shares or call for call in self._without_outcome()]

    @property
    def done(self) -> bool:
        """True when every call has its outcome."""
        return self._left == 0

    def cancel(self, reason: str = "the batch was cancelled") -> None:
        """Stop the batch: calls not started never start, running ones get their grace."""
        if self.stop_reason is None:
            self.stop_reason = reason = encodable(require_text("reason", reason))
            if self._launch is None or not self._launch.call_off():
                for call in list(self._calls):
                    cancel(call, reason)

    def __await__(self) -> Generator[Any, None, list[ToolOutcome]]:
        return self.wait().__await__()

    async def wait(self) -> list[ToolOutcome]:
        """Wait for all outcomes. Cancelling the waiter cancels the batch and waits for its calls to stop.

        Raises:
            BatchFailed: a call failed, and the policy stops the batch then.
        """
        try:
            if self._left:
                await self._watch().until_end()
            else:
                env = self.env
                env.batches_since_yield += 1
                if env.batches_since_yield >= MOST_BATCHES_BEFORE_YIELD:
                    env.batches_since_yield = 0
                    await yield_to_loop()
        except asyncio.CancelledError:
            self.cancel("its caller was cancelled")
            await self.settled()
            raise
        if self.failed is not None:
            raise self.failed
        outcomes: list[ToolOutcome] = self._outcomes  # type: ignore[assignment]
        if self._failed_call is not None:
            raise BatchFailed(f"Call {self._failed_call!r} failed and the batch was stopped", outcomes)
        return list(outcomes)

    def __repr__(self) -> str:
        ended = len(self._outcomes) - self._left
        return f"<Batch {self.id!r}: {ended} of {len(self._outcomes)} calls finished>"

    async def settled(self) -> None:
        """Wait until every call has its outcome, whatever it is."""
        if self._left:
            await self._watch().until_end()

    async def quiet(self) -> list[ToolOutcome]:
        """Wait until each call has its outcome or waits for something outside, itself or behind a call that does.

        Waiting calls have the outcome "pending", for now.
        """
        if self._left:
            await self._watch().until_quiet()
        if self.failed is not None:
            raise self.failed
        pending = {call.position: ToolOutcome(call.call_id, call.name, "pending") for call in self._without_outcome()}
        return [pending[position] if outcome is None else outcome for position, outcome in enumerate(self._outcomes)]

    def next_change(self) -> asyncio.Future[None]:
        """Done when the next call has its outcome, or begins or ends to wait for something outside."""
        return self._watch().until_change()

    def _watch(self) -> Watchers:
        if self._watchers is None:
            self._watchers = Watchers(self.env.loop, self._is_quiet)
        return self._watchers

    def _is_quiet(self) -> bool:
        unfinished = self.unfinished
        if not all(
            call.waiting or (call.ticket is not None and call.ticket.state in ("blocked", "gate"))
            for call in unfinished
        ):
            return False
        # Where none waits itself, they are blocked by another batch, which continues.
        return not unfinished or any(call.waiting for call in unfinished)

    def _without_outcome(self) -> list[ActiveCall]:
        return [call for call in self._calls if self._outcomes[call.position] is None]


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Let other tasks of the loop run."""
    yield


# --- waking those that wait for a batch


class Watchers:
    """The tasks that wait for the end of a batch, for its quiet, or for its next change; most batches have none."""

    __slots__ = ("_ends", "_is_quiet", "_loop", "changes", "quiets")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_quiet: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_quiet = is_quiet
        self._ends: list[asyncio.Future[None]] = []
        self.quiets: list[asyncio.Future[None]] = []
        self.changes: list[asyncio.Future[None]] = []

    def until_end(self) -> asyncio.Future[None]:
        """Done when every call has its outcome."""
        return self._join(self._ends)

    def until_quiet(self) -> asyncio.Future[None]:
        """Done when the batch is quiet, as it may be now."""
        watcher = self._join(self.quiets)
        self._look_soon()
        return watcher

    def until_change(self) -> asyncio.Future[None]:
        """Done when the next call has its outcome, or begins or ends to wait."""
        return self._join(self.changes)

    def tell_change(self) -> None:
        """A call has its outcome, or begins or ends to wait."""
        if self.quiets:
            self._look_soon()
        if self.changes:
            _wake(self.changes)

    def tell_end(self) -> None:
        """Every call has its outcome."""
        _wake(self._ends)

    def _join(self, line: list[asyncio.Future[None]]) -> asyncio.Future[None]:
        watcher: asyncio.Future[None] = self._loop.create_future()
        line.append(watcher)
        return watcher

    def _look_soon(self) -> None:
        # Not at once: the calls that a finished call blocked are about to start.
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._is_quiet():
            _wake(self.quiets)


def _wake(line: list[asyncio.Future[None]]) -> None:
    for watcher in line:
        if not watcher.done():
            watcher.set_result(None)
    line.clear()
