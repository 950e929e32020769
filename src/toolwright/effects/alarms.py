"""Instants to wake at. Owns one timer for all of them; does not own the work at an instant."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from toolwright.clock import Clock, Timer

LONGEST_NAP = 60.0
"""Seconds after which the wall clock is read again: it may have been set meanwhile."""
TOLERANCE = 0.001
"""Seconds that an alarm may ring early: two clocks never agree to the last digit."""


class Alarm:
    """One instant, in seconds since the epoch."""

    __slots__ = ("instant", "ring")

    def __init__(self, instant: float, ring: Callable[[], None]) -> None:
        self.instant = instant
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        """It never rings."""
        self.ring = None


class Alarms:
    """Alarms at absolute instants, behind a single timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._number = count().__next__
        self._timer: Timer | None = None
        self._due = float("inf")

    def set(self, instant: float, ring: Callable[[], None]) -> Alarm:
        """Call `ring` at an instant, or soon if that is past."""
        alarm = Alarm(instant, ring)
        heapq.heappush(self._heap, (instant, self._number(), alarm))
        self._arm()
        return alarm

    def close(self) -> None:
        """Forget them all."""
        self._heap.clear()
        self._stop()

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].ring is None:
            heapq.heappop(self._heap)
        if not self._heap:
            self._stop()
            return
        first = self._heap[0][0]
        if self._timer is None or first < self._due:
            self._stop()
            self._due = first
            nap = min(max(0.0, first - self._clock.now()), LONGEST_NAP)
            self._timer = self._clock.call_at(self._clock.monotonic() + nap, self._wake)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now + TOLERANCE:
            ring = heapq.heappop(self._heap)[2].ring
            if ring is not None:
                ring()
        self._arm()
