"""Remembered requests in a SQL store. Owns their queries."""

from __future__ import annotations

import json
from typing import Any

from toolwright.stores.contracts.requests import KeptAnswer, RequestState
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.liveness import Liveness


class SqlRequestStore:
    """`RequestStore` in a SQL store. In memory it has no owner: one process has it."""

    def __init__(self, changes: Changes, owner: str | None, liveness: Liveness | None) -> None:
        self._changes = changes
        self._owner = owner or ""
        self._liveness = liveness

    async def begin(self, key: str, content: str, at: float, keep: float) -> RequestState:
        def work(connection: Connection) -> RequestState:
            connection.execute("DELETE FROM requests WHERE at < ?", (keep,))
            row: Any = connection.execute(
                "SELECT content, owner, status, headers, body FROM requests WHERE key = ?", (key,)
            ).fetchone()
            if row is None:
                connection.execute(
                    "INSERT INTO requests (key, content, owner, at) VALUES (?, ?, ?, ?)",
                    (key, content, self._owner, at),
                )
                return RequestState("begun")
            had, owner, status, headers, body = row
            if had != content:
                return RequestState("other")
            if status is not None:
                return RequestState("done", KeptAnswer(status, json.loads(headers), bytes(body)))
            if owner != self._owner and self._lives(owner, connection):
                return RequestState("running")
            connection.execute("UPDATE requests SET owner = ? WHERE key = ?", (self._owner, key))
            return RequestState("again")

        return await self._changes.change(None, work)

    def _lives(self, owner: str, connection: Connection) -> bool:
        return self._liveness is not None and not self._liveness.dead_among({owner}, connection)

    async def finish(self, key: str, answer: KeptAnswer) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE requests SET status = ?, headers = ?, body = ? WHERE key = ? AND owner = ? AND status IS NULL",
                (answer.status, json.dumps(answer.headers), answer.body, key, self._owner),
            )

        await self._changes.change(None, work)

    async def forget(self, key: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute(
                "DELETE FROM requests WHERE key = ? AND owner = ? AND status IS NULL", (key, self._owner)
            )

        await self._changes.change(None, work)
