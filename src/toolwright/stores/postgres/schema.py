"""The schema of a store in PostgreSQL. Owns making it, checking it, and bringing an older one up to date.

A new schema gets `schema.sql` at once. An older one goes through the files of `migrations`, in the order of their
versions. All of it happens in one transaction, by the first process that opens the store and may create tables.
"""

from __future__ import annotations

import secrets
from importlib.resources import files

from psycopg import errors, sql

from toolwright.errors import StoreDamaged, StoreError
from toolwright.stores.postgres.address import Address
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.life import has_owners
from toolwright.stores.sql.admin.copying import unfinished_copy
from toolwright.stores.sql.codec import one

VERSION = 5
"""The version of the schema this code writes."""
_MISSING = """
SELECT relname, CASE WHEN relkind = 'S' THEN 'USAGE' ELSE 'SELECT, INSERT, UPDATE, DELETE' END
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = ? AND CASE
    WHEN relkind IN ('r', 'p') THEN NOT (
        has_table_privilege(pg_class.oid, 'SELECT') AND has_table_privilege(pg_class.oid, 'INSERT')
        AND has_table_privilege(pg_class.oid, 'UPDATE') AND has_table_privilege(pg_class.oid, 'DELETE'))
    WHEN relkind = 'v' THEN NOT has_table_privilege(pg_class.oid, 'SELECT')
    -- The sequence of an identity column needs no privilege.
    WHEN relkind = 'S' THEN NOT has_sequence_privilege(pg_class.oid, 'USAGE') AND NOT EXISTS (
        SELECT 1 FROM pg_depend WHERE pg_depend.objid = pg_class.oid AND deptype = 'i')
    ELSE false END
ORDER BY relname
"""
_HERE = files("toolwright.stores.postgres")


def bring_up_to_date(connection: PostgresConnection, address: Address) -> None:
    """Give a store the schema of this version, inside the transaction of the caller: all of it, or nothing.

    Raises:
        StoreError: the schema is another program's or a newer toolwright's, or an older one has it open.
    """
    version = find_version(connection, address)
    if version == VERSION:
        _require_privileges(connection, address)
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
    if has_owners(connection, address):
        raise StoreError(
            f"The store {address.shown!r} is of an older version (schema {version}, this one knows {VERSION}), and a "
            "program has it open; end that first, and it is brought up to date"
        )
    try:
        for number, statements in _migrations():
            if number > version:
                connection.raw.execute(statements)
    except errors.InsufficientPrivilege as error:
        raise StoreError(
            f"The store {address.shown!r} is of an older version (schema {version}, this one knows {VERSION}), and "
            f"this user may not change it ({error.diag.message_primary}); run `toolwright db migrate` as its owner, "
            "and grant again what is new"
        ) from error
    connection.execute("UPDATE toolwright_schema SET version = ?", (VERSION,))


def find_version(connection: PostgresConnection, address: Address) -> int | None:
    """The version of a schema, which is not newer than this code; None where nothing of ours is there.

    Raises:
        StoreError: it is a newer toolwright's, or an unfinished copy.
    """
    version = written_version(connection, address)
    if version is not None and version < 0:
        raise StoreError(unfinished_copy(address.shown))
    if version is not None and version > VERSION:
        raise StoreError(
            f"The store {address.shown!r} was written by a newer toolwright (schema {version}, this one knows "
            f"{VERSION}); upgrade toolwright"
        )
    return version


def written_version(connection: PostgresConnection, address: Address) -> int | None:
    """The version that a schema has, whatever it is: below zero for the copy of a store that is not finished.

    Raises:
        StoreError: this user may not look.
        StoreDamaged: it has none.
    """
    schema = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = ?"
    if one(connection, schema, (address.schema,)) is False:
        raise StoreError(
            f"The store {address.shown!r} cannot be opened: this user may not use the schema {address.schema!r}; grant "
            "USAGE on it, as docs/postgres.md says"
        )
    table = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'toolwright_schema'"
    if one(connection, table, (address.schema,)) is None:
        return None
    found = one(connection, "SELECT version FROM toolwright_schema")
    if found is None:
        raise _incomplete(address, "its version")
    return int(found)


def find_secret(connection: PostgresConnection, address: Address) -> bytes:
    """The secret that the keys of waits are signed with.

    Raises:
        StoreDamaged: it is not there.
    """
    found = one(connection, "SELECT value FROM meta WHERE name = 'secret'")
    if found is None:
        raise _incomplete(address, "the secret of its keys")
    return bytes(found)


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


def _require_privileges(connection: PostgresConnection, address: Address) -> None:
    """Refuse a store that this user may use a part of: half of a batch could be written, and the other not."""
    missing = connection.execute(_MISSING, (address.schema,)).fetchall()
    if missing:
        told = ", ".join(f"{needed} on {name!r}" for name, needed in missing[:3])
        raise StoreError(
            f"The store {address.shown!r} cannot be opened: this user has not {told}"
            f"{' and more' if len(missing) > 3 else ''} of the schema {address.schema!r}; grant it, as "
            "docs/postgres.md says"
        )


def _incomplete(address: Address, what: str) -> StoreDamaged:
    return StoreDamaged(f"The store {address.shown!r} lacks {what}; restore the whole schema from a backup")


def _migrations() -> list[tuple[int, str]]:
    """The version that each migration leads to, and its statements, in order."""
    folder = _HERE.joinpath("migrations")
    found = [file for file in folder.iterdir() if file.name.endswith(".sql")] if folder.is_dir() else []
    return sorted((int(file.name.partition("_")[0]), file.read_text("utf-8")) for file in found)
