"""One writer, group commit. Owns the connection and its thread; does not own what is written.

What all waiting coroutines asked for while the last transaction was on its way to the disk goes into the next one, so
a hundred waiters cost one sync. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from toolwright.errors import StoreError, ToolwrightError

T = TypeVar("T")
Sync = Literal["full", "normal"]
BUSY = 10_000
"""Milliseconds to wait for another program that writes to the file."""


class _Job:
    __slots__ = ("future", "loop", "work", "writes")

    def __init__(self, work: Callable[[apsw.Connection], Any], writes: bool) -> None:
        self.work = work
        self.writes = writes
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class Writer:
    """The only one who writes to the file, on a thread of its own."""

    def __init__(
        self, path: Path, prepare: Callable[[apsw.Connection], None], sync: Sync, vfs: str | None = None
    ) -> None:
        self._path = path
        self._process = os.getpid()
        self._closed = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.commits = 0
        self._connection = self._open(prepare, sync, vfs)
        self._thread = threading.Thread(target=self._work, name="toolwright-journal", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Run `work` inside the next transaction; its result comes when that is committed.

        Raises:
            StoreError: the store could not write; nothing of the transaction is there.
        """
        return self._ask(_Job(work, True))

    def read(self, work: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Run `work`, which changes nothing, after all that was asked for before; other processes are not held up.

        Raises:
            StoreError: the store could not be read.
        """
        return self._ask(_Job(work, False))

    def _ask(self, job: _Job) -> asyncio.Future[Any]:
        if self._closed:
            job.future.set_exception(StoreError(f"The store {str(self._path)!r} is closed; open it again"))
        elif self._process != os.getpid():
            remedy = "open it again in each process after a fork"
            job.future.set_exception(StoreError(f"The store {str(self._path)!r} was opened elsewhere; {remedy}"))
        else:
            self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Commit what is queued and close the file."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        if self._process == os.getpid():  # a fork has no copy of the thread
            await asyncio.to_thread(self._thread.join)

    def _open(self, prepare: Callable[[apsw.Connection], None], sync: Sync, vfs: str | None) -> apsw.Connection:
        try:
            connection = apsw.Connection(str(self._path), vfs=vfs)
            try:
                connection.set_busy_timeout(BUSY)
                connection.execute(f"PRAGMA synchronous = {sync}; BEGIN IMMEDIATE")
                prepare(connection)
                connection.execute("COMMIT")
                # Not before `prepare` knows the file as ours: it changes the file for every other program.
                self._become_wal(connection)
            except BaseException:
                connection.close()
                raise
        except apsw.Error as error:
            raise StoreError(f"The store {str(self._path)!r} can not be opened: {reason(self._path, error)}") from error
        return connection

    def _become_wal(self, connection: apsw.Connection) -> None:
        """Switch to the write-ahead log. SQLite does not wait for others here, so we do."""
        until = time.monotonic() + BUSY / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
            except apsw.BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

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
        begun = False
        writes = any(job.writes for job in jobs)
        try:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            begun = True
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
            self.commits += writes
        except Exception as error:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
            if begun and len(jobs) > 1:
                # One of them is at fault: the others must not suffer for it.
                for job in jobs:
                    self._commit([job])
            else:
                self._deliver(jobs, [self._explained(error) for _ in jobs])
        else:
            self._deliver(jobs, results)

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, ToolwrightError):
            return error
        why = reason(self._path, error) if isinstance(error, apsw.Error) else f"{type(error).__name__}: {error}"
        told = StoreError(f"The store {str(self._path)!r} could not write: {why}")
        told.__cause__ = error
        return told

    def _deliver(self, jobs: list[_Job], results: list[Any]) -> None:
        for loop in {job.loop for job in jobs}:  # nearly always one
            answers = [pair for pair in zip(jobs, results, strict=True) if pair[0].loop is loop]
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set_results, answers)


def reason(path: Path, error: apsw.Error) -> str:
    """What is wrong with a file, and the remedy."""
    name = type(error).__name__.removesuffix("Error")
    return _why_not_opened(path) if name == "CantOpen" else _REASONS.get(name, str(error))


def _set_results(answers: list[tuple[_Job, Any]]) -> None:
    for job, result in answers:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def _why_not_opened(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no directory {str(path.parent)!r}; make it first"
    if path.is_dir():
        return "it is a directory; give the path of a file"
    return "the system does not allow it; check the permissions of the file and its directory"


_REASONS = {
    "Full": "the disk is full; free some space",
    "ReadOnly": "it can not be written to; check the permissions of the file and its directory",
    "Busy": "another program holds it; wait, or stop that program",
    "Locked": "another program holds it; wait, or stop that program",
    "NotADB": "it is not a SQLite database; choose another file",
    "Corrupt": "it is damaged; restore it from a copy",
    "IO": "the disk reports an error; check it, and the space left on it",
    "TooBig": "it is larger than a store can hold; let tools return less",
}
