"""The records of a store for people to read. Owns lists of batches and calls; changes nothing, and waits for no
lock."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolwright.effects.wait_keys import KeyRing
from toolwright.errors import ToolwrightError
from toolwright.stores.contracts import background_run
from toolwright.stores.contracts import schedule as schedules
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import APPROVALS, WaitKey, WaitKind
from toolwright.stores.sql.calls.journal import CallRow
from toolwright.stores.sql.calls.past_calls import PAST_BATCHES, past_batch, past_call
from toolwright.stores.sql.codec import columns_of
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import FileLiveness
from toolwright.stores.sqlite.core.schema import secret_of
from toolwright.stores.sqlite.core.side_connection import visit, visit_place
from toolwright.stores.sqlite.core.store_file import StorePlace


async def batches(path: str | Path, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
    """The batches of a store, or of one of its sessions, the newest first.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    only, values = ("", ()) if session is None else ("WHERE session = ?", (session,))
    query = PAST_BATCHES.format(only=only, beyond="")

    def work(connection: SqliteConnection) -> list[PastBatch]:
        return [past_batch(row) for row in connection.execute(query, (*values, limit))]

    return await visit(path, work)


async def calls(path: str | Path, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
    """The calls of a batch, of a session, or of a batch in a session, in the order they were queued.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    given = {"batch": batch, "session": session}
    terms = [f"{name} = ?" for name, value in given.items() if value is not None]
    if not terms:
        raise ToolwrightError("The calls to list are those of a batch or a session; name one of them")
    query = f"""
        SELECT {columns_of(CallRow)}
        FROM every_call WHERE {" AND ".join(terms)} ORDER BY queued_at, batch, position, session, scope, call_id
    """

    def work(connection: SqliteConnection, place: StorePlace) -> list[PastCall]:
        connection.execute("BEGIN")  # one moment for calls and their waits
        values = tuple(value for value in given.values() if value is not None)
        rows = [CallRow._make(row) for row in connection.execute(query, values)]
        dead = FileLiveness(place).dead_among({row.owner for row in rows if row.outcome is None}, connection)
        return [past_call(row, dead, connection) for row in rows]

    return await visit_place(path, work)


async def runs_called(path: str | Path, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
    """The background runs with this id, or else those whose id begins so, with or without the part that most ids share.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    return await _called(path, "processes", background_run.PREFIX, word, session, limit)


async def schedules_called(path: str | Path, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
    """The schedules with this id, or else those whose id begins so, as with `runs_called`.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    return await _called(path, "schedules", schedules.PREFIX, word, session, limit)


async def _called(path: str | Path, table: str, prefix: str, word: str, session: str | None, limit: int) -> list[Named]:
    query = f"SELECT id, session, title FROM {table} WHERE (?2 IS NULL OR session = ?2) AND "
    # A range and not a pattern: it is found by the index, whatever characters the word has.
    begins = "(id >= ?1 AND id < ?1 || char(1114111)) ORDER BY id LIMIT ?3"

    def work(connection: SqliteConnection) -> list[Named]:
        rows: Any = connection.execute(query + "id = ?1", (word, session)).fetchall()
        for beginning in (word, prefix + word):
            if word and not rows:
                rows = connection.execute(query + begins, (beginning, session, limit)).fetchall()
        return [Named(*row) for row in rows]

    return await visit(path, work)


async def workers(path: str | Path) -> list[str]:
    """The names of the workers of a store that are alive.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """

    def work(connection: SqliteConnection, place: StorePlace) -> list[str]:
        query = "SELECT name, owner FROM workers WHERE until >= ? ORDER BY name"
        rows: Any = connection.execute(query, (time.monotonic(),)).fetchall()
        dead = FileLiveness(place).dead_among({owner for _, owner in rows}, connection)
        return [name for name, owner in rows if owner not in dead]

    return await visit_place(path, work)


async def decided_key(
    path: str | Path, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
) -> str | None:
    """The key of the newest request to a person of a call that has been decided; None when there is none.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """

    def work(connection: SqliteConnection) -> str | None:
        row = connection.execute(
            "SELECT session, scope, call_id, kind, name FROM waits WHERE call_id = ?1 AND (?2 IS NULL OR session = ?2)"
            " AND kind IN (SELECT value FROM json_each(?3)) AND resolution IS NOT NULL ORDER BY arrived DESC LIMIT 1",
            (call_id, session, json.dumps(list(kinds))),
        ).fetchone()
        if row is None:
            return None
        found_in, scope, call, kind, name = row
        return KeyRing(secret_of(connection)).write(WaitKey(CallKey(found_in, scope, call), kind, name))

    return await visit(path, work)
