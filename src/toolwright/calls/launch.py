"""From prepared calls to scheduled ones. Owns the steps before a call may start: journal, hooks, approval, limits.

A batch of plain calls is launched at once. Where something must be waited for first, a driver does that, and launches
the calls when it is done.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from toolwright.calls.authorise.authorise import authorise
from toolwright.calls.authorise.loop_detection import watch_loops
from toolwright.calls.authorise.wait_before_run import wait_again, wait_for_approval
from toolwright.calls.conclude import UNRECORDED, end_now
from toolwright.calls.context import BatchContext
from toolwright.calls.execute.cancel import cancel
from toolwright.calls.execute.execute import ActiveCall
from toolwright.calls.execute.failures import lacks_secrets
from toolwright.calls.execute.timeout import limit_queue
from toolwright.calls.prepare.before_hooks import broken, run_before_hooks
from toolwright.calls.prepare.nesting import nearest_running, not_held
from toolwright.calls.redact import show_arguments, shown_later
from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.schedule.tickets import Limit
from toolwright.calls.tool_plan import RunOwner
from toolwright.errors import StoreError

Admitting = Coroutine[Any, Any, None]
"""The remaining work of the journal for the calls of a batch."""


class LaunchOwner(RunOwner, Protocol):
    """The batch, as its launch sees it.

    `stop_reason` is the reason why no call may start any more. `start_none` sets it: each call is still processed, and
    calls that would have started are cancelled.
    """

    context: BatchContext
    parent: ActiveCall | None
    stop_reason: str | None
    timeout: float | None

    def start_nothing(self, reason: str, fault: Exception | None = None) -> None: ...


class Launch:
    """Sets the calls of one batch on their way.

    `prepares` means that the tool of one has a prepare step.
    """

    __slots__ = ("_above", "_batch", "_context", "_driver", "_env", "_limits", "_prepares", "_runs")

    def __init__(self, batch: LaunchOwner, runs: list[ActiveCall], prepares: bool) -> None:
        self._batch = batch
        self._runs = runs
        self._prepares = prepares
        self._context = context = batch.context
        self._env = context.env
        self._driver: asyncio.Task[None] | None = None
        self._above: ActiveCall | None = None
        limits = context.outer_limits
        if batch.parent is not None:
            self._above = above = nearest_running(batch.parent)
            if above is not None:
                limits = not_held(limits, above)
        if len(runs) > context.policy.max_concurrency:  # else there is a slot of the batch for each
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
            or (self._env.redactor is not None and any(map(shown_later, self._runs)))
        ):
            self._driver = self._env.loop.create_task(self._drive(admission))
            self._driver.add_done_callback(functools.partial(self._driven, admission))
            self._env.hold_task(self._driver)
        else:
            self._launch()
            self._batch.lane.open(at_once=at_once)

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
            for run in self._runs:
                if shown_later(run):
                    await show_arguments(run)
            if self._batch.stop_reason is None:
                await self._begin(self._runs, admission)
        except Exception as error:  # any fault: a call that could not be recorded must not run
            self._batch.start_nothing(UNRECORDED, error)

    async def _know(self, know: Callable[[], Awaitable[None]]) -> None:
        """Read the secrets that must be redacted before anything of this session runs."""
        await know()
        self._env.know = self._env.keeper.catch_up if self._env.keeper.behind else None
        for run in self._runs:
            await show_arguments(run)

    async def _begin(self, runs: list[ActiveCall], admission: Admitting | None) -> None:
        """Let the journal, then hooks and prepare steps see each call."""
        if admission is not None:
            await admission
        if self._prepares:
            await self._require_secrets([run for run in runs if run.outcome is None and run.shares is None])
        if self._context.hooks.before or self._prepares:
            await self._run_before_hooks(
                [run for run in runs if run.outcome is None and run.answer is None and run.shares is None]
            )

    async def _require_secrets(self, runs: list[ActiveCall]) -> None:
        """End the calls whose tools require secrets that the session does not have."""
        asking = [run for run in runs if run.tool is not None and run.tool.definition.hints.requires_secrets]
        known = await self._env.secret_names() if asking else ()
        for run in asking:
            assert run.tool is not None
            names = run.tool.definition.required_secrets
            missing = [name for name in names if name not in known]
            if missing or not (names or known):
                run.fail(lacks_secrets(run.name, missing))

    async def _run_before_hooks(self, runs: list[ActiveCall]) -> None:
        hooks, policy, loop = self._context.hooks.before, self._context.policy, self._env.loop
        view, batch, most, seconds = self._env.view, self._batch.id, policy.max_argument_bytes, policy.timeout
        tasks = [
            loop.create_task(run_before_hooks(run, hooks, view=view, batch=batch, max_bytes=most, seconds=seconds))
            for run in runs
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
                self._env.hold_task(task)
            raise
        for run, task in zip(runs, tasks, strict=True):
            await show_arguments(run)
            if not task.cancelled() and isinstance(fault := task.exception(), StoreError):
                raise fault
            if task.cancelled() or task.exception() is not None:
                run.fail(broken("hook", "the code before the call was cancelled"))

    def _driven(self, admission: Admitting | None, driver: asyncio.Task[None]) -> None:
        self._driver = None
        if admission is not None:
            admission.close()  # The batch may have been stopped before the journal was asked.
        if driver.cancelled():
            self._batch.start_nothing("the program is stopping")
        try:
            self._launch()
        except Exception as error:  # it would be lost, and the waiting tasks would wait for ever
            self._batch.store_failed(error)
        self._batch.lane.open(at_once=False)

    async def start_over(self, run: ActiveCall) -> None:
        """Let a call run itself that shared the execution of another, which was stopped before it ran."""
        if self._driver is not None:
            # Until its batch is on its way the call passes for shared, or it would be launched there and here.
            await asyncio.wait((self._driver,))
        run.shares = None
        try:
            if not run.concluded:
                await self._begin([run], self._env.journal.admit([run]))
        except Exception as error:
            self._batch.store_failed(error)
        self._launch(run)

    # --- the launch

    def _launch(self, again: ActiveCall | None = None) -> None:
        """Authorise and schedule each call, or one that waited. The schedule starts it when it is admitted."""
        batch, context, above = self._batch, self._context, self._above
        plans, submit, policy = context.plans, context.env.admission.submit, context.policy
        siblings = None if above is None else ClaimIndex()
        runs = list(self._runs) if again is None else [again]
        if again is None and policy.on_loop != "ignore":
            new = [run for run in runs if run.outcome is None and run.answer is None]
            watch_loops(context.loops, new, policy, context.report)
        for run in runs:
            tool = run.tool
            if run.concluded or (run.shares is not None and batch.stop_reason is None):
                continue  # stopped by the failure of a call before it, or ended by the call it shares
            if run.outcome is not None or run.answer is not None or tool is None:
                end_now(run, run.outcome or run.answer)
                continue
            if run.recovered is not None and batch.stop_reason is None and wait_again(run, self._launch):
                continue
            plan = run.plan = plans.get(tool) or context.plan(tool)
            if batch.timeout is not None:
                plan = run.plan = plan.with_timeout(context.env.deadlines.bucket(batch.timeout))
            if plan.allowed_by is None:
                verdict = authorise(run, context.judge, approved=run.asked)
                if run.outcome is not None:
                    end_now(run, run.outcome)
                    continue
                if verdict is not None and batch.stop_reason is None:
                    wait_for_approval(run, verdict, self._launch)
                    continue
            elif plan.allowed_by:
                run.decided_by = plan.allowed_by
            if batch.stop_reason is not None:
                cancel(run, batch.stop_reason)
                continue
            claims = tool.claims
            run.claims = claims if type(claims) is tuple else claims(run.arguments or {})  # type: ignore[operator]
            run.limits = self._limits if plan.limit is None else self._limits_with(plan.limit)
            if above is not None:
                run.parent = above
            submit(run, siblings)
            if policy.queue_timeout is not None:
                limit_queue(run, policy.queue_timeout)

    def _limits_with(self, tool_limit: Limit) -> tuple[Limit, ...]:
        """The slots of a call whose tool has a limit; an ancestor's slot serves its nested calls too."""
        above = self._above
        return (*self._limits, *((tool_limit,) if above is None else not_held((tool_limit,), above)))
