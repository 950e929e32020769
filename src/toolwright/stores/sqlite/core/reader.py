"""Reading beside the writer. Owns a second connection to the file of a store, and its thread.

Reads of session services need not wait for the disk: a returned change is committed, and visible here.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.faults import reason, store_error
from toolwright.stores.sqlite.core.writer import BUSY, Sync, Writer

MAPPED = 256 * 1024 * 1024
"""Bytes of the file that are mapped into memory; the rest is read as usual."""


class Reader(Writer):
    """Reads committed data, on a thread of its own."""

    def _open(self, prepare: Callable[[SqliteConnection], None], sync: Sync, vfs: str | None) -> SqliteConnection:
        try:
            # The log beside the file must be written to even by readers.
            connection = SqliteConnection(str(self._path), apsw.SQLITE_OPEN_READWRITE, vfs)
            connection.set_busy_timeout(BUSY)
            # Mapped, large content is read at twice the speed: a search reads all there is.
            connection.execute(f"PRAGMA query_only = 1; PRAGMA mmap_size = {MAPPED}").fetchall()
        except apsw.Error as error:
            told = f"The store {str(self._path)!r} cannot be read: {reason(self._path, error)}"
            raise store_error(told, error) from error
        return connection
