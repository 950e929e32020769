"""Maintenance of a store's file. Owns counting, checking, pruning and migrating it; nothing happens unless asked for.

A store never removes records by itself. The owner decides with a `Retention`, and `prune` removes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import apsw
from msgspec.structs import replace

from toolwright.stores.contracts.inspection import Pruned, Stats
from toolwright.stores.sql.admin.maintenance import (
    count_records,
    find_contradictions,
    find_orphans,
    prune_records,
    require_usable,
)
from toolwright.stores.sql.calls.intent_bundles import UNREADABLE
from toolwright.stores.sql.codec import one
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import FileLiveness
from toolwright.stores.sqlite.core.side_connection import InspectorQueue, inspect_file, inspect_place
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.store import SqliteStore


async def stats(path: str | Path) -> Stats:
    """Count the records of a store."""

    def work(connection: SqliteConnection, place: StorePlace) -> Stats:
        connection.execute("BEGIN")  # one moment for all counts
        free = one(connection, "PRAGMA freelist_count") * one(connection, "PRAGMA page_size")
        counted = count_records(connection, FileLiveness(place), file_bytes=_size(place.path), free_bytes=free)
        return replace(counted, log_bytes=_log_size(place.path))

    return await inspect_place(path, work)


async def check(path: str | Path) -> list[str]:
    """The problems of a store, one sentence each; empty when there are none."""

    def work(connection: SqliteConnection) -> list[str]:
        connection.execute("BEGIN")
        told = [f"SQLite says: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        unreadable = one(connection, f"SELECT count(*) FROM bundles WHERE {UNREADABLE}")
        if unreadable:
            told.append(f"{unreadable} bundles of intents cannot be read")
        # Where a bundle cannot be read, the records of its calls cannot be found.
        return [*told, *(() if unreadable else find_orphans(connection)), *find_contradictions(connection)]

    return await inspect_file(path, work)


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
    require_usable(before, sessions)

    def work(connection: SqliteConnection, place: StorePlace) -> Pruned:
        queue = InspectorQueue(place)
        try:
            return pruned(connection, queue)
        finally:
            queue.close()

    def pruned(connection: SqliteConnection, queue: InspectorQueue) -> Pruned:
        @contextmanager
        def transaction() -> Iterator[None]:
            with nullcontext() if dry_run else queue.in_front():
                connection.execute("BEGIN" if dry_run else "BEGIN IMMEDIATE")
                try:
                    yield
                except BaseException:
                    with suppress(apsw.Error):
                        connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")

        size = _size(Path(path))
        counts = prune_records(connection, transaction, before, sessions, dry_run)
        if dry_run:
            return Pruned(**counts)
        if vacuum:
            with queue.in_front():
                connection.execute("VACUUM")
        if vacuum or any(counts[name] for name in ("calls", "occurrences", "runs", "firings", "turns")):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Pruned(**counts, bytes=max(0, size - _size(Path(path))))

    return await inspect_place(path, work, writes=not dry_run)


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

    return await inspect_file(path, work, older=True)


async def migrate(path: str | Path) -> tuple[int, int]:
    """Bring a store up to date, as opening it does; return the version it had and the one it has now.

    Raises:
        StoreError: as for `version`, or it cannot be written. Then it is as it was.
    """
    before = await version(path)
    await SqliteStore(path).close()
    return before, await version(path)
