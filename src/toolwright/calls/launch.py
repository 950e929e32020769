"""From prepared calls to scheduled ones. Owns what is done before a call may start: journal, hooks, leave, limits.

A batch of plain calls is launched at once. Where something must be waited for first, a driver does that, and launches
the calls when it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from toolwright.calls.authorise.authorise import authorise
from toolwright.calls.authorise.loop_detection import watch_loops
from toolwright.calls.authorise.wait_before_run import ask_first, goes_on_waiting
from toolwright.calls.conclude import UNRECORDED, end_now
from toolwright.calls.context import BatchSetting
from toolwright.calls.execute.cancel import cancel, limit_queue
from toolwright.calls.execute.execute import CallRun
from toolwright.calls.execute.failures import lacks_secrets
from toolwright.calls.prepare.before_hooks import approach, broken
from toolwright.calls.prepare.nesting import nearest_running, not_held
from toolwright.calls.redact import show_arguments, shown_later
from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.schedule.tickets import Limit
from toolwright.calls.tool_plan import RunOwner
from toolwright.errors import StoreError


class LaunchOwner(RunOwner, Protocol):
    """The batch, as its launch sees it.

    `stop_reason` says why no call may start any more. `start_none` sets it: each call still goes its way, and those
    that would have started are cancelled.
    """

    setting: BatchSetting
    parent: CallRun | None
    stop_reason: str | None
    timeout: float | None

    def start_none(self, reason: str, fault: Exception | None = None) -> None: ...


class Launch:
    """Sets the calls of one batch on their way.

    `plain` says that all are alike: none has an outcome yet or a past, and none is stopped by the failure of another.
    `prepares` says that the tool of one has a prepare step.
    """

    __slots__ = ("_above", "_batch", "_driver", "_host", "_limits", "_plain", "_prepares", "_runs", "_setting")

    def __init__(self, batch: LaunchOwner, runs: list[CallRun], plain: bool, prepares: bool) -> None:
        self._batch = batch
        self._runs = runs
        self._plain = plain
        self._prepares = prepares
        self._setting = setting = batch.setting
        self._host = setting.host
        self._driver: asyncio.Task[None] | None = None
        self._above: CallRun | None = None
        limits = setting.outer_limits
        if batch.parent is not None:
            self._above = above = nearest_running(batch.parent)
            if above is not None:
                limits = not_held(limits, above)
        if len(runs) > setting.policy.max_concurrency:  # else there is a slot of the batch for each
            limits = (Limit("a slot of the batch", setting.policy.max_concurrency), *limits)
        self._limits = limits

    def start(self, at_once: bool) -> None:
        """Set every call on its way. `at_once`: tools take their first step before this returns."""
        if (
            self._setting.hooks.before
            or self._prepares
            or self._setting.store is not None
            or self._host.know is not None
            or (self._host.redactor is not None and any(map(shown_later, self._runs)))
        ):
            self._plain = False
            self._driver = self._host.loop.create_task(self._drive())
            self._driver.add_done_callback(self._driven)
            self._host.keep(self._driver)
        else:
            self._launch()
            self._batch.lane.open(at_once=at_once)

    def call_off(self) -> bool:
        """Stop what is waited for before the launch; False when there is nothing."""
        if self._driver is None:
            return False
        if self._host.know is None:  # else it goes on until that is known: why it was stopped may hold a secret
            self._driver.cancel()
        return True

    # --- what must be waited for first

    async def _drive(self) -> None:
        """What must be waited for before any call may be authorised: the journal, hooks, prepare steps."""
        try:
            while self._host.know is not None:
                await self._know(self._host.know)
            for run in self._runs:
                if shown_later(run):
                    await show_arguments(run)
            if self._batch.stop_reason is None:
                await self._begin(self._runs)
        except Exception as error:  # whatever it is: what could not be written down must not run
            self._batch.start_none(UNRECORDED, error)

    async def _know(self, know: Callable[[], Awaitable[None]]) -> None:
        """Learn what must be redacted before anything of this session runs."""
        await know()
        self._host.know = self._host.keeper.catch_up if self._host.keeper.behind else None
        for run in self._runs:
            await show_arguments(run)

    async def _begin(self, runs: list[CallRun]) -> None:
        """Let the journal, then hooks and prepare steps see each call."""
        batch, store = self._batch, self._setting.store
        if store is not None:
            await store.begin(self._host.session_id, batch.scope, batch.id, runs)
        if self._prepares:
            await self._require_secrets([run for run in runs if run.outcome is None and run.shares is None])
        if self._setting.hooks.before or self._prepares:
            await self._approach(
                [run for run in runs if run.outcome is None and run.answer is None and run.shares is None]
            )

    async def _require_secrets(self, runs: list[CallRun]) -> None:
        """End the calls whose tools require secrets that the session does not have."""
        asking = [run for run in runs if run.tool is not None and run.tool.definition.hints.requires_secrets]
        known = await self._host.secret_names() if asking else ()
        for run in asking:
            assert run.tool is not None
            names = run.tool.definition.required_secrets
            missing = [name for name in names if name not in known]
            if missing or not (names or known):
                run.fail(lacks_secrets(run.name, missing))

    async def _approach(self, runs: list[CallRun]) -> None:
        hooks, policy, loop = self._setting.hooks.before, self._setting.policy, self._host.loop
        view, batch, most, seconds = self._host.view, self._batch.id, policy.max_argument_bytes, policy.timeout
        tasks = [
            loop.create_task(approach(run, hooks, view=view, batch=batch, max_bytes=most, seconds=seconds))
            for run in runs
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
                self._host.keep(task)
            raise
        for run, task in zip(runs, tasks, strict=True):
            await show_arguments(run)
            if not task.cancelled() and isinstance(fault := task.exception(), StoreError):
                raise fault
            if task.cancelled() or task.exception() is not None:
                run.fail(broken("hook", "the code before the call was cancelled"))

    def _driven(self, driver: asyncio.Task[None]) -> None:
        self._driver = None
        if driver.cancelled():
            self._batch.start_none("the program is stopping")
        try:
            self._launch()
        except Exception as error:  # nobody else would hear of it, and whoever waits would wait for ever
            self._batch.store_failed(error)
        self._batch.lane.open(at_once=False)

    async def start_over(self, run: CallRun) -> None:
        """Let a call run itself that shared the execution of another, which was stopped before it ran."""
        if self._driver is not None:
            # Until its batch is on its way the call passes for shared, or it would be launched there and here.
            await asyncio.wait((self._driver,))
        run.shares = None
        try:
            if self._setting.store is None and not run.concluded:
                self._host.journal.meet([run], self._batch.scope)
            await self._begin([run])
        except Exception as error:
            self._batch.store_failed(error)
        self._launch(run)

    # --- the launch

    def _launch(self, again: CallRun | None = None) -> None:
        """Authorise and schedule each call, or one that waited. The schedule starts it when its turn comes."""
        batch, setting, above = self._batch, self._setting, self._above
        plans, submit, policy = setting.plans, setting.host.schedule.submit, setting.policy
        siblings = None if above is None else ClaimIndex()
        runs, plain = (list(self._runs), self._plain) if again is None else ([again], False)
        if again is None and policy.on_loop != "ignore":
            new = runs if plain else [run for run in runs if run.outcome is None and run.answer is None]
            if watch_loops(setting.loops, new, policy, setting.report):
                plain = False
        for run in runs:
            tool = run.tool
            if not plain or tool is None:
                if run.concluded or (run.shares is not None and batch.stop_reason is None):
                    continue  # stopped by the failure of a call before it, or ended by the run it shares
                if run.outcome is not None or run.answer is not None or tool is None:
                    end_now(run, run.outcome or run.answer)
                    continue
                if run.recovered is not None and batch.stop_reason is None and goes_on_waiting(run, self._launch):
                    continue
            plan = run.plan = plans.get(tool) or setting.plan(tool)
            if batch.timeout is not None:
                plan = run.plan = plan.with_timeout(setting.host.deadlines.bucket(batch.timeout))
            if plan.allowed_by is None:
                verdict = authorise(run, setting.judge, leave=run.asked)
                if run.outcome is not None:
                    end_now(run, run.outcome)
                    continue
                if verdict is not None and batch.stop_reason is None:
                    ask_first(run, verdict, self._launch)
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
