"""Time zones by their IANA names. Owns finding them; does not own local times."""

from __future__ import annotations

import difflib
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from toolwright.errors import ScheduleError

LONGEST = 64
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
