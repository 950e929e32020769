"""Work that outlives the batch: runs, schedules, triggers. Owns how the host of a session starts and finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwright.calls.active_call import identity
from toolwright.calls.authorise.authority import Origin, origin_of, restrict
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.errors import ScheduleError
from toolwright.session.core import Belongings
from toolwright.session.services.quotas import Unmarked
from toolwright.tools.background_protocols import (
    RunClient,
    RunsClient,
    ScheduleClient,
    SchedulesClient,
    Trigger,
    TriggersClient,
)


class Background(Belongings):
    """The part of a session that starts work in the background."""

    async def spawn(self, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> RunClient:
        """Start a tool that supports it in the background, and return the handle of its run.

        `options` are those of `ctx.runs.spawn`: title, timeout, signal_on_completion, disposition, id.

        Raises:
            RunError: the tool can not run in the background, there are too many runs, or something is not usable.
        """
        await self.know_secrets()
        return await self._runs.spawn(tool, args, **options)

    async def runs(self, *, active: bool = False) -> list[RunClient]:
        """The background runs of the session, the newest first: all, or those that are not over."""
        return await self._runs.list(active=active)

    async def run(self, id: str) -> RunClient:
        """The handle of a background run of this session, or of one that was granted to it.

        Raises:
            RunError: there is none, or it is another session's.
        """
        return await self._runs.get(id)

    async def schedule(self, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again; return the schedule's handle.

        `options` are those of `toolwright.schedules.Schedules.add`: cron or at, timezone, title, timeout,
        signal_on_completion, misfire, overlap, id.

        Raises:
            ScheduleError: the timing or a policy is not usable, or the session has as many schedules as it may.
            RunError: the tool can not run in the background, or its arguments are not usable.
        """
        try:
            return await self._schedules.add(tool, args, **options)
        except ScheduleError as error:
            raise ScheduleError(_in_words_of_a_program(str(error)), error.code) from error

    async def schedules(self, *, active: bool = False) -> list[ScheduleClient]:
        """The schedules of the session, the oldest first: all, or those that are not over."""
        return await self._schedules.list(active=active)

    async def scheduled(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session.

        Raises:
            ScheduleError: there is none, or it is another session's.
        """
        return await self._schedules.get(id)

    async def on(self, topic: str, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> Trigger:
        """Start a tool in the background each time something occurs under a topic, as `runtime.occur` says.

        `options` are those of `toolwright.background.Triggers.add`: match, payload_as, title, timeout,
        signal_on_completion, id.

        Raises:
            RunError: the tool can not run in the background, there are too many triggers, or something is not
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


def _in_words_of_a_program(refusal: str) -> str:
    """A refusal of a timing, which has the names that a model writes, with the names of our parameters."""
    # Once each: what a refusal quotes stands behind the name.
    return refusal.replace("cron_expression", "cron", 1).replace("scheduled_at", "at", 1)
