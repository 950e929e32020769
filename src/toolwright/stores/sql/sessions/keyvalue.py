"""Key-value in a SQL store. Owns its queries."""

from __future__ import annotations

import itertools
from typing import Any

from toolwright.stores.contracts.sessions import Mark, Quota
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.tools.service_protocols import KeyInfo


class SqlKeyValueStore:
    """`KeyValueStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def get_value(self, session: str, key: str) -> bytes | None:
        query = "SELECT value FROM key_values WHERE session = ? AND key = ?"
        found: bytes | None = await self._changes.read(lambda connection: one(connection, query, (session, key)))
        return found

    async def set_value(self, session: str, key: str, value: bytes, at: float, quota: Quota, mark: Mark | None) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO key_values (session, key, value, created_at, updated_at)"
                " VALUES (?1, ?2, ?3, ?4, ?4)"
                " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
                (session, key, value, at),
            )
            require_quota(connection, session, "key_values", quota)

        await self._changes.change(mark, work)

    async def delete_value(self, session: str, key: str, mark: Mark | None) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM key_values WHERE session = ? AND key = ?", (session, key))
            return connection.changes() == 1

        return await self._changes.change(mark, work)

    async def list_keys(self, session: str, prefix: str) -> list[KeyInfo]:
        query = "SELECT key, created_at, updated_at FROM key_values WHERE session = ? AND key >= ? ORDER BY key"

        def work(connection: Connection) -> list[KeyInfo]:
            # Keys of one beginning follow each other. SQLite cannot compare it: its functions end text at U+0000.
            rows: Any = connection.execute(query, (session, prefix))
            found = (KeyInfo(key, created, updated) for key, created, updated in rows)
            return list(itertools.takewhile(lambda each: each.key.startswith(prefix), found))

        return await self._changes.read(work)
