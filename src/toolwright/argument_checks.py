"""Checks of callers' arguments. Owns refusing values of the wrong type, with a message that names the value and the
type."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TypeGuard

from toolwright.errors import ToolwrightError

MOST = 2**63 - 1
"""The largest whole number of a store."""


def unusable(what: str, given: object, use: str) -> ToolwrightError:
    """The refusal of something that was given."""
    return ToolwrightError(f"The {what} {given!r:.200} is not usable; use {use}")


def is_number(given: object) -> TypeGuard[float]:
    """Whether it is a number that a float can hold: infinity is one, and NaN, True and a larger integer are none."""
    if isinstance(given, float):
        return not math.isnan(given)
    return isinstance(given, int) and not isinstance(given, bool) and abs(given) <= sys.float_info.max


def require_text(what: str, given: object) -> str:
    """Text, such as a reason.

    Raises:
        ToolwrightError: it is something else.
    """
    if not isinstance(given, str):
        raise unusable(what, given, "text")
    return given


def require_seconds(what: str, given: object) -> float:
    """Seconds to wait. A negative number is no time, as for the rest until an instant that is past.

    Raises:
        ToolwrightError: it is no number.
    """
    if not is_number(given):
        raise unusable(what, given, "a number of seconds")
    return given


def require_count(what: str, given: object, least: int = 1) -> int:
    """A whole number that a store can compare with.

    Raises:
        ToolwrightError: it is something else, too small, or too large.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise unusable(what, given, f"a whole number, {least} or more")
    if given > MOST:
        raise unusable(what, given, f"a whole number, {MOST} or less")
    return given


def require_path(what: str, given: object) -> Path:
    """The path of a file.

    Raises:
        ToolwrightError: it is something else.
    """
    if not isinstance(given, (str, Path)) or not str(given):
        raise unusable(what, given, "the path of a file")
    return Path(given)
