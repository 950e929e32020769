"""The rows of the event log. Owns writing those about calls and sessions, and removing old ones; triggers of the schema
write all others, and `event_log.py` reads them.

The events of many calls are one row, so that a batch of a hundred calls costs two rows and not two hundred.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection

GAP = 1_000_000
"""How far the numbers jump when a store is opened that no process had open: of the events that were shown before a
power cut, some may be lost, and their numbers must not be given again."""
OPENED = "opened"
"""The kind of the row that holds such a jump. It is no event."""
NOTE = (
    "INSERT INTO events (number, session, kind, at, scope, subject)"
    " VALUES ((SELECT coalesce(max(number), 0) FROM events) + ?, ?, ?, ?, ?, ?)"
)
"""Writes one row, of the values that `batch_row` and `call_rows` give."""
_encode = msgspec.json.Encoder().encode


def note_batch(connection: Connection, intents: Sequence[Intent]) -> None:
    """Write down that these calls of one batch are in the journal now."""
    if intents:
        connection.execute(NOTE, batch_row(intents))


def batch_row(intents: Sequence[Intent]) -> tuple[Any, ...]:
    """The row that says that these calls of one batch are in the journal."""
    first = intents[0]
    subject = [first.batch, first.parent, [(intent.key.call_id, intent.tool) for intent in intents]]
    return (1, first.key.session, "batch.started", first.queued_at, first.key.scope, text(subject))


def note_call(connection: Connection, kind: str, key: CallKey, at: float | None = None) -> None:
    """Write down one event of a call."""
    note_calls(connection, kind, [key], time.time() if at is None else at)


def note_calls(connection: Connection, kind: str, keys: Sequence[CallKey], at: float) -> None:
    """Write down an event of the same kind for each of these calls."""
    for row in call_rows(kind, keys, at):
        connection.execute(NOTE, row)


def call_rows(kind: str, keys: Sequence[CallKey], at: float) -> list[tuple[Any, ...]]:
    """The rows of an event of the same kind for each of these calls: one for each session and scope."""
    places: dict[tuple[str, str], list[str]] = {}  # nearly always one
    for session, scope, call_id in keys:
        ids = places.get((session, scope))
        if ids is None:
            places[session, scope] = [call_id]
        else:
            ids.append(call_id)
    return [(len(ids), session, kind, at, scope, text(ids)) for (session, scope), ids in places.items()]


def note_removal(connection: Connection, session: str) -> None:
    """Write down that a session was removed, and remove all other events of it."""
    # First the new row: the number of the newest one must not be given again.
    connection.execute(NOTE, (1, session, "session.removed", time.time(), "", None))
    connection.execute("DELETE FROM events WHERE session = ? AND number < (SELECT max(number) FROM events)", (session,))


def leave_gap(connection: Connection, at: float) -> None:
    """Let the next number be far beyond all that were ever shown."""
    last = one(connection, "SELECT kind FROM events ORDER BY number DESC LIMIT 1")
    if last not in (None, OPENED):
        connection.execute(NOTE, (GAP, "", OPENED, at, "", None))


def prune_events(connection: Connection, before: float, sessions: Iterable[str] | None, most: int) -> bool:
    """Remove the next events before an instant, of all or some sessions; True when there may be more.

    The newest row stays, since the next number is beyond it. The events of a turn go when their turn is gone.
    """
    only = None if sessions is None else json.dumps(list(sessions))
    connection.execute(
        "DELETE FROM events WHERE number IN (SELECT number FROM events AS old"
        " WHERE number < (SELECT max(number) FROM events)"
        " AND (?2 IS NULL OR session IN (SELECT value FROM json_each(?2)))"
        " AND CASE kind WHEN 'turn' THEN NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = old.subject) ELSE at < ?1 END"
        " LIMIT ?3)",
        (before, only, most),
    )
    return connection.changes() == most


def text(subject: list[Any]) -> str:
    """The JSON of a subject."""
    try:
        return _encode(subject).decode()
    except UnicodeEncodeError:  # an id that is invalid Unicode
        return json.dumps(subject)
