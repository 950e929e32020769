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
import socket
import threading
import time
from collections.abc import Callable

import psycopg

from toolwright.errors import StoreError
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import cannot_open
from toolwright.stores.postgres.values import Integers, Texts
from toolwright.stores.sql.connection import Connection

LEASE = 5.0
"""Seconds that a sign of life lasts without its connection."""
EVERY = 1.6
"""Seconds between two renewals."""
GRACE = 10.0
"""Seconds after the start of the server, or after this process found it again, in which nobody is taken for dead."""
FORGOTTEN = 7
"""Days after which the rows of an owner that did not close the store are removed."""
_RENEW = (
    "INSERT INTO owners AS mine (name, until, program) VALUES ($1, clock_timestamp() + $2 * interval '1 second', $3)"
    " ON CONFLICT (name) DO UPDATE SET until = excluded.until"
)
_ALIVE = (
    "SELECT name FROM owners JOIN unnest($1::text[], $2::int8[], $3::int8[]) AS asked (owner, high, low)"
    " ON owners.name = asked.owner WHERE until > clock_timestamp()"
    " OR pg_postmaster_start_time() > clock_timestamp() - $4 * interval '1 second'"
    " OR EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = asked.high AND objid = asked.low"
    " AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
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
        keys = [self._address.lock_key(f"owner {name}") & (2**64 - 1) for name in names]
        high, low = Integers.of(key >> 32 for key in keys), Integers.of(key & (2**32 - 1) for key in keys)
        return owners - {name for (name,) in connection.run(_ALIVE, (Texts.of(names), high, low, GRACE))}


class Life:
    """`Liveness` as one owner sees it, and the sign of life of that owner."""

    def __init__(self, address: Address, owner: str) -> None:
        self._address = address
        self._owner = owner
        self._others = ServerLiveness(address)
        self._ended = threading.Event()
        self._spared_until = 0.0
        self._connection = self._appear()
        self._thread = threading.Thread(target=self._live, name="toolwright-life", daemon=True)
        self._thread.start()

    def dead_among(self, owners: set[str], connection: Connection) -> set[str]:
        """The owners whose process is gone, or that are nobody."""
        if time.monotonic() >= self._spared_until or not owners:
            return self._others.dead_among(owners, connection)
        query = "SELECT name FROM owners WHERE name IN (SELECT value FROM json_each(?))"
        return owners - {name for (name,) in connection.execute(query, (json.dumps(sorted(owners)),))}

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
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def vanish(self) -> None:
        """Let this process seem dead, as the server sees it some seconds after it was killed. For tests."""
        self.stop()
        self._connection.execute("DELETE FROM owners WHERE name = ?", (self._owner,))
        self._connection.raw.close()

    def _appear(self) -> PostgresConnection:
        connection = self._address.connect()
        try:
            key = self._address.lock_key(f"owner {self._owner}")
            connection.run("SELECT pg_advisory_lock_shared($1)", (key,))
            self._renew(connection)
        except psycopg.Error as error:
            connection.raw.close()
            raise cannot_open(self._address.shown, error) from error
        return connection

    def _renew(self, connection: PostgresConnection) -> None:
        connection.run(_RENEW, (self._owner, LEASE, f"{socket.gethostname()} {os.getpid()}"))

    def _live(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            try:
                if self._connection.raw.closed:
                    self._connection = self._appear()
                    # All others lost theirs, too, if it was the server that went away.
                    self._spared_until = time.monotonic() + GRACE
                else:
                    self._renew(self._connection)
                pause = EVERY
            except (psycopg.Error, StoreError):
                with contextlib.suppress(psycopg.Error):
                    self._connection.raw.close()
                pause = 0.1


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
