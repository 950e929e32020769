"""Maintenance of a store's file. Owns counting, checking, pruning and migrating it; nothing happens unless asked for.

A store never removes records by itself. The owner decides with a `Retention`, and `prune` removes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from toolwright.errors import ToolwrightError
from toolwright.stores.contracts.inspection import Pruned, Stats
from toolwright.stores.contracts.journal import RUN_SCOPE
from toolwright.stores.contracts.turns import ENDED
from toolwright.stores.sql.background.schedules import prune_firings
from toolwright.stores.sql.calls.intent_bundles import UNREADABLE
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.event_rows import prune_events
from toolwright.stores.sqlite.admin.pruning import (
    CHUNK,
    PARTS,
    InQueue,
    prune_calls,
    prune_occurrences,
    prune_runs,
    prune_turns,
)
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import FileLiveness
from toolwright.stores.sqlite.core.side_connection import VisitorQueue, visit, visit_place
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.store import SqliteStore


async def stats(path: str | Path) -> Stats:
    """Count the records of a store."""

    def work(connection: SqliteConnection, place: StorePlace) -> Stats:
        connection.execute("BEGIN")  # one moment for all counts
        by_owner = dict(
            connection.execute("SELECT owner, count(*) FROM every_call WHERE outcome IS NULL GROUP BY owner")
        )
        dead = FileLiveness(place).dead_among(set(by_owner), connection)
        calls = dict(
            connection.execute("SELECT status, count(*) FROM every_call WHERE outcome IS NOT NULL GROUP BY status")
        )
        for owner, count in by_owner.items():
            state = "cut off" if owner in dead else "unfinished"
            calls[state] = calls.get(state, 0) + count
        worked_on = list(connection.execute("SELECT state, owner, count(*) FROM turns GROUP BY 1, 2"))
        dead = FileLiveness(place).dead_among({owner for _, owner, _ in worked_on if owner is not None}, connection)
        turns: dict[str, int] = {}
        for state, owner, count in worked_on:
            told = "cut off" if state == "running" and owner in dead else state
            turns[told] = turns.get(told, 0) + count
        return Stats(
            calls=calls,
            sessions=one(
                connection, "SELECT count(*) FROM (SELECT session FROM every_call UNION SELECT session FROM turns)"
            ),
            effects=one(connection, "SELECT count(*) FROM effects"),
            waits=one(connection, "SELECT count(*) FROM waits"),
            open_waits=one(connection, "SELECT count(*) FROM waits WHERE open = 1"),
            signals=one(connection, "SELECT count(*) FROM signals"),
            oldest=one(connection, "SELECT min(queued_at) FROM every_call"),
            oldest_unfinished=one(connection, "SELECT min(queued_at) FROM every_call WHERE outcome IS NULL"),
            file_bytes=_size(place.path),
            free_bytes=one(connection, "PRAGMA freelist_count") * one(connection, "PRAGMA page_size"),
            runs=dict(
                connection.execute(
                    "SELECT CASE state WHEN 'held' THEN 'queued' ELSE state END, count(*) FROM processes GROUP BY 1"
                )
            ),
            turns=turns,
            log_bytes=_log_size(place.path),
        )

    return await visit_place(path, work)


async def check(path: str | Path) -> list[str]:
    """The problems of a store, one sentence each; empty when there are none."""

    def work(connection: SqliteConnection) -> list[str]:
        connection.execute("BEGIN")
        told = [f"SQLite says: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        unreadable = one(connection, f"SELECT count(*) FROM bundles WHERE {UNREADABLE}")
        if unreadable:
            told.append(f"{unreadable} bundles of intents cannot be read")
        for part in () if unreadable else PARTS:  # else the records of their calls cannot be found
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

    return await visit(path, work)


async def prune(
    path: str | Path,
    before: float | None,
    *,
    sessions: Collection[str] | None = None,
    vacuum: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Remove calls, turns and runs that finished before an instant, of all or some sessions, with their records.

    Unfinished work stays, and so do the records that it needs to continue: every call of its batch, every call that it
    made or was made by, with their effects; every call of a run or a turn, and the runs above one. A call that is
    removed is not known any more: when it is submitted again, it runs again. The artifacts of runs stay among the files
    of their sessions, and the messages of turns in the histories of theirs. Revoked sessions and remembered decisions
    stay. Without an instant nothing is removed. Older firings of schedules are removed too, with schedules that are
    finished since; so are the keys of occurrences, unless only some sessions are pruned. Events of that time leave the
    event log.

    Args:
        path: the file of the store; others may have it open.
        before: seconds since 1970, as `Retention.before` gives.
        sessions: only calls of these.
        vacuum: write the file again without its free space, which takes as long as copying it. Otherwise that
            space is used for what comes.
        dry_run: remove nothing, and count what would be.

    Raises:
        StoreError: the store could not be read or written. Earlier removals remain.
    """
    if isinstance(sessions, str):
        raise ToolwrightError(f"The sessions to prune are {sessions!r}; give a list of their ids")
    if before is not None and (not isinstance(before, (int, float)) or math.isnan(before)):
        raise ToolwrightError(f"The instant to prune before is {before!r}; use seconds since 1970")

    def work(connection: SqliteConnection, place: StorePlace) -> Pruned:
        queue = VisitorQueue(place)
        try:
            return pruned(connection, nullcontext if dry_run else queue.in_front)
        finally:
            queue.close()

    def pruned(connection: SqliteConnection, in_front: InQueue) -> Pruned:
        size = _size(Path(path))
        counts = dict.fromkeys(("calls", *PARTS, "spared", "occurrences", "runs", "firings", "turns"), 0)
        if before is not None:
            # Each table by itself, and so by an index: the outcomes of all calls are not read for it.
            query = "SELECT session, scope FROM calls UNION SELECT session, scope FROM bundles"
            groups: list[Any] = connection.execute(query).fetchall()
            for session, scope in groups:
                if sessions is None or session in sessions:
                    prune_calls(connection, session, scope, before, counts, dry_run, in_front)
            if sessions is None:  # an occurrence belongs to no session
                with in_front():
                    counts["occurrences"] = prune_occurrences(connection, before, dry_run)
            only = None if sessions is None else json.dumps(list(sessions))
            for prune_more in (prune_runs, prune_turns):
                more = True
                while more:
                    with in_front():
                        more = prune_more(connection, only, before, counts, dry_run)
            with in_front():
                counts["firings"] = prune_firings(connection, before, sessions, dry_run)
            more = not dry_run  # they are not counted: each belongs to something that is, or is not in the way
            while more:
                with in_front():
                    more = prune_events(connection, before, sessions, CHUNK)
        if dry_run:
            return Pruned(**counts)
        if vacuum:
            with in_front():
                connection.execute("VACUUM")
        if vacuum or any(counts[name] for name in ("calls", "occurrences", "runs", "firings", "turns")):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Pruned(**counts, bytes=max(0, size - _size(Path(path))))

    return await visit_place(path, work, writes=not dry_run)


def _size(path: Path) -> int:
    return path.resolve().stat().st_size + _log_size(path)


def _log_size(path: Path) -> int:
    path = path.resolve()  # The log lies beside the file, and not beside a symbolic link to it.
    beside = path.with_name(f"{path.name}-wal")
    return beside.stat().st_size if beside.exists() else 0


async def version(path: str | Path) -> int:
    """The version of the schema in a file.

    Raises:
        StoreError: there is no store, it is empty, another program's or a newer toolwright's, or it cannot be read.
    """

    def work(connection: SqliteConnection) -> int:
        return int(one(connection, "PRAGMA user_version"))

    return await visit(path, work, older=True)


async def migrate(path: str | Path) -> tuple[int, int]:
    """Bring a store up to date, as opening it does; return the version it had and the one it has now.

    Raises:
        StoreError: as for `version`, or it cannot be written. Then it is as it was.
    """
    before = await version(path)
    await SqliteStore(path).close()
    return before, await version(path)
