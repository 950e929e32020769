"""When a schedule is due. Owns the instants of a timing; does not own reading a timing, changes of the clocks
(`time_zones.py`), nor the handling of missed instants (`misfires.py`)."""

from __future__ import annotations

import math

from toolwright.schedules.expressions import matches_every_hour
from toolwright.schedules.time_zones import find_zone, next_beat, next_time_of_day
from toolwright.stores.contracts.schedule import Timing

_MINUTE = 60


def next_after(timing: Timing, instant: float) -> float | None:
    """The first instant strictly after this one at which a timing is due, or None when there is none.

    Raises:
        ScheduleError: its zone is not known here.
    """
    if timing.cron is None:
        return timing.at if timing.at is not None and timing.at > instant else None
    zone = find_zone(timing.timezone)
    following = next_beat if matches_every_hour(timing.cron) else next_time_of_day
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
