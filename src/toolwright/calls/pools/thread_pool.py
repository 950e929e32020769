"""Threads for sync tools. Owns a bounded pool whose stuck threads can be left behind; does not own timeouts."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from toolwright.errors import MachineError

_IDLE_SECONDS = 10.0
PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds to wait before each further attempt to start a thread, when the machine has none to give."""


class _Job:
    __slots__ = ("begun", "context", "function", "future", "loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Any],
        begun: Callable[[], None] | None,
    ) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.context = contextvars.copy_context()
        self.function = function
        self.begun = begun


class ThreadPool:
    """Runs functions on daemon threads, at most `size` of them; functions without a thread wait in order.

    The standard pool joins its threads when the interpreter ends, so one tool that hangs would prevent the process from
    ending; these threads are daemons. A thread that was given up does not count: another may take its place.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # A job is put here only when an idle thread is promised to it; the others stand in the backlog.
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._backlog: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def run(
        self, function: Callable[[], Any], begun: Callable[[], None] | None = None, *, beyond: bool = False
    ) -> asyncio.Future[Any]:
        """Run `function` on a thread, in a copy of the caller's context; the future has its result or exception.

        `begun` is called on the loop once the function has a thread, which is at once unless all are busy. `beyond`
        adds a thread rather than wait for one: for a nested call, whose ancestors may hold them all.

        Where the machine has no thread to give, the function waits for one; after some attempts the future has a
        `MachineError`, and the function has not begun.
        """
        job = _Job(asyncio.get_running_loop(), function, begun)
        with self._lock:
            idle = self._idle > 0
            if idle:
                self._idle -= 1
            elif beyond or self._threads < self._size:
                self._threads += 1
            else:
                self._backlog.append(job)
                return job.future
        if idle:
            if begun is not None:
                begun()
            self._jobs.put(job)
        elif self._start(job) is None:
            if begun is not None:
                begun()
        else:
            self._wait_for_thread(job, 0)
        return job.future

    def _wait_for_thread(self, job: _Job, attempt: int) -> None:
        """Let a job for which the machine had no thread wait for an existing one, and for another attempt."""
        with self._lock:
            self._backlog.append(job)
        job.loop.call_later(PAUSES[attempt], self._try_again, job, attempt)

    def _try_again(self, job: _Job, attempt: int) -> None:
        if not self.withdraw(job.future):
            return  # A thread took it, or it is not wanted any more.
        with self._lock:
            self._threads += 1
        fault = self._start(job)
        if fault is None:
            if job.begun is not None:
                job.begun()
        elif attempt + 1 < len(PAUSES):
            self._wait_for_thread(job, attempt + 1)
        else:
            _deliver(job.future, None, fault)

    def withdraw(self, future: asyncio.Future[Any]) -> bool:
        """Withdraw a function that still waits for a thread: True when it has not begun, and now never will."""
        with self._lock:
            for job in self._backlog:
                if job.future is future:
                    self._backlog.remove(job)
                    return True
        return False

    def give_up(self) -> None:
        """One of the threads will not come back soon; let another take its place."""
        with self._lock:
            self._size += 1
            if not self._backlog or self._threads >= self._size:
                return
            self._threads += 1
            job = self._backlog.popleft()
        if self._start(job) is not None:
            self._wait_for_thread(job, 0)
        elif job.begun is not None:
            job.begun()

    def take_back(self) -> None:
        """A thread that was given up on has come back."""
        with self._lock:
            self._size -= 1

    def close(self) -> None:
        """Let threads end once they are idle; a stuck thread ends with the process. Waiting functions never run."""
        with self._lock:
            self._closed = True
            self._backlog.clear()
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _start(self, job: _Job) -> MachineError | None:
        """Give a job a thread that was counted already; or undo the count, and return the error."""
        thread = threading.Thread(target=self._work, args=(job,), name="toolwright-tool", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError, OSError) as error:
            with self._lock:
                self._threads -= 1
            fault = MachineError(
                f"No thread could be started for a tool: {error}; nothing ran. See that the machine has threads and "
                "memory left, and run the call again"
            )
            fault.__cause__ = error
            return fault
        return None

    def _work(self, first: _Job) -> None:
        job: _Job | None = first
        del first
        while job is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.function)
            except BaseException as caught:  # a tool's code: even sys.exit must end only its own call
                error = caught
            # Before the answer is out, so that its receiver finds this thread idle.
            following, stays = self._free()
            _tell(job.loop, _deliver, job.future, result, error)
            del job, result, error  # An idle thread holds no reference to its last call.
            job = self._wait() if following is None and stays else following

    def _free(self) -> tuple[_Job | None, bool]:
        """The next action of a thread that has done its job: another job, or wait for one, or end."""
        with self._lock:
            if self._closed or self._threads > self._size:
                self._threads -= 1
                return None, False
            if not self._backlog:
                self._idle += 1
                return None, True
            job = self._backlog.popleft()
            _tell(job.loop, job.begun)
            return job, True

    def _wait(self) -> _Job | None:
        while True:
            try:
                return self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        self._threads -= 1
                        return None
                # No thread is idle by the count: a job is on its way to this thread.


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None] | None, *args: object) -> None:
    if callback is not None:
        with suppress(RuntimeError):  # The loop is closed: no task waits any more.
            loop.call_soon_threadsafe(callback, *args)


def _deliver(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, (StopIteration, GeneratorExit, KeyboardInterrupt)):
        # A coroutine cannot be thrown the first two as errors of its awaitable. The third would end the program, and on
        # a thread it is never the user's, because signals reach only the main one.
        wrapped = RuntimeError(f"the tool raised {type(error).__name__}")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    else:
        future.set_exception(error)
