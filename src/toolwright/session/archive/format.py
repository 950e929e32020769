"""The archive of a session. Owns its format; its rows are those of `stores/contracts/archives.py`.

An archive is a zip: `manifest.json`, a file of JSON lines for each service, and the content of files and attachments
under `blobs/`, by hash. It has no calls: they stay in the journal. It has no schedules either: the copy of a session
would start everything a second time.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from toolwright.plain_data import plain_data

FORMAT = "toolwright-session"


VERSION = 1


MANIFEST = "manifest.json"


BLOB = re.compile(r"blobs/([0-9a-f]{64})")


class Manifest(Struct, frozen=True):
    """The index of an archive. `counts` has the number of rows of each service."""

    format: str
    version: int
    session: str
    exported_at: float
    counts: dict[str, int]


class Exported(Struct, frozen=True):
    """The result of an export: rows by service, the secrets among them sealed."""

    session: str
    counts: dict[str, int]
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return plain_data(self)


class Imported(Struct, frozen=True):
    """The result of an import. `secrets_left_out` names the secrets that could not be opened here."""

    session: str
    counts: dict[str, int]
    secrets_left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return plain_data(self)
