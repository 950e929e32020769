"""One writing connection, group commit. Owns its transactions, and that a server which is away for a while is not seen.

The jobs that the shared queries are made of assume that one program writes at a time. So each transaction that writes
takes an advisory lock of the store first, alone or, for jobs that are safe beside each other, together with others. Of
those, the ones that put calls into the order of a session take a lock of the session as well.

A transaction whose connection was lost is repeated on a new one, unless it turns out that it was committed: each writes
its number into the row of its owner. The server may still carry out the earlier try, so the second one of a number is
refused. The same number shows which of the latest transactions that did not wait for the disk a crash of the server
lost; they are written again.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Literal

import psycopg
from psycopg import errors

from toolwright.crash_seams import CommitSeam
from toolwright.errors import StoreError, StoreUnavailable, ToolwrightError
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import NeedsAlone, PostgresConnection
from toolwright.stores.postgres.faults import is_lost, store_error
from toolwright.stores.postgres.listener import channel_of, notice
from toolwright.stores.sql.job_thread import Job, JobThread, deliver

Sync = Literal["full", "normal"]
PATIENCE = 30.0
"""Seconds that a server which is away is waited for."""
PAUSE = 0.05
"""Seconds before the first new try to connect; each next one is twice as long, up to a second."""
UNSAFE = 1.0
"""Seconds after which a transaction waits for the disk of the server, if those before it did not."""
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A transaction that writes nothing that is stored. Its commit waits until all earlier ones are safe, too.
_MAKE_SAFE = "SELECT pg_logical_emit_message(true, 'toolwright', '')"
# A number that is not new is refused, as NULL: of two tries of one transaction, one is committed.
_NOTE = "UPDATE commits SET number = CASE WHEN number < $1 THEN $1 END, news = $2 WHERE owner = $3"
# A connection that is lost here may live on at the server: what was sent on it arrives later, and it holds its locks.
_END_FORMER = (
    "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE pid = $1 AND pid <> pg_backend_pid()"
    " AND usename = current_user AND application_name = current_setting('application_name')"
)
FORMER_ENDS = 10_000
"""Milliseconds that the server may take to end a connection that was lost."""
MOST_REPEATS = 10
"""How often a transaction is repeated that got into the way of another, or that somebody cancelled."""
_REPEATED = (errors.DeadlockDetected, errors.SerializationFailure, errors.QueryCanceled)


class Writer:
    """`JobQueue` on one connection, which is opened again when it is lost.

    That of a `reader`, which only reads, is opened with the first job, and plans each list for its values.
    """

    def __init__(
        self, address: Address, owner: str, sync: Sync, seam: CommitSeam | None = None, *, reader: bool = False
    ) -> None:
        self._address = address
        self._owner = owner
        self._sync = sync
        self._seam = seam
        self._number = 0
        self._sent: list[Any] | None = None
        """The results of a transaction whose commit was sent, and perhaps not answered."""
        self._unsafe: list[tuple[int, list[Job]]] = []
        self._unsafe_since = 0.0
        self._opened_again = False
        self._backend = 0
        """The process of the server that has, or had, the connection."""
        self.commits = 0
        self.news = 0
        """How many of them may concern somebody who waits."""
        self._key = key = address.lock_key("writers")
        self._alone = f"SELECT pg_advisory_xact_lock({key})"
        self._shared = f"SELECT pg_advisory_xact_lock_shared({key})"
        self._channel = channel_of(address)
        self._connection: PostgresConnection | None = None if reader else address.connect()
        self._reader = reader
        commit = self._carry_out if seam is None else seam.around(self._carry_out)
        self.jobs = jobs = JobThread(address.shown, commit, self._close)
        self.do, self.read, self.read_settled, self.close = jobs.do, jobs.read, jobs.read_settled, jobs.close

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.raw.close()

    def _carry_out(self, jobs: list[Job]) -> None:
        """Do jobs in one transaction, and where that fails, each alone."""
        settled = [job for job in jobs if job.settled]
        if settled and any(job.writes for job in jobs):
            # Other programs may write beside a transaction that writes: these reads have one of their own, later.
            self._carry_out([job for job in jobs if not job.settled])
            jobs = settled
        try:
            results = self._committed(jobs)
        except Exception as error:
            if len(jobs) > 1 and not isinstance(error, StoreUnavailable):
                # One of them is at fault: the others must not suffer for it.
                for job in jobs:
                    self._carry_out([job])
            else:
                told = self._explained(error)
                deliver(jobs, [told for _ in jobs])
            return
        if self._seam is not None:
            self._seam.committed()
        deliver(jobs, results)

    def _committed(self, jobs: list[Job]) -> list[Any]:
        """The results of jobs, whose transaction was committed: a lost connection is opened again, and it is repeated.

        Raises:
            StoreUnavailable: the server was away, or could only be read, for too long.
        """
        patience = _Patience()
        writes = any(job.writes for job in jobs)
        alone = not all(job.shared for job in jobs if job.writes)
        loud = any(job.writes and not job.quiet for job in jobs)
        synced = self._sync == "full" and any(job.synced for job in jobs if job.writes)
        synced = synced or bool(self._unsafe and time.monotonic() > self._unsafe_since + UNSAFE)
        self._number += writes
        repeats, self._sent = 0, None
        unanswered: list[Any] | None = None
        while True:
            connection = self._connect(patience)
            try:
                self._end_former(connection)
                if self._sent is not None and self._last_number(connection) == self._number:
                    if synced:
                        connection.run(_MAKE_SAFE)  # it may have been committed here, and not yet on the replica
                    results = self._sent
                    break
                self._sent = None
                self._write_again(connection)
                news = self.news + loud
                results = self._transact(connection, jobs, self._number if writes else None, news, alone, synced)
                if any(job.settled for job in jobs):
                    # Others may have written it without waiting for the disk. If a crash of the server lost what was
                    # shown, its numbers would be given again, and their new events never be shown.
                    connection.run(_MAKE_SAFE)
                break
            except psycopg.Error as error:
                if is_lost(error) or connection.raw.closed:
                    self._close()
                    unanswered = self._sent or unanswered
                    if not patience.wait():
                        raise StoreUnavailable(str(store_error(self._address.shown, error))) from error
                    continue
                self._roll_back(connection, jobs)
                # Where the number is not new, the server carried out the earlier try when its client was gone.
                late = self._sent is not None and unanswered is not None and isinstance(error, errors.NotNullViolation)
                self._sent = unanswered if late else None
                repeats += 1
                if not (late or isinstance(error, _REPEATED)) or repeats > MOST_REPEATS:
                    raise
            except NeedsAlone:
                self._roll_back(connection, jobs)
                if alone:
                    raise
                alone = True
            except BaseException:
                self._roll_back(connection, jobs)
                raise
        if writes:
            self.commits += 1
            self.news = news
            self._remember(jobs, synced)
        return results

    def _transact(
        self, connection: PostgresConnection, jobs: list[Job], number: int | None, news: int, alone: bool, synced: bool
    ) -> list[Any]:
        """The results of jobs in one transaction, which is committed; without a number it only reads."""
        connection.alone = alone
        if number is None:
            settled = any(job.settled for job in jobs)
            if settled:
                # The lock is held until the moment that the transaction sees was chosen.
                connection.command(f"SELECT pg_advisory_lock({self._key})")
            connection.later(_READ)
            if settled:
                connection.later(f"SELECT pg_advisory_unlock({self._key})")
        else:
            connection.later("BEGIN")
            connection.later(self._alone if alone else self._shared)
            if not alone:
                # In one order for everybody, so that no two transactions wait for each other.
                sessions = {session for job in jobs for session in job.ordered}
                for key in sorted(self._address.lock_key(f"session {session}") for session in sessions):
                    connection.later("SELECT pg_advisory_xact_lock($1)", (key,))
            if not synced:
                connection.later("SET LOCAL synchronous_commit = off")
        results = [job.work(connection) for job in jobs]
        if number is not None:
            connection.later(_NOTE, (number, news, self._owner))
            if alone and news > self.news:
                # Those who write alone write what others may wait for.
                connection.later("SELECT pg_notify($1, $2)", (self._channel, notice(self._owner, news)))
            self._sent = results
        connection.run("COMMIT")
        return results

    def _remember(self, jobs: list[Job], synced: bool) -> None:
        """Remember a transaction until it is on the disk of the server, as all are before one that waited for it."""
        if synced:
            self._unsafe = []
            return
        if not self._unsafe:
            self._unsafe_since = time.monotonic()
        self._unsafe.append((self._number, jobs))

    def _write_again(self, connection: PostgresConnection) -> None:
        """Write again what a crash of the server lost: this process lives, and was told that it is written."""
        if not self._opened_again:
            return
        last = None if self._reader else self._last_number(connection)
        if last is None and not self._reader:
            # Others removed its row, since it was away for long, or this is a replica that was promoted without it.
            connection.run("INSERT INTO commits (owner, number) VALUES ($1, 0) ON CONFLICT DO NOTHING", (self._owner,))
        lost = [] if last is None else [each for each in self._unsafe if each[0] > last]
        for number, jobs in lost:
            try:
                self._transact(connection, jobs, number, self.news + 1, True, True)
                self.news += 1
            except (psycopg.Error, ToolwrightError) as error:
                if isinstance(error, psycopg.Error) and (is_lost(error) or connection.raw.closed):
                    raise
                self._roll_back(connection, jobs)  # somebody else was faster
            finally:
                self._sent = None
        if lost:
            self._unsafe = []
        self._opened_again = False

    def _roll_back(self, connection: PostgresConnection, jobs: list[Job]) -> None:
        connection.reset()
        with contextlib.suppress(psycopg.Error):
            connection.command("ROLLBACK")
        if any(job.settled for job in jobs):
            self._close()  # the lock of the session may be held, and would block every program

    def _connect(self, patience: _Patience) -> PostgresConnection:
        """The connection; one that was lost is opened again.

        Raises:
            StoreUnavailable: the server was away for too long.
            StoreError: it refuses this program now.
        """
        while self._connection is None:
            try:
                self._connection = self._address.connect(plan_for_values=self._reader)
                self._opened_again = True
            except StoreUnavailable:
                if not patience.wait():
                    raise
            except StoreError as error:
                if self._sent is not None:
                    raise StoreUnavailable(f"{error}; whether the last transaction was written is not known") from error
                raise
        return self._connection

    def _end_former(self, connection: PostgresConnection) -> None:
        """End the connection before this one at the server, so that nothing of it comes later."""
        former, self._backend = self._backend, connection.raw.info.backend_pid
        if former not in (0, self._backend):
            connection.run(_END_FORMER, (former, FORMER_ENDS))

    def _last_number(self, connection: PostgresConnection) -> int | None:
        """The number of the last transaction of this owner that is there."""
        row = connection.execute("SELECT number FROM commits WHERE owner = ?", (self._owner,)).fetchone()
        return None if row is None else int(row[0])

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, ToolwrightError):
            return error
        if isinstance(error, psycopg.Error):
            told = store_error(self._address.shown, error)
        else:
            told = StoreError(f"The store {self._address.shown!r} could not write: {type(error).__name__}: {error}")
        told.__cause__ = error
        return told


class _Patience:
    """The pauses between tries to reach a server."""

    def __init__(self) -> None:
        self._until = time.monotonic() + PATIENCE
        self._pause = 0.0

    def wait(self) -> bool:
        """Pause before the next try; False when it is too late for another."""
        if time.monotonic() + self._pause > self._until:
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, 1.0) or PAUSE
        return True
