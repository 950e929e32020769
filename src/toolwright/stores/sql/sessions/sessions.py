"""Whole sessions in a SQL store. Owns reading, filling, listing and removing all that a session has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import structs

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.stores.contracts.archives import (
    LOCALE_KEY,
    TABLES,
    TITLE_KEY,
    Row,
    SessionInfo,
    SessionName,
    SessionRows,
    SessionWriter,
    Table,
    Usage,
    details_of,
)
from toolwright.stores.sql.background.runs import PENDING, abandon_resources
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import note_removal
from toolwright.stores.sql.sessions.blobs import drop_blobs, put_blob

T = TypeVar("T")
_CALLS = ("calls", "bundles", "effects", "crashes", "traces", "waits", "signals", "remembered", "revoked")
_WORK = ("processes", "process_grants", "schedules", "triggers", "turns", "turn_numbers")
_ORDER = {
    "files": "path",
    "key_values": "key",
    "secrets": "name",
    "messages": "number",
    "attachments": "digest",
    "resources": "id",
    "connections": "provider",
}


_LISTED = ("connections", "schedules", "calls", "bundles", "processes", "turns")


def _beyond(place: str) -> str:
    """The smallest id of a session in each table that is beyond a place."""
    tables = ("usage WHERE entries > 0 AND", *(f"{name} WHERE" for name in _LISTED))
    return " UNION ALL ".join(f"SELECT min(session) AS session FROM {table} session > {place}" for table in tables)


# From one session to the next one: to read the calls of all sessions for their ids would take long.
_PAGE = (
    f"WITH RECURSIVE page(session) AS (SELECT min(session) FROM ({_beyond('?1')}) AS first UNION ALL"
    f" SELECT (SELECT min(session) FROM ({_beyond('page.session')}) AS later) FROM page WHERE session IS NOT NULL)"
    " SELECT session FROM page WHERE session IS NOT NULL LIMIT ?2"
)


class Snapshot(Protocol):
    """Runs a job on a connection of its own, which sees one moment of the store: a long export blocks no other work."""

    def __call__(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...


class SqlArchiveStore:
    """`ArchiveStore` in a SQL store. One in memory has no `snapshot`."""

    def __init__(self, changes: Changes, snapshot: Snapshot | None) -> None:
        self._changes = changes
        self._snapshot = snapshot

    async def read_session(self, session: str, take: Callable[[SessionRows], T]) -> T:
        def work(connection: Connection) -> T:
            if not _exists(connection, session):
                raise ServiceError(f"There is no session {session!r:.200}; check its id", "not_found")
            return take(_Rows(connection, session))

        if self._snapshot is None:
            return await self._changes.change(None, work)
        return await self._snapshot(work)

    async def fill_session(self, session: str, fill: Callable[[SessionWriter], T], replace: bool) -> T:
        def work(connection: Connection) -> T:
            if _exists(connection, session):
                if not replace:
                    raise ServiceError(
                        f"There is a session {session!r:.200} already; import it under another id, or replace it",
                        "exists",
                    )
                _remove(connection, session)
                note_removal(connection, session)
            filled = fill(_SessionWriter(connection, session))
            abandon_resources(connection, session)
            return filled

        return await self._changes.change(None, work)

    async def list_sessions(
        self, only: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[SessionInfo]:
        def work(connection: Connection) -> list[SessionInfo]:
            one, also, values = "", "", tuple[str, ...]()
            if only is not None or limit is not None:
                page = [only] if only is not None else _page(connection, after, limit or 0)
                if not page:
                    return []
                # Written out, so that an index finds them, also through a view.
                also = f"AND session IN ({', '.join('?' * len(page))})"
                one, values = f"WHERE{also.removeprefix('AND')}", tuple(page)
            found: dict[str, dict[str, Usage]] = {}
            for session, service, entries, size in connection.execute(
                f"SELECT session, service, entries, bytes FROM usage WHERE entries > 0 {also}"
                " UNION ALL SELECT session, 'connections', count(*), sum(length(detail)) FROM connections"
                f" {one} GROUP BY session"
                " UNION ALL SELECT session, 'schedules', count(*), sum(length(arguments)) FROM schedules"
                f" {one} GROUP BY session",
                values * 3,
            ):
                found.setdefault(session, {})[service] = Usage(entries, size)
            calls: dict[str, tuple[int, int]] = {
                session: (count, unfinished)
                for session, count, unfinished in connection.execute(
                    f"SELECT session, count(*), count(*) - count(outcome) FROM every_call {one} GROUP BY session",
                    values,
                )
            }
            about: dict[str, dict[str, Any]] = {}
            query = f"SELECT session, key, value FROM key_values WHERE key IN (?, ?) {also}"
            for session, key, value in connection.execute(query, (TITLE_KEY, LOCALE_KEY, *values)):
                about.setdefault(session, {})[key] = jsonx.decode(value)
            others = {row[0] for row in connection.execute(f"SELECT DISTINCT session FROM processes {one}", values)}
            turns: dict[str, tuple[int, int]] = {
                session: (count, unfinished)
                for session, count, unfinished in connection.execute(
                    f"SELECT session, count(*), count(*) - count(ended_at) FROM turns {one} GROUP BY session", values
                )
            }
            return [
                SessionInfo(
                    session,
                    *calls.get(session, (0, 0)),
                    usage=dict(sorted(found.get(session, {}).items())),
                    **structs.asdict(details_of(about.get(session, {}))),
                    turns=turns.get(session, (0, 0))[0],
                    unfinished_turns=turns.get(session, (0, 0))[1],
                )
                for session in sorted(found.keys() | calls.keys() | others | turns.keys())
            ]

        return await self._changes.read(work)

    async def find_sessions(self, text: str) -> list[SessionName]:
        words = text.casefold()

        def work(connection: Connection) -> list[SessionName]:
            ids = "SELECT session FROM usage UNION SELECT session FROM processes UNION SELECT session FROM turns"
            found: dict[str, str | None] = {
                session: None for (session,) in connection.execute(ids) if words in session.casefold()
            }
            query = "SELECT session, value FROM key_values WHERE key = ?"
            for session, value in connection.execute(query, (TITLE_KEY,)):
                title = jsonx.decode(value)
                if session in found or (isinstance(title, str) and words in title.casefold()):
                    found[session] = title if isinstance(title, str) else None
            return [SessionName(session, found[session]) for session in sorted(found)]

        return await self._changes.read(work)

    async def delete_session(self, session: str) -> bool:
        def work(connection: Connection) -> bool:
            there = _exists(connection, session)
            _remove(connection, session)
            if there:
                note_removal(connection, session)
            return there

        return await self._changes.change(None, work)


def _page(connection: Connection, after: str, limit: int) -> list[str]:
    """The ids of the next sessions after one, in order."""
    return [session for (session,) in connection.execute(_PAGE, (after, limit))]


class _Rows:
    """`SessionRows` on a connection."""

    def __init__(self, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session

    def rows(self, table: Table) -> Iterator[Row]:
        kind = TABLES[table]
        columns = ", ".join(_column(field.name) for field in msgspec.structs.fields(kind))
        query = f"SELECT {columns} FROM {table} WHERE session = ? ORDER BY {_ORDER[table]}"
        fields = msgspec.structs.fields(kind)
        for row in self._connection.execute(query, (self._session,)):
            yield kind(*(_from_column(field, value) for field, value in zip(fields, row, strict=True)))

    def blob(self, hash: str) -> Iterator[bytes]:
        query = "SELECT content FROM blobs WHERE digest = ? ORDER BY number"
        for (content,) in self._connection.execute(query, (bytes.fromhex(hash),)):
            yield content


class _SessionWriter:
    """`SessionWriter` on a connection."""

    def __init__(self, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session
        self._masters: set[str] | None = None

    def add(self, table: Table, row: Row) -> None:
        values = {
            _column(field.name): _to_column(field, getattr(row, field.name))
            for field in msgspec.structs.fields(type(row))
        }
        values["session"] = self._session
        if table == "files":
            values["parent"] = values["path"].rpartition("/")[0] or "/"
        marks = ", ".join("?" * len(values))
        try:
            with self._connection:  # after a refused row, others can still be added
                self._connection.execute(
                    f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
                )
        except self._connection.conflict as error:
            raise ValueError(f"it is there twice, or lacks something ({error})") from error

    def add_blob(self, hash: str, pieces: Iterable[bytes]) -> None:
        # Read to its end even if the content is stored already: the archive must match its index.
        digest = bytes.fromhex(hash)
        put_blob(self._connection, digest, pieces)
        for _ in pieces:
            pass

    def usage(self, table: Table) -> Usage:
        query = "SELECT entries, bytes FROM usage WHERE session = ? AND service = ?"
        if table == "connections":
            query = "SELECT count(*), coalesce(sum(length(detail)), 0) FROM connections WHERE session = ?"
        values = (self._session,) if table == "connections" else (self._session, table)
        row: Any = self._connection.execute(query, values).fetchone()
        return Usage(0, 0) if row is None else Usage(*row)

    def knows_master(self, master: str) -> bool:
        if self._masters is None:
            self._masters = {row[0] for row in self._connection.execute("SELECT DISTINCT master FROM secrets")}
        return master in self._masters


def _exists(connection: Connection, session: str) -> bool:
    tables = ("every_call", "processes", "schedules", "turns", *TABLES)
    return any(one(connection, f"SELECT 1 FROM {table} WHERE session = ? LIMIT 1", (session,)) for table in tables)


def _remove(connection: Connection, session: str) -> None:
    # Before its calls: a turn or a run that is not over has some of them.
    turns = one(connection, "SELECT count(*) FROM turns WHERE session = ? AND ended_at IS NULL", (session,))
    if turns:
        raise ServiceError(
            f"The session {session!r:.200} has {turns} unfinished turns; let them end or cancel them", "unfinished"
        )
    active = one(connection, f"SELECT count(*) FROM processes WHERE session = ? AND {PENDING}", (session,))
    if active:
        raise ServiceError(
            f"The session {session!r:.200} has {active} unfinished background runs; let them end or cancel them",
            "unfinished",
        )
    unfinished = one(connection, "SELECT count(*) FROM every_call WHERE session = ? AND outcome IS NULL", (session,))
    if unfinished:
        raise ServiceError(
            f"The session {session!r:.200} has {unfinished} unfinished calls; let them end, recover or cancel them",
            "unfinished",
        )
    for table in ("process_events", "process_grants"):
        query = f"DELETE FROM {table} WHERE process IN (SELECT id FROM processes WHERE session = ?)"
        connection.execute(query, (session,))
    for table in ("turn_events", "turn_steering"):
        connection.execute(f"DELETE FROM {table} WHERE turn IN (SELECT id FROM turns WHERE session = ?)", (session,))
    query = "DELETE FROM firings WHERE schedule IN (SELECT id FROM schedules WHERE session = ?)"
    connection.execute(query, (session,))
    digests = [
        row[0]
        for row in connection.execute(
            "SELECT digest FROM files WHERE session = ?1 AND digest IS NOT NULL"
            " UNION SELECT digest FROM attachments WHERE session = ?1",
            (session,),
        )
    ]
    for table in (*_CALLS, *_WORK, *TABLES, "usage"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    drop_blobs(connection, digests)


def _column(name: str) -> str:
    return "digest" if name == "hash" else name


def _from_column(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    if field.name == "hash":
        return None if value is None else value.hex()
    if field.type is bool:
        return bool(value)
    return msgspec.Raw(value) if field.type is msgspec.Raw else value


def _to_column(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    if field.name == "hash":
        return None if value is None else bytes.fromhex(value)
    return bytes(value) if field.type is msgspec.Raw else value
