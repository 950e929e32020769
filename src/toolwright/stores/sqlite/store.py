"""One SQLite file as a store. Owns opening and closing it, and the sign of life of this process; has no queries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from toolwright.clock import Clock, SystemClock
from toolwright.crash_seams import crash_seams
from toolwright.errors import StoreError
from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.sessions import Sealed
from toolwright.stores.sql.calls.journal import SqlJournalStore
from toolwright.stores.sql.calls.waits import SqlWaitStore
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import leave_gap
from toolwright.stores.sql.sessions.secrets import fingerprints_of
from toolwright.stores.sql.sessions.services import SqlServiceStores
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import FileLiveness, OwnerLock, sweep
from toolwright.stores.sqlite.core.reader import Reader
from toolwright.stores.sqlite.core.schema import bring_up_to_date, secret_of
from toolwright.stores.sqlite.core.side_connection import inspect_file
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer import Sync, Writer
from toolwright.stores.sqlite.core.writer_queue import WriterQueue

T = TypeVar("T")


class SqliteStore:
    """`Store` in one SQLite file: WAL, and with `sync="full"` on the disk before anything is acknowledged.

    With `sync="normal"` a process that is killed still loses nothing, but a machine that loses power may lose the
    latest acknowledged writes. `vfs` names another way to the file, one of `apsw.vfs_names()`. Leases of workers use
    the monotonic time of `clock`, which is the same in all processes of a machine.
    """

    def __init__(
        self, path: str | Path, *, sync: Sync = "full", vfs: str | None = None, clock: Clock | None = None
    ) -> None:
        if sync not in ("full", "normal"):
            raise StoreError(f"The store's sync is {sync!r}; use 'full' or 'normal'")
        self._place = place = StorePlace(path)
        self.path = place.path
        self.owner = uuid7()
        self._secret = b""
        self._clock = clock or SystemClock()
        self.fingerprints: Sealed | None = None
        self._locks: list[OwnerLock] = []
        self._writer_queue = WriterQueue(place)
        try:
            place.require_own_name()
            place.require_one_name()
            self._writer = Writer(self.path, self._prepare, sync, vfs, place, self._writer_queue, crash_seams.commits)
        except BaseException:
            self._release()
            raise
        self._writer_queue.settle()
        liveness = FileLiveness(place)
        self.journal = SqlJournalStore(self._writer, liveness, self.owner)
        self.waits = SqlWaitStore(self._writer, self.owner, self._secret)
        reader = functools.partial(Reader, self.path, lambda connection: None, sync, vfs, place)
        self.services = SqlServiceStores(
            Changes(self._writer, self.owner, reader, clock), liveness, self.owner, self._snapshot
        )

    @classmethod
    async def open(
        cls, path: str | Path, *, sync: Sync = "full", vfs: str | None = None, clock: Clock | None = None
    ) -> SqliteStore:
        """Open the file on a thread: reading, migrating and waiting for other programs does not hold the event loop.

        Where the caller is cancelled meanwhile, it waits until the store is open, and closes it.

        Raises:
            StoreError: as the constructor.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(cls, path, sync=sync, vfs=vfs, clock=clock))
        stopped: asyncio.CancelledError | None = None
        while not opening.done():
            try:
                await asyncio.wait({opening})
            except asyncio.CancelledError as error:
                stopped = error
        if stopped is not None:
            with contextlib.suppress(StoreError):
                await opening.result().close()
            raise stopped
        return opening.result()

    @property
    def commits(self) -> int:
        """How many transactions were written since it was opened."""
        return self._writer.commits

    async def news(self, after: Cursor | None, patience: float, *, own: bool = False) -> Cursor:
        return await self._writer.news(after, patience, own)

    async def close(self) -> None:
        await self.services.close()
        await self.journal.close()
        await self._writer.close()
        self._release()

    async def _snapshot(self, work: Callable[[Connection], T]) -> T:
        def at_one_moment(connection: SqliteConnection) -> T:
            connection.execute("BEGIN")
            return work(connection)

        return await inspect_file(self.path, at_one_moment)

    def _prepare(self, connection: SqliteConnection) -> None:
        """Bring the schema up to date, and enter this process among the owners, in one transaction."""
        bring_up_to_date(connection, self._place)
        self._secret = secret_of(connection)
        self.fingerprints = fingerprints_of(connection)
        number = one(connection, "INSERT INTO owners (name) VALUES (?) RETURNING number", (self.owner,))
        try:
            if not sweep(self._place):
                leave_gap(connection, self._clock.now())
            self._locks.append(OwnerLock(self._place, number))
        except BlockingIOError as error:
            raise StoreError(
                f"The store {str(self.path)!r} cannot be opened: a program still uses another store that was here "
                "before; end it, or choose another file"
            ) from error
        except OSError as error:
            raise StoreError(
                f"The store {str(self.path)!r} cannot be opened: no file may be made beside it ({error.strerror}); "
                "check the permissions of its directory"
            ) from error

    def _release(self) -> None:
        for lock in self._locks:
            lock.release()
        with contextlib.suppress(OSError):  # such as a directory that is not there
            self._writer_queue.close(last=not sweep(self._place))
        self._place.close()
