"""Counting, checking and pruning the records of a store. Owns the queries; each store says where it is done.

A store never removes records by itself. The owner decides with a `Retention`, and `prune` removes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection

from toolwright.errors import ToolwrightError
from toolwright.stores.contracts.inspection import Stats
from toolwright.stores.contracts.journal import RUN_SCOPE
from toolwright.stores.contracts.turns import ENDED
from toolwright.stores.sql.admin.pruning import (
    CHUNK,
    PARTS,
    Transaction,
    prune_calls,
    prune_occurrences,
    prune_runs,
    prune_turns,
)
from toolwright.stores.sql.background.schedules import prune_firings
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import prune_events
from toolwright.stores.sql.liveness import Liveness

COUNTED = ("calls", *PARTS, "spared", "occurrences", "runs", "firings", "turns")
"""What `prune_records` counts."""


def count_records(connection: Connection, liveness: Liveness, *, file_bytes: int, free_bytes: int) -> Stats:
    """Count the records of a store; the sizes are what the store itself knows."""
    by_owner = dict(connection.execute("SELECT owner, count(*) FROM every_call WHERE outcome IS NULL GROUP BY owner"))
    dead = liveness.dead_among(set(by_owner), connection)
    calls = dict(
        connection.execute("SELECT status, count(*) FROM every_call WHERE outcome IS NOT NULL GROUP BY status")
    )
    for owner, count in by_owner.items():
        state = "cut off" if owner in dead else "unfinished"
        calls[state] = calls.get(state, 0) + count
    worked_on = list(connection.execute("SELECT state, owner, count(*) FROM turns GROUP BY 1, 2"))
    dead = liveness.dead_among({owner for _, owner, _ in worked_on if owner is not None}, connection)
    turns: dict[str, int] = {}
    for state, owner, count in worked_on:
        told = "cut off" if state == "running" and owner in dead else state
        turns[told] = turns.get(told, 0) + count
    sessions = "SELECT count(*) FROM (SELECT session FROM every_call UNION SELECT session FROM turns) AS sessions"
    return Stats(
        calls=calls,
        sessions=one(connection, sessions),
        effects=one(connection, "SELECT count(*) FROM effects"),
        waits=one(connection, "SELECT count(*) FROM waits"),
        open_waits=one(connection, "SELECT count(*) FROM waits WHERE open = 1"),
        signals=one(connection, "SELECT count(*) FROM signals"),
        oldest=one(connection, "SELECT min(queued_at) FROM every_call"),
        oldest_unfinished=one(connection, "SELECT min(queued_at) FROM every_call WHERE outcome IS NULL"),
        file_bytes=file_bytes,
        free_bytes=free_bytes,
        runs=dict(
            connection.execute(
                "SELECT CASE state WHEN 'held' THEN 'queued' ELSE state END, count(*) FROM processes GROUP BY 1"
            )
        ),
        turns=turns,
    )


def find_orphans(connection: Connection) -> list[str]:
    """The records that belong to no call, one sentence for each kind."""
    told = []
    for part in PARTS:
        here = "WHERE session = part.session AND scope = part.scope AND call_id = part.call_id"
        count = one(
            connection,
            f"SELECT count(*) FROM {part} AS part WHERE NOT EXISTS (SELECT 1 FROM calls {here})"
            f" AND NOT EXISTS (SELECT 1 FROM bundled_calls {here})"
            # A run may be sent signals before its call begins, and also if it never does.
            f" AND NOT EXISTS (SELECT 1 FROM processes WHERE part.scope = '{RUN_SCOPE}' || processes.id)",
        )
        if count:
            told.append(f"{count} {part} belong to no call")
    return told


def find_contradictions(connection: Connection) -> list[str]:
    """Waits and turns that cannot be as they are, one sentence for each kind."""
    told = []
    count = one(
        connection,
        "SELECT count(*) FROM waits JOIN calls USING (session, scope, call_id)"
        " WHERE open = 1 AND (outcome IS NOT NULL OR resolution IS NOT NULL)",
    )
    if count:
        told.append(f"{count} waits are open that are resolved, or whose calls are finished")
    for table in ("turn_events", "turn_steering"):
        count = one(connection, f"SELECT count(*) FROM {table} WHERE turn NOT IN (SELECT id FROM turns)")
        if count:
            told.append(f"{count} {table} belong to no turn")
    ended = ", ".join(f"'{state}'" for state in sorted(ENDED))
    count = one(
        connection,
        f"SELECT count(*) FROM turns WHERE (state IN ({ended})) <> (ended_at IS NOT NULL)"
        " OR (ended_at IS NOT NULL) <> (outcome IS NOT NULL)",
    )
    if count:
        told.append(f"{count} turns are in a state that does not match their end")
    return told


def require_usable(before: float | None, sessions: Collection[str] | None) -> None:
    """Refuse what cannot be pruned.

    Raises:
        ToolwrightError: the instant is none, or the sessions are one text.
    """
    if isinstance(sessions, str):
        raise ToolwrightError(f"The sessions to prune are {sessions!r}; give a list of their ids")
    if before is not None and (not isinstance(before, (int, float)) or math.isnan(before)):
        raise ToolwrightError(f"The instant to prune before is {before!r}; use seconds since 1970")


def prune_records(
    connection: Connection,
    transaction: Transaction,
    before: float | None,
    sessions: Collection[str] | None,
    dry_run: bool,
) -> dict[str, int]:
    """Remove what finished before an instant, in many transactions; return the counts of `COUNTED`."""
    counts = dict.fromkeys(COUNTED, 0)
    if before is None:
        return counts
    # Each table by itself, and so by an index: the outcomes of all calls are not read for it.
    with transaction():
        query = "SELECT session, scope FROM calls UNION SELECT session, scope FROM bundles"
        groups = connection.execute(query).fetchall()
    for session, scope in groups:
        if sessions is None or session in sessions:
            prune_calls(connection, session, scope, before, counts, dry_run, transaction)
    if sessions is None:  # an occurrence belongs to no session
        with transaction():
            counts["occurrences"] = prune_occurrences(connection, before, dry_run)
    only = None if sessions is None else json.dumps(list(sessions))
    for prune_more in (prune_runs, prune_turns):
        last: str | None = ""
        while last is not None:
            with transaction():
                last = prune_more(connection, only, before, last, counts, dry_run)
    with transaction():
        counts["firings"] = prune_firings(connection, before, sessions, dry_run)
    more = not dry_run  # they are not counted: each belongs to something that is, or is not in the way
    while more:
        with transaction():
            more = prune_events(connection, before, sessions, CHUNK)
    return counts
