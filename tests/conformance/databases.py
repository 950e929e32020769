"""The databases that our own stores are tested on. Owns killing an owner without ending the test's process."""

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

from msgspec.structs import replace

from toolwright.effects.journal import Entry, Intent
from toolwright.effects.store import Store
from toolwright.stores.sqlite.store import SqliteStore


class InFile:
    """`Database` of `SqliteStore`. No sync: these tests are not about power cuts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "agent.db"
        self._opened: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        store = SqliteStore(self._path, sync="normal")
        self._opened.append(store)
        return store

    async def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        for lock in store._locks:
            lock.drop()  # what the operating system does when a process ends

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self._opened))


class InBundles(InFile):
    """The same, where each batch may simply run again: its intents are written in one row."""

    async def open(self) -> SqliteStore:
        store = await super().open()
        begin = store.journal.begin

        def begin_rerun(intents: Sequence[Intent]) -> Awaitable[list[Entry | None]]:
            return begin([replace(intent, rerun=True) for intent in intents])

        store.journal.begin = begin_rerun  # type: ignore[method-assign]
        return store
