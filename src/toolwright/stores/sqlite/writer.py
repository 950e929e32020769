"""One writer, group commit. Owns the connection and its thread; does not own what is written.

What all waiting coroutines asked for while the last transaction was on its way to the disk goes into the next one, so
a hundred waiters cost one sync. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from toolwright.errors import StoreError

T = TypeVar("T")
Sync = Literal["full", "normal"]


class _Job:
    __slots__ = ("future", "loop", "work")

    def __init__(self, work: Callable[[apsw.Connection], Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class Writer:
    """The only one who writes to the file, on a thread of its own."""

    def __init__(self, path: Path, prepare: Callable[[apsw.Connection], None], sync: Sync) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.commits = 0
        self._connection = self._open(prepare, sync)
        self._thread = threading.Thread(target=self._work, name="toolwright-journal", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Run `work` inside the next transaction; its result comes when that is committed.

        Raises:
            StoreError: the store could not write; nothing of the transaction is there.
        """
        job = _Job(work)
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Commit what is queued and close the file."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _open(self, prepare: Callable[[apsw.Connection], None], sync: Sync) -> apsw.Connection:
        try:
            connection = apsw.Connection(str(self._path))
            try:
                connection.set_busy_timeout(10_000)
                connection.execute(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync}")
                prepare(connection)
            except BaseException:
                connection.close()
                raise
        except apsw.Error as error:
            raise StoreError(f"The store {str(self._path)!r} can not be opened: {_reason(error)}") from error
        return connection

    def _work(self) -> None:
        ending = False
        while not ending:
            first = self._jobs.get()
            jobs = [] if first is None else [first]
            ending = first is None
            with contextlib.suppress(queue.Empty):
                while True:
                    job = self._jobs.get_nowait()
                    if job is None:
                        ending = True
                    else:
                        jobs.append(job)
            if jobs:
                self._commit(jobs)
        self._connection.close()

    def _commit(self, jobs: list[_Job]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
            self.commits += 1
        except Exception as error:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                # One of them is at fault: the others must not suffer for it.
                for job in jobs:
                    self._commit([job])
                return
            self._deliver(jobs, [self._explained(error)])
        else:
            self._deliver(jobs, results)

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, apsw.Error):
            told = StoreError(f"The store {str(self._path)!r} could not write: {_reason(error)}")
            told.__cause__ = error
            return told
        return error

    def _deliver(self, jobs: list[_Job], results: list[Any]) -> None:
        loop = jobs[0].loop
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_set_results, jobs, results)


def _set_results(jobs: list[_Job], results: list[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def _reason(error: apsw.Error) -> str:
    name = type(error).__name__.removesuffix("Error")
    remedies = {
        "Full": "the disk is full; free some space",
        "ReadOnly": "it can not be written to; check its permissions",
        "Busy": "another program holds it; wait, or stop that program",
        "Locked": "another program holds it; wait, or stop that program",
        "NotADB": "it is not a SQLite database; choose another file",
        "Corrupt": "it is damaged; restore it from a copy",
        "CantOpen": "it can not be opened; check the path and its permissions",
        "IO": "the disk reports an error",
    }
    return remedies.get(name, str(error))
