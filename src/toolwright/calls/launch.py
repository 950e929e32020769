"""From prepared calls to scheduled ones. Owns what is done before a call may start: journal, hooks, approval, limits.

A batch of plain calls is launched at once. Where something must be waited for first, a driver does that, and launches
the calls when it is done.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any

from toolwright.calls.active_call import NEW, QUEUED, STARTED, UNRECORDED, ActiveCall, OwnerBatch, about
from toolwright.calls.authorise.authorise import authorise
from toolwright.calls.authorise.loop_detection import find_loops
from toolwright.calls.conclude import end_now
from toolwright.calls.execute.cancel import cancel, start_time
from toolwright.calls.execute.task_reuse import Lane
from toolwright.calls.execute.timeout import end_queue_time, limit_queue, timeout_of
from toolwright.calls.failures import deadlocked, lacks_secrets
from toolwright.calls.nesting import nearest_running, not_held
from toolwright.calls.prepare.before_hooks import broken, run_before_hooks
from toolwright.calls.redact import publish, show_arguments, shown_later
from toolwright.calls.schedule.admission import Limit, Ticket
from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.suspend.approvals import wait_again, wait_for_approval
from toolwright.calls.suspend.suspend import rejoined
from toolwright.errors import StoreError
from toolwright.events import CallStarted, CallWarning

Admitting = Coroutine[Any, Any, None]
"""The remaining work of the journal for the calls of a batch."""


class CallTicket(Ticket):
    """The ticket of a call: starts it when admission says so. `lane` takes its first step."""

    # What every ticket has; the rest is written for few.
    __slots__ = (
        "admission",
        "call",
        "claims",
        "done",
        "index",
        "lane",
        "limits",
        "order",
        "parent",
        "rejoins",
        "reserved",
        "state",
        "waited_for",
        "waiting_in",
    )

    call: ActiveCall
    lane: Lane

    @property
    def call_id(self) -> str:
        """The id of its call, for the record of a call that waits for this one."""
        return self.call.call_id

    def start(self) -> None:
        """Run the call now; it has its claims and its slots."""
        call = self.call
        env = call.env
        call.phase = STARTED
        call.started = call.record.started = env.monotonic()
        if call.queue_deadline is not None:
            end_queue_time(call)
        pushes = call.owner.context.recorder.channel.pushes
        if pushes:
            event = CallStarted(call.record)
            for push in pushes:
                push(event)
        # A call of which the journal wrote no intent has no start to be written either.
        if call.key is None or env.journal.started(call, self._start_written):
            lane = self.lane
            lane.ready.append(call)
            if not lane.busy:
                lane.open_again()

    def _start_written(self, call: ActiveCall, fault: Exception | None) -> None:
        if fault is not None:
            call.owner.store_failed(fault)
        self.lane.ready.append(call)
        if not self.lane.busy:
            self.lane.open_again()

    def rejoined(self) -> None:
        """The call has its slots again: its timeout starts from zero."""
        call = self.call
        rejoined(call)
        start_time(call)

    def refuse_deadlock(self, others: list[str]) -> None:
        """End a nested call that could only wait for a call that waits for it."""
        end_now(self.call, deadlocked(others))


class Launch:
    """Sets the calls of one batch on their way.

    `prepares` means that the tool of one has a prepare step.
    """

    __slots__ = ("_above", "_batch", "_calls", "_context", "_driver", "_env", "_lane", "_limits", "_prepares")

    def __init__(self, batch: OwnerBatch, calls: list[ActiveCall], prepares: bool) -> None:
        self._batch = batch
        self._calls = calls
        self._prepares = prepares
        self._context = context = batch.context
        self._env = context.env
        self._driver: asyncio.Task[None] | None = None
        self._lane = Lane(context.env, copy_context())
        self._above: Ticket | None = None
        limits = context.outer_limits
        if batch.parent is not None:
            self._above = above = nearest_running(batch.parent)
            if above is not None:
                limits = not_held(limits, above)
        if len(calls) > context.policy.max_concurrency:  # else there is a slot of the batch for each
            limits = (Limit("a slot of the batch", context.policy.max_concurrency), *limits)
        self._limits = limits

    def start(self, admission: Admitting | None, at_once: bool) -> None:
        """Set every call on its way, once the journal has admitted all: `admission` is to be awaited for that.

        `at_once`: tools take their first step before this returns.
        """
        if (
            admission is not None
            or self._context.hooks.before
            or self._prepares
            or self._env.know is not None
            or (self._env.redactor is not None and any(map(shown_later, self._calls)))
        ):
            self._driver = self._env.loop.create_task(self._drive(admission))
            self._driver.add_done_callback(functools.partial(self._driven, admission))
            self._env.hold_task(self._driver)
        else:
            self._launch()
            self._lane.open(at_once=at_once)

    def call_off(self) -> bool:
        """Stop the wait before the launch; False when there is none."""
        if self._driver is None:
            return False
        if self._env.know is None:  # else it continues until that is known: the reason of the stop may hold a secret
            self._driver.cancel()
        return True

    # --- waits before the launch

    async def _drive(self, admission: Admitting | None) -> None:
        """Wait for everything that must come before a call may be authorised: the journal, hooks, prepare steps."""
        try:
            while self._env.know is not None:
                await self._know(self._env.know)
            if self._env.redactor is not None:
                for call in self._calls:
                    if shown_later(call):
                        await show_arguments(call)
            if self._batch.stop_reason is None:
                await self._begin(self._calls, admission)
        except Exception as error:  # whatever it is: what could not be written down must not run
            self._start_nothing(UNRECORDED, error)

    async def _know(self, know: Callable[[], Awaitable[None]]) -> None:
        """Read the secrets that must be redacted before anything of this session runs."""
        await know()
        self._env.know = self._env.keeper.catch_up if self._env.keeper.behind else None
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
        known = await self._env.secret_names() if asking else ()
        for call in asking:
            assert call.tool is not None
            names = call.tool.definition.required_secrets
            missing = [name for name in names if name not in known]
            if missing or not (names or known):
                call.fail(lacks_secrets(call.name, missing))

    async def _run_before_hooks(self, calls: list[ActiveCall]) -> None:
        hooks, policy, loop = self._context.hooks.before, self._context.policy, self._env.loop
        view, batch, most, seconds = self._env.view, self._batch.id, policy.max_argument_bytes, policy.timeout
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
                self._env.hold_task(task)
            raise
        for call, task in zip(calls, tasks, strict=True):
            await show_arguments(call)
            if not task.cancelled() and isinstance(fault := task.exception(), StoreError):
                raise fault
            if task.cancelled() or task.exception() is not None:
                call.fail(broken("hook", "the code before the call was cancelled"))

    def _driven(self, admission: Admitting | None, driver: asyncio.Task[None]) -> None:
        self._driver = None
        if admission is not None:
            admission.close()  # The batch may have been stopped before the journal was asked.
        if driver.cancelled():
            self._start_nothing("the program is stopping")
        try:
            self._launch()
        except Exception as error:  # it would be lost, and the waiting tasks would wait for ever
            self._batch.store_failed(error)
        self._lane.open(at_once=False)

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
                await self._begin([call], self._env.journal.admit([call]))
        except Exception as error:
            self._batch.store_failed(error)
        self._launch(call)

    # --- the launch

    def _launch(self, again: ActiveCall | None = None) -> None:
        """Authorise and schedule each call, or one that waited. The schedule starts it when its turn comes."""
        batch, context, above, lane = self._batch, self._context, self._above, self._lane
        plans, submit, policy = context.plans, context.env.admission.submit, context.policy
        timeout, queue_timeout, own_limits = batch.timeout, policy.queue_timeout, self._limits
        siblings = None if above is None else ClaimIndex()
        calls = list(self._calls) if again is None else [again]
        if again is None and policy.on_loop != "ignore":
            new = [call for call in calls if call.outcome is None and call.answer is None]
            for looping, warning in find_loops(context.loops, new, policy):
                publish(self._env, looping, CallWarning(*about(looping), "loop", warning))
        for call in calls:
            tool = call.tool
            if call.phase is not NEW or (call.shares is not None and batch.stop_reason is None):
                continue  # stopped by the failure of a call before it, or ended by the call it shares
            if call.outcome is not None or call.answer is not None or tool is None:
                end_now(call, call.outcome or call.answer)
                continue
            if call.past is not None and batch.stop_reason is None and wait_again(call, call.past, self._launch):
                continue
            plan = call.plan = plans.get(tool) or context.plan(tool, timeout_of(tool.definition, policy))
            if timeout is not None:
                plan = call.plan = plan.with_timeout(context.env.deadlines.bucket(timeout))
            if plan.allowed_by is None:
                verdict = authorise(call, context.judge, approved=call.asked)
                if call.outcome is not None:
                    end_now(call, call.outcome)
                    continue
                if verdict is not None and batch.stop_reason is None:
                    wait_for_approval(call, verdict.rule, verdict.reason, self._launch)
                    continue
            elif plan.allowed_by:
                call.decided_by = plan.allowed_by
            if batch.stop_reason is not None:
                cancel(call, batch.stop_reason)
                continue
            claims = tool.claims
            if type(claims) is not tuple:
                claims = claims(call.arguments or {})  # type: ignore[operator]
            limits = own_limits if plan.limit is None else self._limits_with(plan.limit)
            call.ticket = ticket = CallTicket()
            # One by one: a tuple of so many would be made first.
            ticket.call = call
            ticket.lane = lane
            ticket.claims = claims
            ticket.limits = limits
            ticket.parent = above
            ticket.state = "new"
            ticket.waiting_in = None
            ticket.done = ticket.rejoins = False
            ticket.waited_for = ticket.reserved = ()
            call.phase = QUEUED
            submit(ticket, siblings)
            if queue_timeout is not None:
                limit_queue(call, queue_timeout)

    def _limits_with(self, tool_limit: Limit) -> tuple[Limit, ...]:
        """The slots of a call whose tool has a limit; an ancestor's slot serves its nested calls too."""
        above = self._above
        return (*self._limits, *((tool_limit,) if above is None else not_held((tool_limit,), above)))
