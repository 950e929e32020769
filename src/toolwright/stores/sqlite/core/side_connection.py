"""Access to the file of a store from outside. Owns the connection of an inspector, which owns no calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from toolwright.errors import StoreError
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.faults import reason, store_error
from toolwright.stores.sqlite.core.schema import require_current, require_ours
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer import BUSY, STALL
from toolwright.stores.sqlite.core.writer_queue import ENDING, WriterQueue

T = TypeVar("T")


async def inspect_file(
    path: str | Path, work: Callable[[SqliteConnection], T], *, writes: bool = False, older: bool = False
) -> T:
    """Run `work` on a connection of its own, off the event loop. It makes no file, and without `writes` changes none.

    `older` also lets it look into the store of an older version, which has other tables.

    Raises:
        StoreError: there is no store of this version there, or it cannot be read or written.
    """
    return await asyncio.to_thread(_inspect, path, lambda connection, place: work(connection), writes, older)


async def inspect_place(
    path: str | Path, work: Callable[[SqliteConnection, StorePlace], T], *, writes: bool = False
) -> T:
    """As `inspect_file`, for `work` that also looks at the files beside the store, such as those of its owners.

    Raises:
        StoreError: as for `inspect_file`.
    """
    return await asyncio.to_thread(_inspect, path, work, writes, False)


class InspectorQueue:
    """The queue places of an inspector that writes: each of its transactions waits until the writers before it have
    written.

    Where no program has a queue file, no program queues, and there is nothing to wait for.
    """

    def __init__(self, place: StorePlace) -> None:
        there = place.path.with_name(place.path.name + ENDING).exists()
        self._writer_queue = WriterQueue(place) if there else None

    @contextmanager
    def in_front(self) -> Iterator[None]:
        """Wait until the writers before this one are done, and leave the queue at the end of the block."""
        if self._writer_queue is None:
            yield
            return
        while not self._writer_queue.take(STALL) and self._writer_queue.has_moved():
            pass  # When the queue does not move, a program in it is stopped, and SQLite decides who writes.
        try:
            yield
        finally:
            self._writer_queue.give_back()

    def close(self) -> None:
        """Take part no longer."""
        if self._writer_queue is not None:
            self._writer_queue.close(last=False)


def _inspect(given: str | Path, work: Callable[[SqliteConnection, StorePlace], T], writes: bool, older: bool) -> T:
    with StorePlace(given) as place:
        path = place.path
        if not path.exists():
            raise StoreError(f"There is no store {str(given)!r}; check the path")
        place.require_one_name()
        try:
            # The log beside the file must be written to even by readers.
            connection = SqliteConnection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(BUSY)
                if older:
                    require_ours(connection, path)
                else:
                    require_current(connection, path)
                if not writes:
                    connection.execute("PRAGMA query_only = 1")
                return work(connection, place)
            finally:
                connection.close()
        except apsw.Error as error:
            told = f"The store {str(path)!r} cannot be used: {reason(path, error)}"
            raise store_error(told, error) from error
