"""The spine: one batch of calls, from what a model wrote to one outcome each, in order.

Each call goes through the stages in the order of their files: prepare, authorise, schedule, execute, finalise, record.
A call that ends early flows on as a finished entry, so that count and order never change.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from types import coroutine
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.approach import approach, broken, show
from toolwright.calls.approvals import Question, about_arguments, ask_leave
from toolwright.calls.authorise import Judge, Verdict, authorise
from toolwright.calls.conflicts import ClaimIndex
from toolwright.calls.connecting import wait_for_connection
from toolwright.calls.execute import CallRun
from toolwright.calls.finalise import (
    QUOTE,
    SPECIAL,
    ask_after,
    check_output,
    finish,
    is_plain,
    project,
    to_outcome,
    unserialisable,
)
from toolwright.calls.hooks import Hooks
from toolwright.calls.host import CallHost
from toolwright.calls.lanes import Lane
from toolwright.calls.loops import KEPT, SHORT, LoopWatch
from toolwright.calls.outside import park, say_waiting
from toolwright.calls.plan import Plan
from toolwright.calls.policy import Policy
from toolwright.calls.prepare import prepare, read_call
from toolwright.calls.record import CallLog
from toolwright.calls.redact import (
    AT_ONCE,
    Redactor,
    redact_outcome,
    shown_arguments,
    weight,
    written_arguments,
)
from toolwright.calls.remember import StoreJournal
from toolwright.calls.report import Report
from toolwright.calls.schedule import Limit, Ticket
from toolwright.calls.state import identity
from toolwright.errors import BatchFailed
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, Pending, ToolOutcome
from toolwright.tools.registry import Snapshot
from toolwright.tools.tool import Tool


class BatchSetting:
    """What the batches of a session under one policy have in common."""

    __slots__ = (
        "_tool_limit",
        "hooked",
        "hooks",
        "host",
        "judge",
        "loops",
        "outer_limits",
        "plans",
        "policy",
        "report",
        "store",
    )

    def __init__(
        self,
        *,
        host: CallHost,
        policy: Policy,
        hooks: Hooks,
        loops: LoopWatch,
        call_log: CallLog,
        outer_limits: tuple[Limit, ...],
        tool_limit: Callable[[Tool], Limit | None],
    ) -> None:
        self.host = host
        self.policy = policy
        self.judge = Judge(policy, host.session_id)
        self.hooks = hooks
        self.hooked = bool(hooks.after or hooks.project)
        self.store = host.journal if isinstance(host.journal, StoreJournal) else None
        self.loops = loops
        self.report = Report(host.channel, host.clock, call_log, policy.record_bytes)
        self.outer_limits = outer_limits
        self._tool_limit = tool_limit
        self.plans: dict[Tool, Plan] = {}

    def plan(self, tool: Tool) -> Plan:
        """Make the plan of a tool, to be found in `plans` from then on."""
        bucket = self.host.deadlines.bucket(tool.definition.timeout or self.policy.timeout)
        plan = self.plans[tool] = Plan(tool, bucket, self._tool_limit(tool), self.judge.allows_always(tool))
        return plan


class Batch:
    """A batch that was started: await it for its outcomes, or cancel it."""

    __slots__ = (
        "_above",
        "_all_well",
        "_calls",
        "_changes",
        "_driver",
        "_ended",
        "_failed_call",
        "_fault",
        "_hooked",
        "_left",
        "_limits",
        "_outcomes",
        "_parent",
        "_plain",
        "_prepares",
        "_quiet",
        "_runs",
        "_stop_reason",
        "_store",
        "_waiters",
        "_waiting",
        "host",
        "id",
        "lane",
        "policy",
        "report",
        "scope",
        "setting",
    )

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
        self.host = host = setting.host
        self.policy = policy = setting.policy
        self.scope = scope
        self.setting = setting
        self.report = setting.report
        self._parent = parent
        self._ended = ended
        self._hooked = setting.hooked
        self.lane = Lane(host)
        self._waiters: list[asyncio.Future[None]] = []
        self._stop_reason: str | None = None
        self._failed_call: str | None = None
        self._prepares = False
        self._fault: Exception | None = None
        self._plain = setting.policy.continue_on_failure
        self._waiting = 0
        self._quiet: list[asyncio.Future[None]] = []
        self._changes: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None
        self._above = above = None if parent is None else _unfinished(parent)
        runs: list[CallRun] = []
        names: list[tuple[str, str]] = []
        raws: list[bytes] = []
        seen: set[str] = set()
        for position, given in enumerate(calls):
            run = CallRun(host, self, position)
            prepare(run, read_call(given), snapshot, seen, policy.max_argument_bytes)
            raw = run.raw
            if run.outcome is not None:
                self._plain = False
            elif run.tool.prepare is not None:  # type: ignore[union-attr]
                self._prepares = True
            if parent is not None:
                run.parent_id, run.source = parent.call_id, "tool"
                raw = written_arguments(run)
                if not run.named:
                    run.call_id = parent.child_id(run.name, raw)
            runs.append(run)
            names.append((run.call_id, run.name))
            raws.append(raw)
        self._runs = runs
        self._calls = names
        self._store = setting.store
        if self._store is None and host.journal.meet(runs, scope):
            self._plain = False
        self.id = batch_id(names, raws)
        self._left = left = len(runs)
        self._limits = setting.outer_limits if above is None else _not_held(setting.outer_limits, above)
        if left > policy.max_concurrency:  # else there is a slot of the batch for each
            self._limits = (Limit("a slot of the batch", policy.max_concurrency), *self._limits)
        self._outcomes: list[ToolOutcome | None] = [None] * left
        self._all_well = True

    # --- the way of the calls

    def start(self, *, at_once: bool = False) -> Batch:
        """Set every call on its way. `at_once`: tools take their first step before this returns."""
        runs = self._runs
        if not runs:
            self._ended(self)
            return self
        self.report.batch_started(self.id, runs, self._calls, None if self._parent is None else self._parent.call_id)
        if self.setting.hooks.before or self._prepares or self._store is not None:
            self._plain = False
            self._driver = self.host.loop.create_task(self._drive())
            self._driver.add_done_callback(self._driven)
            self.host.keep(self._driver)
        else:
            self._launch()
            self.lane.open(at_once=at_once)
        return self

    async def _drive(self) -> None:
        """What must be waited for before any call may be authorised: the journal, hooks, prepare steps."""
        try:
            if self.host.know is not None:
                await self._know(self.host.know)
            if self._store is not None:
                await self._store.begin(self.host.session_id, self.scope, self.id, self._runs)
            await self._approach(self._runs)
        except Exception as error:  # whatever it is: what could not be written down must not run
            self._fault = error

    async def _know(self, know: Callable[[], Awaitable[None]]) -> None:
        """Learn what must be redacted before anything of this session runs."""
        await know()
        self.host.know = None
        for run in self._runs:
            run.record.raw_arguments = shown_arguments(run)

    def _driven(self, driver: asyncio.Task[None]) -> None:
        self._driver = None
        if self._fault is not None:
            self._stop_reason = self._stop_reason or "what the calls do could not be recorded"
        elif driver.cancelled():
            self._stop_reason = self._stop_reason or "the program is stopping"
        try:
            self._launch()
        except Exception as error:  # nobody else would hear of it, and whoever waits would wait for ever
            self.store_failed(error)
        self.lane.open(at_once=False)

    def start_over(self, run: CallRun) -> None:
        """Part of `RunOwner`: the execution that a call shared was stopped before it ran; let the call run itself."""
        self._plain = False
        self.host.keep(self.host.loop.create_task(self._start_over(run)))

    async def _start_over(self, run: CallRun) -> None:
        if self._driver is not None:
            # Until its batch is on its way the call passes for shared, or it would be launched there and here.
            await asyncio.wait((self._driver,))
        run.shares = None
        try:
            if self._store is not None:
                await self._store.begin(self.host.session_id, self.scope, self.id, [run])
            elif not run.concluded:
                self.host.journal.meet([run], self.scope)
            await self._approach([run])
        except Exception as error:
            self.store_failed(error)
        self._launch([run])

    async def _approach(self, runs: Iterable[CallRun]) -> None:
        """Let hooks and prepare steps see each call."""
        hooks, session, limit = self.setting.hooks.before, self.host.session_id, self.policy.max_argument_bytes
        if not hooks and not self._prepares:
            return
        runs = [run for run in runs if run.outcome is None and run.answer is None and run.shares is None]
        tasks = [
            self.host.loop.create_task(
                approach(run, hooks, session=session, batch=self.id, max_bytes=limit, seconds=self.policy.timeout)
            )
            for run in runs
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
                self.host.keep(task)
            raise
        for run, task in zip(runs, tasks, strict=True):
            run.record.raw_arguments = shown_arguments(run)
            if task.cancelled() or task.exception() is not None:
                run.fail(broken("hook", "the code before the call was cancelled"))

    def _launch(self, again: Iterable[CallRun] = ()) -> None:
        """Authorise and schedule each call. The schedule starts it when its turn comes."""
        plans, submit, queue_timeout = (
            self.setting.plans,
            self.host.schedule.submit,
            self.policy.queue_timeout,
        )
        siblings = None if self._above is None else ClaimIndex()
        parent = self._above
        if not again:
            self._watch_loops()
        plain = self._plain
        for run in list(again or self._runs):
            tool = run.tool
            if not plain or tool is None:
                if run.concluded or (run.shares is not None and self._stop_reason is None):
                    continue  # stopped by the failure of a call before it, or ended by the run it shares
                if run.outcome is not None or run.answer is not None or tool is None:
                    run.end_now(run.outcome or run.answer)
                    continue
                if self._stop_reason is None and self._goes_on_waiting(run):
                    continue
            plan = run.plan = plans.get(tool) or self.setting.plan(tool)
            if plan.allowed_by is None:
                verdict = authorise(run, self.setting.judge, leave=run.asked)
                if run.outcome is not None:
                    run.end_now(run.outcome)
                    continue
                if verdict is not None and self._stop_reason is None:
                    self._ask(run, self._question(run, verdict))
                    continue
            elif plan.allowed_by:
                run.decided_by = plan.allowed_by
            if self._stop_reason is not None:
                run.cancel(self._stop_reason)
                continue
            claims = tool.claims
            run.claims = claims if type(claims) is tuple else claims(run.arguments or {})  # type: ignore[operator]
            run.limits = self._limits if plan.limit is None else self._limits_with(plan.limit, parent)
            if parent is not None:
                run.parent = parent
            submit(run, siblings)
            if queue_timeout is not None:
                run.limit_queue(queue_timeout)

    def _goes_on_waiting(self, run: CallRun) -> bool:
        """True for a call that a crash cut off where it waits again: for its completion, a connection, or a person."""
        if run.pending_before:
            run.pending_before = False
            run.attempt = 1
            park(run, None)
            return True
        if run.parked_for is not None:
            provider, run.parked_for = run.parked_for, None
            run.attempt, run.ran = 1, True
            self._plain = False
            run.asking = self.host.loop.create_task(self._connected(run, provider))
            self.host.keep(run.asking)
            return True
        if run.doubt is not None:
            doubt, run.doubt = run.doubt, None
            reason = "it was cut off by a crash and may have run; approve to run it again"
            self._ask(run, Question("crash", doubt, "on_crash", reason, self.policy.approval_timeout))
            return True
        return False

    def _question(self, run: CallRun, verdict: Verdict) -> Question:
        name = about_arguments(written_arguments(run))
        return Question("approval", name, verdict.rule, verdict.reason, self.policy.approval_timeout)

    def _ask(self, run: CallRun, question: Question) -> None:
        self._plain = False
        run.asking = self.host.loop.create_task(self._asked(run, question))
        self.host.keep(run.asking)

    async def _asked(self, run: CallRun, question: Question) -> None:
        try:
            failure = await ask_leave(run, question)
        except Exception as fault:  # the journal's: what could not be asked must not run
            run.asking = None
            run.lose(fault)
            run.cancel("what the calls do could not be recorded")
            return
        run.asking = None
        if question.kind == "approval":
            run.asked = True
        if failure is not None:
            run.fail(failure)
        self._launch([run])

    async def _connected(self, run: CallRun, provider: str) -> None:
        """Go on waiting for the connection that a call waited for when it was cut off, then let it run."""
        try:
            ended = await wait_for_connection(
                run, provider, functools.partial(say_waiting, run, "connection", provider)
            )
        except Exception as fault:  # the journal's: what could not be written down must not run
            run.asking = None
            run.lose(fault)
            run.cancel("what the calls do could not be recorded")
            return
        finally:
            self.call_goes_on(run)
        run.asking = None
        run.answer = ended
        self._launch([run])

    def _watch_loops(self) -> None:
        if self.policy.on_loop == "ignore":
            return
        loops, runs = self.setting.loops, self._runs
        if not self._plain:
            runs = [run for run in runs if run.outcome is None and run.answer is None]
        if len(runs) > SHORT and loops.all_new([run.raw for run in runs]):
            loops.add([(run.name, run.raw) for run in runs[-KEPT:]])
            return
        for run in runs:
            if (warning := loops.observe(run.name, run.raw)) is not None:
                self._warn_of_loop(run, warning)

    def _limits_with(self, tool_limit: Limit, parent: CallRun | None) -> tuple[Limit, ...]:
        """The slots of a call whose tool has a limit; an ancestor's slot serves its nested calls too."""
        return (*self._limits, *_not_held((tool_limit,), parent))

    def _warn_of_loop(self, run: CallRun, warning: str) -> None:
        if run.tool is not None and run.tool.definition.hints.polling:
            return
        self.report.warn(run, "loop", warning)
        if self.policy.on_loop == "refuse":
            self._plain = False
            run.decided_by = "on_loop"
            run.fail(
                Failure(
                    category="permission_denied",
                    code="loop",
                    message=f"{warning}; do something else, or change the arguments",
                    source="policy",
                )
            )

    # --- what each call reports back

    def settle(self, run: CallRun, result: Any) -> ToolOutcome | None:
        """Part of `RunOwner`: most outcomes need no check, no cut and no hook, and are done at once."""
        redactor = self.host.redactor
        if redactor is not None:
            return self._settle_redacted(run, result, redactor)
        if not self._hooked and type(result) not in SPECIAL and run.tool is not None and run.tool.check_output is None:
            # What most tools give, by the shortest way: the same as below, for a value that needs nothing but encoding.
            try:
                payload = jsonx.encode(result)
            except BaseException as error:  # a value may have code of its own for its JSON form
                result = unserialisable(result, error)
            else:
                if len(payload) > self.policy.plain_bytes or (
                    payload[0] == QUOTE and payload.count(b"\\n") >= self.policy.max_lines
                ):
                    return None
                return ToolOutcome(run.call_id, run.name, "success", payload, run.attempt, run.decided_by)
        outcome = to_outcome(run.call_id, run.name, result, run.attempt, run.decided_by)
        return self._settle_outcome(run, result, outcome)

    def _settle_redacted(self, run: CallRun, result: Any, redactor: Redactor) -> ToolOutcome | None:
        """The same in a session that has secrets: nothing leaves without being looked through for them."""
        outcome = to_outcome(run.call_id, run.name, result, run.attempt, run.decided_by)
        if outcome.status == "success" and (
            weight(outcome) > AT_ONCE or (run.tool is not None and run.tool.check_output is not None)
        ):
            return None
        settled = self._settle_outcome(run, result, redact_outcome(redactor, outcome))
        return settled if settled is None else self._redact_projected(settled, redactor)

    def _redact_projected(self, outcome: ToolOutcome, redactor: Redactor) -> ToolOutcome:
        """A projector's text is the host's, but made of what it was shown, or of more."""
        if self.setting.hooks.project is None or outcome.model_text is None:
            return outcome
        return replace(outcome, model_text=redactor.text(outcome.model_text))

    def _settle_outcome(self, run: CallRun, result: Any, outcome: ToolOutcome) -> ToolOutcome | None:
        if outcome.failure is not None and run.ran:
            if type(result) is Pending and run.key_taken:
                return None
            outcome = replace(outcome, may_have_run=True)
        if self._hooked and (run.attempt or self.setting.hooks.project is not None):
            if outcome.status == "cancelled":  # no hook may hold up a call that was stopped
                return project(outcome, self.policy, self.setting.hooks.project)
            return None
        return outcome if is_plain(outcome, run.tool, self.policy) else None

    async def finish(self, run: CallRun, result: Any) -> ToolOutcome:
        """Part of `RunOwner`: after-hooks, output check, bounds, projection."""
        outcome = to_outcome(run.call_id, run.name, result, run.attempt, run.decided_by)
        hooks, redactor, tool = self.setting.hooks, self.host.redactor, run.tool
        if redactor is not None:
            # Against its schema the value is held as the tool gave it: a handle might not fit.
            outcome = await _redacted(redactor, check_output(outcome, tool, self.policy))
            tool = None
        if hooks.after and run.attempt:
            before = outcome
            outcome = await ask_after(
                hooks.after, show(run, self.host.session_id, self.id), outcome, self.policy.timeout
            )
            if redactor is not None and outcome is not before:
                outcome, tool = await _redacted(redactor, outcome), run.tool
        keep = functools.partial(self._keep_output, run)
        outcome = await finish(outcome, tool, self.policy, hooks.project, keep)
        return outcome if redactor is None else self._redact_projected(outcome, redactor)

    def _keep_output(self, run: CallRun, text: str) -> Awaitable[str]:
        # A call that the journal does not know, as one whose tool is unknown, is not found there either.
        return self.host.keep_output(identity(run), text, run.key is not None)

    def call_waits(self, run: CallRun) -> None:
        """Part of `RunOwner`: the call waits for something outside."""
        if not run.waiting:
            run.waiting = True
            self._waiting += 1
            self._may_be_quiet()
            if self._changes:
                self._say_changed()

    def call_goes_on(self, run: CallRun) -> None:
        """Part of `RunOwner`: the call waits no longer."""
        if run.waiting:
            run.waiting = False
            self._waiting -= 1
            if self._changes:
                self._say_changed()

    def call_concluded(self, run: CallRun, outcome: ToolOutcome, finished: float) -> None:
        """Part of `RunOwner`: the call is over; perhaps the batch is too."""
        if run.waiting:
            self.call_goes_on(run)
        self._outcomes[run.position] = outcome
        self.report.call_concluded(run, outcome, finished)
        if outcome.status != "success":
            self._all_well = False
            if outcome.failure is not None and not self.policy.continue_on_failure:
                self._stop_after(outcome)
        self._left -= 1
        if self._quiet:
            self._may_be_quiet()
        if self._changes:
            self._say_changed()
        if self._left == 0:
            self.report.batch_finished(self.id, self._outcomes, self._all_well)
            self._runs.clear()
            self._ended(self)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _stop_after(self, outcome: ToolOutcome) -> None:
        if self._stop_reason is None:
            self._failed_call = outcome.call_id
            self.cancel(f"call {outcome.call_id!r} failed")

    @property
    def fault(self) -> Exception | None:
        """Part of `RunOwner`: why what the calls do, or the call that made them, could not be written down."""
        return self._fault or (None if self._parent is None else self._parent.owner.fault)

    def store_failed(self, fault: Exception) -> None:
        """Part of `RunOwner`: what happened can not be written down; say so to whoever waits, and start no more."""
        if self._fault is None:
            self._fault = fault
        self.cancel("what the calls do could not be recorded")

    # --- what its owner may do

    @property
    def runs(self) -> tuple[CallRun, ...]:
        """The calls, while they have no outcome."""
        return tuple(self._runs)

    @property
    def done(self) -> bool:
        """True when every call has its outcome."""
        return self._left == 0

    def cancel(self, reason: str = "the batch was cancelled") -> None:
        """Stop the batch: calls not started never start, running ones get their grace."""
        if self._stop_reason is None:
            self._stop_reason = reason
            if self._driver is not None:
                self._driver.cancel()
                return
            for run in list(self._runs):
                run.cancel(reason)

    async def wait(self) -> list[ToolOutcome]:
        """Wait for all outcomes. Cancelling the waiter cancels the batch and waits for its calls to stop.

        Raises:
            BatchFailed: a call failed, and the policy says to stop then.
        """
        try:
            if self._left:
                await self._conclusion()
            elif self.host.owes_a_turn():
                await turn()
        except asyncio.CancelledError:
            self.cancel("its caller was cancelled")
            await self.settled()
            raise
        if self._fault is not None:
            raise self._fault
        outcomes: list[ToolOutcome] = self._outcomes  # type: ignore[assignment]
        if self._failed_call is not None:
            raise BatchFailed(f"Call {self._failed_call!r} failed and the batch was stopped", outcomes)
        return list(outcomes)

    async def settled(self) -> None:
        """Wait until every call has its outcome, whatever it is."""
        if self._left:
            await self._conclusion()

    async def quiet(self) -> list[ToolOutcome]:
        """Wait until each call has its outcome or waits for something outside, itself or behind one that does.

        Those that wait have the outcome "pending", for now.
        """
        if self._left:
            waiter: asyncio.Future[None] = self.host.loop.create_future()
            self._quiet.append(waiter)
            self._may_be_quiet()
            await waiter
        if self._fault is not None:
            raise self._fault
        names = {run.position: run for run in self._runs}
        return [
            ToolOutcome(names[position].call_id, names[position].name, "pending") if outcome is None else outcome
            for position, outcome in enumerate(self._outcomes)
        ]

    @property
    def unfinished(self) -> list[CallRun]:
        """The calls that have no outcome yet; of one that shares another's execution, that other."""
        return [run.shares or run for run in self._runs if self._outcomes[run.position] is None]

    @property
    def parent(self) -> CallRun | None:
        """The call that made this batch, if one did."""
        return self._parent

    def next_change(self) -> asyncio.Future[None]:
        """Done when the next call has its outcome, or begins or ends to wait for something outside."""
        waiter: asyncio.Future[None] = self.host.loop.create_future()
        self._changes.append(waiter)
        return waiter

    def _say_changed(self) -> None:
        changes, self._changes = self._changes, []
        for waiter in changes:
            if not waiter.done():
                waiter.set_result(None)

    def _may_be_quiet(self) -> None:
        if self._quiet:
            # Not at once: what a call that ends held up is about to start.
            self.host.loop.call_soon(self._notice_quiet)

    def _notice_quiet(self) -> None:
        unfinished = [run for run in self._runs if self._outcomes[run.position] is None]
        if any(not (run.waiting or run.state in ("blocked", "gate")) for run in unfinished):
            return
        if unfinished and not self._waiting:
            return  # They are held up by another batch, which goes on.
        quiet, self._quiet = self._quiet, []
        for waiter in quiet:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, list[ToolOutcome]]:
        return self.wait().__await__()

    def _conclusion(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self.host.loop.create_future()
        self._waiters.append(waiter)
        return waiter


@coroutine
def turn() -> Generator[None, None, None]:
    """Let the loop have its turn."""
    yield


async def _redacted(redactor: Redactor, outcome: ToolOutcome) -> ToolOutcome:
    if weight(outcome) <= AT_ONCE:
        return redact_outcome(redactor, outcome)
    return await asyncio.to_thread(redact_outcome, redactor, outcome)


def _unfinished(parent: CallRun) -> CallRun | None:
    """The nearest ancestor that still runs: what it holds serves the calls it made, directly or not."""
    nearest: CallRun | None = parent
    while nearest is not None and nearest.done:
        nearest = nearest.parent  # type: ignore[assignment]
    return nearest


def _not_held(limits: tuple[Limit, ...], parent: Ticket | None) -> tuple[Limit, ...]:
    if parent is None:
        return limits
    held = {limit for above in (parent, *parent.ancestors()) for limit in above.limits}
    return tuple(limit for limit in limits if limit not in held)


def batch_id(calls: list[tuple[str, str]], raws: list[bytes]) -> str:
    """Derive the id of a batch from the ids, names and arguments of its calls: the same calls give the same id."""
    # What follows the first part are objects of JSON: each says where it ends.
    return "batch_" + hashlib.sha256(b"".join([jsonx.encode(calls), *raws])).hexdigest()[:40]
