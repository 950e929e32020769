"""The version of a store's file, for people who look after it. Owns asking for it; `schema` owns what a version is."""

from __future__ import annotations

from pathlib import Path

import apsw

from toolwright.stores.sqlite.core.codec import one
from toolwright.stores.sqlite.core.side_connection import visit
from toolwright.stores.sqlite.store import SqliteStore


async def version(path: str | Path) -> int:
    """The version of the schema in a file.

    Raises:
        StoreError: there is no store, it is empty, another program's or a newer toolwright's, or it cannot be read.
    """

    def work(connection: apsw.Connection) -> int:
        return int(one(connection, "PRAGMA user_version"))

    return await visit(path, work, older=True)


async def migrate(path: str | Path) -> tuple[int, int]:
    """Bring a store up to date, as opening it does; return the version it had and the one it has now.

    Raises:
        StoreError: as for `version`, or it cannot be written. Then it is as it was.
    """
    before = await version(path)
    await SqliteStore(path).close()
    return before, await version(path)
