"""Rows of calls as people read them. Owns making `PastCall` and `PastBatch` of rows, for history and inspection."""

from __future__ import annotations

import json
from typing import Any

from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.sql.calls.journal import CallRow
from toolwright.stores.sql.codec import unpacker
from toolwright.stores.sql.connection import Connection
from toolwright.tools.outcome import ToolOutcome

_outcome = unpacker(ToolOutcome)

PAST_BATCHES = """
    WITH counted AS (
        SELECT session, scope, batch, coalesce(status, 'unfinished') AS state, count(*) AS calls,
            min(queued_at) AS first_at, max(coalesce(finished_at, started_at, queued_at)) AS last_at
        FROM every_call {only} GROUP BY session, scope, batch, state
    )
    SELECT session, scope, batch, sum(calls), json_group_object(state, calls), min(first_at), max(last_at)
    FROM counted GROUP BY session, scope, batch {beyond}
    ORDER BY min(first_at) DESC, batch DESC, session, scope LIMIT ?
"""
"""The rows of batches, the newest first; `only` chooses calls, and `beyond` batches."""


def past_batch(row: Any) -> PastBatch:
    """A row of `PAST_BATCHES`."""
    session, scope, batch, count, statuses, first_at, last_at = row
    return PastBatch(session, scope, batch, count, json.loads(statuses), first_at, last_at)


def past_call(row: CallRow, dead: set[str], connection: Connection) -> PastCall:
    """A row of a call, with what it waits for. `dead` are the owners that are gone."""
    key = CallKey(row.session, row.scope, row.call_id)
    waits: Any = ()
    if row.outcome is None:
        waits = connection.execute(
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
