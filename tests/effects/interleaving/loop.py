"""An event loop where chance decides who runs next. Owns virtual time and the turns of several processes.

Each process keeps the order of its own callbacks, as asyncio promises; which process gets the next turn is drawn from
a seeded generator. Time stands still while anybody has something to do, and then jumps to the next timer. What nobody
uses any more, such as a session, is collected once in a virtual second, and not when chance has it.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose callback it is. Tasks and timers inherit it; None is the world around the processes."""


class Process:
    """What a loop has to know of a process: its callbacks, and whether it may run them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.dead = False
        self.asleep_until = 0.0
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


class Stuck(Exception):
    """Nothing is left that could ever happen, and somebody still waits."""


class SeededLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time. `most` bounds how many: a program that polls for ever is stuck too."""

    def __init__(self, chance: random.Random, most: int) -> None:
        super().__init__()
        self._chance = chance
        self.most = most
        self._world = Process("world")
        self._busy: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self._collect_at = 0.0
        self.turns = 0

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def run_forever(self) -> None:
        gc.freeze()
        gc.disable()
        try:
            super().run_forever()
        finally:
            gc.enable()
            gc.unfreeze()

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS) or self._world  # type: ignore[attr-defined]
        if not process.ready:
            self._busy.append(process)
        process.ready.append(handle)

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns > self.most:
            raise Stuck(f"still busy after {self.most} turns, at {self._now:.3f} s")
        timers = self._timers
        if timers and timers[0][0] <= self._now:
            self._wake()
        able = self._able()
        while not able:
            wakes = [process.asleep_until for process in self._busy if not process.dead]
            while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
                heapq.heappop(timers)
            wakes += [when for when, *_ in timers[:1]]
            if not wakes:
                raise Stuck(f"nothing can happen any more, at {self._now:.3f} s")
            self._now = max(self._now, min(wakes))
            if self._now >= self._collect_at:
                gc.collect()
                self._collect_at = self._now + 1.0
            self._wake()
            able = self._able()
        process = able[0] if len(able) == 1 else self._chance.choice(able)
        handle = process.ready.popleft()
        if not process.ready:
            self._busy.remove(process)
        if not handle._cancelled:  # type: ignore[attr-defined]
            handle._run()  # type: ignore[attr-defined]

    def _able(self) -> list[Process]:
        now = self._now
        return [process for process in self._busy if process.asleep_until <= now and not process.dead]

    def _wake(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:  # type: ignore[attr-defined]
                self._enqueue(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass


class LoopClock:
    """The loop's time as a `Clock`."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time
        self.call_at = loop.call_at

    def now(self) -> float:
        return 1_800_000_000.0 + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
