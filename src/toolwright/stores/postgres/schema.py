"""The schema of a store in PostgreSQL. Owns making it, checking it, and bringing an older one up to date.

A new schema gets `schema.sql` at once. An older one goes through the files of `migrations`, in the order of their
versions. All of it happens in one transaction, by whoever opens the store first and may create tables.
"""

from __future__ import annotations

import secrets
from importlib.resources import files

from psycopg import sql

from toolwright.errors import StoreError
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.sql.codec import one

VERSION = 1
"""The version of the schema this code writes."""
_HERE = files("toolwright.stores.postgres")


def bring_up_to_date(connection: PostgresConnection, address: Address) -> None:
    """Give a store the schema of this version, inside the transaction of the caller: all of it, or nothing.

    Raises:
        StoreError: the schema is another program's or a newer toolwright's, or an older one has it open.
    """
    version = find_version(connection, address)
    if version == VERSION:
        return
    if version is None:
        _require_empty(connection, address)
        # Asked first: a role that may only use an existing schema must not need the right to create one.
        if one(connection, "SELECT 1 FROM pg_namespace WHERE nspname = ?", (address.schema,)) is None:
            connection.raw.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.schema)))
        connection.raw.execute(_HERE.joinpath("schema.sql").read_text("utf-8"))
        connection.execute("INSERT INTO toolwright_schema (version) VALUES (?)", (VERSION,))
        connection.execute("INSERT INTO meta (name, value) VALUES ('secret', ?)", (secrets.token_bytes(32),))
        return
    if one(connection, "SELECT count(*) FROM owners WHERE until > clock_timestamp()"):
        raise StoreError(
            f"The store {address.shown!r} is of an older version (schema {version}, this one knows {VERSION}), and a "
            "program has it open; end that first, and it is brought up to date"
        )
    for number, statements in _migrations():
        if number > version:
            connection.raw.execute(statements)
    connection.execute("UPDATE toolwright_schema SET version = ?", (VERSION,))


def find_version(connection: PostgresConnection, address: Address) -> int | None:
    """The version of a schema, which is not newer than this code; None where nothing of ours is there.

    Raises:
        StoreError: it is a newer toolwright's.
    """
    table = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'toolwright_schema'"
    if one(connection, table, (address.schema,)) is None:
        return None
    version = int(one(connection, "SELECT version FROM toolwright_schema"))
    if version > VERSION:
        raise StoreError(
            f"The store {address.shown!r} was written by a newer toolwright (schema {version}, this one knows "
            f"{VERSION}); upgrade toolwright"
        )
    return version


def require_current(connection: PostgresConnection, address: Address) -> None:
    """Refuse a store that is not there, or of another version.

    Raises:
        StoreError: it is.
    """
    version = find_version(connection, address)
    if version is None:
        raise StoreError(
            f"There is no store {address.shown!r}: the schema {address.schema!r} is not there, or not ours"
            "; check the URL"
        )
    if version < VERSION:
        raise StoreError(
            f"The store {address.shown!r} was written by an older toolwright (schema {version}, this one knows "
            f"{VERSION}); open it with a runtime once, or run `toolwright db migrate`; it is brought up to date"
        )


def _require_empty(connection: PostgresConnection, address: Address) -> None:
    query = (
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = ? AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY relname LIMIT 1"
    )
    found = one(connection, query, (address.schema,))
    if found is not None:
        raise StoreError(
            f"The store {address.shown!r} cannot be opened: the schema {address.schema!r} belongs to another program "
            f"(it has {found!r}); name another by ?schema=…"
        )


def _migrations() -> list[tuple[int, str]]:
    """The version that each migration leads to, and its statements, in order."""
    folder = _HERE.joinpath("migrations")
    found = [file for file in folder.iterdir() if file.name.endswith(".sql")] if folder.is_dir() else []
    return sorted((int(file.name.partition("_")[0]), file.read_text("utf-8")) for file in found)
