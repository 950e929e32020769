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
from toolwright.errors import StoreError
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
from toolwright.stores.postgres.writer import Sync, Writer
from toolwright.stores.sql.calls.journal import SqlJournalStore
from toolwright.stores.sql.calls.waits import SqlWaitStore
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.sessions.secrets import fingerprints_of
from toolwright.stores.sql.sessions.services import SqlServiceStores

T = TypeVar("T")
LOOK = 0.1
"""Seconds between two looks for news, while the server tells none."""
LOOK_RARELY = 2.0
"""Seconds between two looks while it tells them: outcomes of calls and the death of an owner are not told."""


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
        self.journal = SqlJournalStore(self._writer, self.life, self.owner, PostgresBatches(self.owner))
        self.waits = SqlWaitStore(self._writer, self.owner, secret)
        self._listener = Listener(address, self.owner)
        reader = functools.partial(Writer, address, self.owner, sync, at_once=False)
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
        until = loop.time() + patience
        others, look_at, heard = "", 0.0, -1
        while True:
            if self._writer.closed:
                raise StoreError(f"The store {self.address.shown!r} is closed; open it again")
            if heard != self._listener.heard or loop.time() >= look_at:
                heard = self._listener.heard
                others = await self._changes.read(self._written_by_others)
                look_at = loop.time() + (LOOK_RARELY if self._listener.hears else LOOK)
            commits = self._writer.commits
            position = f"{others} {commits}"
            if after is None:
                return position
            seen, _, written = after.partition(" ")
            if others != seen or (own and commits > int(written)):
                return position
            if (left := until - loop.time()) <= 0:
                return after
            pause = min(LOOK if own else LOOK_RARELY, max(0.0, look_at - loop.time()), left)
            await self._listener.wait(heard, pause)

    def _written_by_others(self, connection: Connection) -> str:
        """Text that changes when another owner has written, or has ended."""
        rows: list[tuple[str, int]] = connection.execute("SELECT owner, number FROM commits").fetchall()
        others = {owner: number for owner, number in rows if owner != self.owner}
        dead = self.life.dead_among(set(others), connection) if others else set()
        return f"{sum(others.values())}/{len(others) - len(dead)}"

    async def close(self) -> None:
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
        connection.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return work(connection)
    except psycopg.Error as error:
        raise cannot_open(address.shown, error) from error
    finally:
        connection.raw.close()
