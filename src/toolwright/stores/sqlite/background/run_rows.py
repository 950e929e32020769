"""Rows of processes. Owns turning them into values and back, their events, and the number of the last change."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from toolwright import jsonx
from toolwright.stores.contracts.background_run import BackgroundRun, Options, Progress, Registration
from toolwright.stores.contracts.run_events import checked
from toolwright.stores.sqlite.core.codec import one, packed, unpacker
from toolwright.tools.outcome import ToolOutcome

LEASED = "state IN ('running', 'waiting')"
TRACKED = "state = 'running' AND worker IS NULL"
"""Work that happens elsewhere. A run of a worker has the name of that worker."""
ACTIVE = "state IN ('queued', 'running', 'waiting') AND (worker IS NOT NULL OR state = 'queued')"
"""States that take, or are about to take, a slot of a worker."""
PENDING = "state IN ('held', 'queued', 'running', 'waiting')"
COLUMNS = (
    "id, session, parent, schedule, tool, arguments, title, options, provenance, state, status_text, created_at,"
    " started_at, ended_at, deadline, worker, token, lease_until, attempts, crashes, cancel_reason, progress, tail,"
    " log_chars, outcome, authority"
)
_options = msgspec.msgpack.Decoder(Options).decode
_progress = msgspec.json.Decoder(Progress).decode
_outcome = unpacker(ToolOutcome)


def read_run(connection: apsw.Connection, id: str) -> BackgroundRun | None:
    """The process of an id."""
    row: Any = connection.execute(f"SELECT {COLUMNS} FROM processes WHERE id = ?", (id,)).fetchone()
    return None if row is None else to_run(row)


def to_run(row: Any) -> BackgroundRun:
    """The process of a row of `COLUMNS`."""
    (id, session, parent, schedule, tool, arguments, title, options, provenance, state, status_text, created_at) = row[
        :12
    ]
    (started_at, ended_at, deadline, worker, token, lease_until, attempts, crashes, cancel_reason) = row[12:21]
    progress, tail, log_chars, outcome, authority = row[21:]
    return BackgroundRun(
        id=id,
        session=session,
        parent=parent,
        schedule=schedule,
        tool=tool,
        arguments=jsonx.decode(arguments),
        title=title,
        options=_options(options),
        provenance=jsonx.decode(provenance),
        authority=authority or b"",
        status="queued" if state == "held" else state,
        status_text=status_text,
        created_at=created_at,
        started_at=started_at,
        ended_at=ended_at,
        deadline=deadline,
        worker=worker,
        token=token,
        lease_until=lease_until,
        attempts=attempts,
        crashes=crashes,
        cancel_reason=cancel_reason,
        progress=None if progress is None else _progress(progress),
        tail=tail,
        log_chars=log_chars,
        outcome=None if outcome is None else _outcome(outcome),
    )


def insert_run(connection: apsw.Connection, new: Registration, state: str) -> None:
    """Enter a process that is not there yet."""
    connection.execute(
        "INSERT INTO processes (id, session, parent, schedule, alone, tool, arguments, title, options, provenance,"
        " authority, state, status_text, created_at, changed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'Queued', ?, 0)",
        (
            new.id,
            new.session,
            new.parent,
            new.schedule,
            new.alone,
            new.tool,
            new.arguments,
            new.title,
            packed(new.options),
            new.provenance,
            new.authority,
            state,
            new.at,
        ),
    )


def next_change(connection: apsw.Connection) -> int:
    """The number of a change that is being made: a watcher looks for higher numbers than it has seen."""
    number: int = one(connection, "UPDATE meta SET value = value + 1 WHERE name = 'changed' RETURNING value")
    return number


def add_event(
    connection: apsw.Connection, id: str, type: str, payload: object, at: float, key: str | None = None
) -> int:
    """Append an event, and return its number."""
    return put_event(connection, id, type, checked(type, payload), at, key)


def put_event(
    connection: apsw.Connection, id: str, type: str, payload: bytes, at: float, key: str | None = None
) -> int:
    """Append an event whose payload was checked, and return its number."""
    number: int = one(
        connection,
        "UPDATE processes SET last_event = last_event + 1, changed = ? WHERE id = ? RETURNING last_event",
        (next_change(connection), id),
    )
    connection.execute("INSERT INTO process_events VALUES (?, ?, ?, ?, ?, ?)", (id, number, type, at, payload, key))
    return number
