"""Missed instants: the misfire policy. Does not own the clock, the store or the firing.

An instant is missed once it is more than `GRACE` seconds old; until then it fires as if it were on time, under every
policy. Of the missed ones, "skip" fires none, "once" the latest, and "all" every one up to the latest `MOST_CAUGHT_UP`.

The stored next instant only rises. So a clock that is put back fires nothing again, and a schedule waits until that
clock has come to the stored instant, however long; `run now` does not wait for it.
"""

from __future__ import annotations

import math

import msgspec

from toolwright.errors import ScheduleError
from toolwright.schedules.timing import due_between, latest_due, next_after
from toolwright.stores.contracts.schedule import MISFIRES, Misfire, Timing

GRACE = 60.0
MOST_CAUGHT_UP = 100
_MINUTE = 60.0


class Firing(msgspec.Struct, frozen=True):
    """One instant to fire for, by the instant itself and never by when it is fired."""

    instant: float
    missed: bool


class Due(msgspec.Struct, frozen=True):
    """The instants that a schedule fires now, in order, and the next instant to store. None when it is finished.

    `skipped` is the first instant that is passed over, and None when none is.
    """

    firings: tuple[Firing, ...]
    next: float | None
    skipped: float | None = None


def read_misfire(value: object) -> Misfire:
    """Return the policy of this name.

    Raises:
        ScheduleError: there is none.
    """
    if not isinstance(value, str) or value not in MISFIRES:
        shown = repr(value[:64]) if isinstance(value, str) else repr(type(value).__name__)
        raise ScheduleError(f"misfire {shown} is not a policy; use {', '.join(map(repr, MISFIRES))}")
    return MISFIRES[MISFIRES.index(value)]


def due_now(timing: Timing, stored: float, now: float, misfire: Misfire = "once") -> Due:
    """Choose the instants to fire at `now`, for a schedule whose stored next instant this is."""
    read_misfire(misfire)
    if now < stored:
        return Due((), stored)
    grace = now - GRACE
    missed: list[float] = []
    skipped = None
    if stored >= grace:
        on_time = [stored, *due_between(timing, stored, now, MOST_CAUGHT_UP)]
    else:
        before = math.nextafter(grace, -math.inf)
        on_time = due_between(timing, before, now, MOST_CAUGHT_UP)
        if misfire != "skip":
            missed = _latest(timing, stored, before, 1 if misfire == "once" else MOST_CAUGHT_UP)
        skipped = None if missed[:1] == [stored] else stored
    firings = [Firing(instant, True) for instant in missed] + [Firing(instant, False) for instant in on_time]
    return Due(tuple(firings), next_after(timing, now), skipped)


def after_pause(timing: Timing, stored: float, now: float) -> float | None:
    """The instant to store when a schedule is resumed. Instants during the pause are not missed: they were not
    wanted."""
    return stored if stored > now else next_after(timing, now)


def _latest(timing: Timing, stored: float, until: float, most: int) -> list[float]:
    """The latest instants up to one, oldest first; the stored one is the oldest there is."""
    if most == 1:
        latest = latest_due(timing, stored, until)
        return [stored if latest is None else latest]
    # Looking back twice as far each time soon finds enough, and few that are not needed.
    span = _MINUTE * most
    while True:
        start = max(stored, until - span)
        found = due_between(timing, start, until)
        if start == stored:
            found.insert(0, stored)
        if len(found) >= most or start == stored:
            return found[-most:]
        span *= 2
