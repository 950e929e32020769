"""Messages in a SQL store. Owns their queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolwright.stores.contracts.sessions import Mark, NewMessage, Quota
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.tools.service_protocols import Sender


class SqlMessageStore:
    """`MessageStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def append_messages(
        self, session: str, messages: Sequence[NewMessage], at: float, quota: Quota, mark: Mark | None
    ) -> tuple[int, float]:
        """Append all messages in one transaction, or none."""

        def work(connection: Connection) -> tuple[int, float]:
            return put_messages(connection, session, messages, at, quota), at

        number, appended = await self._changes.change(mark, work)
        return number, appended

    async def list_messages(
        self, session: str, after: int, limit: int
    ) -> list[tuple[int, Sender, bytes, bytes, float]]:
        return await list_messages(self._changes, session, after, limit)


async def list_messages(
    changes: Changes, session: str, after: int, limit: int
) -> list[tuple[int, Sender, bytes, bytes, float]]:
    """The messages of a session beyond a number, in order."""
    query = (
        "SELECT number, sender, content, metadata, at FROM messages"
        " WHERE session = ? AND number > ? ORDER BY number LIMIT ?"
    )
    rows: list[Any] = await changes.read(
        lambda connection: connection.execute(query, (session, after, limit)).fetchall()
    )
    return rows


def put_messages(connection: Connection, session: str, messages: Sequence[NewMessage], at: float, quota: Quota) -> int:
    """Append messages inside the transaction of the caller, and return the number of the first.

    Raises:
        ServiceError: the quota is used up.
    """
    # There is one writer at a time, so that no two messages are given the same number.
    last: int = one(connection, "SELECT max(number) FROM messages WHERE session = ?", (session,)) or 0
    connection.executemany(
        "INSERT INTO messages (session, number, sender, content, metadata, at) VALUES (?, ?, ?, ?, ?, ?)",
        [(session, number, *message, at) for number, message in enumerate(messages, last + 1)],
    )
    require_quota(connection, session, "messages", quota)
    return last + 1
