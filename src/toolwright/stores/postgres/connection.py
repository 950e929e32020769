"""A connection to PostgreSQL that the shared queries run on. Owns running statements; others own transactions.

Statements go to libpq as psycopg wraps it, and not through its cursors: a statement of one row costs a third of the
processor time so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

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


class NeedsAlone(Exception):
    """The transaction must be repeated while no other program writes."""


class PostgresConnection:
    """`Connection` of the shared queries over psycopg. It is used by one thread at a time.

    `alone` is True in a transaction in which no other program writes.
    """

    has_bundles: ClassVar[bool] = False
    conflict: ClassVar[type[Exception]] = psycopg.IntegrityError

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        register(raw)
        raw.prepare_threshold = PREPARE_AFTER
        self.raw = raw
        self.alone = False
        self._loaders = Transformer(raw)
        self._uses: dict[tuple[str, tuple[int, ...]], int | bytes] = {}
        self._changes = 0
        self._total = 0
        self._depth = 0

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a shared statement."""
        query = rewritten(statement)
        return self.run(query.text_for(values), query.bind(values))

    def run(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Run a statement in the words of PostgreSQL."""
        dumped = [_dumped(value) for value in values]
        result = self._send(statement, dumped)
        status = result.status
        if status not in _FINE:
            raise errors.error_from_result(result)
        if status == ExecStatus.COMMAND_OK:
            self._count(result)
            return Rows([])
        # A statement that returns what it wrote counts, too; a SELECT does not.
        self._count(result)
        self._loaders.set_pgresult(result)
        return Rows(self._loaders.load_rows(0, result.ntuples, tuple))

    def _send(self, statement: str, values: list[tuple[Any, int, int]]) -> PGresult:
        """Run a statement with values, their types and formats; one that is run often is prepared."""
        data = [value for value, _, _ in values]
        formats = [format for _, _, format in values]
        types = tuple(type for _, type, _ in values)
        connection, key = self.raw.pgconn, (statement, types)
        uses = self._uses.get(key, 0)
        if isinstance(uses, int):
            uses += 1
            if uses < PREPARE_AFTER or len(self._uses) > MOST_PREPARED:
                if len(self._uses) <= MOST_PREPARED:
                    self._uses[key] = uses
                return connection.exec_params(statement.encode(), data, types, formats, 1)
            name = f"t{len(self._uses)}_{abs(hash(key)):x}".encode()
            prepared = connection.prepare(name, statement.encode(), types)
            if prepared.status != ExecStatus.COMMAND_OK:
                return prepared
            self._uses[key] = uses = name
        return connection.exec_prepared(uses, data, formats, 1)

    def _count(self, result: PGresult) -> None:
        verb = result.command_status or b""
        self._changes = 0 if verb.startswith(b"SELECT") else result.command_tuples or 0
        self._total += self._changes

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a shared statement for each of these rows of values, without waiting for each."""
        query = rewritten(statement)
        every = [query.bind(row) for row in rows]
        if every:
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
        result = self.raw.pgconn.exec_(statements.encode())
        if result.status not in _FINE:
            raise errors.error_from_result(result)

    def __enter__(self) -> Self:
        self._depth += 1
        self.command(f"SAVEPOINT s{self._depth}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        name = f"s{self._depth}"
        self._depth -= 1
        if kind is None:
            self.command(f"RELEASE {name}")
        elif not self.raw.closed:
            self.command(f"ROLLBACK TO {name}")

    def reset(self) -> None:
        """Forget the savepoints of a transaction that ended."""
        self._depth = 0


def _dumped(value: Any) -> tuple[Any, int, int]:
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
