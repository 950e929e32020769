"""The records of a store for people to read. Owns the queries of lists of batches and calls, which change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolwright.effects.wait_keys import KeyRing
from toolwright.errors import ToolwrightError
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import WaitKey, WaitKind
from toolwright.stores.sql.calls.journal import CallRow
from toolwright.stores.sql.calls.past_calls import PAST_BATCHES, past_batch, past_call
from toolwright.stores.sql.codec import columns_of, one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.liveness import Liveness

_LAST_CHARACTER = "\U0010ffff"


def list_batches(connection: Connection, session: str | None, limit: int) -> list[PastBatch]:
    """The batches of a store, or of one of its sessions, the newest first."""
    only, values = ("", ()) if session is None else ("WHERE session = ?", (session,))
    query = PAST_BATCHES.format(only=only, beyond="")
    return [past_batch(row) for row in connection.execute(query, (*values, limit))]


def list_calls(connection: Connection, liveness: Liveness, batch: str | None, session: str | None) -> list[PastCall]:
    """The calls of a batch, of a session, or of a batch in a session, in the order they were queued."""
    given = {"batch": batch, "session": session}
    terms = [f"{name} = ?" for name, value in given.items() if value is not None]
    if not terms:
        raise ToolwrightError("The calls to list are those of a batch or a session; name one of them")
    query = f"""
        SELECT {columns_of(CallRow)}
        FROM every_call WHERE {" AND ".join(terms)} ORDER BY queued_at, batch, position, session, scope, call_id
    """
    values = tuple(value for value in given.values() if value is not None)
    rows = [CallRow._make(row) for row in connection.execute(query, values)]
    dead = liveness.dead_among({row.owner for row in rows if row.outcome is None}, connection)
    return [past_call(row, dead, connection) for row in rows]


def find_named(
    connection: Connection, table: str, prefix: str, word: str, session: str | None, limit: int
) -> list[Named]:
    """The rows of a table with this id, or else those whose id begins so, with or without a prefix."""
    query = f"SELECT id, session, title FROM {table} WHERE (?2 IS NULL OR session = ?2) AND "
    # A range and not a pattern: it is found by the index, whatever characters the word has.
    begins = "id >= ?1 AND id < ?3 ORDER BY id LIMIT ?4"
    rows: Any = connection.execute(query + "id = ?1", (word, session)).fetchall()
    for beginning in (word, prefix + word):
        if word and not rows:
            values = (beginning, session, beginning + _LAST_CHARACTER, limit)
            rows = connection.execute(query + begins, values).fetchall()
    return [Named(*row) for row in rows]


def list_workers(connection: Connection, liveness: Liveness, now: float) -> list[str]:
    """The names of the workers of a store that are alive; `now` is by the clock of leases."""
    query = "SELECT name, owner FROM workers WHERE until >= ? ORDER BY name"
    rows: Any = connection.execute(query, (now,)).fetchall()
    dead = liveness.dead_among({owner for _, owner in rows}, connection)
    return [name for name, owner in rows if owner not in dead]


def find_decided_key(
    connection: Connection, call_id: str, session: str | None, kinds: Sequence[WaitKind]
) -> str | None:
    """The key of the newest request to a person of a call that has been decided; None when there is none."""
    row = connection.execute(
        "SELECT session, scope, call_id, kind, name FROM waits WHERE call_id = ?1 AND (?2 IS NULL OR session = ?2)"
        " AND kind IN (SELECT value FROM json_each(?3)) AND resolution IS NOT NULL ORDER BY arrived DESC LIMIT 1",
        (call_id, session, json.dumps(list(kinds))),
    ).fetchone()
    if row is None:
        return None
    found_in, scope, call, kind, name = row
    secret = bytes(one(connection, "SELECT value FROM meta WHERE name = 'secret'"))
    return KeyRing(secret).write(WaitKey(CallKey(found_in, scope, call), kind, name))
