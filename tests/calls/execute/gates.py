"""Where a tool on a thread waits for its test, and the test for the tool."""

import asyncio
import threading


class ThreadGate:
    """A tool calls `stop_here` on its thread; the test awaits `reached`, and `open`s the gate when it likes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.reached = asyncio.Event()
        self.passed = asyncio.Event()
        self.inside = 0
        self.most_inside = 0

    def stop_here(self) -> None:
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        self._loop.call_soon_threadsafe(self.reached.set)
        if not self._open.wait(30):
            raise AssertionError("The gate was never opened.")
        with self._lock:
            self.inside -= 1
        self._loop.call_soon_threadsafe(self.passed.set)

    async def holds(self, count: int) -> None:
        """Wait until this many are stopped here."""
        while self.inside < count:
            self.reached.clear()
            await self.reached.wait()

    def reached_from_thread(self) -> None:
        """Tell the test, and go on."""
        self._loop.call_soon_threadsafe(self.reached.set)

    def open(self) -> None:
        self._open.set()
