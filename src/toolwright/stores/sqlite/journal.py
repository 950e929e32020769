"""The journal in SQLite. Owns its queries; replay, crash policies and sharing are written once, above it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from toolwright.effects.journal import Began, CallKey, Entry, Intent, Then
from toolwright.errors import StoreError
from toolwright.ids import uuid7
from toolwright.stores.sqlite.owners import OwnerLock, is_alive, sweep
from toolwright.stores.sqlite.writer import Sync, Writer
from toolwright.tools.outcome import ToolOutcome, encodable

VERSION = 1
"""The version of the schema this code writes, in `PRAGMA user_version`."""
APPLICATION = 0x746F6F6C
"""What marks a file as ours, in `PRAGMA application_id`."""

_COLUMNS = (
    "session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at, "
    "owner, started_at, finished_at, outcome"
)
_KEY = "session = ? AND scope = ? AND call_id = ?"
_OWN = f"WHERE {_KEY} AND owner = ? AND outcome IS NULL"
_START = f"UPDATE calls SET started_at = ? {_OWN}"
_FINISH = f"UPDATE calls SET started_at = ?, finished_at = ?, status = ?, outcome = ? {_OWN}"
_FORGET = f"DELETE FROM calls {_OWN}"
_RELEASE = f"UPDATE calls SET owner = ? {_OWN}"
NOBODY = ""
"""The owner of an unfinished call that its owner let go of."""
_encode = msgspec.msgpack.Encoder().encode
_key = CallKey._make
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
        self._locks: list[OwnerLock] = []
        try:
            self._writer = Writer(self.path, self._prepare, sync)
        except BaseException:
            self._let_go()
            raise

    @property
    def commits(self) -> int:
        """How many transactions were written since it was opened."""
        return self._writer.commits

    def _prepare(self, connection: apsw.Connection) -> None:
        """Make or check the schema, and enter this process among the owners, in one transaction."""
        application = _one(connection, "PRAGMA application_id")
        version = _one(connection, "PRAGMA user_version")
        if application == 0 and version == 0 and _one(connection, "SELECT count(*) FROM sqlite_schema") == 0:
            connection.execute(files("toolwright.stores.sqlite").joinpath("schema.sql").read_text("utf-8"))
            connection.execute(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}")
        elif application != APPLICATION:
            raise StoreError(f"The store {str(self.path)!r} belongs to another program; choose another file")
        elif version > VERSION:
            raise StoreError(
                f"The store {str(self.path)!r} was written by a newer toolwright (schema {version}, this one knows "
                f"{VERSION}); upgrade toolwright"
            )
        number = _one(connection, "INSERT INTO owners (name) VALUES (?) RETURNING number", (self.owner,))
        try:
            self._locks.append(OwnerLock(self.path, number))
            sweep(self.path)
        except OSError as error:
            raise StoreError(
                f"The store {str(self.path)!r} can not be opened: no file may be made beside it ({error.strerror}); "
                "check the permissions of its directory"
            ) from error

    def begin(self, intents: Sequence[Intent], then: Began | None = None) -> Awaitable[list[Entry | None]]:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> list[Entry | None]:
            known = self._find(connection, [intent.key for intent in intents])
            owners = {entry.owner for entry in known.values() if entry.outcome is None} - {self.owner}
            dead = self._dead(connection, owners)
            if dead == owners:
                for key, entry in known.items():
                    if entry.outcome is None and entry.owner in dead:
                        connection.execute(f"UPDATE calls SET owner = ? WHERE {_KEY}", (self.owner, *key))
                        known[key] = replace(entry, owner=self.owner, cut_off=True)
                connection.executemany(
                    "INSERT INTO calls (session, scope, call_id, batch, position, tool, tool_id, arguments, source,"
                    " parent, queued_at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [_row(intent, self.owner) for intent in intents if intent.key not in known],
                )
            return [known.get(intent.key) for intent in intents]

        return self._writer.do(work, then)

    def start(self, key: CallKey, started_at: float, then: Then) -> None:
        """Part of `JournalStore`."""
        self._writer.change(_START, (started_at, *key, self.owner), then)

    def finish(
        self, key: CallKey, outcome: ToolOutcome, started_at: float | None, finished_at: float, then: Then
    ) -> None:
        """Part of `JournalStore`."""
        values = (started_at, finished_at, outcome.status, _packed(outcome), *key, self.owner)
        self._writer.change(_FINISH, values, then)

    def forget(self, key: CallKey, then: Then) -> None:
        """Part of `JournalStore`."""
        self._writer.change(_FORGET, (*key, self.owner), then)

    def release(self, key: CallKey, then: Then) -> None:
        """Part of `JournalStore`."""
        self._writer.change(_RELEASE, (NOBODY, *key, self.owner), then)

    async def unfinished(self, session: str | None = None) -> list[Entry]:
        """Part of `JournalStore`."""

        def work(connection: apsw.Connection) -> list[Entry]:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM calls WHERE outcome IS NULL ORDER BY queued_at, position"
            )
            entries = [_entry(row) for row in rows if session is None or row[0] == session]
            dead = self._dead(connection, {entry.owner for entry in entries} - {self.owner})
            return [entry for entry in entries if entry.owner in dead]

        return await self._writer.do(work)

    async def close(self) -> None:
        """Part of `JournalStore`."""
        await self._writer.close()
        self._let_go()

    def _let_go(self) -> None:
        for lock in self._locks:
            lock.release()

    def _dead(self, connection: apsw.Connection, owners: set[str]) -> set[str]:
        """Those of the owners whose process is gone, or that are nobody."""
        dead = set()
        for owner in owners:
            number = _one(connection, "SELECT number FROM owners WHERE name = ?", (owner,))
            if number is None or not is_alive(self.path, number):
                dead.add(owner)
        return dead

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


def _packed(outcome: ToolOutcome) -> bytes:
    if outcome.cached_value is not msgspec.UNSET:
        outcome = replace(outcome, cached_value=msgspec.UNSET)
    try:
        return _encode(outcome)
    except UnicodeEncodeError:
        # Some text of the tool's, an exception's for one, has no form in UTF-8: the rest must be kept all the same.
        return _encode(_encodable(msgspec.to_builtins(outcome, builtin_types=(bytes,))))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value


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
    owner, started_at, finished_at, outcome = row[11:]
    intent = Intent(_key(row[:3]), *row[3:11])
    return Entry(intent, owner, None if outcome is None else _decode(outcome), started_at, finished_at)


def _one(connection: apsw.Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]
