"""Measures for how long an event loop did not turn. Owns the measure, and not which tests are held to it.

A machine that is busy with other programs makes every wall clock time long, so two readings are taken between two
turns of the loop, and the smaller one is the stall: the wall clock less the time for which a thread of the process was
ready and had no core, and the CPU time of the whole process. Code on the loop raises both, and so does another thread
that holds the interpreter's lock. A thread that computes without the lock raises only the second, and a busy machine
raises neither, also where it keeps the thread that holds the lock from a core. A wait on the loop that uses no CPU,
such as a sync of the disk, is not seen.
"""

import asyncio
import contextlib
import os
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

MOST_STALL = 0.05
"""Seconds for which a loop may not turn."""
TICK = 0.002
"""Seconds between two looks at the clocks. A stall is measured to within this."""
REFERENCE = 0.0038
"""Seconds of CPU for `slowness` on a core that nobody else slows down."""
SAMPLE = 0.02
"""Seconds between two looks at where the loop's thread is, for the message of a test that fails."""


class _Reading(NamedTuple):
    wall: float
    starved: dict[int, float]
    """By thread, for how long it was ready and had no core."""
    cpu: float


class LoopWatch:
    """The longest stall of a loop so far, in seconds, and where its thread was then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest = 0.0
        self.most = MOST_STALL
        """What a test allows."""
        self.ticks = 0
        self.place = ""
        self._loop = loop
        self._thread = threading.get_ident()
        self._waits: dict[int, int] = {}
        self._last = self._read()
        self._timer = loop.call_later(TICK, self._tick)
        self._over = threading.Event()
        self._seen = ""
        self._sampler = threading.Thread(target=self._sample, name="loop-watch", daemon=True)
        self._sampler.start()

    def close(self) -> None:
        """Take the last reading and stop."""
        self._note()
        self._timer.cancel()
        self._over.set()
        self._sampler.join()
        for descriptor in self._waits.values():
            os.close(descriptor)

    def restart(self) -> None:
        """Forget what was measured so far, such as imports that the first call of a kind needs."""
        self._note()
        self.longest, self.place = 0.0, ""

    def _tick(self) -> None:
        self._note()
        self.ticks += 1
        self._timer = self._loop.call_later(TICK, self._tick)

    def _note(self) -> None:
        now, before = self._read(), self._last
        self._last = now
        starved = max((waited - before.starved.get(id, 0.0) for id, waited in now.starved.items()), default=0.0)
        ready = (now.wall - before.wall) - starved
        stall = min(ready, now.cpu - before.cpu) - TICK
        if stall > self.longest:
            self.longest, self.place = stall, self._seen
        self._seen = ""

    def _read(self) -> _Reading:
        starved = {}
        for thread in threading.enumerate() if sys.platform == "linux" else ():
            id = thread.native_id
            with contextlib.suppress(OSError):  # It ends.
                if id is not None and id not in self._waits:
                    self._waits[id] = os.open(f"/proc/self/task/{id}/schedstat", os.O_RDONLY)
                if id is not None:
                    starved[id] = int(os.pread(self._waits[id], 100, 0).split()[1]) / 1e9
        return _Reading(time.monotonic(), starved, time.process_time())

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE):
            frame = sys._current_frames().get(self._thread)
            # A loop that waits is in its selector, and one that takes a reading is here: neither is what stalls it.
            if frame is not None and frame.f_code.co_filename not in (selectors.__file__, __file__):
                self._seen = "".join(traceback.format_stack(frame)[-12:])


def slowness() -> float:
    """How many times slower than usual this core is now, from 1 to 3: a core that others share takes more CPU time."""
    times = []
    for _ in range(5):
        began, total = time.thread_time(), 0
        for number in range(100_000):
            total += number & 7
        times.append(time.thread_time() - began)
    return min(max(1.0, sorted(times)[2] / REFERENCE), 3.0)


@contextmanager
def watch_loop() -> Iterator[LoopWatch]:
    """Watch the running loop inside the block."""
    watch = LoopWatch(asyncio.get_running_loop())
    try:
        yield watch
    finally:
        watch.close()
