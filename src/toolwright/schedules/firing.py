"""Firing due schedules. Owns the run that a schedule starts for an instant; the first worker to write it starts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property

from toolwright import jsonx
from toolwright.clock import Clock, rfc3339
from toolwright.drivers.contract import HandedBack, Work, WorkResult
from toolwright.errors import ScheduleError
from toolwright.log_fields import log_fields
from toolwright.schedules.misfires import Due, due_now
from toolwright.schedules.misfires import Firing as Instant
from toolwright.stores.contracts.background_run import Registration, new_run_id
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.schedule import Schedule
from toolwright.stores.contracts.schedule_store import Firing, ScheduleStore

log = logging.getLogger("toolwright.schedules")

LAST_ID = "\U0010ffff"
"""Comes after the id of every schedule."""
PORTION = 100
"""Schedules that are fired at a time: other work of the worker comes in between."""
AHEAD = 5.0
"""Seconds that the clock of a driver may be ahead of this one's: so long a schedule that is brought is waited for."""


class Scheduler:
    """Fires the schedules of one store, beside other workers: each instant is fired by one of them."""

    def __init__(self, store: Callable[[], ScheduleStore], limits: Limits) -> None:
        """`store` gives the store when it is first needed."""
        self._find_store = store
        self._limits = limits
        self._unfit: set[str] = set()
        self.next_at: float | None = None
        """The next instant of a schedule, as it was after the last firing."""

    @cached_property
    def _store(self) -> ScheduleStore:
        return self._find_store()

    async def fire_due(self, now: float) -> bool:
        """Fire due schedules, at most one portion of them; True when there may be more."""
        first = await self._store.due(float("inf"), 1)
        self.next_at = first[0].next_at if first else None
        if self.next_at is None or self.next_at > now:
            return False
        fired, after = 0, None
        while fired < PORTION:
            due = await self._store.due(now, PORTION, after)
            # Together: schedules that fire at the same time are written in one transaction.
            fired += sum(await asyncio.gather(*(self._fire(schedule, now) for schedule in due)))
            if len(due) < PORTION:
                later = await self._store.due(float("inf"), 1, (now, LAST_ID))
                self.next_at = later[0].next_at if later else None
                return False
            # Schedules that cannot be fired here stay due, and must not block the others.
            after = due[-1].next_at or 0.0, due[-1].id
        return True

    async def waiting(self) -> list[Work]:
        """The active schedules, each with its next instant."""
        found = await self._store.list(None, active=True)
        return [
            Work(
                kind="schedule",
                id=schedule.id,
                session=schedule.session,
                tool=schedule.tool,
                title=schedule.title,
                not_before=schedule.next_at,
            )
            for schedule in found
            if schedule.state == "active" and schedule.next_at is not None
        ]

    async def work(self, id: str, clock: Clock) -> WorkResult:
        """Fire one schedule, if it is due; it waits for its next instant then. A paused one is brought again when it is
        resumed.

        Raises:
            HandedBack: this process cannot fire it.
        """
        while True:
            schedule = await self._store.find(id)
            if schedule is None or schedule.state != "active" or schedule.next_at is None:
                return WorkResult(state="ended", status="removed" if schedule is None else schedule.state)
            early = schedule.next_at - clock.now()
            if early > AHEAD:
                return WorkResult(state="waiting", again_at=schedule.next_at)
            if early > 0:
                # Told to bring it again at that instant, the driver would do so at once, very many times.
                await clock.sleep(early)
                continue
            if not await self._fire(schedule, clock.now()):
                raise HandedBack(f"The schedule {id!r} cannot be fired by this worker; its log says why")

    async def cancel(self, id: str) -> None:
        """Fire a schedule no more."""
        await self._store.change(id, ("active", "paused"), "cancelled", None, None)

    async def _fire(self, schedule: Schedule, now: float) -> bool:
        """Fire one schedule, unless another worker was first; False when this process cannot."""
        if schedule.id in self._unfit:
            return False
        assert schedule.next_at is not None
        try:
            due = due_now(schedule.timing, schedule.next_at, now, schedule.misfire)
        except ScheduleError as error:  # such as a zone that this machine does not know
            self._unfit.add(schedule.id)
            log.warning(
                "The schedule %r is not fired by this worker until it is restarted: %s",
                schedule.id,
                error,
                extra=log_fields("schedule.not_fired", schedule_id=schedule.id, session=schedule.session),
            )
            return False
        await self._store.fire(schedule.id, schedule.next_at, _firings(schedule, due, now), due.next, now, self._limits)
        return True


def _firings(schedule: Schedule, due: Due, now: float) -> list[Firing]:
    passed = [] if due.skipped is None else [Firing(due.skipped, "missed", None)]
    return passed + [_firing(schedule, now, instant) for instant in due.firings]


def _firing(schedule: Schedule, now: float, instant: Instant) -> Firing:
    # Missed instants under "all" are wanted one after the other: they wait where others would be skipped.
    waits = schedule.overlap == "queue" or (schedule.overlap == "skip" and schedule.misfire == "all" and instant.missed)
    registration = start_of(schedule, now, instant.instant, alone=waits)
    return Firing(instant.instant, "fired", registration, schedule.overlap == "skip" and not waits)


def start_of(schedule: Schedule, now: float, instant: float, *, alone: bool = False) -> Registration:
    """The run that a schedule starts, from its stored options."""
    origin = {"by": "schedule", "schedule_id": schedule.id, "instant": rfc3339(instant)}
    return Registration(
        id=new_run_id(),
        session=schedule.session,
        tool=schedule.tool,
        arguments=jsonx.encode(schedule.arguments),
        title=schedule.title,
        options=schedule.options,
        at=now,
        schedule=schedule.id,
        alone=alone,
        provenance=jsonx.encode(origin),
        authority=schedule.authority,
    )
