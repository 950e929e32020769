"""The database that every store is compared with. Owns opening and killing owners of a `MemoryStore`."""

from __future__ import annotations

from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.stores.contracts.store import Store


class InMemory:
    """`Database` of `MemoryStore`."""

    def __init__(self) -> None:
        self.rows = MemoryDatabase()

    async def open(self) -> MemoryStore:
        return MemoryStore(self.rows)

    async def kill(self, store: Store) -> None:
        self.rows.end(store.journal.owner)

    async def close(self) -> None: ...
