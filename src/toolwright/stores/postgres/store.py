"""One schema of a PostgreSQL database as a store. Owns opening and closing it; has no queries."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psycopg

from toolwright.clock import Clock
from toolwright.crash_seams import crash_seams
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.sessions import Sealed
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.batches import PostgresBatches
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import cannot_open
from toolwright.stores.postgres.life import LeaseTime, Life, lease_time, sweep
from toolwright.stores.postgres.listener import Listener
from toolwright.stores.postgres.schema import bring_up_to_date, find_secret
from toolwright.stores.postgres.writer import PATIENCE, Sync, Writer
from toolwright.stores.sql.calls.journal import SqlJournalStore
from toolwright.stores.sql.calls.waits import SqlWaitStore
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.sessions.secrets import fingerprints_of
from toolwright.stores.sql.sessions.services import SqlServiceStores

T = TypeVar("T")
LOOK = 0.1
"""Seconds between two looks at what this process itself has written, for a waiter for that, too."""
LONGEST_KEY = 1_600
"""Bytes of the session, the scope and the id of a call together. An index of the server holds about 2,650 in a row, and
some rows have the name of a step, a signal or a question beside them: up to 1,040."""


class PostgresStore:
    """`Store` in one schema of a database. With `sync="full"` the server has it on its disk before it acknowledges.

    With `sync="normal"` a process that is killed still loses nothing, but a server that crashes may lose the latest
    acknowledged writes. Leases of workers use the clock of the server; `lease_time` is another one, for tests.
    """

    path: Path | None = None

    def __init__(
        self, url: str, *, sync: Sync = "full", clock: Clock | None = None, lease_time: LeaseTime = lease_time
    ) -> None:
        if sync not in ("full", "normal"):
            raise StoreError(f"The store's sync is {sync!r}; use 'full' or 'normal'")
        self.address = address = Address(url)
        self.owner = uuid7()
        secret, self.fingerprints = self._prepare()
        self.life = Life(address, self.owner)
        try:
            self._writer = Writer(address, self.owner, sync, crash_seams.commits)
        except BaseException:
            self.life.end()
            raise
        self.journal = SqlJournalStore(self._writer, self.life, self.owner, PostgresBatches(self.owner), LONGEST_KEY)
        self.waits = SqlWaitStore(self._writer, self.owner, secret)
        self._closed = False
        self._listener = Listener(address, self.owner, self.life.hurry)
        self.life.seen = self._listener.seen
        self.life.is_told = self._listener.is_told
        reader = functools.partial(Writer, address, self.owner, sync, reader=True)
        self._changes = changes = Changes(self._writer, self.owner, reader, clock, lease_time)
        self.services = SqlServiceStores(
            changes, self.life, self.owner, self._snapshot, read_settled=self._writer.read_settled
        )

    @classmethod
    async def open(
        cls, url: str, *, sync: Sync = "full", clock: Clock | None = None, lease_time: LeaseTime = lease_time
    ) -> PostgresStore:
        """Open the store on a thread: connecting, migrating and waiting for the server does not hold the event loop.

        Where the caller is cancelled meanwhile, it waits until the store is open, and closes it.

        Raises:
            StoreError: the URL is not usable, or the server refuses this program or the schema.
            StoreUnavailable: the server cannot be reached now.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(cls, url, sync=sync, clock=clock, lease_time=lease_time))
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
        loop = asyncio.get_running_loop()
        # While the server tells its news, a waiter need not ask for them first.
        until, is_seen = loop.time() + patience, after is not None and patience > 0 and self._listener.hears
        while True:
            if self._closed:
                raise StoreError(f"The store {self.address.shown!r} is closed; open it again")
            others, written = self._listener.heard, self._writer.news
            if after is not None:
                seen, _, before = after.partition(" ")
                if str(others) != seen or (own and written > int(before)):
                    return f"{others} {written}"
            elif is_seen:
                return f"{others} {written}"
            left = until - loop.time()
            if after is not None and left <= 0 and is_seen:
                return after
            if is_seen:
                await self._listener.wait(others, min(LOOK, left) if own else left)
            else:
                await self._look(until)
                is_seen = True

    async def _look(self, until: float) -> None:
        """See what others have written.

        Raises:
            StoreUnavailable: the server did not answer for too long.
        """
        left = max(PATIENCE, until - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait({self.life.look()}, timeout=left)
        if not done:
            raise StoreUnavailable(f"The store {self.address.shown!r} cannot be reached; check that the server runs")

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._listener.end)
        await self.services.close()
        await self.journal.close()
        await self._writer.close()
        await asyncio.to_thread(self.life.end)

    async def _snapshot(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(at_one_moment, self.address, work)

    def _prepare(self) -> tuple[bytes, Sealed | None]:
        """Bring the schema up to date, and enter this process among those that commit, in one transaction."""
        connection = self.address.connect()
        try:
            with connection.raw.transaction():
                # One program at a time: two that find no schema would both make it.
                connection.run("SELECT pg_advisory_xact_lock($1)", (self.address.lock_key("schema"),))
                bring_up_to_date(connection, self.address)
                sweep(connection)
                connection.execute("INSERT INTO commits (owner, number) VALUES (?, 0)", (self.owner,))
                return find_secret(connection, self.address), fingerprints_of(connection)
        except psycopg.Error as error:
            raise cannot_open(self.address.shown, error) from error
        finally:
            connection.raw.close()


def at_one_moment(address: Address, work: Callable[[PostgresConnection], T]) -> T:
    """Run `work` on a connection of its own, which sees one moment of the store.

    Raises:
        StoreError: the store cannot be read.
    """
    connection = address.connect()
    try:
        # Between two reads, an export writes and compresses as long as it takes. It holds no lock that others wait for.
        connection.raw.execute(
            "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        )
        return work(connection)
    except psycopg.Error as error:
        raise cannot_open(address.shown, error) from error
    finally:
        connection.raw.close()
