"""Time as a parameter. Owns reading the clock and setting timers; does not own the work of a timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol


class Timer(Protocol):
    """A timer that is set, and can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the runtime reads time and sets timers.

    `now` is the wall clock in seconds since the epoch, for stored and shown instants. `monotonic` never goes back and
    is for durations and timers. `call_at` runs `callback` on the running loop once `monotonic()` reaches `when`.
    """

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: object) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock, with the running event loop's timers."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[..., Any], *args: object) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_at(loop.time() + when - time.monotonic(), callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Expiring(Protocol):
    """Something with a deadline."""

    def expire(self) -> None: ...


class Deadlines:
    """Deadlines of many calls behind few timers: one timer for each distinct length of time, not one a call.

    Deadlines of one length expire in the order they were set, so each length needs only an ordered dict and a timer
    for its first entry. Setting and clearing cost a dict operation; a timer that finds nothing due re-arms itself.
    """

    __slots__ = ("_buckets", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[float, DeadlineBucket] = {}

    def bucket(self, seconds: float) -> DeadlineBucket:
        """Return the deadlines of this length; `add` and `discard` on it are the hot path."""
        bucket = self._buckets.get(seconds)
        if bucket is None:
            bucket = self._buckets[seconds] = DeadlineBucket(self._clock, seconds)
        return bucket

    @property
    def pending(self) -> int:
        """How many deadlines are set."""
        return sum(map(len, self._buckets.values()))

    def close(self) -> None:
        """Cancel every timer; none of them fires."""
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()


class DeadlineBucket:
    """The deadlines that all lie the same length of time ahead."""

    __slots__ = ("_clock", "_due", "_monotonic", "_seconds", "_timer")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._seconds = seconds
        self._due: dict[Expiring, float] = {}
        self._timer: Timer | None = None

    @property
    def seconds(self) -> float:
        """How long each item has."""
        return self._seconds

    def add(self, item: Expiring, now: float | None = None) -> None:
        """Expire `item` once the bucket's length of time has passed since `now`, unless it is discarded before."""
        self._due[item] = when = (self._monotonic() if now is None else now) + self._seconds
        if self._timer is None:
            self._timer = self._clock.call_at(when, self._fire)

    def discard(self, item: Expiring) -> None:
        """Forget the deadline of `item`, if it still has one here."""
        self._due.pop(item, None)

    def __len__(self) -> int:
        return len(self._due)

    def _fire(self) -> None:
        self._timer = None
        now = self._monotonic()
        expired: list[Expiring] = []
        for item, when in self._due.items():
            if when > now:
                self._timer = self._clock.call_at(when, self._fire)
                break
            expired.append(item)
        for item in expired:
            del self._due[item]
        for item in expired:
            item.expire()

    def close(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def rfc3339(instant: float | None) -> str | None:
    """An instant, given in seconds since the epoch, as text in UTC, such as "2026-04-16T15:30:00.250000Z"."""
    if instant is None:
        return None
    return datetime.fromtimestamp(instant, UTC).isoformat().replace("+00:00", "Z")
