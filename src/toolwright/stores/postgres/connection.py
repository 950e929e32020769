"""A connection to PostgreSQL that the shared queries run on. Owns running statements; others own transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import psycopg
from psycopg import RawCursor

from toolwright.stores.postgres.dialect import rewritten
from toolwright.stores.postgres.values import register

PREPARE_AFTER = 3
"""How often a statement is run before the server keeps its plan."""


class PostgresConnection:
    """`Connection` of the shared queries over psycopg. It is used by one thread at a time."""

    has_bundles: ClassVar[bool] = False
    conflict: ClassVar[type[Exception]] = psycopg.IntegrityError

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        register(raw)
        raw.prepare_threshold = PREPARE_AFTER
        self.raw = raw
        self._changes = 0
        self._total = 0
        self._depth = 0

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a shared statement."""
        query = rewritten(statement)
        return self.run(query.text_for(values), query.bind(values))

    def run(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Run a statement in the words of PostgreSQL."""
        cursor = RawCursor(self.raw)
        cursor.execute(statement.encode(), values, binary=True)
        self._count(cursor)
        return Rows(cursor)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a shared statement for each of these rows of values, without waiting for each."""
        query = rewritten(statement)
        every = [query.bind(row) for row in rows]
        if every:
            cursor = RawCursor(self.raw)
            cursor.executemany(query.text_for(every[0]).encode(), every)
            self._count(cursor)

    def _count(self, cursor: RawCursor[Any]) -> None:
        # A SELECT counts the rows that it found.
        changed = cursor.rowcount if cursor.statusmessage and not cursor.statusmessage.startswith("SELECT") else 0
        self._changes = max(0, changed)
        self._total += self._changes

    def changes(self) -> int:
        """How many rows the last statement changed."""
        return self._changes

    def total_changes(self) -> int:
        """How many rows were changed since the connection was opened."""
        return self._total

    def __enter__(self) -> Self:
        self._depth += 1
        self.raw.execute(f"SAVEPOINT s{self._depth}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        name = f"s{self._depth}"
        self._depth -= 1
        if kind is None:
            self.raw.execute(f"RELEASE {name}")
        elif not self.raw.closed:
            self.raw.execute(f"ROLLBACK TO {name}")

    def reset(self) -> None:
        """Forget the savepoints of a transaction that ended."""
        self._depth = 0


class Rows:
    """`Cursor` over the rows of a statement, which are all there already."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: RawCursor[Any]) -> None:
        self._cursor = cursor

    def fetchone(self) -> Any:
        """The next row; None when there is none."""
        return self._cursor.fetchone() if self._cursor.description is not None else None

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return self._cursor.fetchall() if self._cursor.description is not None else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())
