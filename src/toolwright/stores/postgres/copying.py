"""A schema of PostgreSQL as one end of a copy. Owns holding it, reading it in pages, and filling a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import LiteralString

import psycopg
from psycopg import RawCursor, errors, sql

from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores.contracts.copying import CopyTable, Row
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.dialect import rewritten
from toolwright.stores.postgres.faults import cannot_open, store_error
from toolwright.stores.postgres.life import GRACE, ServerLiveness, arrive
from toolwright.stores.postgres.schema import VERSION, bring_up_to_date, find_secret, require_current, written_version
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
from toolwright.stores.sql.codec import one, put

_COLUMNS = (
    "SELECT relname, attname, attidentity <> '' FROM pg_class"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace JOIN pg_attribute ON attrelid = pg_class.oid"
    " WHERE nspname = ? AND relkind = 'r' AND attnum > 0 AND NOT attisdropped ORDER BY relname, attnum"
)
_KEYS = (
    "SELECT relname, attname FROM pg_index JOIN pg_class ON pg_class.oid = indrelid"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " CROSS JOIN unnest(indkey::int2[]) WITH ORDINALITY AS part (number, place)"
    " JOIN pg_attribute ON attrelid = indrelid AND attnum = part.number"
    " WHERE nspname = ? AND indisprimary ORDER BY relname, part.place"
)
_META = f"(SELECT name, value FROM meta WHERE name <> '{STATE}')"
PATIENCE = 5
"""Seconds to wait for another program that opens the store, or for the server to notice that a copy was killed."""
BEFORE_EVENTS = 900_000
"""The number before that of the first event of a new store, whose sequence takes steps of 100,000."""


class PostgresCopyDatabase:
    """`CopyDatabase` in one schema of a database."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._opened: PostgresConnection | None = None
        self._numbered: list[tuple[str, str]] = []
        self.forms: dict[str, TableForm] = {}

    def hold_source(self) -> str:
        return self._hold_whole(self._connect())

    def hold_target(self, store_id: str) -> CopyState | None:
        connection, shown = self._connect(), self._address.shown
        version = written_version(connection, self._address)
        whole = version is not None and version >= 0
        if whole:
            if self._hold_whole(connection) == store_id:
                return None
            if has_records(self):
                raise is_other(shown, "drop its schema")
            connection.command("ROLLBACK")  # nobody can open it meanwhile
        connection.command("SET synchronous_commit = off")  # until it is finished
        if version is None or whole:
            with self.transaction():
                self._begin(store_id)
        elif version != -VERSION:
            raise is_other(shown, "it was begun by another version of toolwright: drop its schema")
        state = CopyState.unpack(bytes(one(connection, "SELECT value FROM meta WHERE name = ?", (STATE,))))
        if state.store_id != store_id:
            raise is_other(shown, "it is the unfinished copy of another store: drop its schema, or finish that")
        self._read_schema()
        return state

    def count(self, relation: str) -> int:
        return int(one(self._connection, f"SELECT count(*) FROM {relation} AS r"))

    def rows(self, query: str, values: Row, table: CopyTable) -> Iterator[Row]:
        # Row by row: the library would hold all of them otherwise.
        yield from RawCursor(self._connection.raw).stream(rewritten(query).text, values, binary=True)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self._connection.raw.transaction():
                yield
        except psycopg.Error as error:
            raise store_error(self._address.shown, error) from error

    def write(self, table: CopyTable, rows: Sequence[Row]) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), names)
        try:
            with self._connection.raw.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except errors.ProgramLimitExceeded as error:
            raise StoreError(
                f"The store {self._address.shown!r} cannot hold a record of {table.name!r} that the source has "
                f"({error.diag.message_primary}); remove it from the source, as by `toolwright db prune`"
            ) from error

    def clear(self, table: CopyTable) -> None:
        if table.name == "meta":
            self._connection.execute("DELETE FROM meta WHERE name <> ?", (STATE,))
        else:
            self._run("DELETE FROM {}", table.name)

    def keep(self, state: CopyState) -> None:
        self._connection.execute(put("meta", ("name",), ("value",)), (STATE, state.pack()))

    def finish(self) -> None:
        connection = self._connection
        with self.transaction():
            connection.command("SET LOCAL synchronous_commit = on")
            self._set_triggers("ENABLE")
            for table, column in self._numbered:
                last = one(connection, f"SELECT max({quoted(column)}) FROM {quoted(table)}")
                connection.run("SELECT setval(pg_get_serial_sequence($1, $2), $3::int8)", (table, column, last))
            query = "SELECT setval('event_numbers', greatest(max(number), $1)) FROM events"
            connection.run(query, (BEFORE_EVENTS,))
            connection.execute("DELETE FROM meta WHERE name = ?", (STATE,))
            connection.execute("UPDATE toolwright_schema SET version = ?", (VERSION,))
            for name in self.forms:
                self._run("ANALYZE {}", name)  # the first queries would be planned for empty tables

    @contextmanager
    def faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise cannot_open(self._address.shown, error) from error

    def close(self) -> None:
        if self._opened is not None:
            self._opened.raw.close()

    @property
    def _connection(self) -> PostgresConnection:
        assert self._opened is not None
        return self._opened

    def _connect(self) -> PostgresConnection:
        self._opened = connection = self._address.connect()
        connection.command(f"SET lock_timeout = '{PATIENCE}s'")
        try:
            # A program that opens a store takes this lock, too.
            connection.run("SELECT pg_advisory_lock($1)", (self._address.lock_key("schema"),))
        except errors.LockNotAvailable as error:
            raise StoreUnavailable(
                f"The store {self._address.shown!r} is being opened, migrated or copied by another program; wait, or "
                "end that program"
            ) from error
        connection.command("SET idle_in_transaction_session_timeout = 0")  # the other end may be slow
        return connection

    def _hold_whole(self, connection: PostgresConnection) -> str:
        """Take a store that is whole, as it is at this moment."""
        require_current(connection, self._address)
        self._require_unused(connection)
        connection.command("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._read_schema()
        return store_id_of(find_secret(connection, self._address))

    def _begin(self, store_id: str) -> None:
        """Make a store without any content, which cannot be opened."""
        bring_up_to_date(self._connection, self._address)
        self._read_schema()
        for form in self.forms.values():
            self.clear(form.table)
        # Triggers would count and note what the rows that are copied have counted and noted already.
        self._set_triggers("DISABLE")
        self.keep(CopyState(store_id, {}))
        self._connection.execute("UPDATE toolwright_schema SET version = ?", (-VERSION,))

    def _set_triggers(self, verb: LiteralString) -> None:
        for name in self.forms:
            self._run("ALTER TABLE {} " + verb + " TRIGGER USER", name)

    def _run(self, statement: LiteralString, table: str) -> None:
        self._connection.raw.execute(sql.SQL(statement).format(sql.Identifier(table)))

    def _require_unused(self, connection: PostgresConnection) -> None:
        programs = dict(connection.execute("SELECT name, program FROM owners").fetchall())
        if programs:
            # After a restart of the server they count as alive until it is known for how long the store has been there.
            with suppress(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction):
                arrive(connection)
        dead = ServerLiveness(self._address).dead_among(set(programs), connection)
        alive = sorted(program for name, program in programs.items() if name not in dead)
        if alive:
            note = f"; one that was killed counts as alive for up to {GRACE:.0f} seconds"
            raise is_open(self._address.shown, f"a program ({', '.join(alive)}, host and process)", note=note)

    def _read_schema(self) -> None:
        columns: dict[str, list[str]] = {}
        keys: dict[str, list[str]] = {}
        self._numbered = []
        for table, column, numbered in self._connection.execute(_COLUMNS, (self._address.schema,)):
            columns.setdefault(table, []).append(column)
            if numbered:
                self._numbered.append((table, column))
        for table, column in self._connection.execute(_KEYS, (self._address.schema,)):
            keys.setdefault(table, []).append(column)
        self.forms = {
            name: TableForm.of(name, names, keys[name], (_META,) if name == "meta" else ())
            for name, names in columns.items()
            if name not in NOT_COPIED
        }
