"""A thread that does the jobs of a store. Owns their queue, and waking the thread; the store owns the transactions.

All jobs that coroutines ask for during one transaction go into the next one, so a hundred waiters cost one commit. The
event loop never waits for the database. The thread gets the jobs when the loop has made all the requests of a tick:
earlier, it would delay the loop, and commit a part.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from toolwright.errors import StoreError

T = TypeVar("T")
LONGEST_BURST = 0.025
"""Seconds that jobs wait at most for others that the loop is about to add."""


class Job:
    """Work to do in a transaction, and where its result goes."""

    __slots__ = ("future", "loop", "ordered", "quiet", "settled", "shared", "synced", "work", "writes")

    def __init__(
        self,
        work: Callable[[Any], Any],
        writes: bool,
        *,
        synced: bool = True,
        shared: bool = False,
        settled: bool = False,
        ordered: Collection[str] = (),
        quiet: bool = False,
    ) -> None:
        self.work = work
        self.ordered = ordered
        self.settled = settled
        self.quiet = quiet
        self.synced = synced
        self.shared = shared
        self.writes = writes
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class Between(Protocol):
    """What the thread does beside its jobs, on the same connection."""

    def due(self) -> float | None:
        """Seconds until it is to look again; None while there is nothing to look for."""
        ...

    def look(self) -> None:
        """Called after jobs, and when it is due."""
        ...

    def end(self) -> None:
        """Called after the last job."""
        ...


class JobThread:
    """`JobQueue` on a thread of its own.

    `carry_out` does some jobs in one transaction, and delivers their results; `close` is called when all are done.
    `store` is the name of the store in errors.
    """

    def __init__(
        self,
        store: str,
        carry_out: Callable[[list[Job]], None],
        close: Callable[[], None],
        between: Between | None = None,
    ) -> None:
        self._store = store
        self._carry_out = carry_out
        self._close = close
        self._between = between
        self._process = os.getpid()
        self._closed = False
        self._jobs: deque[Job] = deque()  # that the loop is still adding to
        self._handed: queue.SimpleQueue[list[Job]] = queue.SimpleQueue()
        self._asked = self._taken = 0
        self._ringing: set[asyncio.AbstractEventLoop] = set()
        self._thread = threading.Thread(target=self._work, name="toolwright-journal", daemon=True)
        self._thread.start()

    def do(
        self,
        work: Callable[[Any], T],
        *,
        synced: bool = True,
        shared: bool = False,
        ordered: Collection[str] = (),
        quiet: bool = False,
    ) -> asyncio.Future[T]:
        return self._add(Job(work, True, synced=synced, shared=shared, ordered=ordered, quiet=quiet))

    def read(self, work: Callable[[Any], T]) -> asyncio.Future[T]:
        return self._add(Job(work, False))

    def read_settled(self, work: Callable[[Any], T]) -> asyncio.Future[T]:
        """As `read`, at a moment in which no other program writes: whatever is committed later has later numbers."""
        return self._add(Job(work, False, settled=True))

    def _add(self, job: Job) -> asyncio.Future[Any]:
        if self._closed or self._process != os.getpid():
            job.future.set_exception(self.unusable() or StoreError(f"The store {self._store!r} is closed"))
        else:
            loop = job.loop
            self._jobs.append(job)
            self._asked += 1
            if loop not in self._ringing:
                self._ringing.add(loop)
                # Not in the next tick: what others collect in this one, they request in the next.
                loop.call_soon(self._ring, loop, 0, loop.time() + LONGEST_BURST)
        return job.future

    def unusable(self) -> StoreError | None:
        """Why no job can be asked for, if so."""
        if self._closed:
            return StoreError(f"The store {self._store!r} is closed; open it again")
        if self._process != os.getpid():
            remedy = "open it again in each process after a fork"
            return StoreError(f"The store {self._store!r} was opened elsewhere; {remedy}")
        return None

    def wake(self) -> None:
        """Let the thread look at what it does between its jobs."""
        self._handed.put([])

    def _ring(self, loop: asyncio.AbstractEventLoop, waiting: int, until: float) -> None:
        """Hand the jobs to the thread when the loop has nothing more to add: the two would only fight for the
        interpreter."""
        more = len(self._jobs)
        if more > waiting and loop.time() < until:
            loop.call_soon(self._ring, loop, more, until)
        else:
            self._ringing.discard(loop)
            self._handed.put(self._take())

    def _take(self) -> list[Job]:
        taken = []
        with contextlib.suppress(IndexError):  # Another loop, or the thread as it ends, may take them, too.
            while True:
                taken.append(self._jobs.popleft())
        return taken

    @property
    def queued(self) -> int:
        """How many jobs wait for the thread."""
        return self._asked - self._taken

    async def close(self) -> None:
        """Do the queued jobs, and end the thread."""
        if not self._closed:
            self._closed = True
            self._handed.put([])
        if self._process == os.getpid():  # a fork has no copy of the thread
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        handed, between = self._handed, self._between
        while True:
            jobs: list[Job] = []
            with contextlib.suppress(queue.Empty):
                jobs = handed.get(timeout=None if between is None else between.due())
                while not handed.empty():
                    jobs += handed.get_nowait()
            # Read before the rest of the jobs: once it is closed none is added, and all earlier ones are found.
            closed = self._closed
            if closed:
                jobs += self._take()
            if jobs:
                self._taken += len(jobs)
                self._carry_out(jobs)
            if closed:
                break
            if between is not None:
                between.look()
        if between is not None:
            between.end()
        self._close()


def deliver(jobs: Sequence[Job], results: Sequence[Any]) -> None:
    """Give each job its result, or its error, on its own loop."""
    for loop in {job.loop for job in jobs}:  # nearly always one
        answers = [pair for pair in zip(jobs, results, strict=True) if pair[0].loop is loop]
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(_set_results, answers)


def _set_results(answers: list[tuple[Job, Any]]) -> None:
    for job, result in answers:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
