"""The schedules client of a session, and the handle of a schedule. Owns every refusal and the check of ownership."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_count
from toolwright.background.background import Background
from toolwright.background.checks import (
    backgroundable,
    limits_of,
    options_of,
    provenance_of,
    require_arguments,
    require_fitting,
    title_of,
)
from toolwright.calls.authorise.authority import Origin, combine, require_allowed
from toolwright.errors import ScheduleError
from toolwright.schedules.firing import start_of
from toolwright.schedules.misfires import after_pause, read_misfire
from toolwright.schedules.parse_timing import in_words_of_a_program, read_form, require_next
from toolwright.schedules.timing import due_between
from toolwright.session.core import Guard, SessionCore, program_origin
from toolwright.session.services.quotas import Marker, Unmarked, require_name
from toolwright.stores.contracts.schedule import (
    Fired,
    Misfire,
    Overlap,
    Schedule,
    new_schedule_id,
    read_overlap,
    require_schedule_id,
)
from toolwright.stores.contracts.schedule_store import ScheduleStore
from toolwright.tools.registry import Snapshot, find


class ScheduleHandle:
    """A schedule, to be paused, resumed, run now and cancelled. It shows the schedule as it was last read.

    `origin` is the user of the handle, with its permissions. `tools` are those that the schedule may start here.
    """

    def __init__(
        self,
        background: Background,
        schedule: Schedule,
        store: ScheduleStore,
        marker: Marker,
        origin: Origin,
        tools: Callable[[], Snapshot],
    ) -> None:
        self._background = background
        self._schedule = schedule
        self._store = store
        self._marker = marker
        self._origin = origin
        self._tools = tools
        self._clock = background.shared.clock

    @property
    def id(self) -> str:
        """The id of the schedule."""
        return self._schedule.id

    @property
    def schedule(self) -> Schedule:
        """All that is known of it, when it was last read."""
        return self._schedule

    @property
    def state(self) -> str:
        """ "active", "paused", "ended" or "cancelled", when it was last read."""
        return self._schedule.state

    @property
    def next_at(self) -> float | None:
        """Its next instant, when it was last read."""
        return self._schedule.next_at if self._schedule.state == "active" else None

    async def refresh(self) -> Schedule:
        """Read it now.

        Raises:
            ScheduleError: it was removed from the store.
        """
        found = await self._store.find(self.id)
        if found is None:
            raise ScheduleError(f"The schedule {self.id!r} is no longer in the store", "not_found")
        self._schedule = found
        return found

    async def pause(self) -> bool:
        """Fire nothing until it is resumed; False when it was not active."""
        schedule, mark = await self.refresh(), self._marker.mark("schedules.pause", self.id)
        done = await self._store.change(self.id, ("active",), "paused", schedule.next_at, mark)
        await self.refresh()
        return done

    async def resume(self) -> bool:
        """Continue with the next instant from now, and skip those in the pause. False when it was not paused.

        Raises:
            ScheduleError: its only instant has passed meanwhile.
        """
        schedule, mark = await self.refresh(), self._marker.mark("schedules.resume", self.id)
        following = schedule.next_at
        if schedule.state == "paused" and following is not None:
            following = after_pause(schedule.timing, following, self._clock.now())
            if following is None:
                remedy = "run it now, or add another"
                raise ScheduleError(f"The schedule {self.id!r} has no instant left; {remedy}", "conflict")
        done = await self._store.change(self.id, ("paused",), "active", following, mark)
        await self.refresh()
        self._background.poke()
        return done

    async def run_now(self) -> str:
        """Start a run beside its instants, whatever else runs, and return the id of the run.

        Raises:
            RunRefused: the policy of the program or call that asks does not let the tool run.
            ScheduleError: it was cancelled.
        """
        mark = self._marker.mark("schedules.run_now", self.id)
        schedule, now, origin = await self.refresh(), self._clock.now(), self._origin
        shared = self._background.shared
        # The program or call that runs it now may be allowed less than the one that added it, so that both hold.
        authority = combine(schedule.authority, shared.rules.write(origin))
        registration = replace(start_of(schedule, now, now), authority=authority)
        tool = find(self._tools(), schedule.tool)
        if tool is not None:
            require_allowed(origin, schedule.session, tool, registration.arguments, id=registration.id)
        limits = limits_of(origin.policy, shared.quotas.resources, queue=True)
        run = await self._store.run_now(self.id, registration, now, limits, mark)
        if run is None:
            raise ScheduleError(f"The schedule {self.id!r} was cancelled; add another", "conflict")
        self._background.poke()
        return run

    async def cancel(self) -> bool:
        """Fire nothing any more; runs that it started continue. False when it was finished already."""
        mark = self._marker.mark("schedules.cancel", self.id)
        done = await self._store.change(self.id, ("active", "paused"), "cancelled", None, mark)
        await self.refresh()
        self._background.told_cancelled("schedule", self.id, "the schedule was cancelled")
        return done

    async def history(self, limit: int = 100) -> list[Fired]:
        """Its firings and skipped instants, the latest first."""
        require_count("limit", limit)
        return await self._store.history(self.id, limit)

    def upcoming(self, count: int = 5) -> list[float]:
        """Its next instants, if the rules of the time zone do not change."""
        require_count("count", count, 0)
        schedule = self._schedule
        if schedule.state != "active" or schedule.next_at is None or count == 0:
            return []
        return [schedule.next_at, *due_between(schedule.timing, schedule.next_at, float("inf"), count - 1)]

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain data."""
        return self._schedule.to_json()

    def __repr__(self) -> str:
        when = self._schedule.timing.cron or f"at {self._schedule.timing.at}"
        return f"<Schedule {self.id} of {self._schedule.tool!r} {when}: {self.state}>"


class Schedules:
    """`SchedulesClient` of one session, for the program or for one attempt of a call."""

    def __init__(
        self, background: Background, session: SessionCore, marker: Marker, origin: Origin, guard: Guard | None
    ) -> None:
        self._background = background
        self._session = session
        self._marker = marker
        self._origin = origin
        self._store: ScheduleStore = background.shared.stores().schedules
        if guard is not None:
            self._store = guard(self._store)

    async def add(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        at: datetime | str | None = None,
        timezone: str | None = None,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        misfire: Misfire = "once",
        overlap: Overlap = "skip",
        id: str | None = None,
    ) -> ScheduleHandle:
        """Start a tool that supports the background at an instant, or again and again.

        Args:
            tool: its name.
            args: its arguments, given to it as they are each time.
            cron: five fields, such as "*/10 * * * *".
            at: an instant: a datetime with a zone, or RFC 3339 text. One of `cron` and `at` is given.
            timezone: the IANA name of the zone that `cron` is read in; by default UTC.
            title: the title of its runs, for people.
            timeout: seconds that each run may take.
            signal_on_completion: append a message to the session when a run is finished.
            misfire: the handling of missed instants: "skip", "once" for the latest of them, or "all".
            overlap: the handling of an instant while a run is not finished: "skip", "queue" or "allow".
            id: an id of the caller's choice. If there is a schedule of the same id and content, that one is returned as
                it is, also when it is paused or finished: so a program may add its schedules each time it starts.

        Raises:
            RunRefused: the policy of the program or call that adds it does not let the tool run.
            ScheduleError: the timing or a policy is not usable, the session has as many schedules as it may, or the id
                is that of another schedule ("conflict").
            RunError: the tool cannot run in the background, or its arguments are not usable.
        """
        session, origin = self._session, self._origin
        await session.know_secrets()
        found, now = backgroundable(session, tool, origin.policy), self._background.shared.clock.now()
        with in_words_of_a_program():
            timing = read_form(cron=cron, at=at, timezone=timezone)
        schedule = Schedule(
            id=new_schedule_id() if id is None else require_schedule_id(id),
            session=session.id,
            tool=found.name,
            arguments=jsonx.decode(require_fitting(found, require_arguments(args, session.hides, origin.policy))),
            title=title_of(found, title, session.hides),
            options=options_of(timeout, signal_on_completion, "resume"),
            timing=timing,
            misfire=read_misfire(misfire),
            overlap=read_overlap(overlap),
            next_at=None,
            created_at=now,
            provenance=jsonx.decode(provenance_of(origin, session.id)),
            authority=session.written_authority(origin),
        )
        mark = self._marker.mark(
            "schedules.add",
            schedule.tool,
            schedule.arguments,
            schedule.title,
            schedule.timing,
            schedule.options,
            (schedule.misfire, schedule.overlap),
            *(() if id is None else (id,)),
        )
        # Looked for first: a call that runs again must find its schedule also when the instant is past by then.
        known = None if mark is None else await self._store.added(mark)
        if known is not None:
            return self._handle(await self._own(known))
        given = jsonx.encode(schedule.arguments)
        require_allowed(origin, session.id, found, given)
        require_allowed(origin, session.id, found, given, source="schedule")  # as its runs will be judged
        there = None if id is None else await self._store.find(id)
        with in_words_of_a_program():
            # A schedule that exists already has its next instant, or had its last.
            next_at = require_next(timing, now) if there is None else there.next_at
        schedule = replace(schedule, next_at=next_at)
        await self._store.add(schedule, origin.policy.schedules_per_session, mark)
        self._background.poke()
        return self._handle(schedule if id is None else await self._own(id))

    async def list(self, *, active: bool = False) -> builtins.list[ScheduleHandle]:
        """The schedules of the session, the oldest first: all, or only the unfinished ones."""
        return [self._handle(schedule) for schedule in await self._store.list(self._session.id, active=active)]

    async def get(self, id: str) -> ScheduleHandle:
        """The handle of a schedule of this session.

        Raises:
            ScheduleError: there is none, or it is another session's.
        """
        return self._handle(await self._own(require_name("id of a schedule", id)))

    async def _own(self, id: str) -> Schedule:
        found = await self._store.find(id)
        if found is None or found.session != self._session.id:
            # The same for both: a session that does not own a schedule learns nothing of it.
            raise ScheduleError(
                f"There is no schedule {id!r:.200} in this session; list its schedules to see their ids", "not_found"
            )
        return found

    def _handle(self, schedule: Schedule) -> ScheduleHandle:
        return ScheduleHandle(
            self._background, schedule, self._store, self._marker, self._origin, self._session.all_tools
        )


async def list_schedules(background: Background, session: str | None, *, active: bool) -> list[ScheduleHandle]:
    """The schedules of a session or of all, the oldest first, for the owner of the store."""
    found = await background.shared.stores().schedules.list(session, active=active)
    return [_owners_handle(background, schedule) for schedule in found]


async def find_schedule(background: Background, id: str) -> ScheduleHandle:
    """The schedule of an id, of any session, for the owner of the store.

    Raises:
        ScheduleError: there is none.
    """
    found = await background.shared.stores().schedules.find(require_name("id of a schedule", id))
    if found is None:
        raise ScheduleError(f"There is no schedule {id!r} in the store; `schedules` lists them", "not_found")
    return _owners_handle(background, found)


def _owners_handle(background: Background, schedule: Schedule) -> ScheduleHandle:
    shared = background.shared
    origin = program_origin(shared.policy, ())
    return ScheduleHandle(background, schedule, shared.stores().schedules, Unmarked(), origin, shared.tools.snapshot)
