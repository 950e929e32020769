"""A PostgreSQL store as its keeper sees it. Owns where lists, counts, checks and pruning are done: each verb has a
connection of its own, and leaves nothing open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores.contracts import background_run
from toolwright.stores.contracts import schedule as schedules
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall, Pruned, Stats
from toolwright.stores.contracts.waits import APPROVALS, WaitKind
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import cannot_open
from toolwright.stores.postgres.life import ServerLiveness, lease_time
from toolwright.stores.postgres.schema import VERSION, bring_up_to_date, find_version, require_current
from toolwright.stores.postgres.store import PostgresStore
from toolwright.stores.sql.admin.history import find_decided_key, find_named, list_batches, list_calls, list_workers
from toolwright.stores.sql.admin.maintenance import (
    count_records,
    find_contradictions,
    find_orphans,
    prune_records,
    require_usable,
)
from toolwright.stores.sql.codec import one

T = TypeVar("T")
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0) FROM pg_class"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = ? AND relkind = 'r'"
)
_TABLES = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = ? ORDER BY tablename"


class PostgresInspector:
    """`StoreInspector` of one schema of a database."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._liveness = ServerLiveness(self._address)

    async def exists(self) -> bool:
        def work(connection: PostgresConnection) -> bool:
            query = "SELECT 1 FROM pg_namespace WHERE nspname = ?"
            return one(connection, query, (self._address.schema,)) is not None

        try:
            return await self._visit(work, any_version=True)
        except StoreUnavailable:
            raise
        except StoreError as error:
            if "there is no such database" in str(error):
                return False
            raise

    async def check_access(self) -> None:
        def work(connection: PostgresConnection) -> None:
            # What opening does, and taken back: only the server knows what a user may do.
            with connection.raw.transaction(force_rollback=True):
                connection.run("SELECT pg_advisory_xact_lock($1)", (self._address.lock_key("schema"),))
                if find_version(connection, self._address) in (None, VERSION):
                    bring_up_to_date(connection, self._address)
                    connection.execute("INSERT INTO commits (owner, number) VALUES ('', 0)")

        await self._visit(work, any_version=True, snapshot=False)

    async def version(self) -> int:
        def work(connection: PostgresConnection) -> int:
            version = find_version(connection, self._address)
            if version is None:
                require_current(connection, self._address)
            assert version is not None
            return version

        return await self._visit(work, any_version=True)

    async def migrate(self) -> tuple[int, int]:
        before = await self.version()
        await (await PostgresStore.open(self._address.url)).close()
        return before, await self.version()

    async def stats(self) -> Stats:
        def work(connection: PostgresConnection) -> Stats:
            size = one(connection, _SIZE, (self._address.schema,))
            return count_records(connection, self._liveness, file_bytes=size, free_bytes=0)

        return await self._visit(work)

    async def check(self) -> list[str]:
        return await self._visit(lambda connection: [*find_orphans(connection), *find_contradictions(connection)])

    async def prune(
        self,
        before: float | None,
        *,
        sessions: Collection[str] | None = None,
        vacuum: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        require_usable(before, sessions)
        alone = f"BEGIN; SELECT pg_advisory_xact_lock({self._address.lock_key('writers')})"

        def work(connection: PostgresConnection) -> Pruned:
            @contextmanager
            def transaction() -> Iterator[None]:
                connection.raw.execute("BEGIN" if dry_run else alone)
                try:
                    yield
                except BaseException:
                    with suppress(psycopg.Error):
                        connection.raw.execute("ROLLBACK")
                    raise
                connection.raw.execute("COMMIT")

            size = one(connection, _SIZE, (self._address.schema,))
            counts = prune_records(connection, transaction, before, sessions, dry_run)
            if dry_run:
                return Pruned(**counts)
            if vacuum:
                for (table,) in connection.execute(_TABLES, (self._address.schema,)).fetchall():
                    connection.raw.execute(f"VACUUM (FULL, ANALYZE) {table}")
            return Pruned(**counts, bytes=max(0, size - one(connection, _SIZE, (self._address.schema,))))

        return await self._visit(work, snapshot=False)

    async def batches(self, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
        return await self._visit(lambda connection: list_batches(connection, session, limit))

    async def calls(self, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
        return await self._visit(lambda connection: list_calls(connection, self._liveness, batch, session))

    async def find_runs(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        prefix = background_run.PREFIX
        return await self._visit(lambda connection: find_named(connection, "processes", prefix, word, session, limit))

    async def find_schedules(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        prefix = schedules.PREFIX
        return await self._visit(lambda connection: find_named(connection, "schedules", prefix, word, session, limit))

    async def decided_key(
        self, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
    ) -> str | None:
        return await self._visit(lambda connection: find_decided_key(connection, call_id, session, kinds))

    async def workers(self) -> list[str]:
        return await self._visit(lambda connection: list_workers(connection, self._liveness, lease_time(connection)))

    async def _visit(
        self, work: Callable[[PostgresConnection], T], *, any_version: bool = False, snapshot: bool = True
    ) -> T:
        return await asyncio.to_thread(self._visit_now, work, any_version, snapshot)

    def _visit_now(self, work: Callable[[PostgresConnection], T], any_version: bool, snapshot: bool) -> T:
        connection = self._address.connect()
        try:
            if not any_version:
                require_current(connection, self._address)
            if snapshot:
                connection.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")  # one moment for all
            return work(connection)
        except psycopg.Error as error:
            raise cannot_open(self._address.shown, error) from error
        finally:
            connection.raw.close()
