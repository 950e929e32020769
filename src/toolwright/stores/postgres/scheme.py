"""The scheme of PostgreSQL stores: `postgresql://` or `postgres://`. Owns no more; `store.py` opens them."""

from __future__ import annotations

from toolwright.errors import StoreError
from toolwright.stores.contracts.inspection import StoreInspector
from toolwright.stores.contracts.scheme import StoreOptions
from toolwright.stores.postgres.address import without_password
from toolwright.stores.postgres.store import PostgresStore


class PostgresScheme:
    """`StoreScheme` of one schema of a database for each store."""

    async def open(self, url: str, options: StoreOptions) -> PostgresStore:
        """Open the store of a URL as one more owner; a missing one is created."""
        return await PostgresStore.open(url, sync=options.sync, clock=options.clock)

    def inspect(self, url: str) -> StoreInspector:
        """Look after the store of a URL."""
        raise StoreError(f"The store {without_password(url)!r} cannot be inspected by this version; upgrade toolwright")
