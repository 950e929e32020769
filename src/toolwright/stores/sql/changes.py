"""Changes that are made once. Owns marks, and the check of quotas; each service has its own queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from toolwright.clock import Clock, SystemClock
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.sessions import Mark, Quota
from toolwright.stores.sql.calls.intent_bundles import is_mine
from toolwright.stores.sql.codec import KEY, one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.jobs import Jobs, Read

T = TypeVar("T")


class Changes:
    """Reads and changes rows of session services, in a store or in memory.

    `owner` must own a call whose changes are marked; None if the calls are stored elsewhere. `open_reader` opens a
    second connection to read beside the writer, at the first read; a store in memory has none. Leases use
    `lease_time`, or else the monotonic time of `clock`.
    """

    def __init__(
        self,
        writer: Jobs,
        owner: str | None,
        open_reader: Callable[[], Jobs] | None = None,
        clock: Clock | None = None,
        lease_time: Callable[[Connection], float] | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        # The time of leases, which all processes share and which is never set. On one machine it is the monotonic time;
        # a clock for tests whose monotonic time is not the machine's has one of its own.
        local: Callable[[], float] = getattr(self.clock, "lease_time", self.clock.monotonic)
        self.lease_time: Callable[[Connection], float] = lease_time or (lambda connection: local())
        self._writer = writer
        self._owner = owner
        self._open_reader = open_reader
        self._reader: Jobs | None = None
        # The result of some work that changes nothing; it sees every change that was returned before.
        self.read: Read = writer.read if open_reader is None else self._open_and_read

    def _open_and_read(self, work: Callable[[Connection], T]) -> Awaitable[T]:
        assert self._open_reader is not None
        self._reader = self._open_reader()
        self.read = self._reader.read
        return self.read(work)

    async def change(self, mark: Mark | None, work: Callable[[Connection], T], *, quiet: bool = False) -> T:
        """Do `work` in one transaction, or return the earlier result if a change of this mark was made before.

        Nobody waits for a `quiet` change.
        Its result must have a form in msgpack. A `ToolwrightError` of `work` is raised here, and undoes all of it.
        """

        def job(connection: Connection) -> T | ToolwrightError:
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
                            " VALUES (?, ?, ?, ?, ?, 0, 1, ?, NULL)",
                            (*mark.call, mark.label, b"", msgspec.msgpack.encode(result)),
                        )
            except ToolwrightError as refusal:
                return refusal
            return result

        result = await self._writer.do(job, quiet=quiet)
        if isinstance(result, ToolwrightError):
            raise result
        return result

    def submit(self, work: Callable[[Connection], T], *, synced: bool = True) -> Awaitable[T]:
        """The same as `attempt`, but it is in the queue of the writer when this returns: before all that is asked for
        later. Without `synced`, a power cut may lose it.
        """

        def job(connection: Connection) -> T | ToolwrightError:
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


def require_quota(connection: Connection, session: str, service: str, quota: Quota) -> None:
    """Refuse a change that exceeds the quota of a session; to be called after the change, inside its transaction.

    Raises:
        ServiceError: it did.
    """
    query = "SELECT entries, bytes FROM usage WHERE session = ? AND service = ?"
    row = connection.execute(query, (session, service)).fetchone()
    if row is not None:
        quota.require(service.replace("_", "-"), *row)
