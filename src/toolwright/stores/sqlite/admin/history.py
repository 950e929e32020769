"""The records of a store for people to read. Owns lists of batches and calls; changes nothing, and waits for no
lock."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from toolwright.effects.wait_keys import KeyRing
from toolwright.errors import ToolwrightError
from toolwright.stores.contracts import background_run
from toolwright.stores.contracts import schedule as schedules
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import APPROVALS, WaitKey, WaitKind
from toolwright.stores.sqlite.calls.journal import CallRow
from toolwright.stores.sqlite.core.codec import columns_of, unpacker
from toolwright.stores.sqlite.core.owners import dead_among
from toolwright.stores.sqlite.core.schema import secret_of
from toolwright.stores.sqlite.core.side_connection import visit, visit_place
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.tools.outcome import ToolOutcome

_outcome = unpacker(ToolOutcome)


async def batches(path: str | Path, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
    """The batches of a store, or of one of its sessions, the newest first.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    only, values = ("", ()) if session is None else ("WHERE session = ?", (session,))
    query = f"""
        WITH counted AS (
            SELECT session, scope, batch, coalesce(status, 'unfinished') AS state, count(*) AS calls,
                min(queued_at) AS first_at, max(coalesce(finished_at, started_at, queued_at)) AS last_at
            FROM every_call {only} GROUP BY session, scope, batch, state
        )
        SELECT session, scope, batch, sum(calls), json_group_object(state, calls), min(first_at), max(last_at)
        FROM counted GROUP BY session, scope, batch ORDER BY min(first_at) DESC, session, scope, batch LIMIT ?
    """

    def work(connection: apsw.Connection) -> list[PastBatch]:
        rows = connection.execute(query, (*values, limit))
        return [
            PastBatch(session, scope, batch, count, json.loads(statuses), first_at, last_at)
            for session, scope, batch, count, statuses, first_at, last_at in rows
        ]

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

    def work(connection: apsw.Connection, place: StorePlace) -> list[PastCall]:
        connection.execute("BEGIN")  # one moment for calls and their waits
        values = tuple(value for value in given.values() if value is not None)
        rows = [CallRow._make(row) for row in connection.execute(query, values)]
        dead = dead_among({row.owner for row in rows if row.outcome is None}, connection, place)
        return [_call(row, dead, connection) for row in rows]

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

    def work(connection: apsw.Connection) -> list[Named]:
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

    def work(connection: apsw.Connection, place: StorePlace) -> list[str]:
        query = "SELECT name, owner FROM workers WHERE until >= ? ORDER BY name"
        rows: Any = connection.execute(query, (time.monotonic(),)).fetchall()
        dead = dead_among({owner for _, owner in rows}, connection, place)
        return [name for name, owner in rows if owner not in dead]

    return await visit_place(path, work)


async def decided_key(
    path: str | Path, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
) -> str | None:
    """The key of the newest request to a person of a call that has been decided; None when there is none.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """

    def work(connection: apsw.Connection) -> str | None:
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


def _call(row: CallRow, dead: set[str], connection: apsw.Connection) -> PastCall:
    key = CallKey(row.session, row.scope, row.call_id)
    waits: Any = connection.execute(
        "SELECT kind, name, open FROM waits WHERE session = ? AND scope = ? AND call_id = ?"
        " AND (open = 1 OR kind = 'completion' AND opened_at IS NOT NULL) ORDER BY opened_at",
        key,
    ).fetchall()
    return PastCall(
        key=key,
        batch=row.batch,
        position=row.position,
        tool=row.tool,
        arguments=row.arguments,
        source=row.source,
        parent=row.parent,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        outcome=None if row.outcome is None else _outcome(row.outcome),
        cut_off=row.outcome is None and row.owner in dead,
        waits_for=tuple(f"{kind}:{name}" if name else kind for kind, name, is_open in waits if is_open),
        resolved=row.outcome is None and any(not is_open for _, _, is_open in waits),
    )
