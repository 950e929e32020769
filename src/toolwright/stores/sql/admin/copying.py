"""What the ends of a copy have in common in a SQL store. Owns which tables are content, and reading them in pages.

The list of the tables is the schema itself. A table or column that is not copied, or not as it is, is named here.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from toolwright.errors import StoreError
from toolwright.stores.contracts.copying import CopyPage, CopyTable, Row, packed_row, unpacked_row

T = TypeVar("T")
NOT_COPIED = {
    "owners": "the processes that have the store open, and there are none",
    "commits": "the last transactions of these processes",
    "server_starts": "the start of the server that has the store",
    "workers": "the workers of these processes; a run of one that ended is taken over",
    "bundles": "intents of SQLite in another form; they are copied as calls",
    "toolwright_schema": "the version, which each store has of its own",
    "sqlite_sequence": "numbers of SQLite, which are copied as counters",
}
"""The tables that are no content, and why."""
EXPRESSIONS = {
    # By a clock of the store, which means nothing elsewhere. The lease is over, as when its worker died.
    ("processes", "lease_until"): "lease_until * 0",
}
"""Columns that are not copied as they are."""
KEYS = {"calls": ("rowid",)}
"""The order of a table that is not read in that of its primary key."""
STATE = "copy"
"""The name of the row of `meta` that has the state of an unfinished copy."""
MOST_ROWS = 1_000
MOST_BYTES = 1024 * 1024
"""When a page is full: at least one row is in it."""


class CopyState(Struct, frozen=True):
    """An unfinished copy: the store that it is of, and how far each table is copied."""

    store_id: str
    positions: dict[str, bytes]

    def after(self, table: CopyTable, position: bytes | None) -> CopyState:
        """The state after a page, or without one."""
        others = {name: where for name, where in self.positions.items() if name != table.name}
        return CopyState(self.store_id, others if position is None else {**others, table.name: position})

    def pack(self) -> bytes:
        """The state as the store keeps it."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> CopyState:
        """The state that a store kept."""
        return msgspec.msgpack.decode(data, type=cls)


class TableForm(Struct, frozen=True):
    """How a table is read. Its `relations` are read one after the other, each in the order of the key."""

    table: CopyTable
    key: tuple[str, ...]
    relations: tuple[str, ...]
    expressions: Mapping[str, str] = {}

    @classmethod
    def of(
        cls,
        name: str,
        columns: Iterable[str],
        key: Sequence[str],
        relations: tuple[str, ...] = (),
        expressions: Mapping[str, str] | None = None,
    ) -> TableForm:
        """The form of a table of the schema."""
        shared = {column: text for (table, column), text in EXPRESSIONS.items() if table == name}
        # In one order, since columns that were added later are not in the same place in every schema.
        table = CopyTable(name, tuple(sorted(columns)))
        return cls(table, KEYS.get(name, tuple(key)), relations or (quoted(name),), shared | dict(expressions or {}))

    def queries(self, after: bytes | None) -> list[tuple[str, Row]]:
        """The queries that find the rows after a position, with their values."""
        listed = ", ".join(
            f"{self.expressions[name]} AS {quoted(name)}" if name in self.expressions else quoted(name)
            for name in self.table.columns
        )
        key = ", ".join(map(quoted, self.key))
        values = () if after is None else unpacked_row(after)
        where = f" WHERE ({key}) > ({', '.join('?' * len(values))})" if values else ""
        return [(f"SELECT {listed} FROM {name} AS r{where} ORDER BY {key}", values) for name in self.relations]

    def position(self, row: Row) -> bytes:
        """The position after a row."""
        return packed_row(tuple(row[self.table.columns.index(name)] for name in self.key))


class CopyDatabase(Protocol):
    """The database at one end of a copy. Its verbs are called on one thread, one after the other."""

    @property
    def forms(self) -> Mapping[str, TableForm]:
        """Its tables by their names."""
        ...

    def hold_source(self) -> str:
        """Let no other program open the store, and return the name of its content."""
        ...

    def hold_target(self, store_id: str) -> CopyState | None:
        """The same for the copy of a store, which is made where nothing is; return its state, or None if it is whole.

        Raises:
            StoreError: something else is there.
        """
        ...

    def count(self, relation: str) -> int:
        """How many rows are found in a relation."""
        ...

    def rows(self, query: str, values: Row, table: CopyTable) -> Iterator[Row]:
        """The rows of a query, read one by one."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction that writes."""
        ...

    def write(self, table: CopyTable, rows: Sequence[Row]) -> None:
        """Write rows, inside of a transaction."""
        ...

    def clear(self, table: CopyTable) -> None:
        """Remove all rows, inside of a transaction."""
        ...

    def keep(self, state: CopyState) -> None:
        """Write the state, inside of a transaction."""
        ...

    def finish(self) -> None:
        """Make it a store that can be opened."""
        ...

    def faults(self) -> AbstractContextManager[object]:
        """Turns errors of the database into those of a store."""
        ...

    def close(self) -> None:
        """Let other programs open the store again."""
        ...


class SqlCopy:
    """`CopyTarget` in a SQL store, on a thread of its own; a source is one that is finished."""

    def __init__(self, database: CopyDatabase) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="toolwright-copy")
        self._state: CopyState | None = None
        self.store_id = ""

    @classmethod
    async def source(cls, database: CopyDatabase) -> SqlCopy:
        """Hold a store, to read it whole."""
        end = cls(database)
        async with end._closed_on_error():
            end.store_id = await end._do(database.hold_source)
        return end

    @classmethod
    async def target(cls, database: CopyDatabase, store_id: str) -> SqlCopy:
        """Hold the copy of a store, or make one."""
        end = cls(database)
        async with end._closed_on_error():
            end._state = await end._do(lambda: database.hold_target(store_id))
        end.store_id = store_id
        return end

    @property
    def tables(self) -> list[CopyTable]:
        return [form.table for form in self._database.forms.values()]

    @property
    def finished(self) -> bool:
        return self._state is None

    @property
    def positions(self) -> Mapping[str, bytes]:
        return {} if self._state is None else self._state.positions

    async def count(self, table: CopyTable) -> int:
        relations = self._database.forms[table.name].relations
        return await self._do(lambda: sum(map(self._database.count, relations)))

    async def pages(self, table: CopyTable, after: bytes | None = None) -> AsyncIterator[CopyPage]:
        form = self._database.forms[table.name]
        rows = itertools.chain.from_iterable(
            self._database.rows(query, values, table) for query, values in form.queries(after)
        )
        while page := await self._do(lambda: _take(rows)):
            yield CopyPage(page, form.position(page[-1]))

    async def write(self, table: CopyTable, page: CopyPage) -> None:
        await self._change(table, page.position, lambda: self._database.write(table, page.rows))

    async def clear(self, table: CopyTable) -> None:
        await self._change(table, None, lambda: self._database.clear(table))

    async def finish(self) -> None:
        await self._do(self._database.finish)
        self._state = None

    async def close(self) -> None:
        try:
            await asyncio.shield(self._do(self._database.close))
        finally:
            self._pool.shutdown(wait=False)

    async def _change(self, table: CopyTable, position: bytes | None, work: Callable[[], None]) -> None:
        assert self._state is not None, "it is finished"
        state = self._state.after(table, position)

        def change() -> None:
            with self._database.transaction():
                work()
                self._database.keep(state)

        await self._do(change)
        self._state = state

    async def _do(self, work: Callable[[], T]) -> T:
        """Do some work on the thread, after all that was asked for before, also if that was cancelled meanwhile."""

        def on_thread() -> T:
            with self._database.faults():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._pool, on_thread)

    @asynccontextmanager
    async def _closed_on_error(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.close()
            raise


def _take(rows: Iterator[Row]) -> list[Row]:
    page: list[Row] = []
    size = 0
    for row in itertools.islice(rows, MOST_ROWS):
        page.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size >= MOST_BYTES:
            break
    return page


def quoted(name: str) -> str:
    """A name of the schema in a statement."""
    return f'"{name}"'


def store_id_of(secret: bytes) -> str:
    """The name of a store, made of the secret that signs its keys, which cannot be derived from it."""
    return hashlib.sha256(b"toolwright copy\0" + secret).hexdigest()


def has_records(database: CopyDatabase) -> bool:
    """True when something was kept in a store; to open it writes its secret and its counters, and no more."""
    contents = [form for name, form in database.forms.items() if name not in ("meta", "counters")]
    some = (f"(SELECT 1 FROM {relation} AS o LIMIT 1)" for form in contents for relation in form.relations)
    return any(map(database.count, some))


def is_open(shown: str, programs: str = "a program", *, note: str = "") -> StoreError:
    """The error for a store that a program has open."""
    return StoreError(f"The store {shown!r} cannot be copied from or to: {programs} has it open; end that first{note}")


def is_other(shown: str, remedy: str) -> StoreError:
    """The error for a target that has something else."""
    return StoreError(f"The store {shown!r} is not a copy of the source; {remedy}, or name another target")


def unfinished_copy(shown: str) -> str:
    """Why a copy that was cut off cannot be opened."""
    return (
        f"The store {shown!r} is the unfinished copy of another store; run `toolwright db copy` again to finish it, or "
        "remove it"
    )
