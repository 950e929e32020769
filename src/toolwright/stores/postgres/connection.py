"""A connection to PostgreSQL that the shared queries run on. Owns running statements; others own transactions.

Statements go to libpq as psycopg wraps it, and not through its cursors: a statement of one row costs a third of the
processor time so. Those whose answer is not needed at once are sent together with the next one, in one exchange with
the server.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import psycopg
from psycopg import RawCursor, errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from toolwright.stores.postgres.dialect import rewritten
from toolwright.stores.postgres.values import Column, encoded, register

PREPARE_AFTER = 3
"""How often a statement is run before the server keeps its plan."""
MOST_PREPARED = 300
"""How many statements the server keeps for a connection."""
_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_Key = tuple[str, tuple[int, ...]]
"""A statement and the types of its values: what the server keeps a plan for."""


class NeedsAlone(Exception):
    """The transaction must be repeated while no other program writes."""


class _Sent(NamedTuple):
    """A statement on its way: its values as they are sent, and whether a refusal means `NeedsAlone`."""

    key: _Key
    data: list[Any]
    formats: list[int]
    or_alone: bool = False


class PostgresConnection:
    """`Connection` of the shared queries over psycopg. It is used by one thread at a time.

    `alone` is True in a transaction in which no other program writes. `server_started` tells one server from another.
    """

    has_bundles: ClassVar[bool] = False
    conflict: ClassVar[type[Exception]] = psycopg.IntegrityError

    def __init__(self, raw: psycopg.Connection[Any], server_started: float) -> None:
        register(raw)
        raw.prepare_threshold = PREPARE_AFTER
        self.raw = raw
        self.server_started = server_started
        self.alone = False
        self._loaders = Transformer(raw)
        self._uses: dict[_Key, int | bytes] = {}
        self._waiting: list[_Sent] = []
        self._socket = select.poll()
        self._socket.register(raw.pgconn.socket, select.POLLIN)
        self._changes = 0
        self._total = 0
        self._depth = 0

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a shared statement."""
        query = rewritten(statement)
        return self.run(query.text_for(values), query.bind(values))

    def run(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Run a statement in the words of PostgreSQL."""
        sent = _sent(statement, values)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            result = self._exchange([*waiting, sent])
        else:
            result = self._send(sent)
        if result.status not in _FINE:
            raise errors.error_from_result(result)
        # A statement that returns what it wrote counts, too; a SELECT does not.
        verb = result.command_status or b""
        self._changes = 0 if verb.startswith(b"SELECT") else result.command_tuples or 0
        self._total += self._changes
        if result.status == ExecStatus.COMMAND_OK:
            return Rows([])
        self._loaders.set_pgresult(result)
        return Rows(self._loaders.load_rows(0, result.ntuples, tuple))

    def later(self, statement: str, values: Sequence[Any] = (), *, or_alone: bool = False) -> None:
        """Run a statement with the next one, and forget what it finds. If it fails, the next one raises its error; with
        `or_alone`, `NeedsAlone` where the server did not like its data.
        """
        self._waiting.append(_sent(statement, values, or_alone))

    def execute_later(self, statement: str, values: Sequence[Any]) -> None:
        """As `later`, for a shared statement."""
        query = rewritten(statement)
        self.later(query.text_for(values), query.bind(values))

    def _send(self, sent: _Sent) -> PGresult:
        """Run a statement; one that is run often is prepared."""
        connection, (statement, types) = self.raw.pgconn, sent.key
        name = self._prepared(sent.key)
        if name is None:
            return connection.exec_params(statement.encode(), sent.data, types, sent.formats, 1)
        if self._uses[sent.key] != name:
            prepared = connection.prepare(name, statement.encode(), types)
            if prepared.status != ExecStatus.COMMAND_OK:
                return prepared
            self._uses[sent.key] = name
        return connection.exec_prepared(name, sent.data, sent.formats, 1)

    def _prepared(self, key: _Key) -> bytes | None:
        """The name of a statement that is to be prepared; None while it is not run often enough."""
        uses = self._uses.get(key, 0)
        if not isinstance(uses, int):
            return uses
        if len(self._uses) > MOST_PREPARED:
            return None
        self._uses[key] = uses = uses + 1
        return None if uses < PREPARE_AFTER else f"t{len(self._uses)}_{abs(hash(key)):x}".encode()

    def _exchange(self, statements: Sequence[_Sent]) -> PGresult:
        """Run statements one after the other without waiting for each, and return the result of the last one.

        Raises:
            NeedsAlone: one that says so was refused, and those after it were not run.
            psycopg.Error: another one failed.
        """
        connection = self.raw.pgconn
        made: dict[int, bytes] = {}
        connection.enter_pipeline_mode()
        for number, sent in enumerate(statements):
            statement, types = sent.key
            name = self._prepared(sent.key)
            if name is None:
                connection.send_query_params(statement.encode(), sent.data, types, sent.formats, 1)
                continue
            if self._uses[sent.key] != name:
                connection.send_prepare(name, statement.encode(), types)
                self._uses[sent.key] = made[number] = name
            connection.send_query_prepared(name, sent.data, sent.formats, 1)
        connection.pipeline_sync()
        failed: tuple[_Sent, PGresult] | None = None
        result: PGresult | None = None
        for number, sent in enumerate(statements):
            if number in made:
                result = self._next_result()
                if result.status != ExecStatus.COMMAND_OK:
                    self._uses.pop(sent.key, None)
                    failed = failed or (sent, result)
            result = self._next_result()
            if result.status not in _FINE:
                failed = failed or (sent, result)
        self._next_result(last=True)
        connection.exit_pipeline_mode()
        if failed is not None:
            error = errors.error_from_result(failed[1])
            if failed[0].or_alone and isinstance(error, psycopg.DataError):
                raise NeedsAlone from error
            raise error
        assert result is not None
        return result

    def _next_result(self, *, last: bool = False) -> PGresult:
        """The result of the next statement of an exchange, or the mark of its end."""
        connection = self.raw.pgconn
        while connection.is_busy():
            if connection.flush():  # more than fits at once
                select.select([connection.socket], [connection.socket], [])
            else:
                self._socket.poll()
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            raise psycopg.OperationalError("the server ended the connection")
        if not last:
            connection.get_result()  # None, which ends the results of one statement
        return result

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a shared statement for each of these rows of values, without waiting for each."""
        query = rewritten(statement)
        every = [query.bind(row) for row in rows]
        if every:
            self._run_waiting()
            cursor = RawCursor(self.raw)
            cursor.executemany(query.text_for(every[0]).encode(), every)
            self._changes = max(0, cursor.rowcount)
            self._total += self._changes

    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self._changes

    def total_changes(self) -> int:
        """How many rows were changed since the connection was opened."""
        return self._total

    def command(self, statements: str) -> None:
        """Run statements without values, and forget what they find."""
        self._run_waiting()
        result = self.raw.pgconn.exec_(statements.encode())
        if result.status not in _FINE:
            raise errors.error_from_result(result)

    def _run_waiting(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._exchange(waiting)

    def abort(self) -> None:
        """End it, from any thread: who waits for the server finds the connection lost."""
        try:
            copy = os.dup(self.raw.fileno())
        except (OSError, psycopg.Error):
            return
        with socket.socket(fileno=copy) as same:
            # If it is still open, the copy is not that of another file, which got the number meanwhile.
            if not self.raw.closed:
                with contextlib.suppress(OSError):
                    same.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._depth += 1
        self.later(f"SAVEPOINT s{self._depth}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        name = f"s{self._depth}"
        self._depth -= 1
        if kind is None:
            self.later(f"RELEASE {name}")
        elif not self.raw.closed:
            # Where the transaction failed before its savepoint, such as for a lock, the error of that is raised.
            with contextlib.suppress(errors.InvalidSavepointSpecification):
                self.command(f"ROLLBACK TO {name}")

    def reset(self) -> None:
        """Forget the savepoints of a transaction that ended, and what was to be sent in it."""
        self._depth = 0
        self._waiting = []


def _sent(statement: str, values: Sequence[Any], or_alone: bool = False) -> _Sent:
    if not values:
        return _Sent((statement, ()), [], [], or_alone)
    data, types, formats = zip(*map(_dumped, values), strict=True)
    return _Sent((statement, types), list(data), list(formats), or_alone)


def _dumped(value: object) -> tuple[Any, int, int]:
    """A value as it is sent, its type where that is certain, and 1 where its form is binary."""
    if isinstance(value, str):
        return encoded(value), 0, 0
    if value is None:
        return None, 0, 0
    if isinstance(value, Column):
        return value, value.oid, 1
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value, 17, 1
    if isinstance(value, int):  # also yes and no, which are numbers here
        return b"%d" % value, 20, 0
    if isinstance(value, float):
        return repr(value).encode(), 701, 0
    raise TypeError(f"A {type(value).__name__} cannot be written to PostgreSQL")


class Rows:
    """`Cursor` over the rows of a statement, which are all there already."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        """The next row; None when there is none."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows
