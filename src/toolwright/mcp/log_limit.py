"""Log lines that a server causes. Owns how many of them are written; does not own their words."""

from __future__ import annotations

from collections.abc import Callable

MOST_LINES = 200
"""Lines of one kind in each period."""
PERIOD = 10.0
"""Seconds of a period."""


class LogLimit:
    """Lets so many log lines pass in each period, and counts the others."""

    __slots__ = ("_began", "_left_out", "_monotonic", "_most", "_written")

    def __init__(self, monotonic: Callable[[], float], most: int = MOST_LINES) -> None:
        self._monotonic = monotonic
        self._most = most
        self._began = float("-inf")
        self._written = 0
        self._left_out = 0

    def take(self) -> int | None:
        """None for a line that is left out; for one that is written, how many were left out before it."""
        now = self._monotonic()
        if now - self._began >= PERIOD:
            self._began, self._written = now, 0
        if self._written >= self._most:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
