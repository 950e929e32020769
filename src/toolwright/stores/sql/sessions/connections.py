"""Connections in a SQL store. Owns their queries."""

from __future__ import annotations

from typing import Any

from toolwright.errors import ServiceError
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection


class SqlConnectionStore:
    """`ConnectionStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def set_connection(self, session: str, provider: str, detail: bytes, at: float, most: int) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO connections (session, provider, detail, connected_at)"
                " VALUES (?, ?, ?, ?) ON CONFLICT (session, provider) DO UPDATE"
                " SET detail = excluded.detail, connected_at = excluded.connected_at",
                (session, provider, detail, at),
            )
            if one(connection, "SELECT count(*) FROM connections WHERE session = ?", (session,)) > most:
                raise ServiceError(
                    f"The session already has {most} connections, the maximum; disconnect some first", "quota"
                )

        await self._changes.change(None, work)

    async def get_connection(self, session: str, provider: str) -> tuple[bytes, float] | None:
        query = "SELECT detail, connected_at FROM connections WHERE session = ? AND provider = ?"
        row: Any = await self._changes.read(
            lambda connection: connection.execute(query, (session, provider)).fetchone()
        )
        return None if row is None else row

    async def list_connections(self, session: str) -> list[tuple[str, bytes, float]]:
        query = "SELECT provider, detail, connected_at FROM connections WHERE session = ? ORDER BY provider"
        rows: list[Any] = await self._changes.read(lambda connection: connection.execute(query, (session,)).fetchall())
        return rows

    async def delete_connection(self, session: str, provider: str) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM connections WHERE session = ? AND provider = ?", (session, provider))
            return connection.changes() == 1

        return await self._changes.change(None, work)
