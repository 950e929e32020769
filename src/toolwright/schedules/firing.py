"""Firing what is due. Owns what a schedule starts for an instant; whoever is first in the store does it."""

from __future__ import annotations

import logging

from toolwright import jsonx
from toolwright.errors import ScheduleError
from toolwright.processes.process import Registration, new_process_id
from toolwright.processes.store import Limits
from toolwright.schedules.misfires import Due, due_now
from toolwright.schedules.misfires import Firing as Instant
from toolwright.schedules.schedule import Schedule, rfc3339
from toolwright.schedules.store import Firing, ScheduleStore

log = logging.getLogger("toolwright.schedules")

PORTION = 100
"""Schedules that are fired at a time: other work of the worker comes in between."""


async def fire_due(store: ScheduleStore, limits: Limits, now: float) -> int:
    """Fire every schedule whose instant has come; return how many runs were started."""
    started = 0
    for schedule in await store.due(now, PORTION):
        assert schedule.next_at is not None
        try:
            due = due_now(schedule.timing, schedule.next_at, now, schedule.misfire)
        except ScheduleError as error:  # such as a zone that this machine does not know
            log.warning("The schedule %r can not be fired here: %s", schedule.id, error)
            continue
        runs = await store.fire(schedule.id, schedule.next_at, _firings(schedule, due, now), due.next, now, limits)
        started += len(runs or ())
    return started


def _firings(schedule: Schedule, due: Due, now: float) -> list[Firing]:
    passed = [] if due.skipped is None else [Firing(due.skipped, "missed", None)]
    return passed + [_firing(schedule, now, instant) for instant in due.firings]


def _firing(schedule: Schedule, now: float, instant: Instant) -> Firing:
    # What is made up for under "all" is wanted, one after the other: it waits where the rest would be passed over.
    waits = schedule.overlap == "queue" or (schedule.overlap == "skip" and schedule.misfire == "all" and instant.missed)
    registration = start_of(schedule, now, instant.instant, alone=waits)
    return Firing(instant.instant, "fired", registration, schedule.overlap == "skip" and not waits)


def start_of(schedule: Schedule, now: float, instant: float, *, alone: bool = False) -> Registration:
    """The run that a schedule starts, from what was stored with it."""
    origin = {"by": "schedule", "schedule_id": schedule.id, "instant": rfc3339(instant)}
    return Registration(
        id=new_process_id(),
        session=schedule.session,
        tool=schedule.tool,
        arguments=jsonx.encode(schedule.arguments),
        title=schedule.title,
        options=schedule.options,
        at=now,
        schedule=schedule.id,
        alone=alone,
        provenance=jsonx.encode(origin),
    )
