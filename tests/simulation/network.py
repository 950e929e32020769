"""The way between a machine and the server. Owns latency, partitions and lost answers, and the client's end of a
connection."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import psycopg

from tests.simulation.server import Server, Session, lost, machine_here
from tests.simulation.threads import Threads
from toolwright.stores.postgres.address import CONNECT, Address
from toolwright.stores.postgres.connection import NeedsAlone, PostgresConnection, Rows
from toolwright.stores.postgres.faults import cannot_open

USER_TIMEOUT = 15.0
"""Seconds after which a client gives up a connection on which nobody answers (`tcp_user_timeout`)."""


class Link:
    """The way of one machine to the server."""

    def __init__(self, threads: Threads, chance: random.Random) -> None:
        self.threads = threads
        self.chance = chance
        self.base = chance.choice((0.0005, 0.0005, 0.002, 0.02))
        self.cut_until = 0.0
        self.drops = 0.0
        """How likely it is that a connection ends while something is on its way."""

    @property
    def down(self) -> bool:
        return self.threads.loop.time() < self.cut_until

    def latency(self) -> float:
        return self.base * (0.5 + self.chance.random())

    def travel(self, seconds: float, most: float) -> bool:
        """Wait until something that is sent now has arrived; False if it did not, after `most` seconds or by a
        reset."""
        loop = self.threads.loop
        until = loop.time() + most
        self.threads.sleep(seconds)
        while self.down:
            if loop.time() >= until:
                return False
            self.threads.sleep(max(0.001, min(self.cut_until, until) - loop.time()))
        return not (self.drops and self.chance.random() < self.drops)


class SimulatedAddress(Address):
    """`Address` of the server of a world."""

    def __init__(self, url: str) -> None:
        super().__init__("postgresql://simulated/world")
        self.server: Server = machine_here().server  # type: ignore[attr-defined]

    def connect(self, *, plan_for_values: bool = False, patience: float | None = None) -> PostgresConnection:
        machine: Any = machine_here()
        server, link = self.server, machine.link
        try:
            until = server.loop.time() + CONNECT
            arrived = link.travel(2 * link.latency(), CONNECT)
            if server.silent and not server.up:
                server.threads.sleep(max(0.001, until - server.loop.time()))
                arrived = False
            if not arrived:
                raise psycopg.OperationalError("connection timeout expired")
            connection = SimulatedConnection(server, server.connect(machine), link, patience or USER_TIMEOUT)
            self._opened(connection)
            return connection
        except psycopg.Error as error:
            raise cannot_open(self.shown, error) from error


class SimulatedConnection(PostgresConnection):
    """`PostgresConnection` to a simulated server."""

    def __init__(self, server: Server, session: Session, link: Link, patience: float) -> None:
        self._server = server
        self.server_started = server.started
        self._session = session
        self._link = link
        self._patience = patience
        self._aborted = False
        self._waiters: list[Callable[[], None]] = []
        self.alone = False
        self._depth = 0
        self._later: list[tuple[str, Sequence[Any], bool]] = []
        self.raw: Any = SimpleNamespace(
            closed=False, close=self._close, pgconn=self, info=SimpleNamespace(backend_pid=session.number)
        )

    # --- the way there and back

    def _ask(self, work: Callable[[], Any], *, waits: bool) -> Any:
        """Let the server do something, and return its answer.

        Raises:
            psycopg.OperationalError: the connection ended, and it may or may not have been done.
        """
        if self.raw.closed:
            raise psycopg.OperationalError("the connection is closed")
        link = self._link
        if not waits and not self._session.ended and not link.down and not link.drops and link.chance.random() > 0.05:
            return work()  # the time of a few statements is that of the one before
        try:
            self._arrive()
        except psycopg.OperationalError:
            if not self._session.ended and link.chance.random() < 0.5:
                self._server.later(link.chance.choice((0.001, 0.05, 1.0)), self._session, work)
            else:
                self._server.end(self._session)
            raise
        result = work()
        try:
            self._arrive()
        except psycopg.OperationalError:
            self._server.end(self._session)
            raise
        return result

    def _arrive(self) -> None:
        if self._session.ended and self._session.silent:
            self._lose_patience()
        if not self._link.travel(self._link.latency(), self._patience):
            self._lose()
        if self._session.ended:
            if self._session.silent:
                self._lose_patience()
            self._lose()

    def _lose_patience(self) -> None:
        """Wait for a server that does not answer, until this is given up, and lose the connection."""
        if not self._aborted:
            self._server.threads.wait(self._waiters, self._patience)
        self._lose()

    def abort(self) -> None:
        self._aborted = True
        self._session.socket.ring()
        for wake in [*self._waiters]:
            wake()

    def _lose(self) -> None:
        self.raw.closed = True
        raise lost()

    def _close(self) -> None:
        if not self.raw.closed:
            self.raw.closed = True
            self._server.end(self._session)

    # --- what the store asks for

    def run(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        waiting, self._later = self._later, []

        def work() -> Rows:
            for text, given, or_alone in waiting:
                try:
                    self._server.run(self._session, text, given)
                except psycopg.DataError as error:
                    if or_alone:
                        raise NeedsAlone from error
                    raise
            return self._server.run(self._session, statement, values)

        waits = (bool(waiting) and waiting[0][0].startswith("BEGIN")) or statement == "COMMIT"
        result: Rows = self._ask(work, waits=waits)
        return result

    execute = run

    def later(self, statement: str, values: Sequence[Any] = (), *, or_alone: bool = False) -> None:
        self._later.append((statement, values, or_alone))

    execute_later = later

    def reset(self) -> None:
        self._depth = 0
        self._later = []

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        changed = 0
        for row in rows:
            self.run(statement, row)
            changed += self._session.changes
        self._session.changes = changed

    def command(self, statements: str) -> None:
        waiting, self._later = self._later, []

        def work() -> None:
            for text, given, _ in waiting:
                self._server.run(self._session, text, given)
            self._server.command(self._session, statements)

        self._ask(work, waits=not statements.startswith("ROLLBACK TO"))

    def changes(self) -> int:
        return self._session.changes

    def total_changes(self) -> int:
        return self._session.total

    # --- what the listener asks for

    @property
    def socket(self) -> Any:
        return self._session.socket

    def consume_input(self) -> None:
        if self._session.ended and not self.raw.closed:
            if self._session.silent:
                self._lose_patience()
            self._lose()
        self._session.socket.ready = False

    def notifies(self) -> Any:
        notices = self._session.notices
        return SimpleNamespace(extra=notices.pop(0)) if notices else None
