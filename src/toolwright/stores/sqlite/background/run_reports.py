"""Events, output and ends of runs in SQLite. Owns their queries."""

from __future__ import annotations

import hashlib
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import OVER, scope_of
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.run_events import Output, RunEvent
from toolwright.stores.contracts.run_store import HEAD, TAIL, Ending, Piece, Report, Telling
from toolwright.stores.contracts.sessions import Content, NewMessage, Quotas, Writing
from toolwright.stores.sqlite.background.run_resources import update_resource
from toolwright.stores.sqlite.background.run_rows import LEASED, PENDING, TRACKED, add_event, next_change, put_event
from toolwright.stores.sqlite.calls.waits import completion_came
from toolwright.stores.sqlite.core.codec import KEY, one, packed
from toolwright.stores.sqlite.sessions.files import put_file
from toolwright.stores.sqlite.sessions.messages import put_messages


def write_report(connection: apsw.Connection, report: Report) -> bool:
    """Write a report of a run; False when it is finished, or held by another."""
    row: Any = connection.execute(
        f"SELECT session, state, log_chars, tail_first, tail_chars, last_progress FROM processes"
        f" WHERE id = ? AND token = ? AND {LEASED}",
        (report.id, report.token),
    ).fetchone()
    if row is None:
        return False
    session, state, log_chars, tail_first, tail_chars, last_progress = row
    if report.dropped and tail_first is not None:
        # The missing output came after the tail so far, which is dropped then: there is one gap, before the tail.
        statement = "DELETE FROM process_events WHERE process = ? AND number >= ? AND type = 'output'"
        connection.execute(statement, (report.id, tail_first))
        tail_first, tail_chars = None, 0
    if report.opening_text is not None:
        add_event(connection, report.id, "status", {"text": report.opening_text}, report.at)
    for piece in report.pieces:
        number = put_event(connection, report.id, "output", msgspec.json.encode(Output(*piece)), report.at)
        if tail_first is None and log_chars + piece.cost > HEAD:
            tail_first = number
        if tail_first is not None:
            tail_chars += piece.cost
        log_chars += piece.cost
    while tail_chars > TAIL:
        tail_first, dropped = _drop_first(connection, report.id, tail_first)
        tail_chars -= dropped
    if report.progress is not None:
        # Only the newest progress is stored: a run of several days would fill the file with old ones.
        connection.execute("DELETE FROM process_events WHERE process = ? AND number = ?", (report.id, last_progress))
        payload = msgspec.json.encode(report.progress)
        last_progress = put_event(connection, report.id, "progress", payload, report.at)
        connection.execute("UPDATE processes SET progress = ? WHERE id = ?", (payload, report.id))
    if report.status_text is not None:
        add_event(connection, report.id, "status", {"text": report.status_text}, report.at)
    text = report.opening_text if report.status_text is None else report.status_text
    if report.waiting is not None:
        text = f"Waiting for {' '.join(filter(None, report.waiting))}" if report.waiting else text or "Running"
        state = "waiting" if report.waiting else "running"
        said = dict(zip(("what", "name"), report.waiting, strict=False))
        add_event(connection, report.id, "waiting" if report.waiting else "resumed", said, report.at)
    connection.execute(
        "UPDATE processes SET state = ?, status_text = coalesce(?, status_text), tail = coalesce(?, tail),"
        " log_chars = ?, tail_first = ?, tail_chars = ?, last_progress = ?, changed = ? WHERE id = ?",
        (
            state,
            text,
            report.tail,
            log_chars + report.dropped,
            tail_first,
            tail_chars,
            last_progress,
            next_change(connection),
            report.id,
        ),
    )
    update_resource(connection, session, report.id, report.at)
    return True


def _drop_first(connection: apsw.Connection, id: str, first: int) -> tuple[int, int]:
    """Drop the oldest output of the tail; return the new beginning of the tail, and the length of the dropped
    output."""
    row: Any = connection.execute(
        "SELECT number, payload FROM process_events WHERE process = ? AND number >= ? AND type = 'output'"
        " ORDER BY number LIMIT 1",
        (id, first),
    ).fetchone()
    number, payload = row
    connection.execute("DELETE FROM process_events WHERE process = ? AND number = ?", (id, number))
    output = msgspec.json.decode(payload, type=Output)
    return number + 1, Piece(output.stream, output.text).cost


def end_run(connection: apsw.Connection, ending: Ending, quotas: Quotas) -> bool:
    """End a run, with its artifacts and its message; False when it is finished, or held by another."""
    query = f"SELECT session, state, {TRACKED} FROM processes WHERE id = ? AND token = ? AND {PENDING}"
    row: Any = connection.execute(query, (ending.id, ending.token)).fetchone()
    if row is None:
        return False
    if ending.report is not None:
        write_report(connection, ending.report)
    session, before, tracked = row
    call = CallKey(session, scope_of(ending.id), ending.id)
    query = f"SELECT 1 FROM calls WHERE {KEY} AND outcome IS NULL"
    if one(connection, query, call) is not None and completion_came(connection, call):
        return False  # An accepted resolution decides: a worker ends the run with that.
    outcome = packed(ending.outcome)
    connection.execute(
        "UPDATE processes SET state = ?, status_text = ?, ended_at = ?, outcome = ?, lease_until = NULL WHERE id = ?",
        (ending.status, ending.status_text, ending.at, outcome, ending.id),
    )
    # Unfinished calls of another worker end with it.
    where = "WHERE session = ? AND scope = ?"
    left = connection.execute(
        f"SELECT call_id, tool FROM calls {where} AND outcome IS NULL", (session, scope_of(ending.id))
    ).fetchall()
    for call_id, tool in left:
        connection.execute(
            f"UPDATE calls SET finished_at = ?, status = ?, outcome = ? {where} AND call_id = ?",
            (
                ending.at,
                ending.outcome.status,
                packed(replace(ending.outcome, call_id=call_id, tool=tool)),
                session,
                scope_of(ending.id),
                call_id,
            ),
        )
    if left:
        connection.execute(f"UPDATE waits SET open = 0 {where} AND open = 1", (session, scope_of(ending.id)))
    for path, data in ending.files:
        content = Content(data, None, hashlib.sha256(data).digest(), len(data))
        put_file(connection, session, path, content, Writing(ending.at, quotas.files, None, None, True))
    if ending.tell is not None:
        about = jsonx.encode({"run_id": ending.id, "status": ending.status})
        message = NewMessage("runtime", ending.tell, about)
        put_messages(connection, session, [message], ending.at, quotas.messages)
    ended: dict[str, Any] = {"summary": ending.summary, "artifact_error": ending.artifact_error}
    ended["message_error"] = ending.message_error
    if ending.evidence:
        ended["evidence"] = jsonx.decode(ending.evidence)
    add_event(connection, ending.id, ending.status, ended, ending.at)
    update_resource(connection, session, ending.id, ending.at, ending.status, ending.summary)
    if before != "held" and not tracked:  # neither took a place that another can have now
        _let_follow(connection, session)
    return True


def _let_follow(connection: apsw.Connection, session: str) -> None:
    """One of a session's processes has ended: the oldest that was held for it, and for nothing else, may begin."""
    connection.execute(
        "UPDATE processes SET state = 'queued', changed = ?2 WHERE id = (SELECT held.id FROM processes AS held"
        " WHERE held.state = 'held' AND held.session = ?1 AND (held.alone = 0 OR NOT EXISTS (SELECT 1 FROM processes"
        " AS other WHERE other.schedule = held.schedule AND other.state IN ('queued', 'running', 'waiting')))"
        " ORDER BY held.created_at, held.rowid LIMIT 1)",
        (session, next_change(connection)),
    )


def append_event(
    connection: apsw.Connection,
    id: str,
    token: int | None,
    type: str,
    payload: bytes,
    key: str | None,
    at: float,
    telling: Telling | None = None,
) -> int | None:
    """Append an event once, with its message; None when the run is finished, or held by another. The host has no
    token."""
    unfinished = f"({PENDING}) AND ?2 IS NULL OR ({LEASED}) AND token = ?2"
    session = one(connection, f"SELECT session FROM processes WHERE id = ?1 AND ({unfinished})", (id, token))
    if session is None:
        return None
    if type in OVER:
        raise RunError(f"A {type!r} event ends a process; let it end", "conflict")
    if key is not None:
        known: Any = connection.execute(
            "SELECT number, type, payload FROM process_events WHERE process = ? AND key = ?", (id, key)
        ).fetchone()
        if known is not None:
            if known[1:] != (type, payload):
                raise RunError(f"The key {key!r} of process {id!r} is that of another event", "conflict")
            return int(known[0])
    if telling is not None:
        about = jsonx.encode({"run_id": id, "event": type})
        put_messages(connection, session, [NewMessage("runtime", telling.content, about)], at, telling.room)
    return put_event(connection, id, type, payload, at, key)


def list_events(connection: apsw.Connection, id: str, after: int, limit: int) -> list[RunEvent]:
    """The events of a process beyond a number."""
    query = (
        "SELECT number, type, at, payload FROM process_events WHERE process = ? AND number > ? ORDER BY number LIMIT ?"
    )
    return [
        RunEvent(id, number, type, at, jsonx.decode(payload))
        for number, type, at, payload in connection.execute(query, (id, after, limit))
    ]
