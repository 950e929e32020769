"""Resources in a SQL store. Owns their queries."""

from __future__ import annotations

from typing import Any

from toolwright.stores.contracts.sessions import Mark, Quota, ResourceRow
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.connection import Connection

_COLUMNS = "id, kind, name, status, metadata, created_at, updated_at"


class SqlResourceStore:
    """`ResourceStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def upsert_resource(
        self,
        session: str,
        id: str,
        kind: str,
        name: str,
        status: str,
        metadata: bytes,
        at: float,
        quota: Quota,
        mark: Mark | None,
    ) -> tuple[float, float]:
        def work(connection: Connection) -> tuple[float, float]:
            created: Any = connection.execute(
                "INSERT INTO resources (session, id, kind, name, status, metadata, created_at, updated_at)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT (session, id) DO UPDATE"
                " SET kind = excluded.kind, name = excluded.name, status = excluded.status,"
                " metadata = excluded.metadata, updated_at = excluded.updated_at RETURNING created_at, updated_at",
                (session, id, kind, name, status, metadata, at),
            ).fetchone()
            require_quota(connection, session, "resources", quota)
            return created[0], created[1]

        created, updated = await self._changes.change(mark, work)
        return created, updated

    async def set_resource_status(
        self, session: str, id: str, status: str, at: float, quota: Quota, mark: Mark | None
    ) -> ResourceRow | None:
        """Change the status of a resource and nothing else; None when there is no such resource."""

        def work(connection: Connection) -> ResourceRow | None:
            row: ResourceRow | None = connection.execute(
                "UPDATE resources SET status = ?3, updated_at = ?4 WHERE session = ?1 AND id = ?2"
                f" RETURNING {_COLUMNS}",
                (session, id, status, at),
            ).fetchone()
            require_quota(connection, session, "resources", quota)
            return row

        row: ResourceRow | None = await self._changes.change(mark, work)
        return row

    async def get_resource(self, session: str, id: str) -> ResourceRow | None:
        query = f"SELECT {_COLUMNS} FROM resources WHERE session = ? AND id = ?"
        row: Any = await self._changes.read(lambda connection: connection.execute(query, (session, id)).fetchone())
        return None if row is None else row

    async def list_resources(self, session: str, kind: str | None, status: str | None) -> list[ResourceRow]:
        query = (
            f"SELECT {_COLUMNS} FROM resources WHERE session = ?1"
            " AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR status = ?3) ORDER BY id"
        )
        rows: list[Any] = await self._changes.read(
            lambda connection: connection.execute(query, (session, kind, status)).fetchall()
        )
        return rows

    async def delete_resource(self, session: str, id: str, mark: Mark | None) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM resources WHERE session = ? AND id = ?", (session, id))
            return connection.changes() == 1

        return await self._changes.change(mark, work)
