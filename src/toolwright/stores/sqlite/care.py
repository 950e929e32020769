"""Care of a store's file. Owns counting, checking and pruning it; nothing here happens unless somebody asks.

A store keeps everything. What may go is the owner's decision, a `Retention`, and goes when `prune` is called.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from toolwright.effects.effect import PROCESS_SCOPE
from toolwright.errors import ToolwrightError
from toolwright.stores.sqlite.owners import dead_among
from toolwright.stores.sqlite.process_rows import PENDING
from toolwright.stores.sqlite.rows import KEY, one
from toolwright.stores.sqlite.visit import visit

CHUNK = 2_000
"""How many calls are pruned in one transaction: others may write in between."""
_PARTS = ("effects", "waits", "signals")


class Stats(Struct, frozen=True):
    """What a store has. `calls` counts them by status; those without one are "running", or "cut off" by a crash."""

    calls: dict[str, int]
    sessions: int
    effects: int
    waits: int
    open_waits: int
    signals: int
    oldest: float | None
    """When the oldest call was queued."""
    oldest_unfinished: float | None
    file_bytes: int
    """With the log beside it."""
    free_bytes: int
    """What `prune(..., vacuum=True)` could give back of that."""
    processes: dict[str, int] = {}
    """How many there are, by status."""


class Pruned(Struct, frozen=True):
    """What was removed. `spared` counts the calls that were old enough, but belong to what is unfinished."""

    calls: int = 0
    effects: int = 0
    waits: int = 0
    signals: int = 0
    spared: int = 0
    occurrences: int = 0
    """Their keys are no longer known: said again, they occur again."""
    bytes: int = 0
    """How much smaller the file is."""
    processes: int = 0


class Retention(Struct, frozen=True):
    """How long finished calls and processes are kept: `seconds` after they finished, and for ever without that."""

    seconds: float | None = None

    def before(self, now: float) -> float | None:
        """The instant before which finished calls may go; None when none may."""
        return None if self.seconds is None else now - self.seconds


async def stats(path: str | Path) -> Stats:
    """Count what a store has."""

    def work(connection: apsw.Connection) -> Stats:
        connection.execute("BEGIN")  # one moment for all counts
        by_owner = dict(connection.execute("SELECT owner, count(*) FROM calls WHERE outcome IS NULL GROUP BY owner"))
        dead = dead_among(set(by_owner), connection, Path(path))
        calls = dict(connection.execute("SELECT status, count(*) FROM calls WHERE outcome IS NOT NULL GROUP BY status"))
        for owner, count in by_owner.items():
            state = "cut off" if owner in dead else "running"
            calls[state] = calls.get(state, 0) + count
        return Stats(
            calls=calls,
            sessions=one(connection, "SELECT count(DISTINCT session) FROM calls"),
            effects=one(connection, "SELECT count(*) FROM effects"),
            waits=one(connection, "SELECT count(*) FROM waits"),
            open_waits=one(connection, "SELECT count(*) FROM waits WHERE open = 1"),
            signals=one(connection, "SELECT count(*) FROM signals"),
            oldest=one(connection, "SELECT min(queued_at) FROM calls"),
            oldest_unfinished=one(connection, "SELECT min(queued_at) FROM calls WHERE outcome IS NULL"),
            file_bytes=_size(Path(path)),
            free_bytes=one(connection, "PRAGMA freelist_count") * one(connection, "PRAGMA page_size"),
            processes=dict(
                connection.execute(
                    "SELECT CASE state WHEN 'held' THEN 'queued' ELSE state END, count(*) FROM processes GROUP BY 1"
                )
            ),
        )

    return await visit(path, work)


async def check(path: str | Path) -> list[str]:
    """What is wrong with a store, one sentence each; empty when nothing is."""

    def work(connection: apsw.Connection) -> list[str]:
        connection.execute("BEGIN")
        told = [f"SQLite says: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        for part in _PARTS:
            count = one(
                connection,
                f"SELECT count(*) FROM {part} AS part WHERE NOT EXISTS (SELECT 1 FROM calls"
                " WHERE session = part.session AND scope = part.scope AND call_id = part.call_id)"
                # A process may be sent signals before its call begins, and also if it never does.
                f" AND NOT EXISTS (SELECT 1 FROM processes WHERE part.scope = '{PROCESS_SCOPE}' || processes.id)",
            )
            if count:
                told.append(f"{count} {part} belong to no call")
        count = one(
            connection,
            "SELECT count(*) FROM waits JOIN calls USING (session, scope, call_id)"
            " WHERE open = 1 AND (outcome IS NOT NULL OR resolution IS NOT NULL)",
        )
        if count:
            told.append(f"{count} waits are open that are resolved, or whose calls are finished")
        return told

    return await visit(path, work)


async def prune(
    path: str | Path,
    before: float | None,
    *,
    sessions: Collection[str] | None = None,
    vacuum: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Remove calls and processes that finished before an instant, of all or some sessions, with what belongs to them.

    What is unfinished stays, and so does what it needs to go on: every call of its batch, every call that it made or
    was made by, with their effects; every call of a process, and the processes above one. What is removed is not known
    any more: run again, it runs. The artifacts of processes stay among the files of their sessions. Revoked sessions
    and remembered decisions stay. Without an instant nothing is removed. The keys of what occurred before it go too,
    unless only some sessions are pruned.

    Args:
        path: the file of the store; others may have it open.
        before: seconds since 1970, as `Retention.before` gives.
        sessions: only calls of these.
        vacuum: write the file anew without the space that is free, which takes as long as copying it. Otherwise that
            space is used for what comes.
        dry_run: remove nothing, and count what would be.

    Raises:
        StoreError: the store could not be read or written. What was removed until then stays so.
    """
    if isinstance(sessions, str):
        raise ToolwrightError(f"The sessions to prune are {sessions!r}; give a list of their ids")
    if before is not None and (not isinstance(before, (int, float)) or math.isnan(before)):
        raise ToolwrightError(f"The instant to prune before is {before!r}; use seconds since 1970")

    def work(connection: apsw.Connection) -> Pruned:
        size = _size(Path(path))
        counts = dict.fromkeys(("calls", *_PARTS, "spared", "occurrences", "processes"), 0)
        if before is not None:
            groups: list[Any] = connection.execute("SELECT DISTINCT session, scope FROM calls").fetchall()
            for session, scope in groups:
                if sessions is None or session in sessions:
                    _prune_group(connection, session, scope, before, counts, dry_run)
            if sessions is None:  # what occurred is no session's
                counts["occurrences"] = _prune_occurrences(connection, before, dry_run)
            only = None if sessions is None else json.dumps(list(sessions))
            while _prune_processes(connection, only, before, counts, dry_run):
                pass
        if dry_run:
            return Pruned(**counts)
        if vacuum:
            connection.execute("VACUUM")
        if vacuum or counts["calls"] or counts["occurrences"] or counts["processes"]:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Pruned(**counts, bytes=max(0, size - _size(Path(path))))

    return await visit(path, work, writes=not dry_run)


def _prune_occurrences(connection: apsw.Connection, before: float, dry_run: bool) -> int:
    found: int = one(connection, "SELECT count(*) FROM occurrences WHERE at < ?", (before,))
    if not dry_run:
        connection.execute("DELETE FROM occurrences WHERE at < ?", (before,))
        return connection.changes()
    return found


def _prune_group(
    connection: apsw.Connection, session: str, scope: str, before: float, counts: dict[str, int], dry_run: bool
) -> None:
    last: str | None = ""
    while last is not None:
        connection.execute("BEGIN" if dry_run else "BEGIN IMMEDIATE")
        last = _prune_chunk(connection, session, scope, before, last, counts, dry_run)
        connection.execute("COMMIT")


def _prune_chunk(
    connection: apsw.Connection,
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
    if old and scope.startswith(PROCESS_SCOPE):
        query = f"SELECT 1 FROM processes WHERE id = ? AND {PENDING}"
        if one(connection, query, (scope.removeprefix(PROCESS_SCOPE),)) is not None:
            needed.update(old)  # Its worker may be about to end it, or another to go on with it.
    for call_id in old:
        if call_id in needed:
            counts["spared"] += 1
            continue
        for table in ("calls", *_PARTS):
            if dry_run:
                counts[table] += one(connection, f"SELECT count(*) FROM {table} WHERE {KEY}", (session, scope, call_id))
            else:
                connection.execute(f"DELETE FROM {table} WHERE {KEY}", (session, scope, call_id))
                counts[table] += connection.changes()
    return old[-1] if len(old) == CHUNK else None


def _prune_processes(
    connection: apsw.Connection, sessions: str | None, before: float, counts: dict[str, int], dry_run: bool
) -> bool:
    """Prune the next processes that are over, those below before those above; True when there may be more."""
    connection.execute("BEGIN" if dry_run else "BEGIN IMMEDIATE")
    query = (
        "SELECT id, session FROM processes AS process WHERE ended_at < ?1"
        " AND (?2 IS NULL OR session IN (SELECT value FROM json_each(?2)))"
        " AND NOT EXISTS (WITH RECURSIVE below(id) AS (SELECT process.id UNION SELECT child.id FROM processes AS child"
        f" JOIN below ON child.parent = below.id) SELECT 1 FROM below JOIN processes USING (id) WHERE {PENDING})"
        " LIMIT ?3"
    )
    most = -1 if dry_run else CHUNK
    old: list[Any] = connection.execute(query, (before, sessions, most)).fetchall()
    counts["processes"] += len(old)
    if not dry_run:
        for id, session in old:
            connection.execute(
                "DELETE FROM signals WHERE session = ? AND scope = ? AND NOT EXISTS (SELECT 1 FROM calls"
                " WHERE calls.session = signals.session AND calls.scope = signals.scope)",
                (session, f"{PROCESS_SCOPE}{id}"),
            )
            counts["signals"] += connection.changes()
            for table in ("process_events", "process_grants"):
                connection.execute(f"DELETE FROM {table} WHERE process = ?", (id,))
            connection.execute("DELETE FROM processes WHERE id = ?", (id,))
    connection.execute("COMMIT")
    return not dry_run and len(old) == CHUNK


def _needed(connection: apsw.Connection, session: str, scope: str) -> set[str]:
    """The calls of a group that what is unfinished may come back to: its batches, its callers, and what it called."""
    where = "FROM calls WHERE session = ? AND scope = ?"
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
    """What a call shares with its relatives: its batch, and the family of a call and those that it made."""
    yield "batch", batch
    yield "family", call_id
    if parent is not None:
        yield "family", parent


def _size(path: Path) -> int:
    beside = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
