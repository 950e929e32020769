"""The schema of the file. Owns making and checking it; does not own what is written there."""

from __future__ import annotations

import secrets
from importlib.resources import files
from pathlib import Path

import apsw

from toolwright.errors import StoreError
from toolwright.stores.sqlite.rows import one

VERSION = 2
"""The version of the schema this code writes, in `PRAGMA user_version`."""
APPLICATION = 0x746F6F6C
"""What marks a file as ours, in `PRAGMA application_id`."""


def make_or_check(connection: apsw.Connection, path: Path) -> None:
    """Give a new file its schema, inside the transaction of the caller.

    Raises:
        StoreError: the file is another program's, or a newer toolwright's.
    """
    application = one(connection, "PRAGMA application_id")
    version = one(connection, "PRAGMA user_version")
    if application == 0 and version == 0 and one(connection, "SELECT count(*) FROM sqlite_schema") == 0:
        connection.execute(files("toolwright.stores.sqlite").joinpath("schema.sql").read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}")
    elif application != APPLICATION:
        raise StoreError(f"The store {str(path)!r} belongs to another program; choose another file")
    elif version > VERSION:
        raise StoreError(
            f"The store {str(path)!r} was written by a newer toolwright (schema {version}, this one knows "
            f"{VERSION}); upgrade toolwright"
        )
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),))


def secret_of(connection: apsw.Connection) -> bytes:
    """What the keys of this store's waits are signed with."""
    return bytes(one(connection, "SELECT value FROM meta WHERE name = 'secret'"))
