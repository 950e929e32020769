"""The schema of the file. Owns making it, checking it, and bringing an older one up to date; has no other queries.

A new file gets `schema.sql` at once. An older one goes through the files of `migrations`, in the order of the versions
that they lead to, and has the same schema then. A migration adds or changes; it never drops data.
"""

from __future__ import annotations

import secrets
from importlib.resources import files
from pathlib import Path
from typing import Any

from toolwright.errors import StoreError
from toolwright.stores.sql.admin.copying import unfinished_copy
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import sweep
from toolwright.stores.sqlite.core.store_file import StorePlace

VERSION = 15
"""The version of the schema this code writes, in `PRAGMA user_version`."""
APPLICATION = 0x746F6F6C
"""The number that marks a file as ours, in `PRAGMA application_id`."""
_HERE = files("toolwright.stores.sqlite")


def bring_up_to_date(connection: SqliteConnection, place: StorePlace | None) -> None:
    """Give a file the schema of this version, inside the transaction of the caller: all of it, or nothing.

    A database in memory has no place.

    Raises:
        StoreError: the file is another program's or a newer toolwright's, or an older one has it open.
    """
    if place is None or is_empty(connection):
        connection.execute(_HERE.joinpath("schema.sql").read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        if place is None:
            without_event_log(connection)
    else:
        path = place.path
        version = require_ours(connection, path)
        if version < VERSION and sweep(place):
            # It would continue to write the old schema, and not see data of the new one.
            raise StoreError(
                f"The store {str(path)!r} is of an older version (schema {version}, this one knows {VERSION}), and a "
                "program has it open; end that first, and it is brought up to date"
            )
        for number, statements in _migrations():
            if number > version:
                connection.execute(statements)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secrets.token_bytes(32),))


def without_event_log(connection: SqliteConnection) -> None:
    """Write no event log in a database in memory: without a reader it would only grow."""
    found: Any = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'noted_%'"
    ).fetchall()
    for (name,) in found:
        connection.execute(f"DROP TRIGGER {name}")


def with_event_log(connection: Connection) -> None:
    """Write the event log in a database in memory from now on."""
    statements = _HERE.joinpath("migrations", "0011_events.sql").read_text("utf-8")
    connection.execute(statements[statements.index("CREATE TRIGGER") :])


def require_ours(connection: SqliteConnection, path: Path) -> int:
    """The version of a file, which is not newer than this code.

    Raises:
        StoreError: the file is empty, another program's, a newer toolwright's, or an unfinished copy.
    """
    if is_empty(connection):
        raise StoreError(f"The store {str(path)!r} is an empty file: nothing was ever kept in it; check the path")
    application, version = read_marks(connection)
    if application != APPLICATION:
        raise StoreError(f"The store {str(path)!r} belongs to another program; choose another file")
    if version < 0:
        raise StoreError(unfinished_copy(str(path)))
    if version > VERSION:
        raise StoreError(
            f"The store {str(path)!r} was written by a newer toolwright (schema {version}, this one knows "
            f"{VERSION}); upgrade toolwright"
        )
    return version


def require_current(connection: SqliteConnection, path: Path) -> None:
    """Refuse a file that is not a store of this version.

    Raises:
        StoreError: it is not.
    """
    version = require_ours(connection, path)
    if version < VERSION:
        raise StoreError(
            f"The store {str(path)!r} was written by an older toolwright (schema {version}, this one knows {VERSION}); "
            "open it with a runtime once, or run `toolwright db migrate`; it is brought up to date"
        )


def secret_of(connection: SqliteConnection) -> bytes:
    """The secret that signs the wait keys of this store."""
    return bytes(one(connection, "SELECT value FROM meta WHERE name = 'secret'"))


def is_empty(connection: SqliteConnection) -> bool:
    """True for a file that SQLite takes for a new database: one that was just made, or is empty."""
    return one(connection, "SELECT count(*) FROM sqlite_schema") == 0 and read_marks(connection) == (0, 0)


def read_marks(connection: SqliteConnection) -> tuple[int, int]:
    """The marks of a file: whose it is, and the version of its schema, which is below zero for an unfinished copy."""
    return one(connection, "PRAGMA application_id"), one(connection, "PRAGMA user_version")


def _migrations() -> list[tuple[int, str]]:
    """The version that each migration leads to, and its statements, in order."""
    found = [file for file in _HERE.joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), file.read_text("utf-8")) for file in found)
