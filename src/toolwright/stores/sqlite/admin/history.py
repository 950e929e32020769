"""The records of a file for people to read. Owns where the lists of `stores/sql/admin` are read: on a connection of its
own, which waits for no lock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from toolwright.stores.contracts import background_run
from toolwright.stores.contracts import schedule as schedules
from toolwright.stores.contracts.inspection import Named, PastBatch, PastCall
from toolwright.stores.contracts.waits import APPROVALS, WaitKind
from toolwright.stores.sql.admin.history import find_decided_key, find_named, list_batches, list_calls, list_workers
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import FileLiveness
from toolwright.stores.sqlite.core.side_connection import inspect_file, inspect_place
from toolwright.stores.sqlite.core.store_file import StorePlace


async def batches(path: str | Path, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
    """The batches of a store, or of one of its sessions, the newest first.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    return await inspect_file(path, lambda connection: list_batches(connection, session, limit))


async def calls(path: str | Path, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
    """The calls of a batch, of a session, or of a batch in a session, in the order they were queued.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """

    def work(connection: SqliteConnection, place: StorePlace) -> list[PastCall]:
        connection.execute("BEGIN")  # one moment for calls and their waits
        return list_calls(connection, FileLiveness(place), batch, session)

    return await inspect_place(path, work)


async def runs_called(path: str | Path, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
    """The background runs with this id, or else those whose id begins so, with or without the part that most ids share.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    prefix = background_run.PREFIX
    return await inspect_file(
        path, lambda connection: find_named(connection, "processes", prefix, word, session, limit)
    )


async def schedules_called(path: str | Path, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
    """The schedules with this id, or else those whose id begins so, as with `runs_called`.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    prefix = schedules.PREFIX
    return await inspect_file(
        path, lambda connection: find_named(connection, "schedules", prefix, word, session, limit)
    )


async def workers(path: str | Path) -> list[str]:
    """The names of the workers of a store that are alive.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """

    def work(connection: SqliteConnection, place: StorePlace) -> list[str]:
        return list_workers(connection, FileLiveness(place), time.monotonic())

    return await inspect_place(path, work)


async def decided_key(
    path: str | Path, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
) -> str | None:
    """The key of the newest request to a person of a call that has been decided; None when there is none.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read.
    """
    return await inspect_file(path, lambda connection: find_decided_key(connection, call_id, session, kinds))
