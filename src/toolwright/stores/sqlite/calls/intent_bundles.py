"""Intents that are written in one row. Owns which are, and that each call gets a row of its own where one is needed.

Most batches begin together and end together: where their calls may simply run again, each is written once, with its
outcome, and not twice. A reader uses the view `every_call`; a writer unties the bundle of a call first. A bundle stays
for a while after the last of its calls has ended, and means nothing then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey
from toolwright.stores.sqlite.core.codec import KEY, one

FEWEST = 8
"""Fewer intents are written one by one, which takes no longer."""
LARGEST = 1024 * 1024
"""The most characters of a bundle."""
Row = tuple[Any, ...]
"""The columns of a call up to its owner."""
UNREADABLE = (
    "CASE WHEN json_valid(intents) THEN EXISTS (SELECT 1 FROM json_each(intents) AS intent"
    " WHERE intent.type != 'array' OR json_array_length(intent.value) != 7) ELSE 1 END"
)
"""Matches a bundle that does not have the form of `Bundle`."""
_THIS = "session = ? AND scope = ? AND id = ?"
Bundled = tuple[Row, "Bundle"]
"""An intent and its bundle."""
_encode = msgspec.json.Encoder().encode


class Bundle:
    """The intents of one batch. `left` counts its calls that have not ended, as far as is committed."""

    __slots__ = ("_ids", "_intents", "authority", "left", "name", "rows", "tied")

    def __init__(self, rows: Sequence[Row], columns: Sequence[tuple[Any, ...]], authority: bytes | None) -> None:
        _, _, ids, _, positions, tools, tool_ids, arguments, sources, parents, *_ = columns
        self.name = (*rows[0][:2], uuid7())
        self.rows = rows
        self.left = len(rows)
        self.tied = False
        self.authority = authority
        self._ids = _encode(ids).decode()
        written = zip(ids, positions, tools, tool_ids, map(bytes.decode, arguments), sources, parents, strict=True)
        self._intents = _encode(list(written)).decode()

    @classmethod
    def of(cls, rows: Sequence[Row], authority: bytes | None = None) -> Bundle | None:
        """The bundle to write for calls that may simply run again, or None where each needs a row all the same.

        `authority` is that of all of them.
        """
        if len(rows) < FEWEST or rows[0][1].startswith(RUN_SCOPE):
            return None
        columns = list(zip(*rows, strict=True))
        distinct = [len(set(columns[place])) for place in (0, 1, 3, 10, 2)]
        if distinct != [1, 1, 1, 1, len(rows)]:
            return None
        try:
            bundle = cls(rows, columns, authority)
        except UnicodeError:  # invalid Unicode cannot be in JSON, as it can in a row
            return None
        # From JSON, not every SQLite reads the character 0.
        return bundle if len(bundle._intents) <= LARGEST and "\\u0000" not in bundle._intents else None

    def tie(self, connection: apsw.Connection) -> bool:
        """Write the intents, or nothing where one of the calls is known. There must be no bundle of the same scope."""
        session, scope, *_ = self.name
        query = "SELECT 1 FROM json_each(?) AS id CROSS JOIN calls ON session = ? AND scope = ? AND call_id = id.value"
        self.tied = one(connection, query, (self._ids, session, scope)) is None
        if self.tied:
            _, _, _, batch, *_, queued_at, owner = self.rows[0]
            values = (*self.name, batch, queued_at, owner, self._intents, self.authority)
            connection.execute("INSERT INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        return self.tied

    def is_there(self, connection: apsw.Connection) -> bool:
        """True until somebody unties it."""
        return one(connection, f"SELECT 1 FROM bundles WHERE {_THIS}", self.name) is not None


class Bundles:
    """The bundles of this process, and which calls are in them: all that is known here may be forgotten without harm.

    A call that is found here is written with its outcome at once. For any other, its bundle is untied first, if it is
    in one: its bundle could not be written, or an outcome could not, or its caller did not wait for it.
    """

    def __init__(self) -> None:
        self._of: dict[CallKey, Bundled] = {}
        self._over: list[Bundle] = []

    def __len__(self) -> int:
        return len(self._of)

    def begin(self, bundle: Bundle, keys: Sequence[CallKey], job: asyncio.Future[Any]) -> None:
        """Take in a bundle that `job` writes, unless it finds that it must not."""
        self._of.update(zip(keys, zip(bundle.rows, itertools.repeat(bundle)), strict=True))

        def done(job: asyncio.Future[Any]) -> None:
            if not _succeeded(job) or not bundle.tied:
                for key in keys:
                    if key in self._of and self._of[key][1] is bundle:
                        del self._of[key]

        job.add_done_callback(done)

    def take(self, keys: Iterable[CallKey]) -> list[Bundled | None]:
        """Let calls go that somebody is about to write about; the intent of each that was here, with its bundle."""
        return [self._of.pop(key, None) for key in keys]

    def end(self, taken: Sequence[Bundled | None], job: asyncio.Future[None]) -> None:
        """Count the calls that were taken as ended, when `job` has written their outcomes."""

        def done(job: asyncio.Future[None]) -> None:
            if _succeeded(job):
                for _, bundle in filter(None, taken):
                    bundle.left -= 1
                    if not bundle.left:
                        self._over.append(bundle)

        job.add_done_callback(done)

    def over(self) -> list[Bundle]:
        """The bundles whose calls have all ended, each once."""
        over, self._over = self._over, []
        return over

    def put_back(self, over: list[Bundle], job: asyncio.Future[Any]) -> None:
        """Give them out once more, if `job` fails to remove them."""

        def done(job: asyncio.Future[Any]) -> None:
            if not _succeeded(job):
                self._over += over

        job.add_done_callback(done)


def _succeeded(job: asyncio.Future[Any]) -> bool:
    return not job.cancelled() and job.exception() is None


def untie(connection: apsw.Connection, session: str, scope: str) -> None:
    """Give each call of a bundle a row."""
    place = (session, scope)
    if one(connection, "SELECT 1 FROM bundles WHERE session = ? AND scope = ?", place) is not None:
        connection.execute("INSERT INTO calls SELECT * FROM bundled_calls WHERE session = ? AND scope = ?", place)
        connection.execute("DELETE FROM bundles WHERE session = ? AND scope = ?", place)


def is_mine(connection: apsw.Connection, owner: str, key: CallKey) -> bool:
    """True when the call is unfinished and this owner's; then it has a row."""
    untie(connection, key.session, key.scope)
    query = f"SELECT 1 FROM calls WHERE {KEY} AND owner = ? AND outcome IS NULL"
    return one(connection, query, (*key, owner)) is not None


def remove(connection: apsw.Connection, over: Iterable[Bundle]) -> None:
    """Remove bundles whose calls have all ended."""
    for bundle in over:
        connection.execute(f"DELETE FROM bundles WHERE {_THIS}", bundle.name)
