"""One writer, group commit. Owns the connection and its transactions; does not own the written data.

`stores/sql/job_thread.py` has the thread and its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import apsw

from toolwright.crash_seams import CommitSeam
from toolwright.errors import StoreError, ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.private_files import make_if_missing, tighten
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.sql.job_thread import Job, JobThread, deliver
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.faults import reason, store_error
from toolwright.stores.sqlite.core.news import News
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer_queue import WriterQueue

log = logging.getLogger("toolwright.stores")

Sync = Literal["full", "normal"]
BUSY = 10_000
"""Milliseconds to wait for another program that locks the file and does not queue."""
PATIENCE = 30.0
"""Seconds to wait in the queue of writers, while others write."""
STALL = 1.0
"""Seconds in the queue after which this program tries to write out of order: a program in front of it may be
stopped."""
STAY = 0.01
"""Seconds that a program which writes one transaction after the other stays first in the queue, while others wait."""
PAUSE = 0.005
"""The longest time between two such transactions: a program that has nothing to write for so long leaves the queue."""
CHECKPOINT = 1_000
"""Pages in the log after which they are moved into the file."""
LARGEST_LOG = 8_000
"""Pages in the log after which readers of old pages are waited for, so that it can be restarted."""
LOG_BYTES = 16 * 1024 * 1024
"""Bytes that the file of the log retains when it is restarted."""
FRAME = 4_096 + 24
"""Bytes of a page in the log."""
AHEAD = 64
"""Pages for which the log must have room, or it is lengthened: a transaction of a batch writes some ten."""
LAID_OUT = (CHECKPOINT + AHEAD) * FRAME
"""Bytes up to which the log is lengthened before they are needed."""
READERS = 1_000
"""Milliseconds that readers of old pages are waited for."""


class Writer:
    """`JobQueue` on the only connection that writes to the file, with a thread of its own."""

    def __init__(
        self,
        path: Path,
        prepare: Callable[[SqliteConnection], None],
        sync: Sync,
        vfs: str | None = None,
        place: StorePlace | None = None,
        writer_queue: WriterQueue | None = None,
        seam: CommitSeam | None = None,
    ) -> None:
        self._path = path
        self._seam = seam
        self._place = place
        self._writer_queue = writer_queue
        self._stall = STALL
        self._first_since: float | None = None
        self._asked_at = self._written_at = 0.0
        self._log_pages = 0
        self._warned = False
        self._checkpoint_at = CHECKPOINT
        self.commits = 0
        self._sync = sync
        self._synced = sync == "full"
        self._connection = self._open(prepare, sync, vfs)
        commit = self._commit if seam is None else seam.around(self._commit)
        self._news = News(place, self._connection, lambda: self.commits)
        self.jobs = jobs = JobThread(str(path), commit, self._connection.close, _Between(self, self._news))
        # One program writes at a time, also where the work could be `shared`, so that everything is `ordered`; and all
        # see that it wrote, also where that was to be `quiet`.
        self.do, self.read, self.close = jobs.do, jobs.read, jobs.close

    async def news(self, after: Cursor | None, patience: float, own: bool) -> Cursor:
        """Wait for news, as `Store.news` does.

        Raises:
            StoreError: the store is closed, or is closed meanwhile.
        """
        if fault := self.jobs.unusable():
            raise fault
        news = self._news.add(after, own)
        self.jobs.wake()
        try:
            done, _ = await asyncio.wait({news}, timeout=None if after is None else patience)
            return after if after is not None and not done else await news
        except asyncio.CancelledError:
            if news.cancelled() and (fault := self.jobs.unusable()):
                raise fault from None
            raise
        finally:
            news.cancel()

    def _open(self, prepare: Callable[[SqliteConnection], None], sync: Sync, vfs: str | None) -> SqliteConnection:
        try:
            private = vfs is None and str(self._path) != ":memory:"
            if private:
                # The file holds conversations and the key that signs waits. SQLite would let every user read it.
                with contextlib.suppress(OSError):  # SQLite explains better why the path is unusable.
                    make_if_missing(self._path)
            connection = SqliteConnection(str(self._path), vfs=vfs)
            try:
                connection.set_busy_timeout(BUSY)
                connection.execute(f"PRAGMA synchronous = {sync}")
                in_front = self._begin_writing(connection)
                try:
                    prepare(connection)
                    connection.execute("COMMIT")
                    # Not before `prepare` knows the file as ours: both change the file for every other program.
                    if private:
                        self._tighten()
                    self._become_wal(connection)
                finally:
                    self._leave_queue(in_front)
                if self._place is not None:
                    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}").fetchall()
                    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # makes the log, if there is none
                    connection.set_wal_hook(self._note_log)
                    self._place.remember()
            except BaseException:
                connection.close()
                raise
        except apsw.Error as error:
            told = f"The store {str(self._path)!r} cannot be opened: {reason(self._path, error)}"
            raise store_error(told, error) from error
        return connection

    def _begin_writing(self, connection: SqliteConnection) -> bool:
        """Begin a transaction that writes, when this program is first in the queue; True when it is, and must leave the
        queue.

        Where the queue does not move though no program writes, a program in it is stopped: then it is begun out of
        order.

        Raises:
            StoreError: others wrote all the time.
            apsw.BusyError: another program holds the file.
        """
        if self._writer_queue is None:
            connection.execute("BEGIN IMMEDIATE")
            return False
        began = time.monotonic()
        while self._first_since is None and not self._writer_queue.take(self._stall):
            if not self._writer_queue.has_moved() and _begin_now(connection):
                self._stall = STALL / 20  # Nor will the queue move soon.
                return False
            waited = time.monotonic() - began
            if waited > PATIENCE:
                raise StoreError(
                    f"The store {str(self._path)!r} is busy: this program waited {waited:.0f} s in the queue of "
                    "writers; let fewer programs write to it, or put it on a faster disk"
                )
        self._stall = STALL
        if self._first_since is None:
            self._first_since = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._leave_queue(True)
            raise
        return True

    def _leave_queue(self, in_front: bool) -> None:
        if in_front and self._writer_queue is not None:
            self._first_since = None
            self._writer_queue.give_back()

    def _stay_or_leave(self) -> None:
        """Stay first in the queue if this program writes one transaction after the other, unless others have waited for
        long enough: passing the first place to another process takes longer than a transaction."""
        now = time.monotonic()
        at_once, self._written_at = self._asked_at - self._written_at <= PAUSE, now
        if self._writer_queue is None or self._first_since is None:
            return
        long = now - self._first_since >= STAY
        if not at_once or not self._writer_queue.holds_number or (long and self._writer_queue.is_wanted()):
            self._leave_queue(True)

    def stays(self) -> float | None:
        """Seconds for which this program stays first in the queue without writing; None where it is not first."""
        return None if self._first_since is None else max(0.0, self._written_at + PAUSE - time.monotonic())

    def leave(self) -> None:
        """Leave the queue of programs, if this one is still first."""
        self._leave_queue(self._first_since is not None)

    def _note_log(self, connection: apsw.Connection, database: str, pages: int) -> int:
        """SQLite reports after a commit how many pages are in the log; then it does not move them itself."""
        if pages < self._log_pages:  # It was restarted.
            self._checkpoint_at = CHECKPOINT
            self._warned = False
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _bound_log(self) -> None:
        """Move the pages of the log into the file, while this program is first in the queue: none adds to the log
        meanwhile.

        It restarts with the next commit, unless a reader uses old pages of it. Readers are waited for only where it
        became very long: most are done soon, but an export of a large session may take minutes.
        """
        connection = self._connection
        long = self._log_pages >= LARGEST_LOG
        try:
            if long:
                connection.set_busy_timeout(READERS)
            mode = apsw.SQLITE_CHECKPOINT_RESTART if long else apsw.SQLITE_CHECKPOINT_PASSIVE
            connection.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            if long and not self._warned:
                self._warned = True
                log.warning(
                    "The log of the store %r has %d pages and grows: a program has been reading an old state of it for "
                    "long, such as an export or a database shell; end it, and the log is shortened",
                    str(self._path),
                    self._log_pages,
                    extra=log_fields("store.log_grows", path=str(self._path)),
                )
        except apsw.Error:
            pass  # A fault of the file itself is raised at the next write.
        finally:
            if long:
                connection.set_busy_timeout(BUSY)
        # Unless the log restarts, not with each commit: all movable pages were moved, and each time costs syncs.
        self._checkpoint_at = self._log_pages + (LARGEST_LOG // 2 if long else CHECKPOINT // 4)

    def _tighten(self) -> None:
        """Let only the owner read the file, and the files beside it, which SQLite makes with the mode of the file."""
        with contextlib.suppress(OSError):
            for end in ("", "-wal", "-shm"):
                tighten(self._path.with_name(self._path.name + end))

    def _become_wal(self, connection: SqliteConnection) -> None:
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

    def _commit(self, jobs: list[Job]) -> None:
        """Do jobs in one transaction, and where that fails, each alone."""
        connection = self._connection
        begun = in_front = False
        writes = any(job.writes for job in jobs)
        synced = self._sync == "full" and any(job.synced for job in jobs if job.writes)
        self._asked_at = began = time.monotonic()
        try:
            if synced is not self._synced:
                connection.execute(f"PRAGMA synchronous = {'full' if synced else 'normal'}")
                self._synced = synced
            if writes:
                in_front = self._begin_writing(connection)
            else:
                connection.execute("BEGIN")
            if self._place is not None:
                log_size = self._place.require_same(connection)
                if writes and log_size < LAID_OUT and (self._log_pages + AHEAD) * FRAME > log_size:
                    self._place.lengthen_log(log_size, min(LAID_OUT, max(2 * log_size, 2 * AHEAD * FRAME)))
            begun = True
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
            self.commits += writes
        except Exception as error:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
            self._leave_queue(in_front)
            if begun and len(jobs) > 1:
                # One of them is at fault: the others must not suffer for it.
                for job in jobs:
                    self._commit([job])
            else:
                waited = time.monotonic() - began
                # A file that cannot be written to may still be read.
                failed = [job for job in jobs if job.writes or not writes]
                deliver(failed, [self._explained(error, waited) for _ in failed])
                if len(failed) < len(jobs):
                    self._commit([job for job in jobs if not job.writes])
        else:
            if self._seam is not None:
                self._seam.committed()
            deliver(jobs, results)
            if self._log_pages >= self._checkpoint_at:
                self._bound_log()
            if in_front:
                self._stay_or_leave()

    def _explained(self, error: Exception, waited: float) -> Exception:
        if isinstance(error, ToolwrightError):
            return error
        failed = f"The store {str(self._path)!r} could not write"
        if isinstance(error, apsw.Error):
            told = store_error(f"{failed}: {reason(self._path, error, waited)}", error)
        else:
            told = StoreError(f"{failed}: {type(error).__name__}: {error}")
        told.__cause__ = error
        return told


class _Between:
    """`Between` of a writer: it tells news, and leaves the queue of programs when there is nothing more to write."""

    def __init__(self, writer: Writer, news: News) -> None:
        self._writer = writer
        self._news = news

    def due(self) -> float | None:
        stays, news = self._writer.stays(), self._news.due()
        return stays if news is None else news if stays is None else min(stays, news)

    def look(self) -> None:
        if self._writer.stays() == 0:
            self._writer.leave()
        self._news.look()

    def end(self) -> None:
        self._writer.leave()
        self._news.end()


def _begin_now(connection: SqliteConnection) -> bool:
    """Begin a transaction that writes, unless another program does."""
    connection.set_busy_timeout(0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    finally:
        connection.set_busy_timeout(BUSY)
    return True
