"""The scheme of PostgreSQL stores: `postgresql://` or `postgres://`. Owns no more; `store.py` opens them."""

from __future__ import annotations

from toolwright.stores.contracts.scheme import StoreOptions
from toolwright.stores.postgres.inspector import PostgresInspector
from toolwright.stores.postgres.store import PostgresStore


class PostgresScheme:
    """`StoreScheme` of one schema of a database for each store."""

    async def open(self, url: str, options: StoreOptions) -> PostgresStore:
        """Open the store of a URL as one more owner; a missing one is created."""
        return await PostgresStore.open(url, sync=options.sync, clock=options.clock)

    def inspect(self, url: str) -> PostgresInspector:
        """Look after the store of a URL."""
        return PostgresInspector(url)
