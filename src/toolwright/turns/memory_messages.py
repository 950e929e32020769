"""The messages of turns in memory, in plain lists. Owns them until something else of the runtime needs the database of
its services, in which all messages are from then on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolwright.stores.contracts.sessions import Mark, NewMessage, Quota
from toolwright.tools.service_protocols import Sender

Row = tuple[int, Sender, bytes, bytes, float]


class MemoryMessages:
    """`MessageStore` in this process, for callers that mark nothing: turns, which no call repeats."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {}
        self._bytes: dict[str, int] = {}

    async def append_messages(
        self, session: str, messages: Sequence[NewMessage], at: float, quota: Quota, mark: Mark | None
    ) -> tuple[int, float]:
        if mark is not None:
            raise NotImplementedError("A change by a call is marked in the database of the services.")
        rows = self._rows.get(session, [])
        size = self._bytes.get(session, 0) + sum([len(one.content) + len(one.metadata) for one in messages])
        quota.require("messages", len(rows) + len(messages), size)
        first = len(rows) + 1
        rows += [(number, *message, at) for number, message in enumerate(messages, first)]
        self._rows[session], self._bytes[session] = rows, size
        return first, at

    async def list_messages(self, session: str, after: int, limit: int) -> list[Row]:
        return self._rows.get(session, [])[after : after + limit]

    def take(self) -> Iterator[tuple[str, *Row]]:
        """All messages, each after its session; they are no longer here."""
        rows, self._rows, self._bytes = self._rows, {}, {}
        return ((session, *row) for session, each in rows.items() for row in each)
