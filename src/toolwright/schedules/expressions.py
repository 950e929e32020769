"""Cron expressions. Owns which are accepted and which times they match on a calendar; does not own time zones.

An expression has five fields: minute, hour, day of month, month, day of week. A field takes `*`, numbers, ranges, lists
and steps; months and days of the week have names too, and 0 and 7 are both Sunday. A day matches when both day fields
do if one of them begins with `*`, and when either does if none begins so, as in Debian's cron. Beyond that, `L` and
`LW` are a month's last day and last weekday, `5L` its last Friday and `5#2` its second.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from toolwright.errors import ScheduleError

if TYPE_CHECKING:
    from cronsim import CronSim

LONGEST = 256
FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_REMEDY = f"use five fields ({', '.join(FIELDS)}), such as '*/10 * * * *'"
_ANY_DAY = datetime(2000, 1, 1)


def read_expression(text: str) -> str:
    """Return an expression with one space between its fields.

    Raises:
        ScheduleError: it does not have five fields, or one of them is not right.
    """
    if len(text) > LONGEST:
        raise ScheduleError(f"cron_expression has {len(text)} characters, and at most {LONGEST} are taken; {_REMEDY}")
    fields = text.split()
    if len(fields) != len(FIELDS):
        raise ScheduleError(f"cron_expression {text!r} has {len(fields)} instead of five fields; {_REMEDY}")
    cron = " ".join(fields)
    walls(cron, _ANY_DAY)
    return cron


def walls(cron: str, after: datetime) -> Iterator[datetime]:
    """The times of the wall clock that an expression matches, without a zone, strictly after one of them.

    They end where nothing matches for fifty years.

    Raises:
        ScheduleError: the expression is not usable.
    """
    return _parsed(cron, after)


@lru_cache(maxsize=1024)
def matches_every_hour(cron: str) -> bool:
    """Whether the hour field leaves no hour out, however it is written."""
    return len(_parsed(cron, _ANY_DAY).hours) == 24


def never_fires(cron: str) -> ScheduleError:
    """The refusal of an expression whose fields are valid but never match together, such as a 30 February."""
    return ScheduleError(f"cron_expression {cron!r} never fires; use a day that its months have")


def _parsed(cron: str, after: datetime) -> CronSim:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(cron, after)
    except CronSimError:
        pass
    # Each field is tried alone: the library also refuses days that none of the months has, in the same words.
    for place, field in enumerate(cron.split()):
        alone = ["*"] * len(FIELDS)
        alone[place] = field
        try:
            CronSim(" ".join(alone), after)
        except CronSimError:
            raise ScheduleError(f"cron_expression {cron!r} has a bad {FIELDS[place]}, {field!r}; {_REMEDY}") from None
    raise never_fires(cron)
