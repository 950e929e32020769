"""Where a PostgreSQL store is. Owns reading its URL, connecting to the server, and the name that errors show.

`postgresql://user@host:5432/database?schema=name` and what else libpq knows, such as several hosts and `sslmode`. Each
store has a schema of its own, so that several fit into one database.
"""

from __future__ import annotations

import hashlib
import os
import re
import weakref
from typing import Any
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import sql

from toolwright.errors import StoreError
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.faults import cannot_connect

SCHEMA = "toolwright"
"""The schema of a store whose URL names none."""
LONGEST_NAME = 63
"""The most bytes of a name in PostgreSQL."""
OLDEST = 140_000
"""The oldest server that can be used, as it counts its versions."""
CONNECT = 10
"""Seconds that connecting to one host may take."""
_PASSWORD = re.compile(r"(?<=://)[^/@]*@|(?<=[?&])(password|sslpassword)=[^&]*")
# A connection that nobody answers on is given up after about 15 seconds.
_KEEPALIVE = {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "4", "tcp_user_timeout": "15000"}
_SETTINGS = {
    "client_encoding": "UTF8",
    # A program that is stopped in the middle of a transaction must not block the others for ever.
    "idle_in_transaction_session_timeout": "15s",
    "lock_timeout": "30s",
    "statement_timeout": "0",
    "default_transaction_isolation": "read committed",
    "bytea_output": "hex",
    "timezone": "UTC",
    # The statements are few, and each finds its rows by an index that was made for it. Planning them again and again
    # costs more than running them; and a plan of the time when a table was small must not read all of it later.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}


class Address:
    """The server, the database and the schema of a store."""

    def __init__(self, url: str) -> None:
        given, _, query = url.partition("?")
        try:
            options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
            self.schema = options.pop("schema", SCHEMA)
            rest = f"?{urlencode(options)}" if options else ""
            self._parts: dict[str, Any] = {**_KEEPALIVE, **psycopg.conninfo.conninfo_to_dict(given + rest)}
        except (ValueError, psycopg.Error) as error:
            raise StoreError(
                f"The store {without_password(url)!r} is not usable: {str(error).strip() or 'it is no such URL'}; "
                "write postgresql://user@host/database"
            ) from error
        if not self.schema or "\0" in self.schema or len(self.schema.encode("utf-8", "replace")) > LONGEST_NAME:
            raise StoreError(
                f"The schema {self.schema!r:.100} is not usable; use a name of at most {LONGEST_NAME} bytes"
            )
        self._parts.setdefault("connect_timeout", str(CONNECT))
        self._parts.setdefault("application_name", "toolwright")
        if "," in str(self._parts.get("host", "")):
            # Of several hosts, the one that can be written to.
            self._parts.setdefault("target_session_attrs", "read-write")
        self.url = url
        self.shown = without_password(url)

    def lock_key(self, name: str) -> int:
        """The number of an advisory lock of this store: those of other schemas and programs are others."""
        digest = hashlib.sha256(f"toolwright\0{self.schema}\0{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def connect(self) -> PostgresConnection:
        """A new connection, whose names are those of the schema.

        Raises:
            StoreUnavailable: the server cannot be reached, or takes no connections now.
            StoreError: it refuses this program.
        """
        try:
            raw = psycopg.connect(**self._parts, autocommit=True)
        except psycopg.Error as error:
            raise cannot_connect(self.shown, error) from error
        try:
            if raw.info.server_version < OLDEST:
                raise StoreError(
                    f"The store {self.shown!r} is on PostgreSQL {raw.info.server_version // 10_000}; version 14 is the "
                    "oldest that can be used"
                )
            settings = sql.SQL("; ").join(
                sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
                for name, value in _SETTINGS.items()
            )
            raw.execute(settings + sql.SQL("; SET search_path = {}").format(sql.Identifier(self.schema)))
        except psycopg.Error as error:
            raw.close()
            raise cannot_connect(self.shown, error) from error
        except BaseException:
            raw.close()
            raise
        _connections.add(raw)
        return PostgresConnection(raw)


def without_password(url: str) -> str:
    """A URL that may be shown."""
    return _PASSWORD.sub(lambda found: "…@" if found.group().endswith("@") else f"{found.group(1)}=…", url)


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
