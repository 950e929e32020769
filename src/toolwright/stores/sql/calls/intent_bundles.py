"""Intents that are written in one row. Owns the form of a bundle, and that each call gets a row of its own where one is
needed; which calls of this process are in one, the journal knows.

Most batches begin together and end together: where their calls may simply run again, each is written once, with its
outcome, and not twice. A reader uses the view `every_call`; a writer unties the bundle of a call first. A bundle stays
for a while after the last of its calls has ended, and means nothing then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey
from toolwright.stores.sql.codec import KEY, insert, one
from toolwright.stores.sql.connection import Connection

FEWEST = 8
"""Fewer intents are written one by one, which takes no longer."""
LARGEST = 1024 * 1024
"""The most characters of a bundle."""
Row = tuple[Any, ...]
"""The values of `INTENT_COLUMNS`, or of these and more."""
OF_INTENT = ("batch", "position", "tool", "tool_id", "arguments", "source", "parent", "queued_at", "claims")
INTENT_COLUMNS = (*CallKey._fields, *OF_INTENT, "owner")
"""The columns of a call that its intent fills."""
_BUNDLED = ("call_id", "position", "tool", "tool_id", "arguments", "source", "parent")
"""The columns of a call in a bundle, in the order of the view `bundled_calls`; all others are those of the batch."""
UNREADABLE = (
    "CASE WHEN json_valid(intents) THEN EXISTS (SELECT 1 FROM json_each(intents) AS intent"
    " WHERE intent.type != 'array' OR json_array_length(intent.value) != "
    f"{len(_BUNDLED)}) ELSE 1 END"
)
"""Matches a bundle that does not have the form of `Bundle`."""
_THIS = "session = ? AND scope = ? AND id = ?"
_UNTIE = (
    f"INSERT INTO calls ({', '.join(INTENT_COLUMNS)}, authority) SELECT {', '.join(INTENT_COLUMNS)}, authority"
    " FROM bundled_calls WHERE session = ? AND scope = ?"
)
_TIE = insert("bundles", ("session", "scope", "id", "batch", "queued_at", "owner", "intents", "authority", "claims"))
_encode = msgspec.json.Encoder().encode


class Bundle:
    """The intents of one batch. `left` counts its calls that have not ended, as far as is committed."""

    __slots__ = ("_ids", "_intents", "_of_batch", "authority", "claims", "left", "name", "place", "rows", "tied")

    def __init__(self, rows: Sequence[Row], columns: Mapping[str, Sequence[Any]], authority: bytes | None) -> None:
        self.place = session, scope = columns["session"][0], columns["scope"][0]
        self.name = (session, scope, uuid7())
        self.rows = rows
        self.left = len(rows)
        self.tied = False
        self.authority = authority
        self.claims: list[str | None] = list(columns["claims"])
        self._of_batch = (columns["batch"][0], columns["queued_at"][0], columns["owner"][0])
        self._ids = _encode(columns["call_id"]).decode()
        texts = {**columns, "arguments": map(bytes.decode, columns["arguments"])}
        self._intents = _encode(list(zip(*map(texts.__getitem__, _BUNDLED), strict=True))).decode()

    @classmethod
    def of(cls, rows: Sequence[Row], authority: bytes | None = None) -> Bundle | None:
        """The bundle to write for calls that may simply run again, or None where each needs its own row.

        `authority` is that of all of them.
        """
        if len(rows) < FEWEST:
            return None
        columns = dict(zip(INTENT_COLUMNS, zip(*rows, strict=True), strict=True))
        if columns["scope"][0].startswith(RUN_SCOPE) or len(set(columns["call_id"])) != len(rows):
            return None
        if any(len(set(columns[name])) != 1 for name in ("session", "scope", "batch", "queued_at")):
            return None
        try:
            bundle = cls(rows, columns, authority)
        except UnicodeError:  # invalid Unicode cannot be in JSON, as it can in a row
            return None
        # From JSON, not every SQLite reads the character 0.
        return bundle if len(bundle._intents) <= LARGEST and "\\u0000" not in bundle._intents else None

    def tie(self, connection: Connection) -> bool:
        """Write the intents, or nothing where one of the calls is known. There must be no bundle of the same scope."""
        query = "SELECT 1 FROM json_each(?) AS id CROSS JOIN calls ON session = ? AND scope = ? AND call_id = id.value"
        self.tied = one(connection, query, (self._ids, *self.place)) is None
        if self.tied:
            values = (*self.name, *self._of_batch, self._intents, self.authority, self._written_claims())
            connection.execute(_TIE, values)
        return self.tied

    def hold(self, connection: Connection, claims: Mapping[CallKey, str]) -> None:
        """Give calls of the bundle, which is there, other claims."""
        for place, row in enumerate(self.rows):
            self.claims[place] = claims.get(CallKey._make(row[:3]), self.claims[place])
        connection.execute(f"UPDATE bundles SET claims = ? WHERE {_THIS}", (self._written_claims(), *self.name))

    def _written_claims(self) -> str | None:
        return _encode(self.claims).decode() if any(self.claims) else None

    def is_there(self, connection: Connection) -> bool:
        """True until it is untied, by any process."""
        return one(connection, f"SELECT 1 FROM bundles WHERE {_THIS}", self.name) is not None


def untie(connection: Connection, session: str, scope: str) -> None:
    """Give each call of a bundle a row."""
    if not connection.has_bundles:
        return
    place = (session, scope)
    if one(connection, "SELECT 1 FROM bundles WHERE session = ? AND scope = ?", place) is not None:
        connection.execute(_UNTIE, place)
        connection.execute("DELETE FROM bundles WHERE session = ? AND scope = ?", place)


def is_mine(connection: Connection, owner: str, key: CallKey) -> bool:
    """True when the call is unfinished and this owner's; then it has a row."""
    untie(connection, key.session, key.scope)
    query = f"SELECT 1 FROM calls WHERE {KEY} AND owner = ? AND outcome IS NULL"
    return one(connection, query, (*key, owner)) is not None


def remove(connection: Connection, over: Iterable[Bundle]) -> None:
    """Remove bundles whose calls have all ended."""
    for bundle in over:
        connection.execute(f"DELETE FROM bundles WHERE {_THIS}", bundle.name)
