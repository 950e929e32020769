"""The spine: one batch of calls, from a model's answer to one outcome each, in order.

Each call goes through the stages in the order of their files: prepare, authorise, schedule, execute, finalise, record.
A call that ends early flows on as a finished entry, so that count and order never change.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import copy_context
from types import coroutine
from typing import Any

from msgspec import Struct, field

from toolwright import jsonx
from toolwright.argument_checks import require_text, unusable
from toolwright.calls.active_call import NEW, QUEUED, UNRECORDED, ActiveCall, OwnerBatch, about, nesting_of
from toolwright.calls.authorise.authorise import allowed_by, authorise
from toolwright.calls.authorise.loop_detection import find_loops
from toolwright.calls.conclude import end_now
from toolwright.calls.context import BatchContext, ToolPlan
from toolwright.calls.early_queue import EarlyQueue
from toolwright.calls.environment import MOST_CALLS_BEFORE_YIELD, CallEnvironment
from toolwright.calls.execute.cancel import cancel
from toolwright.calls.execute.execute import CallTicket, Lane
from toolwright.calls.execute.timeout import limit_queue, timeout_of
from toolwright.calls.failures import lacks_secrets
from toolwright.calls.nesting import child_id, nearest_running, nested_too_deeply, not_held
from toolwright.calls.policy import Policy
from toolwright.calls.prepare.before_hooks import broken, run_before_hooks
from toolwright.calls.prepare.prepare import prepare
from toolwright.calls.quick_fields import quick_fields
from toolwright.calls.record import CallRecord
from toolwright.calls.redact import (
    NOT_SHOWN,
    learn_secret,
    publish,
    show_arguments,
    shown_arguments,
    shown_later,
    written_arguments,
)
from toolwright.calls.redactor import AtOnce
from toolwright.calls.schedule.admission import Limit, Ticket
from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.suspend.approvals import wait_again, wait_for_approval
from toolwright.calls.suspend.leave import leave, requests_of
from toolwright.calls.suspend.suspend import rejoined
from toolwright.errors import BatchFailed, StoreError
from toolwright.events import CallWarning
from toolwright.stores.contracts.journal import RUN_SCOPE
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import Snapshot
from toolwright.tools.tool import Tool
from toolwright.tools.tracing import Tracing


@quick_fields
class Batch(Struct, eq=False):
    """A batch that was started: await it for its outcomes, or cancel it. `prepared` makes one."""

    context: BatchContext[ActiveCall]
    env: CallEnvironment[ActiveCall]
    policy: Policy
    scope: str
    parent: ActiveCall | None
    started_by: str | None
    """The id of the call that made these calls, or that started the run which they are."""
    timeout: float | None
    """Seconds for each of these calls, in place of the timeout of its tool or the policy."""
    _ended: Callable[[Batch], None]
    depth: int = 0
    """How many calls are above these, of which each made the next."""
    id: str = ""
    stop_reason: str | None = None
    """Why no call may start any more."""
    failed: Exception | None = None
    """Raised where the batch is awaited."""
    _calls: list[ActiveCall] = field(default_factory=list)
    _names: list[tuple[str, str]] = field(default_factory=list)
    _outcomes: list[ToolOutcome | None] = field(default_factory=list)
    _left: int = 0
    _all_well: bool = True
    _failed_call: str | None = None
    _prepares: bool = False
    _given_secret: bool = False
    _launch: Launch | None = None
    _watchers: Watchers | None = None

    @classmethod
    def prepared(
        cls,
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
    ) -> Batch:
        """A batch of these calls, to be started. Each call that cannot run has its outcome already."""
        batch = cls(context, context.env, context.policy, scope, parent, started_by, timeout, ended)
        if parent is not None:
            batch.started_by, batch.depth = parent.call_id, parent.owner.depth + 1
        batch._prepare(calls, snapshot, nested_source)
        return batch

    # --- the way of the calls

    def _prepare(
        self, given: Iterable[ToolCall | Mapping[str, Any]], snapshot: Snapshot, nested_source: CallSource
    ) -> None:
        env, parent, started_by = self.env, self.parent, self.started_by
        most, unchecked = self.policy.max_argument_bytes, self.context.unchecked_argument_bytes
        calls, names = self._calls, self._names
        raws: list[bytes] = []
        seen: set[str] = set()
        at_once = None if parent is None else AtOnce()
        if type(given) is not list and (isinstance(given, (str, Mapping)) or not isinstance(given, Iterable)):
            raise unusable("batch", given, "a list of calls")
        for position, each in enumerate(given):
            call = ActiveCall(env, self, position)
            prepare(call, each, snapshot, seen, most, unchecked)
            raw, tool, given_secret = call.raw, call.tool, False
            if tool is not None:
                if tool.prepare is not None:
                    self._prepares = True
                if tool.definition.secret is not None:
                    given_secret = self._given_secret = True
                    learn_secret(call, at_once=at_once)
            if parent is not None:
                call.parent_id, call.source = parent.call_id, nested_source
                if self.depth > self.policy.max_nesting and call.outcome is None:
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
        self._left = len(calls)
        self._outcomes = [None] * len(calls)
        # The same calls give the same id. What follows the first part are objects of JSON: each says where it ends.
        self.id = "batch_" + jsonx.digest(b"".join([jsonx.encode_unchecked(names), *raws]))[:40]

    def start(self, *, at_once: bool = False, was_left: bool = False) -> Batch:
        """Set every call on its way. `at_once`: tools take their first step before this returns.

        `was_left`: this process left the calls before. They get to know their past even if the batch is cancelled, so
        that what they left in the journal and in the inbox ends with them.
        """
        calls = self._calls
        if not calls:
            self._ended(self)
            return self
        env, id, scope = self.env, self.id, self.scope
        if env.tracing is not None:  # before the journal, which keeps the traces of calls
            self._open_spans(env.tracing)
        try:
            admission = env.journal.admit(calls)
        except BaseException:
            self._ended(self)
            raise
        queued = env.monotonic()
        offset = env.clock.now() - queued
        session, recorder = env.session_id, self.context.recorder
        plain = env.redactor is None and not self._given_secret
        open_record = recorder.open_record
        for call in calls:
            tool = call.tool
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
        if recorder.channel.push is not None:
            recorder.batch_started(id, scope, self._names, self.started_by)
        self._names = []  # Nobody needs them any more, and the batch may wait for long with very many calls.
        if self.parent is not None:
            nesting = nesting_of(self.parent)
            nesting.batches = (*nesting.batches, self)
        self._launch = launch = Launch.of(self, calls, self._prepares, was_left)
        launch.start(admission, at_once)
        return self

    def _open_spans(self, tracing: Tracing) -> None:
        open_span = tracing.calls(self.env.session_id, self.scope)
        for call in self._calls:
            about = None if call.tool is None else call.tool.definition
            call.span = open_span(call.call_id, call.name, about, call.source)

    def call_concluded(self, call: ActiveCall, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome; perhaps the batch is done."""
        if call.suspension is not None:
            call.suspension.waiting = False
            rejoined(call)  # A task that it left behind waits for its slots no longer.
        self._outcomes[call.position] = outcome
        recorder, ticket = self.context.recorder, call.ticket
        if ticket is not None and ticket.waited_for:
            call.record.waited_for = ticket.waited_for
        recorder.call_concluded(call.record, outcome, finished, call.attempt)
        if call.span is not None:
            call.span.ended(call.record)
        if outcome.status != "success":
            self._all_well = False
            if outcome.failure is not None and not self.policy.continue_on_failure and self.stop_reason is None:
                self._failed_call = outcome.call_id
                self.cancel(f"call {outcome.call_id!r} failed")
        self._left = left = self._left - 1
        watchers = self._watchers
        if watchers is not None:
            if watchers.calls:
                watchers.tell_outcome(call.position, outcome)
            if watchers.changes or watchers.quiets:
                watchers.tell_change()
        if self.parent is not None:
            if not left:
                nesting = nesting_of(self.parent)
                nesting.batches = tuple([each for each in nesting.batches if each is not self])
            self.parent.owner.nested_changed()
        if not left:
            recorder.batch_finished(self.id, self.scope, self._outcomes, self._all_well)
            self._calls.clear()
            self._launch = None
            if watchers is not None:
                self._watchers = None
                watchers.tell_end()
            self._ended(self)

    def call_waits(self, call: ActiveCall, waits: bool) -> None:
        """A call begins or ends to wait for something outside."""
        if call.suspension is not None and call.suspension.waiting != waits:
            call.suspension.waiting = waits
            self.nested_changed()
            for sharer in call.sharers:
                sharer.owner.nested_changed()

    def nested_changed(self) -> None:
        """A call, or one that a call of the batch made, has its outcome, or begins or ends to wait."""
        batch: Batch = self
        while True:
            if batch._watchers is not None:
                batch._watchers.tell_change()
            if batch.parent is None:
                return
            for sharer in batch.parent.sharers:
                sharer.owner.nested_changed()
            batch = batch.parent.owner  # type: ignore[assignment]

    def leave_queue(self, calls: Sequence[ActiveCall]) -> None:
        """These calls wait for another process, and hold nothing that others wait for meanwhile."""
        if self._launch is not None:
            self._launch.leave_queue(calls)

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

    def cancel_call(self, position: int, reason: str = "the call was cancelled") -> None:
        """Stop one call of the batch, by its position: it never starts, or gets its grace. The others continue."""
        call = next((call for call in self._without_outcome() if call.position == position), None)
        if call is not None and self._launch is not None:
            reason = encodable(require_text("reason", reason))
            if not self._launch.call_off_one(call, reason):
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
                env.calls_since_yield += len(self._outcomes)
                if env.calls_since_yield >= MOST_CALLS_BEFORE_YIELD:
                    env.calls_since_yield = 0
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

    async def launched(self) -> None:
        """Wait until the journal has the calls, and each is on its way or has its outcome.

        Raises:
            StoreError: the calls could not be recorded.
        """
        if self._launch is not None:
            await self._launch.done()
        if self.failed is not None:
            raise self.failed

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

    def outcome_of(self, position: int) -> ToolOutcome | None:
        """The outcome of the call at a position, if it has one yet."""
        return self._outcomes[position]

    def tell(self, futures: list[asyncio.Future[ToolOutcome]]) -> None:
        """Give each future the outcome of the call at its position, when the call has it or the batch is quiet.

        A call that waits for something outside then has the outcome "pending". A future that is done is left alone.
        """
        for future, outcome in zip(futures, self._outcomes, strict=True):
            if outcome is not None and not future.done():
                future.set_result(outcome)
        if self._left:
            watchers = self._watch()
            watchers.calls.append(futures)
            watchers.until_quiet().add_done_callback(functools.partial(self._tell_pending, futures))

    def _tell_pending(self, futures: list[asyncio.Future[ToolOutcome]], quiet: asyncio.Future[None]) -> None:
        for call in self._without_outcome():
            future = futures[call.position]
            if not future.done():
                future.set_result(ToolOutcome(call.call_id, call.name, "pending"))
        if self._watchers is not None:
            self._watchers.calls = [each for each in self._watchers.calls if each is not futures]

    def next_change(self) -> asyncio.Future[None]:
        """Done when the next call has its outcome, or begins or ends to wait for something outside."""
        return self._watch().until_change()

    def requests(self) -> list[WaitKey] | None:
        """The requests for approval that its unfinished calls wait for before they run; None where one does anything
        else, or must stay in this process."""
        if self.parent is not None or self.stop_reason is not None or self.failed is not None:
            return None
        # The hooks would see the calls once more.
        return None if self.context.hooks.before else requests_of(self._without_outcome())

    def leave(self) -> None:
        """Leave the calls that wait for these requests. Whoever awaits the batch is not told: another one with the
        same calls and the same scope continues it."""
        leave(self._without_outcome())
        self._calls.clear()
        self._launch = self._watchers = None
        self._ended(self)

    def _watch(self) -> Watchers:
        if self._watchers is None:
            self._watchers = Watchers(self.env.loop, self._is_quiet)
        return self._watchers

    def _is_quiet(self) -> bool:
        batches: list[Batch] = [self]
        while batches:
            unfinished, waits = batches.pop().unfinished, False
            for call in unfinished:
                if call.suspension is not None and call.suspension.waiting:
                    waits = True
                elif call.nested:  # It waits for the calls that it made.
                    waits = True
                    batches += call.nested
                elif call.ticket is None or call.ticket.state not in ("blocked", "gate", "elsewhere"):
                    return False
            # Where none waits itself, they are blocked by another batch, which continues.
            if unfinished and not waits:
                return False
        return True

    def _without_outcome(self) -> list[ActiveCall]:
        return [call for call in self._calls if self._outcomes[call.position] is None]


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Let other tasks of the loop run."""
    yield


# --- from prepared calls to scheduled ones

NOT_KNOWN_YET: frozenset[Any] = frozenset()
"""The calls of other processes that a call must wait for, while the journal is asked for them."""
Admitting = Coroutine[Any, Any, None]
"""The remaining work of the journal for the calls of a batch."""


@quick_fields
class Launch(Struct, eq=False):
    """Sets the calls of one batch on their way: through the journal, hooks, approval, claims and limits.

    A batch of plain calls is launched at once. Where something must be waited for first, a driver does that, and
    launches the calls when it is done. `prepares` means that the tool of one has a prepare step, `was_left` that the
    calls must get to know their past.
    """

    _batch: Batch
    _calls: list[ActiveCall]
    _prepares: bool
    _was_left: bool
    _context: BatchContext[ActiveCall]
    _plans: dict[Tool, ToolPlan]
    """By tool; calls with a timeout of their own have plans of their own."""
    _lane: Lane
    _limits: tuple[Limit, ...]
    _above: Ticket | None = None
    _driver: asyncio.Task[None] | None = None
    _early: EarlyQueue | None = None
    """Until the journal has answered."""
    _called_off: dict[int, str] = field(default_factory=dict)
    """Reasons by the positions of calls that were stopped before the launch."""

    @classmethod
    def of(cls, batch: Batch, calls: list[ActiveCall], prepares: bool, was_left: bool) -> Launch:
        """The launch of a batch."""
        context, above = batch.context, None
        limits = context.outer_limits
        if batch.parent is not None:
            above = nearest_running(batch.parent)
            if above is not None:
                limits = not_held(limits, above)
        if len(calls) > context.policy.max_concurrency:  # else there is a slot of the batch for each
            limits = (Limit("a slot of the batch", context.policy.max_concurrency), *limits)
        lane = Lane(context.env, copy_context(), context.recorder.channel)
        plans = context.plans if batch.timeout is None else {}
        return cls(batch, calls, prepares, was_left, context, plans, lane, limits, above)

    def start(self, admission: Admitting | None, at_once: bool) -> None:
        """Set every call on its way, once the journal has admitted all: `admission` is to be awaited for that.

        `at_once`: tools take their first step before this returns.
        """
        if (
            admission is not None
            or self._context.hooks.before
            or self._prepares
            or self._context.env.know is not None
            or (self._context.env.redactor is not None and any(map(shown_later, self._calls)))
        ):
            self._driver = self._context.env.loop.create_task(self._drive(admission))
            self._driver.add_done_callback(functools.partial(self._driven, admission))
            self._context.env.tasks.add(self._driver)  # so that closing the runtime waits for it
        elif at_once:
            self._lane.busy = True
            self._launch()
            self._lane.take_first_steps()
        else:
            self._launch()

    async def done(self) -> None:
        """Wait until there is nothing more to be waited for before the launch."""
        if self._driver is not None:
            await asyncio.wait({self._driver})

    def call_off(self) -> bool:
        """Stop the wait before the launch; False when there is none."""
        if self._driver is None:
            return False
        # Else it continues until that is known: the reason of the stop may hold a secret.
        if self._context.env.know is None and not self._was_left:
            self._driver.cancel()
        return True

    def call_off_one(self, call: ActiveCall, reason: str) -> bool:
        """Do not start one call, when the wait before the launch is done; False when there is none."""
        if self._driver is None:
            return False
        self._called_off.setdefault(call.position, reason)
        return True

    # --- waits before the launch

    async def _drive(self, admission: Admitting | None) -> None:
        """Wait for everything that must come before a call may be authorised: the journal, hooks, prepare steps."""
        try:
            while self._context.env.know is not None:
                await self._know(self._context.env.know)
            if self._context.env.redactor is not None:
                for call in self._calls:
                    if shown_later(call):
                        await show_arguments(call)
            if self._batch.stop_reason is None or self._was_left:
                if admission is not None:
                    self._queue_early()
                await self._begin(self._calls, admission)
        except Exception as error:  # whatever it is: what could not be written down must not run
            self._start_nothing(UNRECORDED, error)

    async def _know(self, know: Callable[[], Awaitable[None]]) -> None:
        """Read the secrets that must be redacted before anything of this session runs."""
        await know()
        self._context.env.know = self._context.env.keeper.catch_up if self._context.env.keeper.behind else None
        for call in self._calls:
            await show_arguments(call)

    async def _begin(self, calls: list[ActiveCall], admission: Admitting | None) -> None:
        """Let the journal, then hooks and prepare steps see each call."""
        if admission is not None:
            await admission
        if self._prepares:
            await self._require_secrets([call for call in calls if call.outcome is None and call.shares is None])
        if self._context.hooks.before or self._prepares:
            await self._run_before_hooks(
                [call for call in calls if call.outcome is None and call.answer is None and call.shares is None]
            )

    async def _require_secrets(self, calls: list[ActiveCall]) -> None:
        """End the calls whose tools require secrets that the session does not have."""
        asking = [call for call in calls if call.tool is not None and call.tool.definition.hints.requires_secrets]
        known = await self._context.env.secret_names() if asking else ()
        for call in asking:
            assert call.tool is not None
            names = call.tool.definition.required_secrets
            missing = [name for name in names if name not in known]
            if missing or not (names or known):
                call.fail(lacks_secrets(call.name, missing))

    async def _run_before_hooks(self, calls: list[ActiveCall]) -> None:
        hooks, policy, loop = self._context.hooks.before, self._context.policy, self._context.env.loop
        view, batch, most, seconds = self._context.env.view, self._batch.id, policy.max_argument_bytes, policy.timeout
        tasks = [
            loop.create_task(run_before_hooks(call, hooks, view=view, batch=batch, max_bytes=most, seconds=seconds))
            for call in calls
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
                self._context.env.hold_task(task)
            raise
        for call, task in zip(calls, tasks, strict=True):
            await show_arguments(call)
            if not task.cancelled() and isinstance(fault := task.exception(), StoreError):
                raise fault
            if task.cancelled() or task.exception() is not None:
                call.fail(broken("hook", "the code before the call was cancelled"))

    def _driven(self, admission: Admitting | None, driver: asyncio.Task[None]) -> None:
        self._driver = None
        self._context.env.tasks.discard(driver)
        if admission is not None:
            admission.close()  # The batch may have been stopped before the journal was asked.
        if driver.cancelled():
            self._start_nothing("the program is stopping")
        try:
            self._launch()
        except Exception as error:  # it would be lost, and the waiting tasks would wait for ever
            self._batch.store_failed(error)
        # A call that shares the execution of one that waits has nothing else to tell.
        self._batch.nested_changed()

    def _start_nothing(self, reason: str, fault: Exception | None = None) -> None:
        """The calls could not be launched: those that would have started are cancelled."""
        batch = self._batch
        batch.failed = fault or batch.failed
        batch.stop_reason = batch.stop_reason or reason

    async def start_over(self, call: ActiveCall) -> None:
        """Let a call run itself that shared the execution of another, which was stopped before it ran."""
        if self._driver is not None:
            # Until its batch is on its way the call passes for shared, or it would be launched there and here.
            await asyncio.wait((self._driver,))
        call.shares = None
        try:
            if not call.concluded:
                await self._begin([call], self._context.env.journal.admit([call]))
        except Exception as error:
            self._batch.store_failed(error)
        self._launch(call)

    # --- the launch

    def _launch(self, again: ActiveCall | None = None) -> None:
        """Authorise and schedule each call, or one that waited. The schedule starts it when its turn comes."""
        batch, context, plans, called_off = self._batch, self._context, self._plans, self._called_off
        siblings = None if self._above is None else ClaimIndex()
        calls = self._calls if again is None else [again]
        policy = context.policy
        if again is None and policy.on_loop != "ignore":
            for looping, warning in find_loops(context.loops, calls, policy):
                publish(context.env, looping, CallWarning(*about(looping), "loop", warning))
        if self._early is not None:
            all_stopped = batch.stop_reason is not None
            self._early.close(calls, {call for call in calls if all_stopped or call.position in called_off})
            self._early = None
        # Calls of a run have an order of their own.
        shares_order = context.env.journal.lasting and not batch.scope.startswith(RUN_SCOPE)
        entering: list[ActiveCall] = []
        for call in calls:
            tool, stop_reason = call.tool, batch.stop_reason
            if called_off and stop_reason is None:
                stop_reason = called_off.get(call.position)
            if call.phase is not NEW or (call.shares is not None and stop_reason is None):
                continue  # stopped by the failure of a call before it, or ended by the call it shares
            if call.outcome is not None or call.answer is not None or tool is None:
                end_now(call, call.outcome or call.answer)
                continue
            if call.past is not None and stop_reason is None and wait_again(call, call.past, self._launch):
                continue
            plan = call.plan = plans.get(tool) or self._plan(tool)
            if plan.allowed_by is None:
                verdict = authorise(call, context.judge, approved=call.asked)
                if call.outcome is not None:
                    end_now(call, call.outcome)
                    continue
                if verdict is not None and stop_reason is None:
                    wait_for_approval(call, verdict.rule, verdict.reason, self._launch)
                    continue
            elif plan.allowed_by:
                call.decided_by = plan.allowed_by
            if stop_reason is not None:
                cancel(call, stop_reason)
                continue
            if shares_order and call.key is not None:
                call.elsewhere = NOT_KNOWN_YET
                entering.append(call)
            self._queue(call, plan, siblings)
        if policy.queue_timeout is not None:
            limit_queue(calls, policy.queue_timeout)
        if entering:
            context.env.journal.enter_order(entering, _entered)

    def _queue(self, call: ActiveCall, plan: ToolPlan, siblings: ClaimIndex | None = None) -> None:
        """Put a call into the order. It starts when its turn comes, which may be now."""
        claims = plan.claims
        if claims is None:
            claims = plan.tool.claims_of(call.arguments or {})
        limits = self._limits if plan.limit is None else self._limits_with(plan.limit)
        call.ticket = ticket = CallTicket(call, self._lane, claims, limits, self._above)
        call.phase = QUEUED
        self._context.env.admission.submit(ticket, siblings)

    def _plan(self, tool: Tool) -> ToolPlan:
        """Make the plan of a tool, which is in `_plans` from then on."""
        context, timeout = self._context, self._batch.timeout
        plan = context.plans.get(tool) or context.plan(tool, timeout_of(tool.definition, context.policy))
        if timeout is not None:
            plan = self._plans[tool] = plan.with_timeout(context.env.deadlines, timeout)
        return plan

    def _queue_early(self) -> None:
        """Queue the calls before the journal writes their intents, where nothing must be waited for between.

        Calls keep their order, so this ends at the first one that may not simply run: the launch judges it once more,
        when the journal has said whether it is known. Their time in the queue begins then, too.
        """
        on_loop = self._context.policy.on_loop
        if self._context.hooks.before or self._prepares or self._above is not None or on_loop == "refuse":
            return
        if self._was_left or self._called_off:
            return
        self._early = EarlyQueue(self._lane, self._context.env.admission)
        for call in self._calls:
            if call.outcome is None and call.answer is None and call.tool is not None and call.phase is NEW:
                plan = call.plan = self._plans.get(call.tool) or self._plan(call.tool)
                rule = plan.allowed_by
                if rule is None and (rule := allowed_by(call, self._context.judge)) is None:
                    break
                call.decided_by = rule or call.decided_by
                self._queue(call, plan)

    def leave_queue(self, calls: Sequence[ActiveCall]) -> None:
        """Take calls that were queued early, and have not started, out of the order."""
        if self._early is not None:
            self._early.leave(calls)

    def _limits_with(self, tool_limit: Limit) -> tuple[Limit, ...]:
        """The slots of a call whose tool has a limit; an ancestor's slot serves its nested calls too."""
        above = self._above
        return (*self._limits, *((tool_limit,) if above is None else not_held((tool_limit,), above)))


def _entered(call: ActiveCall, fault: Exception | None) -> None:
    if isinstance(call.ticket, CallTicket):
        call.ticket.entered(fault)


# --- waking those that wait for a batch


class Watchers:
    """The tasks that wait for the end of a batch, for its quiet, or for its next change; most batches have none."""

    __slots__ = ("_ends", "_is_quiet", "_looks", "_loop", "calls", "changes", "quiets")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_quiet: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_quiet = is_quiet
        self._ends: list[asyncio.Future[None]] = []
        self._looks = False
        self.calls: list[list[asyncio.Future[ToolOutcome]]] = []
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

    def tell_outcome(self, position: int, outcome: ToolOutcome) -> None:
        """A call has its outcome."""
        for futures in self.calls:
            if not futures[position].done():
                futures[position].set_result(outcome)

    def tell_end(self) -> None:
        """Every call has its outcome."""
        _wake(self._ends)

    def _join(self, line: list[asyncio.Future[None]]) -> asyncio.Future[None]:
        watcher: asyncio.Future[None] = self._loop.create_future()
        line.append(watcher)
        return watcher

    def _look_soon(self) -> None:
        # Not at once: the calls that a finished call blocked are about to start.
        if not self._looks:
            self._looks = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        if self._is_quiet():
            _wake(self.quiets)


def _wake(line: list[asyncio.Future[None]]) -> None:
    for watcher in line:
        if not watcher.done():
            watcher.set_result(None)
    line.clear()
