"""Limits on requests. Owns their values, and the rate of requests by caller; who counts bytes and streams is above."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields

from toolwright.argument_checks import is_number
from toolwright.errors import ToolwrightError
from toolwright.http.access.refusals import TooManyRequests

MiB = 1024 * 1024
_RATES = ("body_rate", "requests_per_second", "wrong_tokens_per_minute")
"""Limits that something is divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a service takes from its clients. Durations are in seconds."""

    body_bytes: int = 16 * MiB
    """Of a JSON body; an upload of a file is limited by the quota of its session."""
    header_bytes: int = 32 * 1024
    """Of the request line and the headers together."""
    headers: int = 100
    header_seconds: float = 10.0
    """For the headers of a request, from its first byte, or from the connection."""
    body_seconds: float = 30.0
    """Between two parts of a body."""
    body_rate: int = 1024
    """Bytes a second that a body must have on average, after its first `body_seconds`, and that a client must take of
    an answer that waits for it."""
    answer_seconds: float = 300.0
    """That a batch or a turn is waited for before the answer is 202; the work goes on."""
    send_seconds: float = 60.0
    """Until a client takes the next part of an answer."""
    idle_seconds: float = 15.0
    """Until a connection is closed that has no request."""
    connections: int = 5_000
    streams: int = 4_000
    """Answers that are open as streams of events."""
    streams_per_caller: int = 2_000
    requests_per_second: float = 2_000.0
    """By one caller, on average."""
    requests_at_once: int = 4_000
    """By one caller, after a pause."""
    wrong_tokens_per_minute: float = 30.0
    """By one address, on average."""
    wrong_tokens_at_once: int = 20
    """By one address, after a pause."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not is_number(value) or value < 0 or (value == 0 and each.name in _RATES):
                use = "a number above 0" if each.name in _RATES else "a number, 0 or more"
                raise ToolwrightError(f"Limits {each.name}={value!r:.200} is not usable; use {use}")


class Rate:
    """Counts by name how often something happens, and says when it is too often: so many at once, and so many a second
    after that. It remembers `most` names, those that were used last."""

    def __init__(self, per_second: float, at_once: int, most: int = 10_000) -> None:
        self._per_second = per_second
        self._at_once = float(at_once)
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> float:
        """Count one, and return 0; or, where it is one too many, return after how many seconds it would not be."""
        left, at = self._left.get(name, (self._at_once, now))
        left = min(self._at_once, left + max(0.0, now - at) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._left[name] = (left if wait else left - 1, now)
        self._left.move_to_end(name)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait

    def require(self, name: str, now: float, message: str) -> None:
        """Count one.

        Raises:
            TooManyRequests: it is one too many.
        """
        wait = self.take(name, now)
        if wait:
            raise TooManyRequests(message, wait)
