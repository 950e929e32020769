"""The scheme of SQLite stores: a path, or `sqlite:///` and a path. Owns reading that; `store.py` opens the file."""

from __future__ import annotations

from pathlib import Path

from toolwright.stores.contracts.scheme import StoreOptions, file_of
from toolwright.stores.sqlite.admin.inspector import SqliteInspector
from toolwright.stores.sqlite.store import SqliteStore


class SqliteScheme:
    """`StoreScheme` of one SQLite file for each store."""

    async def open(self, url: str, options: StoreOptions) -> SqliteStore:
        """Open the file, or make it, on a thread: a store may have to be migrated, or another program may hold it."""
        return await SqliteStore.open(_path(url), sync=options.sync, clock=options.clock)

    def inspect(self, url: str) -> SqliteInspector:
        """Look after the file."""
        return SqliteInspector(_path(url))


def _path(url: str) -> Path:
    path = file_of(url)
    assert path is not None, url
    return path
