"""Secrets in a SQL store. Owns their queries; sees sealed values only."""

from __future__ import annotations

from typing import Any

import msgspec

from toolwright import jsonx
from toolwright.calls.redact import SEALED
from toolwright.stores.contracts.sessions import Mark, Quota, Sealed, StepKey
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.codec import put
from toolwright.stores.sql.connection import Connection
from toolwright.tools.service_protocols import KeyInfo


class SqlSecretStore:
    """`SecretStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def get_secret(self, session: str, name: str) -> Sealed | None:
        query = "SELECT master, wrapped, sealed FROM secrets WHERE session = ? AND name = ?"
        row: Any = await self._changes.read(lambda connection: connection.execute(query, (session, name)).fetchone())
        return None if row is None else _row(*row)

    async def set_secret(
        self, session: str, name: str, row: Sealed, at: float, quota: Quota, mark: Mark | None
    ) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "INSERT INTO secrets (session, name, master, wrapped, sealed, created_at, updated_at)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT (session, name) DO UPDATE SET"
                " master = excluded.master, wrapped = excluded.wrapped, sealed = excluded.sealed,"
                " updated_at = excluded.updated_at",
                (session, name, row.master, row.wrapped, row.sealed, at),
            )
            require_quota(connection, session, "secrets", quota)

        await self._changes.change(mark, work)

    async def delete_secret(self, session: str, name: str, mark: Mark | None) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM secrets WHERE session = ? AND name = ?", (session, name))
            return connection.changes() == 1

        return await self._changes.change(mark, work)

    async def list_secrets(self, session: str) -> list[KeyInfo]:
        query = "SELECT name, created_at, updated_at FROM secrets WHERE session = ? ORDER BY name"
        rows: list[Any] = await self._changes.read(lambda connection: connection.execute(query, (session,)).fetchall())
        return [KeyInfo(*row) for row in rows]

    async def all_secrets(self, session: str) -> list[tuple[str, Sealed]]:
        query = "SELECT name, master, wrapped, sealed FROM secrets WHERE session = ? ORDER BY name"
        rows: list[Any] = await self._changes.read(lambda connection: connection.execute(query, (session,)).fetchall())
        return [(name, _row(*row)) for name, *row in rows]

    async def secrets_after(self, after: tuple[str, str], limit: int) -> list[tuple[str, str, Sealed]]:
        query = (
            "SELECT session, name, master, wrapped, sealed FROM secrets"
            " WHERE (session, name) > (?, ?) ORDER BY session, name LIMIT ?"
        )
        rows: list[Any] = await self._changes.read(
            lambda connection: connection.execute(query, (*after, limit)).fetchall()
        )
        return [(session, name, _row(*row)) for session, name, *row in rows]

    async def rewrap_secrets(self, changes: list[tuple[str, str, Sealed, Sealed]]) -> int:
        def work(connection: Connection) -> int:
            moved = 0
            for session, name, old, new in changes:
                connection.execute(
                    "UPDATE secrets SET master = ?, wrapped = ? WHERE session = ? AND name = ? AND wrapped = ?",
                    (new.master, new.wrapped, session, name, old.wrapped),
                )
                moved += connection.changes()
            return moved

        return await self._changes.change(None, work)

    async def keep_fingerprints(self, before: Sealed | None, row: Sealed) -> Sealed:
        def work(connection: Connection) -> Sealed:
            found = fingerprints_of(connection)
            if found != before and found is not None:
                return found
            connection.execute(put("meta", ("name",), ("value",)), ("fingerprints", jsonx.encode(row)))
            return row

        return await self._changes.change(None, work)

    async def sealed_steps_after(self, after: StepKey, limit: int) -> list[tuple[StepKey, bytes]]:
        query = (
            "SELECT session, scope, call_id, label, payload FROM effects"
            " WHERE (session, scope, call_id, label) > (?, ?, ?, ?) AND label LIKE 'step:%'"
            f" AND CAST(substr(payload, 1, {len(SEALED)}) AS BLOB) = ? ORDER BY session, scope, call_id, label LIMIT ?"
        )
        rows: list[Any] = await self._changes.read(
            lambda connection: connection.execute(query, (*after, SEALED, limit)).fetchall()
        )
        return [((session, scope, call, label), bytes(payload)) for session, scope, call, label, payload in rows]

    async def rewrap_steps(self, changes: list[tuple[StepKey, bytes, bytes]]) -> int:
        def work(connection: Connection) -> int:
            moved = 0
            for key, old, new in changes:
                connection.execute(
                    "UPDATE effects SET payload = ?"
                    " WHERE session = ? AND scope = ? AND call_id = ? AND label = ? AND payload = ?",
                    (new, *key, old),
                )
                moved += connection.changes()
            return moved

        return await self._changes.change(None, work)


def fingerprints_of(connection: Connection) -> Sealed | None:
    """The key of fingerprints, sealed; None where there is none yet."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'fingerprints'").fetchone()
    return None if row is None else msgspec.json.decode(bytes(row[0]), type=Sealed)


def _row(master: str, wrapped: bytes, sealed: bytes) -> Sealed:
    return Sealed(master, bytes(wrapped), bytes(sealed))
