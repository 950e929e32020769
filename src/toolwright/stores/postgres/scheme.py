"""The scheme of PostgreSQL stores: `postgresql://` or `postgres://`. Owns no more; `store.py` opens them."""

from __future__ import annotations

from toolwright.stores.contracts.scheme import StoreOptions
from toolwright.stores.postgres.copying import PostgresCopyDatabase
from toolwright.stores.postgres.inspector import PostgresInspector
from toolwright.stores.postgres.store import PostgresStore
from toolwright.stores.sql.admin.copying import SqlCopy


class PostgresScheme:
    """`StoreScheme` and `CopyScheme` of one schema of a database for each store."""

    async def open(self, url: str, options: StoreOptions) -> PostgresStore:
        """Open the store of a URL as one more owner; a missing one is created."""
        return await PostgresStore.open(url, sync=options.sync, clock=options.clock)

    def inspect(self, url: str) -> PostgresInspector:
        """Look after the store of a URL."""
        return PostgresInspector(url)

    async def copy_source(self, url: str) -> SqlCopy:
        """Hold the store of a URL, to read it whole."""
        return await SqlCopy.source(PostgresCopyDatabase(url))

    async def copy_target(self, url: str, store_id: str) -> SqlCopy:
        """Hold the copy of a store, or make the schema for one."""
        return await SqlCopy.target(PostgresCopyDatabase(url), store_id)
