"""The rows of session services in memory. Owns the databases of a runtime without a file, which end with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from toolwright.clock import Clock
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.sessions.services import SqlServiceStores
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.schema import bring_up_to_date, with_event_log
from toolwright.stores.sqlite.core.writer import Writer

T = TypeVar("T")


def services_in_memory(clock: Clock | None = None) -> SqlServiceStores:
    """For a runtime without a file; they end with the process."""
    writer = Writer(Path(":memory:"), lambda connection: bring_up_to_date(connection, None), "normal")
    return SqlServiceStores(Changes(writer, None, clock=clock), write_log=with_event_log)


def services_at_once(clock: Clock | None = None) -> SqlServiceStores:
    """The same without a thread, for a test of one call: a change is made on the thread that asks for it."""
    return SqlServiceStores(Changes(JobsAtOnce(), None, clock=clock), write_log=with_event_log)


class JobsAtOnce:
    """Runs each job when it is asked for, on the caller's thread: for a database in memory that few use."""

    def __init__(self) -> None:
        self._connection = SqliteConnection(":memory:")
        with self._connection:
            bring_up_to_date(self._connection, None)

    async def do(self, work: Callable[[Connection], T], *, synced: bool = True, quiet: bool = False) -> T:
        """Run `work` in a transaction."""
        with self._connection:
            result = work(self._connection)
        return result

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which changes nothing."""
        return work(self._connection)

    async def close(self) -> None:
        """Close the database, which is gone then."""
        self._connection.close()
