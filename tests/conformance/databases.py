"""The databases that our own stores are tested on. Owns killing an owner without ending the test's process."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from tests.postgres_server import PostgresServer
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.stores.contracts.journal import Begun, CallKey, Intent
from toolwright.stores.contracts.store import Store
from toolwright.stores.postgres.store import PostgresStore
from toolwright.stores.sql.sessions.services import SqlServiceStores
from toolwright.stores.sqlite.services import services_in_memory
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.conformance import InMemory
from toolwright.testing.conformance.background import CASE_CLOCK
from toolwright.testing.sqlite_store import drop_locks
from toolwright.turns.memory_store import MemoryTurnStore


class InFile:
    """`Database` of `SqliteStore`. No sync: these tests are not about power cuts."""

    def __init__(self, folder: Path, name: str = "agent.db") -> None:
        self._path = folder / name
        self._opened: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        store = SqliteStore(self._path, sync="normal", clock=CASE_CLOCK)
        self._opened.append(store)
        return store

    async def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        drop_locks(store)

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._opened))


class InBundles(InFile):
    """The same, where each batch may simply run again: its intents are written in one row."""

    async def open(self) -> SqliteStore:
        store = await super().open()
        begin = store.journal.begin

        def begin_rerun(intents: Sequence[Intent], refused: Sequence[CallKey] = ()) -> Awaitable[Begun]:
            # Only of a call that may not run again is a start written with its intent.
            return begin([replace(intent, rerun=intent.starts_at is None) for intent in intents], refused)

        store.journal.begin = begin_rerun  # type: ignore[method-assign]
        return store


class InPostgres:
    """`Database` of `PostgresStore`: a schema of its own on the server of the tests."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._closing = ExitStack()
        self._schema = self._closing.enter_context(server.schema())
        self._opened: list[PostgresStore] = []

    @property
    def url(self) -> str:
        return f"{self._server.url}?schema={self._schema}"

    async def open(self) -> PostgresStore:
        store = await PostgresStore.open(
            self.url, sync="normal", clock=CASE_CLOCK, lease_time=lambda connection: CASE_CLOCK.monotonic()
        )
        self._opened.append(store)
        return store

    async def kill(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        await asyncio.to_thread(store.life.vanish)

    async def cut(self) -> None:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwright'"
        await asyncio.to_thread(self._server.execute, cut)

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._opened))
        await asyncio.to_thread(self._closing.close)


class ServicesInMemory(MemoryStore):
    """A store as a runtime without a file has it: calls in one place, and all else in another."""

    def __init__(self, rows: MemoryDatabase, services: SqlServiceStores) -> None:
        super().__init__(rows)
        self.services = services


class BesideCalls(InMemory):
    """`Database` of `ServicesInMemory`. Nobody knows who is dead there: all that it keeps ends with the process."""

    def __init__(self) -> None:
        super().__init__()
        self._services = services_in_memory(CASE_CLOCK)

    async def open(self) -> ServicesInMemory:
        return ServicesInMemory(self.rows, self._services)

    async def close(self) -> None:
        await self._services.close()


class TurnsInMemory(BesideCalls):
    """`Database` of `MemoryTurnStore`: the turns of a runtime without a file."""

    def __init__(self) -> None:
        super().__init__()
        self._services.turns = MemoryTurnStore(lambda: self._services.messages)  # type: ignore[assignment]
