"""When a schedule is due. Owns the instants of a timing, through every change of the clocks; does not own reading a
timing, nor the handling of missed instants.

An expression that leaves hours out names times of the day, and each of them fires once: at the first instant at which
the local clock shows it or has passed it. So a time that is skipped fires when the clock is put forward, together with
all others that are skipped, and a time that occurs twice fires the first time.

An expression that matches every hour is a rhythm, and continues in real time: `*/10 * * * *` fires every ten minutes
through both changes. It fires at each instant at which the clock shows a matching time, so skipped times are not made
up for, and repeated times fire twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from toolwright.schedules.expressions import matches_every_hour, walls
from toolwright.schedules.zones import find_zone
from toolwright.stores.contracts.schedule import Timing

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MINUTE = 60
_DAY = 86_400


def next_after(timing: Timing, instant: float) -> float | None:
    """The first instant strictly after this one at which a timing is due, or None when there is none.

    Raises:
        ScheduleError: its zone is not known here.
    """
    if timing.cron is None:
        return timing.at if timing.at is not None and timing.at > instant else None
    zone = find_zone(timing.timezone)
    following = _next_beat if matches_every_hour(timing.cron) else _next_time
    try:
        # Whatever is due is due at a whole second.
        found = following(timing.cron, zone, math.floor(instant))
    except OverflowError:  # beyond the calendar's last year
        return None
    return None if found is None else float(found)


def due_between(timing: Timing, after: float, until: float, most: int | None = None) -> list[float]:
    """The instants after one and up to another, all or the first `most` of them."""
    due: list[float] = []
    while (most is None or len(due) < most) and (found := next_after(timing, after)) is not None and found <= until:
        due.append(found)
        after = found
    return due


def latest_due(timing: Timing, after: float, until: float) -> float | None:
    """The last instant after one and up to another, or None. It is found without visiting the earlier ones."""
    found = next_after(timing, after)
    if found is None or found > until:
        return None
    # Nothing is due after `beyond` and up to `until`. Looking back in growing steps soon finds a near one.
    beyond, step = until, _MINUTE
    while until - step > found:
        near = next_after(timing, until - step)
        if near is not None and near <= until:
            found = near
            break
        beyond = until - step
        step *= 2
    while (following := next_after(timing, found)) is not None and following <= until:
        found = following
        middle = (found + beyond) / 2
        ahead = next_after(timing, middle)
        if ahead is not None and ahead <= until:
            found = ahead
        else:
            beyond = middle
    return found


def _next_time(cron: str, zone: ZoneInfo, second: int) -> int | None:
    """The next instant of an expression that names times of the day."""
    for wall in walls(cron, _wall(zone, second)):
        # When an hour comes again, the times in it lie ahead on the wall clock, but were reached before.
        if (reached := _reached(zone, wall)) > second:
            return reached
    return None


def _reached(zone: ZoneInfo, wall: datetime) -> int:
    """The first second at which the clock on the wall shows this time or a later one."""
    first, last = sorted(_seconds(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first == last or _wall(zone, first) == wall:
        return first
    # The time is skipped; the clock is put forward between the two readings of it.
    return first + bisect_left(range(first, last + 1), True, key=lambda second: _wall(zone, second) >= wall)


def _next_beat(cron: str, zone: ZoneInfo, second: int) -> int | None:
    """The next instant of an expression that matches every hour, sought from one change of the clocks to the next."""
    wall = _wall(zone, second)
    while (match := next(walls(cron, wall), None)) is not None:
        beat = _seconds(match.replace(tzinfo=UTC) - _offset(zone, second))
        change = _next_change(zone, second, beat)
        if change is None:
            return beat
        second = change
        wall = _wall(zone, second) - _SECOND  # the first time that the changed clock shows counts
    return None


def _next_change(zone: ZoneInfo, second: int, until: int) -> int | None:
    """The first second after one and up to another with a new offset. No zone changes twice within a day."""
    offset = _offset(zone, second)
    while second < until:
        stop = min(second + _DAY, until)
        if _offset(zone, stop) != offset:
            ahead = range(second, stop + 1)
            return ahead[bisect_left(ahead, True, key=lambda one: _offset(zone, one) != offset)]
        second = stop
    return None


def _local(zone: ZoneInfo, second: int) -> datetime:
    return (_EPOCH + timedelta(seconds=second)).astimezone(zone)


def _wall(zone: ZoneInfo, second: int) -> datetime:
    return _local(zone, second).replace(tzinfo=None, fold=0)


def _offset(zone: ZoneInfo, second: int) -> timedelta:
    return _local(zone, second).utcoffset() or timedelta()


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _SECOND
