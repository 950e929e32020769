"""The contract of a connection that the shared queries run on. Owns what they may use of it; opens nothing.

Statements are written in the SQL that SQLite and PostgreSQL have in common, with `?` or `?1` for values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol


class Cursor(Protocol):
    """The rows that a statement found."""

    def fetchone(self) -> Any:
        """The next row; None when there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside of a transaction, which belongs to the code that lets a job run on it.

    As a context manager it is a savepoint: an exception undoes what the block did.
    """

    @property
    def has_bundles(self) -> bool:
        """True where the intents of a batch may be in one row, which writers untie first."""
        ...

    @property
    def conflict(self) -> type[Exception]:
        """What a statement raises that breaks a constraint, such as that of a primary key."""
        ...

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each of these rows of values."""
        ...

    def changes(self) -> int:
        """How many rows the last statement changed."""
        ...

    def total_changes(self) -> int:
        """How many rows were changed since the connection was opened."""
        ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...
