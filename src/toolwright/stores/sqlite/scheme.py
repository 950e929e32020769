"""The scheme of SQLite stores: a path, or `sqlite:///` and a path. Owns reading that; `store.py` opens the file."""

from __future__ import annotations

from pathlib import Path

from toolwright.stores.contracts.scheme import StoreOptions, file_of
from toolwright.stores.sql.admin.copying import SqlCopy
from toolwright.stores.sqlite.admin.copying import SqliteCopyDatabase
from toolwright.stores.sqlite.admin.inspector import SqliteInspector
from toolwright.stores.sqlite.store import SqliteStore


class SqliteScheme:
    """`StoreScheme` and `CopyScheme` of one SQLite file for each store."""

    async def open(self, url: str, options: StoreOptions) -> SqliteStore:
        """Open the file, or make it, on a thread: a store may have to be migrated, or another program may hold it."""
        return await SqliteStore.open(_path(url), sync=options.sync, clock=options.clock)

    def inspect(self, url: str) -> SqliteInspector:
        """Look after the file."""
        return SqliteInspector(_path(url))

    async def copy_source(self, url: str) -> SqlCopy:
        """Hold the file, to read it whole."""
        return await SqlCopy.source(SqliteCopyDatabase(_path(url)))

    async def copy_target(self, url: str, store_id: str) -> SqlCopy:
        """Hold the copy of a store, or make the file for one."""
        return await SqlCopy.target(SqliteCopyDatabase(_path(url)), store_id)


def _path(url: str) -> Path:
    path = file_of(url)
    assert path is not None, url
    return path
