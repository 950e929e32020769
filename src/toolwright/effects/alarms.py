"""Alarms at instants of the wall clock. Owns waking at each of very many, by one timer; does not own what rings."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count

from toolwright.clock import Clock, Timer

LONGEST_NAP = 60.0
"""Seconds after which the wall clock is read again: it may have been set meanwhile."""
TOLERANCE = 0.001
"""Seconds that an alarm may ring early: two clocks never agree to the last digit."""
FEWEST = 64
"""How many alarms are kept before those that were cancelled are looked for."""


class Alarm(ABC):
    """One instant, in seconds since the epoch, at which something rings."""

    __slots__ = ("instant", "number")

    def __init__(self) -> None:
        self.instant = math.inf  # until it is set
        self.number = 0

    def __lt__(self, other: Alarm) -> bool:
        return (self.instant, self.number) < (other.instant, other.number)

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """True when it never rings."""

    @abstractmethod
    def ring(self) -> None:
        """The instant has come."""


class Bell(Alarm):
    """An alarm that calls a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self._function: Callable[[], object] | None = function

    @property
    def cancelled(self) -> bool:
        """True when it never rings."""
        return self._function is None

    def cancel(self) -> None:
        """It never rings."""
        self._function = None

    def ring(self) -> None:
        """Call the function."""
        if self._function is not None:
            self._function()


class Alarms:
    """Alarms at absolute instants, behind a single timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Alarm] = []
        self._sweep_at = FEWEST
        self._number = count().__next__
        self._timer: Timer | None = None
        self._due = float("inf")

    def call_at(self, instant: float, function: Callable[[], object]) -> Bell:
        """Call a function at an instant, or soon if that is past."""
        bell = Bell(function)
        self.set(bell, instant)
        return bell

    def set(self, alarm: Alarm, instant: float) -> None:
        """Let an alarm ring at an instant, or soon if that is past. Those of one instant ring in the order of this."""
        alarm.instant, alarm.number = instant, self._number()
        if len(self._heap) >= self._sweep_at:
            # The deadline of a wait that was resolved may be days away.
            self._heap = [each for each in self._heap if not each.cancelled]
            heapq.heapify(self._heap)
            self._sweep_at = max(FEWEST, 2 * len(self._heap))
        heapq.heappush(self._heap, alarm)
        self._arm()

    def close(self) -> None:
        """Forget them all."""
        self._heap.clear()
        self._stop()

    def _arm(self) -> None:
        while self._heap and self._heap[0].cancelled:
            heapq.heappop(self._heap)
        if not self._heap:
            self._stop()
            return
        first = self._heap[0].instant
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
        while self._heap and self._heap[0].instant <= now + TOLERANCE:
            alarm = heapq.heappop(self._heap)
            if not alarm.cancelled:
                alarm.ring()
        self._arm()
