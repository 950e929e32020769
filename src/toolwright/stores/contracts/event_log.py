"""The contract of the event log: what happened in a store, in one order, whichever process did it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from toolwright.plain_data import instant_text

EVENT_GROUPS = (
    *("answer", "batch", "call", "context", "file", "kv", "message", "model", "run", "schedule", "session", "turn"),
)
"""What the kinds of events begin with, before a dot."""


class LoggedEvent(Struct, frozen=True, gc=False):
    """One event of a store. Its number rises with every event of the store, and numbers may be missing.

    `data` is what the kind of the event has beside these fields. An event of a call has the same data as the event that
    a subscriber in the process of the call gets.
    """

    number: int
    session: str
    kind: str
    at: float
    data: Mapping[str, Any]
    call_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The event as plain data; its instant is RFC 3339 text."""
        told: dict[str, Any] = {"number": self.number, "kind": self.kind, "session": self.session}
        return told | {"at": instant_text(self.at)} | dict(self.data)


class EventPage(NamedTuple):
    """Events in the order of their numbers, all up to `last`: the next page is the one after that number.

    `first` is the number of the oldest event of the store; earlier ones were removed, or there are none.
    """

    events: list[LoggedEvent]
    last: int
    first: int


class EventLogStore(Protocol):
    """The contract of the event log in a database. Implemented by `stores/sql/sessions/event_log.py`.

    An event is in the log when the change that it tells of is committed, and in the same commit: no reader sees a
    number and later a smaller one. It is kept until it is pruned, and its content as long as its subject: a
    call, a run, a turn. Numbers are never given twice, not even after a power cut.
    """

    async def after(self, number: int | None, limit: int) -> EventPage:
        """The next events beyond a number, at most `limit`; without a number none, and `last` is that of the newest."""
        ...
