"""Changes that are made once. Owns marks in SQLite, and the check of quotas; each service has its own queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import apsw
import msgspec

from toolwright.clock import Clock, SystemClock
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.sessions import Mark, Quota
from toolwright.stores.sqlite.calls.intent_bundles import is_mine
from toolwright.stores.sqlite.core.codec import KEY, one
from toolwright.stores.sqlite.core.schema import bring_up_to_date
from toolwright.stores.sqlite.core.writer import Writer

T = TypeVar("T")


class Jobs(Protocol):
    """Runs jobs on a connection: a `Writer`, or its replacement in a test."""

    def do(self, work: Callable[[apsw.Connection], T], *, synced: bool = True) -> Awaitable[T]: ...

    def read(self, work: Callable[[apsw.Connection], T]) -> Awaitable[T]: ...

    async def close(self) -> None: ...


class Read(Protocol):
    """Runs a job that changes nothing."""

    def __call__(self, work: Callable[[apsw.Connection], T]) -> Awaitable[T]: ...


class JobsAtOnce:
    """Runs each job when it is asked for, on the caller's thread: for a database in memory that few use."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        with self._connection:
            bring_up_to_date(self._connection, None)

    async def do(self, work: Callable[[apsw.Connection], T], *, synced: bool = True) -> T:
        """Run `work` in a transaction."""
        with self._connection:
            result = work(self._connection)
        return result

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work`, which changes nothing."""
        return work(self._connection)

    async def close(self) -> None:
        """Close the database, which is gone then."""
        self._connection.close()


class Changes:
    """Reads and changes rows of session services, in the file of a store or in memory.

    `owner` must own a call whose changes are marked; None if the calls are stored elsewhere. `open_reader` opens a
    second connection to read the file beside the writer, at the first read; a store in memory has none. Leases use the
    monotonic time of `clock`.
    """

    def __init__(
        self,
        writer: Jobs,
        owner: str | None,
        open_reader: Callable[[], Jobs] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        # The time of leases, which all processes of the machine share and which is never set. A clock for tests whose
        # monotonic time is not the machine's has one of its own.
        self.lease_time: Callable[[], float] = getattr(self.clock, "lease_time", self.clock.monotonic)
        self._writer = writer
        self._owner = owner
        self._open_reader = open_reader
        self._reader: Jobs | None = None
        # The result of some work that changes nothing; it sees every change that was returned before.
        self.read: Read = writer.read if open_reader is None else self._open_and_read

    @classmethod
    def in_memory(cls, clock: Clock | None = None) -> Changes:
        """For a runtime without a file; it ends with the process."""
        return cls(
            Writer(Path(":memory:"), lambda connection: bring_up_to_date(connection, None), "normal"), None, clock=clock
        )

    def _open_and_read(self, work: Callable[[apsw.Connection], T]) -> Awaitable[T]:
        assert self._open_reader is not None
        self._reader = self._open_reader()
        self.read = self._reader.read
        return self.read(work)

    async def change(self, mark: Mark | None, work: Callable[[apsw.Connection], T]) -> T:
        """Do `work` in one transaction, or return the earlier result if a change of this mark was made before.

        Its result must have a form in msgpack. A `ToolwrightError` of `work` is raised here, and undoes all of it.
        """

        def job(connection: apsw.Connection) -> T | ToolwrightError:
            if mark is not None:
                query = f"SELECT payload FROM effects WHERE {KEY} AND label = ?"
                known = one(connection, query, (*mark.call, mark.label))
                if known is not None:
                    earlier: T = msgspec.msgpack.decode(known)
                    return earlier
                if self._owner is not None and not is_mine(connection, self._owner, mark.call):
                    return StoreError(f"The call {mark.call.call_id!r} is no longer this process's; it changes nothing")
            try:
                with connection:  # a savepoint: a refused change must not undo the others
                    result = work(connection)
                    if mark is not None:
                        connection.execute(
                            "INSERT INTO effects (session, scope, call_id, label, input, at, done, payload, failure)"
                            " VALUES (?, ?, ?, ?, x'', 0, 1, ?, NULL)",
                            (*mark.call, mark.label, msgspec.msgpack.encode(result)),
                        )
            except ToolwrightError as refusal:
                return refusal
            return result

        result = await self._writer.do(job)
        if isinstance(result, ToolwrightError):
            raise result
        return result

    def submit(self, work: Callable[[apsw.Connection], T], *, synced: bool = True) -> Awaitable[T]:
        """The same as `attempt`, but it is in the queue of the writer when this returns: before all that is asked for
        later. Without `synced`, a power cut may lose it.
        """

        def job(connection: apsw.Connection) -> T | ToolwrightError:
            try:
                with connection:
                    result = work(connection)
            except ToolwrightError as refusal:
                return refusal
            return result

        return _unless_refused(self._writer.do(job, synced=synced))

    async def close(self) -> None:
        """Close the connections it opened, and a store in memory."""
        if self._reader is not None:
            await self._reader.close()
        if self._open_reader is None:
            await self._writer.close()


async def _unless_refused(pending: Awaitable[T | ToolwrightError]) -> T:
    result = await pending
    if isinstance(result, ToolwrightError):
        raise result
    return result


def require_quota(connection: apsw.Connection, session: str, service: str, quota: Quota) -> None:
    """Refuse a change that exceeds the quota of a session; to be called after the change, inside its transaction.

    Raises:
        ServiceError: it did.
    """
    query = "SELECT entries, bytes FROM usage WHERE session = ? AND service = ?"
    row = connection.execute(query, (session, service)).fetchone()
    if row is not None:
        quota.require(service.replace("_", "-"), *row)
