"""Background runs among the resources of their session, in SQLite. Owns keeping each in step with its process.

They are written in the transactions that change the run. The records of a session are its own: a deleted resource stays
deleted, and a resource that exceeds the quota is left out. No run fails because of it.
"""

from __future__ import annotations

from typing import Any

import apsw

from toolwright import jsonx
from toolwright.stores.contracts.background_run import Registration, artifact_paths
from toolwright.stores.contracts.sessions import Room
from toolwright.stores.sqlite.core.codec import one

KIND = "background_run"
KEPT = 500
"""How many runs of a session have a resource: the newest. A session that runs for years must not fill up with them."""


def add_resource(connection: apsw.Connection, new: Registration, room: Room) -> None:
    """Show a process that was just entered, where the session has room for it."""
    shown: dict[str, Any] = {
        "tool": new.tool,
        "status_text": "Running" if new.options.tracked else "Queued",
        "progress": None,
        "output_tail": "",
        "summary": None,
        "signal_on_completion": new.options.signal_on_completion,
    }
    if new.options.tracked:
        shown["tracked"] = True
    if new.options.artifacts:
        shown |= artifact_paths(new.id)
    metadata = jsonx.encode(shown)
    connection.execute(
        "DELETE FROM resources WHERE session = ?1 AND id = (SELECT id FROM processes WHERE session = ?1"
        " ORDER BY created_at DESC LIMIT 1 OFFSET ?2) AND kind = ?3 AND status != 'active'",
        (new.session, KEPT, KIND),
    )
    query = "SELECT entries < ? AND bytes + ? <= ? FROM usage WHERE session = ? AND service = 'resources'"
    fits = one(connection, query, (room.entries, len(metadata), room.bytes, new.session))
    if (room.entries > 0 and len(metadata) <= room.bytes) if fits is None else fits:
        connection.execute(
            "INSERT OR IGNORE INTO resources VALUES (?1, ?2, ?3, ?4, 'active', ?5, ?6, ?6)",
            (new.session, new.id, KIND, new.title, metadata, new.at),
        )


def update_resource(
    connection: apsw.Connection, session: str, id: str, at: float, status: str = "active", summary: str | None = None
) -> None:
    """Show a process as its row has it now."""
    connection.execute(
        "UPDATE resources SET status = ?4, updated_at = ?3, metadata = (SELECT CAST(json_set("
        "CAST(resources.metadata AS TEXT), '$.status_text', process.status_text,"
        " '$.progress', json(CAST(process.progress AS TEXT)), '$.output_tail', process.tail, '$.summary', ?5) AS BLOB)"
        " FROM processes AS process WHERE process.id = ?2) WHERE session = ?1 AND id = ?2 AND kind = ?6",
        (session, id, at, status, summary, KIND),
    )


def abandon_resources(connection: apsw.Connection, session: str) -> None:
    """Mark the runs of a session that was just imported as abandoned: no worker continues them here."""
    connection.execute(
        "UPDATE resources SET status = 'abandoned', metadata = CAST(json_set(CAST(metadata AS TEXT),"
        " '$.status_text', 'Abandoned') AS BLOB) WHERE session = ? AND kind = ? AND status = 'active'",
        (session, KIND),
    )
