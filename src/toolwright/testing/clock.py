"""A clock that a test moves by hand. Owns time and its timers; does not own the event loop or threads."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

# Instants that a test adds up in pieces (0.02 + 0.03) may miss a timer's by a rounding error.
_SLACK = 1e-9
# For loops that do not expose their ready callbacks.
_BLIND_TURNS = 200
_MOST_TICKS = 100_000


class FakeClock:
    """A `Clock` that stands still until `advance` is awaited.

    Pass it to the runtime, and to your tools that wait, and no test has to sleep:

    ```python
    from toolwright import Runtime, tool
    from toolwright.testing import FakeClock


    async def test_a_slow_report_is_stopped_after_ten_seconds():
        clock = FakeClock()

        @tool(timeout=10)
        async def report() -> str:
            await clock.sleep(3600)
            return "done"

        async with Runtime.open(tools=[report], clock=clock) as runtime:
            batch = runtime.session("s1").start_batch([{"name": "report"}])
            await clock.advance(9.9)
            assert not batch.done
            await clock.advance(0.1)
            (outcome,) = await batch
            assert outcome.failure.category == "timeout"
    ```

    It moves only timers of this clock. `asyncio.sleep`, threads, child processes and sockets take real time: when one
    of these is part of a test, await its result (an event, the batch) before advancing past it. A runtime that closes
    while calls run waits for their grace, so close it in a separate task and advance, or end the calls first.

    `jump` puts the wall clock forward or back, as a person or a time server does: `now` changes, timers do not.

    A clock belongs to the event loop of its test; do not share one between tests.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._start = now
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = count()

    def now(self) -> float:
        """The wall clock: `now` as given at the start, plus all that was advanced and all that it jumped."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """The seconds advanced so far."""
        return self._elapsed

    def call_at(self, when: float, callback: Callable[..., Any], *args: object) -> FakeTimer:
        """Run `callback` when `monotonic()` reaches `when`; an instant that has passed is due at the next advance."""
        timer = FakeTimer(when, callback, args)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until this much was advanced; zero or less gives other tasks one tick of the loop, as `asyncio.sleep`
        does."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_at(self._elapsed + seconds, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time forward and fire the timers that are due, in order, each at its own instant.

        Before the first timer and after each one the loop runs until it has nothing left to do, so timers that are set
        on the way fire too when they are due. `advance(0)` fires the timers that are due now.

        Raises:
            ValueError: `seconds` is negative or not a number.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"the clock cannot advance by {seconds!r}; use a number of seconds, 0 or more")
        target = self._elapsed + seconds
        await self.settle()
        while (timer := self._next()) is not None and timer.when <= target + _SLACK:
            heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, timer.when)
            timer.fire()
            await self.settle()
        self._elapsed = max(self._elapsed, target)

    def jump(self, seconds: float) -> None:
        """Put the wall clock forward, or back by a negative number; `monotonic` and the timers stay as they are.

        Raises:
            ValueError: `seconds` is not a finite number.
        """
        if not math.isfinite(seconds):
            raise ValueError(f"the clock cannot jump by {seconds!r}; use a number of seconds")
        self._start += seconds

    async def settle(self) -> None:
        """Let the loop run until it has nothing left to do, without moving time.

        Work in a thread, a child process or a socket is not waited for.

        Raises:
            RuntimeError: a task keeps the loop busy and never waits.
        """
        # Not public, and the only way to see whether callbacks are left; a loop without it gets a fixed number of
        # ticks.
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        if ready is None:
            for _ in range(_BLIND_TURNS):
                await asyncio.sleep(0)
            return
        quiet = 0
        for _ in range(_MOST_TICKS):
            await asyncio.sleep(0)
            quiet = 0 if ready else quiet + 1
            if quiet == 2:  # a tick that shows nothing may still pick up data of a socket or thread
                return
        raise RuntimeError(
            f"the loop was still busy after {_MOST_TICKS} ticks; a task spins on sleep(0), let it wait for something"
        )

    @property
    def pending(self) -> int:
        """How many timers are set and have neither fired nor been cancelled."""
        return sum(not timer.done for _, _, timer in self._timers)

    @property
    def next_in(self) -> float | None:
        """Seconds until the next timer fires; None when none is set."""
        timer = self._next()
        return None if timer is None else max(0.0, timer.when - self._elapsed)

    def _next(self) -> FakeTimer | None:
        while self._timers and self._timers[0][2].done:
            heapq.heappop(self._timers)
        return self._timers[0][2] if self._timers else None

    def __repr__(self) -> str:
        return f"<FakeClock at {self._elapsed:g} s, {self.pending} timers>"


class FakeTimer:
    """A timer of a `FakeClock`."""

    __slots__ = ("_args", "_callback", "_context", "done", "when")

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.when = when
        self.done = False
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context()  # as a loop's own timers do

    def fire(self) -> None:
        """Run the callback; called by the clock."""
        self.done = True
        self._context.run(self._callback, *self._args)

    def cancel(self) -> None:
        """Take the timer back; it never fires."""
        self.done = True


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
