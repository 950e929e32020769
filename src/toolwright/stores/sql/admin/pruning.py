"""Which records may be removed, and in which portions. Owns finding the records that unfinished work needs, and sparing
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from toolwright import jsonx
from toolwright.stores.contracts.journal import RUN_SCOPE
from toolwright.stores.contracts.turns import TURN_SCOPE
from toolwright.stores.sql.background.runs import PENDING
from toolwright.stores.sql.calls.intent_bundles import untie
from toolwright.stores.sql.codec import KEY, one
from toolwright.stores.sql.connection import Connection

Transaction = Callable[[], AbstractContextManager[None]]
"""Makes a block one transaction, in which no other program writes."""
CHUNK = 2_000
"""How many calls are pruned in one transaction: others may write in between."""
PARTS = ("effects", "waits", "signals")
"""The tables with records of a call."""


def prune_calls(
    connection: Connection,
    session: str,
    scope: str,
    before: float,
    counts: dict[str, int],
    dry_run: bool,
    transaction: Transaction,
) -> None:
    """Prune the calls of a session and scope that finished before an instant, and add to the counts."""
    last: str | None = ""
    while last is not None:
        with transaction():
            if not dry_run:
                untie(connection, session, scope)  # or removed calls would be there again as begun
            last = _prune_chunk(connection, session, scope, before, last, counts, dry_run)


def _prune_chunk(
    connection: Connection,
    session: str,
    scope: str,
    before: float,
    after: str,
    counts: dict[str, int],
    dry_run: bool,
) -> str | None:
    """Prune the next calls of a group; return the last that was looked at, or None at the end."""
    old = [
        row[0]
        for row in connection.execute(
            "SELECT call_id FROM calls WHERE session = ? AND scope = ? AND call_id > ?"
            " AND outcome IS NOT NULL AND finished_at < ? ORDER BY call_id LIMIT ?",
            (session, scope, after, before, CHUNK),
        )
    ]
    # In the same transaction as the removal: a call that begins meanwhile may belong to one of these.
    needed = _needed(connection, session, scope) if old else set()
    if old and scope.startswith(RUN_SCOPE):
        query = f"SELECT 1 FROM processes WHERE id = ? AND {PENDING}"
        if one(connection, query, (scope.removeprefix(RUN_SCOPE),)) is not None:
            needed.update(old)  # Its worker may be about to end it, or another to continue it.
    if old and scope.startswith(TURN_SCOPE):
        query = "SELECT 1 FROM turns WHERE id = ? AND ended_at IS NULL"
        if one(connection, query, (scope.removeprefix(TURN_SCOPE).rpartition("/")[0],)) is not None:
            needed.update(old)  # The turn has them in its history when it has all results of their answer.
    removed = [(session, scope, call_id) for call_id in old if call_id not in needed]
    counts["spared"] += len(old) - len(removed)
    for table in ("crashes", "traces") if not dry_run else ():
        connection.executemany(f"DELETE FROM {table} WHERE {KEY}", removed)
    for table in ("calls", *PARTS):
        if dry_run:
            query = f"SELECT count(*) FROM {table} WHERE {KEY}"
            counts[table] += sum(one(connection, query, key) for key in removed)
        else:
            counts[table] += _remove(connection, f"DELETE FROM {table} WHERE {KEY}", removed)
    return old[-1] if len(old) == CHUNK else None


def _remove(connection: Connection, statement: str, keys: Sequence[tuple[str, ...]]) -> int:
    """Run a statement for each key, without waiting for each, since others cannot write meanwhile; return how many rows
    it removed."""
    before = connection.total_changes()
    connection.executemany(statement, keys)
    return connection.total_changes() - before


def _needed(connection: Connection, session: str, scope: str) -> set[str]:
    """The calls of a group that unfinished work may come back to: its batches, its callers, and the calls it made."""
    where = "FROM every_call WHERE session = ? AND scope = ?"
    todo = [row[0] for row in connection.execute(f"SELECT call_id {where} AND outcome IS NULL", (session, scope))]
    if not todo:
        return set()
    relatives: dict[tuple[str, str], list[str]] = {}
    links: dict[str, list[tuple[str, str]]] = {}
    for call_id, parent, batch in connection.execute(f"SELECT call_id, parent, batch {where}", (session, scope)):
        links[call_id] = list(_links(call_id, parent, batch))
        for link in links[call_id]:
            relatives.setdefault(link, []).append(call_id)
    needed: set[str] = set()
    while todo:
        call_id = todo.pop()
        if call_id not in needed:
            needed.add(call_id)
            for link in links[call_id]:
                todo += relatives.pop(link, ())
    return needed


def _links(call_id: str, parent: str | None, batch: str) -> Iterator[tuple[str, str]]:
    """The links of a call to its relatives: its batch, and the family of a call and the calls that it made."""
    yield "batch", batch
    yield "family", call_id
    if parent is not None:
        yield "family", parent


def prune_runs(
    connection: Connection, sessions: str | None, before: float, after: str, counts: dict[str, int], dry_run: bool
) -> str | None:
    """Prune the next finished runs; return the last that was looked at, or None at the end."""
    query = (
        "SELECT id, session FROM processes AS run WHERE ended_at < ?1 AND id > ?4"
        " AND (?2 IS NULL OR session IN (SELECT value FROM json_each(?2)))"
        " AND NOT EXISTS (WITH RECURSIVE below(id) AS (SELECT run.id UNION SELECT child.id FROM processes AS child"
        f" JOIN below ON child.parent = below.id) SELECT 1 FROM below JOIN processes USING (id) WHERE {PENDING})"
        " ORDER BY id LIMIT ?3"
    )
    old: list[Any] = connection.execute(query, (before, sessions, CHUNK, after)).fetchall()
    counts["runs"] += len(old)
    if not dry_run:
        counts["signals"] += _remove(
            connection,
            "DELETE FROM signals WHERE session = ? AND scope = ? AND NOT EXISTS (SELECT 1 FROM calls"
            " WHERE calls.session = signals.session AND calls.scope = signals.scope)",
            [(session, f"{RUN_SCOPE}{id}") for id, session in old],
        )
        for table, column in (("process_events", "process"), ("process_grants", "process"), ("processes", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(id,) for id, _ in old])
    return old[-1][0] if len(old) == CHUNK else None


def prune_turns(
    connection: Connection, sessions: str | None, before: float, after: str, counts: dict[str, int], dry_run: bool
) -> str | None:
    """Prune the next turns that ended, with their events and steering; return the last that was looked at, or None.

    The turn of a sub-agent stays while the call that started it is unfinished, or the turn that its usage counts for.
    """
    query = (
        "SELECT id, caller FROM turns AS old WHERE ended_at < ?1 AND id > ?4"
        " AND (?2 IS NULL OR session IN (SELECT value FROM json_each(?2)))"
        " AND (above IS NULL OR NOT EXISTS (SELECT 1 FROM turns AS up WHERE up.ended_at IS NULL"
        f" AND instr(old.above, '{TURN_SCOPE}' || up.id || '/') = 1))"
        " ORDER BY id LIMIT ?3"
    )
    found: list[Any] = connection.execute(query, (before, sessions, CHUNK, after)).fetchall()
    old = [(id,) for id, caller in found if caller is None or not _is_unfinished(connection, caller)]
    counts["turns"] += len(old)
    if not dry_run:
        connection.executemany(
            "INSERT INTO turn_numbers SELECT session, number FROM turns WHERE id = ?"
            " ON CONFLICT (session) DO UPDATE SET last = max(turn_numbers.last, excluded.last)",
            old,
        )
        for table, column in (("turn_events", "turn"), ("turn_steering", "turn"), ("turns", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", old)
    return found[-1][0] if len(found) == CHUNK else None


def _is_unfinished(connection: Connection, caller: str) -> bool:
    """True when the call of a sub-agent, written as `written_caller` does, has no outcome yet."""
    query = f"SELECT 1 FROM every_call WHERE {KEY} AND outcome IS NULL"
    return one(connection, query, jsonx.decode(caller)) is not None


def prune_occurrences(connection: Connection, before: float, dry_run: bool) -> int:
    """Prune the keys of occurrences before an instant, and return how many."""
    found: int = one(connection, "SELECT count(*) FROM occurrences WHERE at < ?", (before,))
    if not dry_run:
        connection.execute("DELETE FROM occurrences WHERE at < ?", (before,))
        return connection.changes()
    return found
