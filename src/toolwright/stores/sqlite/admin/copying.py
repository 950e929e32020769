"""A SQLite file as one end of a copy. Owns holding the file, reading it in pages, and filling a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from toolwright.errors import StoreDamaged, StoreError
from toolwright.private_files import make_if_missing
from toolwright.stores.contracts.copying import CopyTable, Row
from toolwright.stores.sql.admin.copying import (
    NOT_COPIED,
    STATE,
    CopyState,
    TableForm,
    has_records,
    is_open,
    is_other,
    quoted,
    store_id_of,
)
from toolwright.stores.sql.codec import insert, one
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.faults import reason, store_error
from toolwright.stores.sqlite.core.owners import sweep
from toolwright.stores.sqlite.core.schema import (
    APPLICATION,
    VERSION,
    bring_up_to_date,
    is_empty,
    read_marks,
    require_current,
    secret_of,
)
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer import BUSY

_ROWIDS = ("calls", "processes")
"""Tables whose hidden numbers are content: the order in which their rows came."""
_SIGNALS = "signals"
_COUNTERS = (
    "(SELECT name, value FROM meta WHERE typeof(value) = 'integer' UNION ALL SELECT 'signals',"
    " coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'signals'), 0))"
)
_META = f"(SELECT name, value FROM meta WHERE typeof(value) <> 'integer' AND name <> '{STATE}')"
_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "REAL": float, "BLOB": bytes}


class SqliteCopyDatabase:
    """`CopyDatabase` in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._place = StorePlace(path)
        self._opened: SqliteConnection | None = None
        self._types: dict[str, tuple[type, ...]] = {}
        self.forms: dict[str, TableForm] = {}

    def hold_source(self) -> str:
        path = self._place.path
        if not path.exists():
            raise StoreError(f"There is no store {str(path)!r}; check the path")
        self._place.require_one_name()
        return self._hold_whole(self._connect(apsw.SQLITE_OPEN_READWRITE))

    def hold_target(self, store_id: str) -> CopyState | None:
        place, shown = self._place, str(self._place.path)
        place.require_own_name()
        place.require_one_name()
        with suppress(OSError):  # SQLite explains better why the path is unusable
            make_if_missing(place.path)
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        new, (application, version) = is_empty(connection), read_marks(connection)
        whole = not new and (application != APPLICATION or version >= 0)
        if whole:
            if self._hold_whole(connection) == store_id:
                return None
            connection.execute("ROLLBACK")
        self._require_unused()
        # Triggers would count and note what the rows that are copied have counted and noted already.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")  # until it is finished
        with self.transaction():
            if whole and has_records(self):
                raise is_other(shown, "move it away")
            if new or whole:
                self._begin(store_id)
            data = one(connection, "SELECT value FROM meta WHERE name = ?", (STATE,))
            if read_marks(connection)[1] != -VERSION or data is None:
                raise is_other(shown, "it was begun by another version of toolwright: remove it")
        state = CopyState.unpack(bytes(data))
        if state.store_id != store_id:
            raise is_other(shown, "it is the unfinished copy of another store: remove it, or finish that")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self._read_schema()
        return state

    def count(self, relation: str) -> int:
        return int(one(self._connection, f"SELECT count(*) FROM {relation} AS r"))

    def rows(self, query: str, values: Row, table: CopyTable) -> Iterator[Row]:
        types = self._types[table.name]
        for row in self._connection.execute(query, values):
            yield tuple(
                value if value is None or isinstance(value, type) else self._typed(table, name, value, type)
                for name, value, type in zip(table.columns, row, types, strict=True)
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def write(self, table: CopyTable, rows: Sequence[Row]) -> None:
        execute = self._connection.execute
        if table.name != "counters":
            self._connection.executemany(insert(quoted(table.name), map(quoted, table.columns)), rows)
            return
        for name, value in rows:
            if name == _SIGNALS:
                execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, value))
            else:
                execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))

    def clear(self, table: CopyTable) -> None:
        execute = self._connection.execute
        if table.name == "counters":
            execute("DELETE FROM meta WHERE typeof(value) = 'integer'")
            execute("DELETE FROM sqlite_sequence WHERE name = ?", (_SIGNALS,))
        elif table.name == "meta":
            execute("DELETE FROM meta WHERE typeof(value) <> 'integer' AND name <> ?", (STATE,))
        else:
            execute(f"DELETE FROM {quoted(table.name)}")

    def keep(self, state: CopyState) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (STATE, state.pack()))

    def finish(self) -> None:
        self._connection.execute("PRAGMA synchronous = FULL")
        with self.transaction():
            self._connection.execute("DELETE FROM meta WHERE name = ?", (STATE,))
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def faults(self) -> Iterator[None]:
        path = self._place.path
        try:
            yield
        except apsw.Error as error:
            raise store_error(f"The store {str(path)!r} cannot be used: {reason(path, error)}", error) from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"The store {str(path)!r} cannot hold a text of the source that has half a character; remove that "
                "record from the source"
            ) from error

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close(True)  # also in the middle of a transaction, which is undone
        self._place.close()

    @property
    def _connection(self) -> SqliteConnection:
        assert self._opened is not None
        return self._opened

    def _connect(self, flags: int) -> SqliteConnection:
        self._opened = SqliteConnection(str(self._place.path), flags)
        self._opened.set_busy_timeout(BUSY)
        return self._opened

    def _hold_whole(self, connection: SqliteConnection) -> str:
        """Hold a store that is whole: a program that opens it has to write, and waits for this transaction."""
        require_current(connection, self._place.path)
        connection.execute("BEGIN IMMEDIATE")
        self._require_unused()
        self._read_schema()
        return store_id_of(secret_of(connection))

    def _begin(self, store_id: str) -> None:
        """Make a store without any content, which cannot be opened."""
        bring_up_to_date(self._connection, self._place)
        self._read_schema()
        for form in self.forms.values():
            self.clear(form.table)
        self.keep(CopyState(store_id, {}))
        self._connection.execute(f"PRAGMA user_version = {-VERSION}")

    def _require_unused(self) -> None:
        if sweep(self._place):
            raise is_open(str(self._place.path))

    def _read_schema(self) -> None:
        for form, types in _forms(self._connection):
            self.forms[form.table.name] = form
            self._types[form.table.name] = types

    def _typed(self, table: CopyTable, column: str, value: object, wanted: type) -> object:
        """A value in the type of its column: a column of SQLite holds any."""
        if wanted is bytes and isinstance(value, str):
            return value.encode()
        raise StoreDamaged(
            f"The store {str(self._place.path)!r} is damaged: the column {column!r} of {table.name!r} has a "
            f"{type(value).__name__}; restore it from a copy"
        )


def _forms(connection: SqliteConnection) -> Iterator[tuple[TableForm, tuple[type, ...]]]:
    """The tables of the schema, as they are copied, with the types of their columns."""
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    for name in [str(row[0]) for row in connection.execute(names)]:
        if name in NOT_COPIED or name.startswith("sqlite_"):  # such as the statistics of ANALYZE
            continue
        found: Any = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        kinds = {column: kind for column, kind, _ in found}
        key = [column for column, _, place in sorted(found, key=lambda each: each[2]) if place]
        relations: tuple[str, ...] = ()
        expressions: dict[str, str] = {}
        if name in _ROWIDS:
            kinds["rowid"] = "INTEGER"
        if name == "calls":
            relations = ("calls", _bundled(kinds))
        elif name == "meta":
            relations, kinds["value"] = (_META,), "BLOB"
            counters = TableForm.of("counters", ("name", "value"), ("name",), (_COUNTERS,))
            yield counters, (_TYPES["TEXT"], _TYPES["INTEGER"])
        elif name == "events":
            # Numbers and texts, which other databases cannot have in one column.
            expressions = {column: f"CAST({column} AS TEXT)" for column in ("subject", "detail")}
            kinds |= dict.fromkeys(expressions, "TEXT")
        form = TableForm.of(name, kinds, key, relations, expressions)
        yield form, tuple(_TYPES[kinds[column]] for column in form.table.columns)


def _bundled(columns: Mapping[str, str]) -> str:
    """The calls of bundles, with the numbers that they would get now if they were untied."""
    listed = ", ".join(quoted(name) for name in columns if name != "rowid")
    number = "(SELECT coalesce(max(rowid), 0) FROM calls) + row_number() OVER (ORDER BY session, scope, position)"
    return f"(SELECT {number} AS rowid, {listed} FROM bundled_calls)"
