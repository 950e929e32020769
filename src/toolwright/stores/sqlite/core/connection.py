"""A connection to the file of a store. Owns what the shared queries ask of it beside the verbs of SQLite."""

from __future__ import annotations

from typing import ClassVar

import apsw


class SqliteConnection(apsw.Connection):
    """`Connection` of the shared queries: they run as they are written."""

    has_bundles: ClassVar[bool] = True
    conflict: ClassVar[type[Exception]] = apsw.ConstraintError
