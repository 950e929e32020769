"""Time as people write and read it. Owns durations and dates on the command line; instants are seconds since 1970."""

from __future__ import annotations

import re
import time
from datetime import datetime

from toolwright.cli.exits import BadInput

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def read_moment(text: str, option: str) -> float:
    """The instant that a duration before now, or a date, stands for. A date without a zone is local.

    Raises:
        BadInput: it is neither.
    """
    if found := _DURATION.fullmatch(text.strip()):
        return time.time() - float(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{option} is {text!r}; use a duration such as 30d, 12h or 90m, or a date such as 2026-01-31"
        ) from None


def duration_of(text: str, option: str) -> float:
    """The seconds of a duration.

    Raises:
        BadInput: it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{option} is {text!r}; use a duration such as 30d, 12h or 90m")
    return float(found[1]) * _UNITS[found[2]]


def moment(instant: float | None) -> str:
    """An instant in local time; a dash where there is none."""
    if instant is None:
        return "-"
    try:
        return datetime.fromtimestamp(instant).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a file may hold any number
        return f"{instant:g}"


def until(instant: float | None, now: float) -> str:
    """How long it is until an instant, in one unit."""
    if instant is None:
        return "no deadline"
    left = instant - now
    return "over" if left <= 0 else f"{length(left)} left"


def length(duration: float) -> str:
    """A duration in one unit, as coarse as it is still told apart."""
    unit = next((name for name in ("d", "h", "m") if duration >= 2 * _UNITS[name]), "s")
    return f"{max(0.0, duration) / _UNITS[unit]:.0f} {unit}"
