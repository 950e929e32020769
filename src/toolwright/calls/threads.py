"""Threads for sync tools. Owns a bounded pool whose stuck threads can be left behind; does not own timeouts."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_IDLE_SECONDS = 10.0


class _Job:
    __slots__ = ("context", "function", "future", "loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        context: contextvars.Context,
        function: Callable[[], Any],
    ) -> None:
        self.loop = loop
        self.future = future
        self.context = context
        self.function = function


class ThreadPool:
    """Runs functions on daemon threads, at most `size` of them.

    The standard pool joins its threads when the interpreter ends, so one tool that hangs would keep the process from
    ending; these threads are daemons. A thread given up on does not count: another may take its place.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` on a thread, in a copy of the caller's context; the future has what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        job = _Job(loop, future, contextvars.copy_context(), function)
        with self._lock:
            grow = self._idle <= self._jobs.qsize() and self._threads < self._size
            if grow:
                self._threads += 1
        self._jobs.put(job)
        if grow:
            threading.Thread(target=self._work, name="toolwright-tool", daemon=True).start()
        return future

    def give_up(self) -> None:
        """One of the threads will not come back soon; let another take its place."""
        with self._lock:
            self._size += 1

    def take_back(self) -> None:
        """A thread that was given up on has come back."""
        with self._lock:
            self._size -= 1

    def close(self) -> None:
        """Let idle threads end; one that is stuck ends with the process."""
        with self._lock:
            self._closed = True
            count = self._threads
        for _ in range(count):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._threads > self._size:
                    self._threads -= 1
                    return
                self._idle += 1
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                job = None
            with self._lock:
                self._idle -= 1
                if job is None:
                    if self._closed or self._jobs.empty():
                        self._threads -= 1
                        return
                    continue
            self._do(job)
            del job

    @staticmethod
    def _do(job: _Job) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = job.context.run(job.function)
        except BaseException as caught:  # a tool's code: even sys.exit must end only its own call
            error = caught
        try:
            job.loop.call_soon_threadsafe(_deliver, job.future, result, error)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        # A future refuses StopIteration, which would end the coroutine that awaits it.
        wrapped = RuntimeError("the tool raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    else:
        future.set_exception(error)
