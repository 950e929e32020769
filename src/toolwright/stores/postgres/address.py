"""Where a PostgreSQL store is. Owns reading its URL, connecting to the server, and the name that errors show.

`postgresql://user@host:5432/database?schema=name` and what else libpq knows, such as several hosts and `sslmode`. Each
store has a schema of its own, so that several fit into one database.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import weakref
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import sql

from toolwright.errors import StoreError
from toolwright.stores.contracts.scheme import SECRET_OPTIONS, without_password
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import POOLER, cannot_open

SCHEMA = "toolwright"
"""The schema of a store whose URL names none."""
LONGEST_NAME = 63
"""The most bytes of a name in PostgreSQL."""
OLDEST = 140_000
"""The oldest server that can be used, as it counts its versions."""
CONNECT = 10
"""Seconds that connecting to one host may take."""
POOL_CHECKS = 5
"""How often a connection is tested that seems to come from a pooler."""
_USER = re.compile(r"[^@/]*@")
# A connection without answers is given up after about 15 seconds.
_KEEPALIVE = {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "4", "tcp_user_timeout": "15000"}
_SETTINGS = {
    # A program that is stopped in the middle of a transaction must not block the others for ever.
    "idle_in_transaction_session_timeout": "15s",
    "lock_timeout": "30s",
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    # The server, too, gives up a connection without answers: it may hold the lock of a machine that lost its power.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "15s",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "timezone": "UTC",
    # The statements are few, and each finds its rows by an index that was made for it. Planning them again and again
    # costs more than running them; and a plan of the time when a table was small must not read all of it later.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}
_SINCE_17 = {"transaction_timeout": "0"}
# Acknowledged writes must be on the disk; a writer that needs less says so in its transaction.
_SYNCED = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
_STARTED = "SELECT extract(epoch FROM pg_postmaster_start_time())::float8"


class Address:
    """The server, the database and the schema of a store."""

    def __init__(self, url: str) -> None:
        self.url, self.shown = url, without_password(url)
        scheme, _, rest = url.partition("://")
        found = _USER.match(rest)
        user, rest = (found.group()[:-1], rest[found.end() :]) if found else ("", rest)
        place, _, query = rest.partition("?")
        if "@" in place:
            raise self._unusable(
                "a character of the user or the password is not encoded", "write @ as %40, / as %2F, ? as %3F, % as %25"
            )
        hidden = dict(zip(("user", "password"), user.split(":", 1), strict=False))
        options, self.schema = [], SCHEMA
        for piece in filter(None, query.split("&")):
            name, _, value = piece.partition("=")
            if name == "schema":
                self.schema = self._decoded(value)
            elif unquote(name) in SECRET_OPTIONS:
                hidden[unquote(name)] = value
            else:
                options.append(piece)
        try:
            # Without what must not be shown, which libpq would repeat in its errors.
            shown = f"{scheme.lower()}://{place}{'?' if options else ''}{'&'.join(options)}"
            given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(shown)
        except psycopg.Error as error:
            raise self._unusable(str(error).strip(), "write postgresql://user@host/database") from error
        given |= {name: self._decoded(value) for name, value in hidden.items() if value}
        if not self.schema or "\0" in self.schema or len(self.schema.encode("utf-8", "replace")) > LONGEST_NAME:
            raise StoreError(
                f"The schema {self.schema!r:.100} is not usable; use a name of at most {LONGEST_NAME} bytes"
            )
        defaults = {**_KEEPALIVE, "connect_timeout": str(CONNECT), "application_name": "toolwright"}
        if "," in str(given.get("host", "")):
            # Of several hosts, the one that can be written to.
            defaults["target_session_attrs"] = "read-write"
        self._parts = {**defaults, **given, "client_encoding": "UTF8"}
        self._pooled = False
        self._open: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
        self._lock = threading.Lock()

    def _decoded(self, text: str) -> str:
        try:
            decoded = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise self._unusable("a part of it is not UTF-8", "encode its bytes as %XX") from None
        if "\0" in decoded:
            raise self._unusable("a part of it has the character U+0000", "leave that out")
        return decoded

    def _unusable(self, reason: str, remedy: str) -> StoreError:
        return StoreError(f"The store {self.shown!r} is not usable: {reason}; {remedy}")

    def lock_key(self, name: str) -> int:
        """The number of an advisory lock of this store: those of other schemas and programs are others."""
        digest = hashlib.sha256(f"toolwright\0{self.schema}\0{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def connect(self, *, plan_for_values: bool = False, patience: float | None = None) -> PostgresConnection:
        """A new connection, whose names are those of the schema.

        With `plan_for_values`, a statement is planned for the values it is run with: for lists, whose filters may
        match a few rows or most. With `patience`, it is given up after so many seconds in which nobody answers.

        Raises:
            StoreUnavailable: the server cannot be reached, or takes no connections now.
            StoreError: it refuses this program, or cannot be used.
        """
        parts = self._parts if patience is None else {**self._parts, "tcp_user_timeout": str(int(patience * 1_000))}
        try:
            raw = psycopg.connect(**parts, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise cannot_open(self.shown, error) from error
        try:
            version, encoding = raw.info.server_version, raw.info.parameter_status("server_encoding")
            if version < OLDEST:
                raise StoreError(
                    f"The store {self.shown!r} is on PostgreSQL {version // 10_000}; version {OLDEST // 10_000} is the "
                    "oldest that can be used; upgrade the server"
                )
            if encoding != "UTF8":
                raise StoreError(
                    f"The store {self.shown!r} cannot be opened: its database has the encoding {encoding!r}, which "
                    "cannot hold every text; create one with ENCODING 'UTF8'"
                )
            self._require_session(raw)
            settings = {**_SETTINGS, **(_SINCE_17 if version >= 170_000 else {}), "search_path": self.schema}
            if plan_for_values:
                settings["plan_cache_mode"] = "force_custom_plan"
            assignments = [
                sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
                if name != "search_path"
                else sql.SQL("SET search_path = {}").format(sql.Identifier(value))
                for name, value in settings.items()
            ]
            answers = raw.execute(sql.SQL("; ").join([*assignments, sql.SQL(_SYNCED), sql.SQL(_STARTED)]))
            while answers.nextset():
                pass
            ((started,),) = answers.fetchall()
        except psycopg.Error as error:
            raw.close()
            raise cannot_open(self.shown, error) from error
        except BaseException:
            raw.close()
            raise
        _connections.add(raw)
        connection = PostgresConnection(raw, started)
        self._opened(connection)
        return connection

    def _opened(self, connection: PostgresConnection) -> None:
        """Give up the connections to a server that was there before this one: who waits for an answer on one of them
        would learn only after a time-out that the server is gone."""
        with self._lock:
            former = [other for other in self._open if other.server_started != connection.server_started]
            self._open.add(connection)
        for other in former:
            other.abort()

    def _require_session(self, raw: psycopg.Connection[Any]) -> None:
        """Refuse a pooler that gives each transaction another session of the server: settings, locks and `LISTEN`
        would be lost, or reach other programs.

        Nothing was set yet. A pooler makes up the number of its sessions, so that it differs from the server's; then
        another connection occupies the session that is free after a statement.
        """
        if self._pooled or _session(raw) == raw.info.backend_pid:
            return
        with psycopg.connect(**self._parts, prepare_threshold=None) as other:
            for _ in range(POOL_CHECKS):
                before, theirs = _session(raw), _session(other)  # within a transaction, which stays open meanwhile
                if before == theirs or _session(raw) != before:
                    raise StoreError(f"The store {self.shown!r} cannot be opened: {POOLER}")
                other.rollback()
        self._pooled = True


def _session(raw: psycopg.Connection[Any]) -> int:
    row = raw.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


_connections: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()


def _forked() -> None:
    """A fork shares the sockets of its parent, and would let the dead parent look alive."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for raw in list(_connections):
        try:
            if not raw.closed:
                os.dup2(nothing, raw.fileno(), inheritable=False)
        except (OSError, psycopg.Error):
            pass
    os.close(nothing)


os.register_at_fork(after_in_child=_forked)
