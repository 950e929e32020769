"""Time zones, and changes of the clocks such as daylight saving time. Owns finding a zone by its IANA name, and which
instants an expression means in it.

An expression that leaves hours out names times of the day, and each of them fires once: at the first instant at which
the local clock shows it or has passed it. So a time that is skipped fires when the clock is put forward, together with
all others that are skipped, and a time that occurs twice fires the first time.

An expression that matches every hour is a rhythm, and continues in real time: `*/10 * * * *` fires every ten minutes
through both changes. It fires at each instant at which the clock shows a matching time, so skipped times are not made
up for, and repeated times fire twice.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from toolwright.errors import ScheduleError
from toolwright.schedules.expressions import walls

LONGEST = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = 86_400
# Files that the operating system stores beside the zones: one depends on the machine, and a `right/` clock counts leap
# seconds, which our instants do not.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this name.

    Raises:
        ScheduleError: there is none.
    """
    if len(name) <= LONGEST and name.partition("/")[0] not in _NOT_ZONES:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # not there, not a name, or the name of a folder
            pass
    raise ScheduleError(f"timezone {name[:LONGEST]!r} is not known; {_remedy(name[:LONGEST])}")


@lru_cache(maxsize=128)
def _remedy(name: str) -> str:
    """The remedy in the message. Finding it takes longer than all the rest, and many schedules may lack the same
    zone."""
    known = _known_zones()
    near = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.75)
    return f"did you mean {known[near[0]]!r}?" if near else "use an IANA name, such as 'Europe/Berlin' or 'UTC'"


@lru_cache(maxsize=1)
def _known_zones() -> dict[str, str]:
    """Names by themselves and by their city, whatever the case."""
    names = sorted(available_timezones() - _NOT_ZONES)
    cities = {name.rpartition("/")[2].casefold(): name for name in reversed(names)}
    return cities | {name.casefold(): name for name in names}


# --- local times, through changes of the clocks


def next_time_of_day(cron: str, zone: ZoneInfo, second: int) -> int | None:
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


def next_beat(cron: str, zone: ZoneInfo, second: int) -> int | None:
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
