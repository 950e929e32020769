"""Which processes have a store open. Owns the sign of life of this one, and who else is alive.

A process is alive while it holds an advisory lock on a connection of its own, or while the row that it renews has not
passed by the clock of the server. Two signs: a program that is stopped for a while keeps its connection, and one whose
connection was cut keeps its row. Where the server itself was away, nobody is taken for dead until everybody could come
back.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from asyncio import Future, get_running_loop
from collections.abc import Callable, Mapping

import psycopg

from toolwright.errors import StoreError
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import cannot_open
from toolwright.stores.postgres.values import Integers, Texts
from toolwright.stores.sql.connection import Connection

LEASE = 5.0
"""Seconds that a sign of life lasts without its connection."""
EVERY = 2.4
"""Seconds between two renewals."""
ANSWERED = 5.0
"""Seconds after which a connection that nobody answers on is given up for a new one. Together with `EVERY` and the time
to connect it is less than `GRACE`, and than what the server takes to end such a connection, and to free its lock."""
NOTICED = 0.5
"""Seconds after which it is noticed that the connection was cut."""
LOOK = 0.1
"""Seconds between two looks at the others for somebody who waits, while the server tells no news."""
GRACE = 10.0
"""Seconds in which nobody is taken for dead: after a process first found the store on a server that was started since,
or that took the place of another, and after this process found its server again."""
TOLERANCE = 0.02
"""Seconds after the end of a row at which it is looked for."""
FORGOTTEN = 7
"""Days after which the rows of an owner that did not close the store are removed."""
# True while the store has not been on this server for so many seconds: it was restarted, or took the place of another
# one, which had the locks.
_NEW_SERVER = (
    "NOT EXISTS (SELECT 1 FROM server_starts WHERE started = pg_postmaster_start_time()"
    " AND seen < clock_timestamp() - {} * interval '1 second')"
)
# A new store was on no server before, so that nobody can have lost a lock.
_ARRIVE = (
    "WITH earlier AS (DELETE FROM server_starts WHERE started <> pg_postmaster_start_time() RETURNING started)"
    " INSERT INTO server_starts (started, seen) SELECT pg_postmaster_start_time(),"
    " CASE WHEN EXISTS (SELECT 1 FROM earlier) THEN clock_timestamp() ELSE '-infinity' END ON CONFLICT DO NOTHING"
)
# The locks of the server are read once, and only those of owners that are known are looked for.
_OTHERS = (
    "held AS MATERIALIZED (SELECT asked.owner FROM unnest($2::text[], $3::int8[], $4::int8[])"
    " AS asked (owner, high, low) JOIN pg_locks ON classid = asked.high AND objid = asked.low"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),"
    " others AS (SELECT owner, news, extract(epoch FROM until - clock_timestamp())::float8 AS ends,"
    " owner IN (SELECT owner FROM held) AS has_lock FROM owners JOIN commits ON owner = name WHERE name <> $1)"
    " SELECT owner, news, ends, has_lock FROM others WHERE ends > 0 OR has_lock OR $5 > 0"
    f" OR {_NEW_SERVER.format('$6')}"
)
_LOOK = f"WITH {_OTHERS}"
_RENEW_AND_LOOK = (
    "WITH renewed AS (INSERT INTO owners (name, until, program)"
    " VALUES ($1, clock_timestamp() + $7 * interval '1 second', $8)"
    f" ON CONFLICT (name) DO UPDATE SET until = excluded.until), {_OTHERS}"
)
_ALIVE = (
    "SELECT name FROM owners JOIN unnest($1::text[], $2::int8[], $3::int8[]) AS asked (owner, high, low)"
    f" ON owners.name = asked.owner WHERE until > clock_timestamp() OR {_NEW_SERVER.format('$4')}"
    " OR EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = asked.high AND objid = asked.low"
    " AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
_LOCKED = (
    "SELECT 1 FROM unnest($1::int8[], $2::int8[]) AS asked (high, low) JOIN pg_locks ON classid = asked.high"
    " AND objid = asked.low WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1"
)


class ServerLiveness:
    """`Liveness` by locks and rows of the server."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def dead_among(self, owners: set[str], connection: Connection) -> set[str]:
        """The owners whose process is gone, or that are nobody."""
        assert isinstance(connection, PostgresConnection)
        names = sorted(owners)
        if not names:
            return set()
        keys = [halves(self._address.lock_key(f"owner {name}")) for name in names]
        high, low = (Integers.of(key[half] for key in keys) for half in (0, 1))
        return owners - {name for (name,) in connection.run(_ALIVE, (Texts.of(names), high, low, GRACE))}

    def spares_all(self, connection: Connection) -> bool:
        """True while others may not have found this server yet."""
        assert isinstance(connection, PostgresConnection)
        return bool(connection.run(f"SELECT {_NEW_SERVER.format('$1')}", (GRACE,)).fetchone()[0])


class Life:
    """`Liveness` as one owner sees it, and the sign of life of that owner.

    With each sign it sees the others that live, and what they have written; `seen` is told.
    """

    def __init__(self, address: Address, owner: str) -> None:
        self._address = address
        self._owner = owner
        self._others = ServerLiveness(address)
        self._lock_keys: dict[str, tuple[int, int]] = {}
        self._ended = False
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._asked: list[Future[None]] = []
        self.seen: Callable[[Mapping[str, int]], None] = lambda others: None
        self.is_told: Callable[[], bool] = lambda: True
        """False while somebody waits for news, and the server tells none."""
        self._spared_until = 0.0
        self._renewed = self._next_look = time.monotonic()
        self._connection = self._appear()
        self._thread = threading.Thread(target=self._live, name="toolwright-life", daemon=True)
        self._thread.start()

    def dead_among(self, owners: set[str], connection: Connection) -> set[str]:
        """The owners whose process is gone, or that are nobody."""
        if time.monotonic() >= self._spared_until or not owners:
            return self._others.dead_among(owners, connection)
        query = "SELECT name FROM owners WHERE name IN (SELECT value FROM json_each(?))"
        return owners - {name for (name,) in connection.execute(query, (json.dumps(sorted(owners)),))}

    def spares_all(self, connection: Connection) -> bool:
        """True while others may not have found the server again."""
        return time.monotonic() < self._spared_until or self._others.spares_all(connection)

    def end(self) -> None:
        """Let the sign of life go: the unfinished calls of this owner are free from now on."""
        self.stop()
        with contextlib.suppress(psycopg.Error):
            self._connection.execute("DELETE FROM owners WHERE name = ?", (self._owner,))
            self._connection.execute("DELETE FROM commits WHERE owner = ?", (self._owner,))
        with contextlib.suppress(psycopg.Error):
            self._connection.raw.close()

    def stop(self) -> None:
        """Stop renewing it."""
        self._ended = True
        self._hurry.set()
        if self._thread.is_alive():
            self._thread.join()
        self._answer(self._asked)

    def look(self) -> Future[None]:
        """Look at the others now; done when `seen` was told, or this ends."""
        future = get_running_loop().create_future()
        with self._lock:
            self._asked.append(future)
        self.hurry()
        return future

    def hurry(self) -> None:
        """Look at the others now."""
        self._next_look = 0.0
        if self._ended:
            self._answer(self._asked)
        self._hurry.set()

    def vanish(self) -> None:
        """Let this process seem dead, as the server sees it some seconds after it was killed. For tests."""
        self.stop()
        self._connection.execute("DELETE FROM owners WHERE name = ?", (self._owner,))
        self._connection.raw.close()

    def _appear(self) -> PostgresConnection:
        connection = self._address.connect(patience=ANSWERED)
        try:
            # All in one exchange with the sign of life: on a bad network, each further one may be the one that fails.
            connection.later("SET synchronous_commit = off")  # a sign of life need not outlive the server
            connection.later(_ARRIVE)
            connection.later("SELECT pg_advisory_lock_shared($1)", (self._address.lock_key(f"owner {self._owner}"),))
            self._show(connection, renew=True)
        except psycopg.Error as error:
            connection.raw.close()
            raise cannot_open(self._address.shown, error) from error
        return connection

    def _live(self) -> None:
        while not self._ended:
            self._pause()
            if self._ended:
                return
            self._hurry.clear()
            with self._lock:
                asked, self._asked = self._asked, []
            try:
                if self._connection.raw.closed:
                    # All others lost theirs, too, if it was the server that went away.
                    self._spared_until = time.monotonic() + GRACE
                    self._connection = self._appear()
                else:
                    self._show(self._connection, renew=time.monotonic() + LOOK >= self._renewed + EVERY)
                self._answer(asked)
            except (psycopg.Error, StoreError):
                with contextlib.suppress(psycopg.Error):
                    self._connection.raw.close()
                with self._lock:
                    self._asked = asked + self._asked
                self._next_look = time.monotonic() + LOOK

    def _pause(self) -> None:
        """Wait until it is time to look, somebody asks for it, or the connection is cut."""
        while (left := self._next_look - time.monotonic()) > 0:
            if self._hurry.wait(min(left, NOTICED)):
                return
            if not self._connection.raw.closed:
                cut = select.poll()
                cut.register(self._connection.raw.pgconn.socket, select.POLLIN)
                if cut.poll(0):  # nothing was asked: the server ends the connection
                    return

    def _show(self, connection: PostgresConnection, *, renew: bool) -> None:
        """See the others, and give a sign of life with it."""
        now = time.monotonic()
        names = list(self._lock_keys)
        high, low = (Integers.of(each[half] for each in self._lock_keys.values()) for half in (0, 1))
        values = (self._owner, Texts.of(names), high, low, int(now < self._spared_until), GRACE)
        if renew:
            rows = connection.run(_RENEW_AND_LOOK, (*values, LEASE, f"{socket.gethostname()} {os.getpid()}")).fetchall()
            self._renewed = now
        else:
            rows = connection.run(_LOOK, values).fetchall()
        self._next_look = self._renewed + EVERY
        before, self._lock_keys = self._lock_keys, {}
        for name, _, ends, has_lock in rows:
            self._lock_keys[name] = before.get(name) or halves(self._address.lock_key(f"owner {name}"))
            if name in before and not has_lock and ends > 0:
                # It was killed, or its connection was: when its row has passed, that is known.
                self._next_look = min(self._next_look, now + ends + TOLERANCE)
        if not self.is_told():
            self._next_look = min(self._next_look, now + LOOK)
        self.seen({name: news for name, news, _, _ in rows})

    def _answer(self, asked: list[Future[None]]) -> None:
        for future in asked:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_let_go, future)


def _let_go(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def halves(key: int) -> tuple[int, int]:
    """The number of an advisory lock as `pg_locks` shows it."""
    positive = key & (2**64 - 1)
    return positive >> 32, positive & (2**32 - 1)


def arrive(connection: PostgresConnection) -> None:
    """Note that the store is on this server from now on, as a process does that opens it."""
    connection.run(_ARRIVE)


def has_owners(connection: PostgresConnection, address: Address) -> bool:
    """True while a process has the store open, which may be of an older version: one that is stopped has its lock."""
    owners = connection.run("SELECT name, until > clock_timestamp() FROM owners").fetchall()
    keys = [halves(address.lock_key(f"owner {name}")) for name, _ in owners]
    high, low = (Integers.of(key[half] for key in keys) for half in (0, 1))
    return any(lasts for _, lasts in owners) or connection.run(_LOCKED, (high, low)).fetchone() is not None


def sweep(connection: PostgresConnection) -> None:
    """Remove the rows of owners that were last seen long ago."""
    old = f"until < clock_timestamp() - interval '{FORGOTTEN} days'"
    connection.run(f"DELETE FROM commits WHERE owner IN (SELECT name FROM owners WHERE {old})")
    connection.run(f"DELETE FROM owners WHERE {old}")


def lease_time(connection: Connection) -> float:
    """The time of leases, by the clock of the server."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    return float(row[0])


LeaseTime = Callable[[Connection], float]
