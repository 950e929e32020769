"""The journal in SQLite. Owns its queries; replay, crash policies and sharing are written once, above it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from toolwright.effects.journal import CallKey, Entry, Intent
from toolwright.errors import StoreError
from toolwright.ids import uuid7
from toolwright.stores.sqlite.owners import OwnerLock, is_alive
from toolwright.stores.sqlite.writer import Sync, Writer
from toolwright.tools.outcome import ToolOutcome

VERSION = 1
"""The version of the schema this code writes, in `PRAGMA user_version`."""
APPLICATION = 0x746F6F6C
"""What marks a file as ours, in `PRAGMA application_id`."""

_COLUMNS = (
    "session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at, "
    "owner, started_at, finished_at, outcome"
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToolOutcome).decode


class SqliteJournalStore:
    """A journal in one SQLite file: WAL, and with `sync="full"` on the disk before anything is acknowledged.

    With `sync="normal"` a process that is killed still loses nothing, but a machine that loses power may lose what was
    acknowledged in the last moments.
    """

    def __init__(self, path: str | Path, *, sync: Sync = "full") -> None:
        if sync not in ("full", "normal"):
            raise StoreError(f"The store's sync is {sync!r}; use 'full' or 'normal'")
        self.path = Path(path)
        self.owner = uuid7()
        self._number = 0
        self._writer = Writer(self.path, self._prepare, sync)
        self._lock = OwnerLock(self.path, self._number)

    @property
    def commits(self) -> int:
        """How many transactions were written since it was opened."""
        return self._writer.commits

    def _prepare(self, connection: apsw.Connection) -> None:
        """Make or check the schema, and enter this process among the owners."""
        application = _one(connection, "PRAGMA application_id")
        version = _one(connection, "PRAGMA user_version")
        if application == 0 and version == 0 and _one(connection, "SELECT count(*) FROM sqlite_schema") == 0:
            schema = files("toolwright.stores.sqlite").joinpath("schema.sql").read_text()
            connection.execute(
                f"BEGIN IMMEDIATE; {schema};"
                f" PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
            )
        elif application != APPLICATION:
            raise StoreError(f"{str(self.path)!r} belongs to another program; choose another file")
        elif version > VERSION:
            raise StoreError(
                f"{str(self.path)!r} was written by a newer toolwright (schema {version}, this one knows {VERSION}); "
                "upgrade toolwright"
            )
        self._number = _one(connection, "INSERT INTO owners (name) VALUES (?) RETURNING number", (self.owner,))

    async def begin(self, intents: Sequence[Intent]) -> list[Entry | None]:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> list[Entry | None]:
            known = self._find(connection, [intent.key for intent in intents])
            rows = [_row(intent, self.owner) for intent in intents if intent.key not in known]
            connection.executemany(
                "INSERT INTO calls (session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent,"
                " queued_at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            return [known.get(intent.key) for intent in intents]

        return await self._writer.do(work)

    async def start(self, key: CallKey, started_at: float) -> bool:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> bool:
            connection.execute(
                "UPDATE calls SET started_at = ? WHERE session = ? AND scope = ? AND call_id = ? AND owner = ?"
                " AND outcome IS NULL",
                (started_at, *key, self.owner),
            )
            return connection.changes() == 1

        return await self._writer.do(work)

    async def finish(self, key: CallKey, outcome: ToolOutcome, started_at: float | None, finished_at: float) -> bool:
        """Part of `JournalStore`."""
        if outcome.cached_value is not msgspec.UNSET:
            outcome = replace(outcome, cached_value=msgspec.UNSET)
        values = (started_at, finished_at, outcome.status, _encode(outcome), *key, self.owner)

        def work(connection: apsw.Connection) -> bool:
            connection.execute(
                "UPDATE calls SET started_at = ?, finished_at = ?, status = ?, outcome = ?"
                " WHERE session = ? AND scope = ? AND call_id = ? AND owner = ? AND outcome IS NULL",
                values,
            )
            return connection.changes() == 1

        return await self._writer.do(work)

    async def forget(self, key: CallKey) -> bool:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> bool:
            connection.execute(
                "DELETE FROM calls WHERE session = ? AND scope = ? AND call_id = ? AND owner = ? AND outcome IS NULL",
                (*key, self.owner),
            )
            return connection.changes() == 1

        return await self._writer.do(work)

    async def take_over(self, key: CallKey, owner: str) -> bool:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> bool:
            connection.execute(
                "UPDATE calls SET owner = ? WHERE session = ? AND scope = ? AND call_id = ? AND owner = ?"
                " AND outcome IS NULL",
                (self.owner, *key, owner),
            )
            return connection.changes() == 1

        return await self._writer.do(work)

    async def unfinished(self, session: str | None = None) -> list[Entry]:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> list[Entry]:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM calls WHERE outcome IS NULL ORDER BY queued_at, position"
            )
            return [_entry(row) for row in rows if session is None or row[0] == session]

        entries = await self._writer.do(work)
        living = {owner: await self.is_alive(owner) for owner in {entry.owner for entry in entries}}
        return [entry for entry in entries if not living[entry.owner]]

    async def is_alive(self, owner: str) -> bool:
        """Part of `JournalStore`."""
        if owner == self.owner:
            return True
        number = await self._writer.do(
            lambda connection: _one(connection, "SELECT number FROM owners WHERE name = ?", (owner,))
        )
        return number is not None and is_alive(self.path, number)

    async def close(self) -> None:
        """Part of `JournalStore`."""
        await self._writer.close()
        self._lock.release()

    @staticmethod
    def _find(connection: apsw.Connection, keys: list[CallKey]) -> dict[CallKey, Entry]:
        if not keys:
            return {}
        session, scope, _ = keys[0]
        wanted = json.dumps([key.call_id for key in keys])
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM calls WHERE session = ? AND scope = ?"
            " AND call_id IN (SELECT value FROM json_each(?))",
            (session, scope, wanted),
        )
        return {entry.intent.key: entry for entry in map(_entry, rows)}


def _row(intent: Intent, owner: str) -> tuple[Any, ...]:
    return (
        *intent.key,
        intent.batch,
        intent.position,
        intent.tool,
        intent.tool_id,
        intent.arguments,
        intent.source,
        intent.parent,
        intent.queued_at,
        owner,
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    key = CallKey(*row[:3])
    batch, position, tool, tool_id, arguments, source, parent, queued_at = row[3:11]
    owner, started_at, finished_at, outcome = row[11:]
    return Entry(
        Intent(key, batch, position, tool, tool_id, arguments, source, parent, queued_at),
        owner,
        None if outcome is None else _decode(outcome),
        started_at,
        finished_at,
    )


def _one(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
