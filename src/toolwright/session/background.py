"""Work that outlives the batch: runs, schedules, triggers. Owns how the host of a session starts and finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from toolwright.calls.active_call import identity
from toolwright.calls.authorise.authority import Origin, origin_of, restrict
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.session.core import Belongings
from toolwright.session.services.quotas import Unmarked
from toolwright.tools.background_protocols import (
    RunClient,
    RunsClient,
    ScheduleClient,
    ScheduleOptions,
    SchedulesClient,
    SpawnOptions,
    Trigger,
    TriggerOptions,
    TriggersClient,
)


class Background(Belongings):
    """The part of a session that starts work in the background."""

    async def spawn(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[SpawnOptions]
    ) -> RunClient:
        """Start a tool that supports it in the background, and return the handle of its run.

        `SpawnOptions` explains the options.

        Raises:
            RunError: the tool cannot run in the background, there are too many runs, or something is not usable.
        """
        await self.know_secrets()
        return await self._runs.spawn(tool, args, **options)

    async def track(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> RunClient:
        """Register work that happens elsewhere, such as a deployment, as a run of this session; return its handle.

        No worker takes it: report on it with `report`, `append`, `finish` and `fail` of the handle, here or in another
        process, where `runtime.run(id)` gives one.

        Args:
            name: what the work is called, for rules and lists.
            input: what it is about, as JSON; it is kept and shown.
            title: what people call the run; by default its name.
            signal_on_completion: append a message to the session when it is over.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy denies work of this name, or would ask a person first.
            RunError: there are too many tracked runs, or something is not usable.
        """
        await self.know_secrets()
        return await self._runs.track(name, input, title=title, signal_on_completion=signal_on_completion, id=id)

    async def runs(self, *, active: bool = False) -> list[RunClient]:
        """The background runs of the session, the newest first: all, or those that are not over."""
        return await self._runs.list(active=active)

    async def run(self, id: str) -> RunClient:
        """The handle of a background run of this session, or of one that was granted to it.

        Raises:
            RunError: there is none, or it is another session's.
        """
        return await self._runs.get(id)

    async def schedule(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again; return the schedule's handle.

        `ScheduleOptions` explains the options; one of `cron` and `at` is needed.

        Raises:
            ScheduleError: the timing or a policy is not usable, or the session has as many schedules as it may.
            RunError: the tool cannot run in the background, or its arguments are not usable.
        """
        return await self._schedules.add(tool, args, **options)

    async def schedules(self, *, active: bool = False) -> list[ScheduleClient]:
        """The schedules of the session, the oldest first: all, or those that are not over."""
        return await self._schedules.list(active=active)

    async def scheduled(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session.

        Raises:
            ScheduleError: there is none, or it is another session's.
        """
        return await self._schedules.get(id)

    async def on(
        self, topic: str, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[TriggerOptions]
    ) -> Trigger:
        """Start a tool in the background each time something occurs under a topic, as `runtime.occur` says.

        `TriggerOptions` explains the options.

        Raises:
            RunError: the tool cannot run in the background, there are too many triggers, or something is not
                usable.
        """
        return await self._triggers.add(topic, tool, args, **options)

    async def off(self, trigger: Trigger | str) -> bool:
        """Start nothing more by a trigger, or the one of an id; what it started goes on. False when there was none."""
        return await self._triggers.remove(trigger.id if isinstance(trigger, Trigger) else trigger)

    async def triggers(self) -> list[Trigger]:
        """The triggers of the session, the oldest first."""
        return await self._triggers.list()

    @property
    def _runs(self) -> RunsClient:
        self._shared.require_open()
        return self._shared.runs(self, Unmarked(), self._origin, lambda store: store)

    @property
    def _schedules(self) -> SchedulesClient:
        self._shared.require_open()
        return self._shared.schedules(self, Unmarked(), self._origin, lambda store: store)

    @property
    def _triggers(self) -> TriggersClient:
        self._shared.require_open()
        return self._shared.triggers(self, Unmarked(), self._origin, lambda store: store)

    @property
    def _origin(self) -> Origin:
        """The host, under the policy of the session; or the call that asks, if a tool uses the session as a host."""
        run = CURRENT.get()
        if run is None:
            return Origin("host", self.policy, restrict(self._restrictions, self.policy))
        asking = origin_of(run, identity(run))
        return Origin(asking.source, self.policy, restrict(asking.restrictions, self.policy), asking.call)
