"""Waits in a SQL store. Owns their queries; keys, deadlines and the meaning of a decision are in the rooms above."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from toolwright.effects.wait_keys import was_answered
from toolwright.stores.contracts.background_run import OVER
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey, Cursor
from toolwright.stores.contracts.waits import (
    APPROVALS,
    INBOX,
    Arrivals,
    Decided,
    Refused,
    Remembered,
    Resolution,
    Standing,
    Wait,
    WaitKey,
    WaitKind,
)
from toolwright.stores.sql.calls.intent_bundles import is_mine
from toolwright.stores.sql.codec import KEY, columns_of, insert_if_new, one, packed
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.jobs import JobQueue

_WAIT = f"{KEY} AND kind = ? AND name = ?"


class WaitRow(NamedTuple):
    """A wait as it is read."""

    session: str
    scope: str
    call_id: str
    kind: WaitKind
    name: str
    opened_at: float | None
    deadline: float | None
    detail: bytes
    resolution: bytes | None


_COLUMNS = columns_of(WaitRow)
_RENEW = "ON CONFLICT (session, scope, call_id, kind, name) DO UPDATE SET"
_OLDEST_FIRST = "ORDER BY opened_at, session, scope, call_id, kind, name"
# As text and not as values, so that SQLite sees that the index of the inbox has all of them.
_INBOX = "kind IN ({})".format(", ".join(f"'{kind}'" for kind in INBOX))
_decode = msgspec.msgpack.Decoder(Resolution).decode


class SqlWaitStore:
    """`WaitStore` in a SQL store."""

    def __init__(self, writer: JobQueue, owner: str, secret: bytes) -> None:
        self._writer = writer
        self._owner = owner
        self.secret = secret

    async def open_wait(self, wait: Wait) -> Wait | None:
        def work(connection: Connection) -> Wait | None:
            key = wait.key
            if not is_mine(connection, self._owner, key.call):
                return None
            before = _find(connection, key)
            if before is not None and before.opened_at is not None:
                return before
            resolution = _revoked(connection, key.call.session) if before is None else before.resolution
            stands = wait if before is None and resolution is None else replace(wait, resolution=resolution)
            connection.execute(
                f"INSERT INTO waits ({_COLUMNS}, open) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_RENEW}"
                " opened_at = excluded.opened_at, deadline = excluded.deadline, detail = excluded.detail",
                (
                    *_values(key),
                    stands.opened_at,
                    stands.deadline,
                    stands.detail,
                    None if stands.resolution is None else packed(stands.resolution),
                    stands.resolution is None,
                ),
            )
            return stands

        return await self._writer.do(work)

    async def resolve(
        self, key: WaitKey, resolution: Resolution, remember: Remembered | None = None
    ) -> Standing | Refused:
        def work(connection: Connection) -> Standing | Refused:
            before = _find(connection, key)
            if before is not None and before.resolution is not None:
                return Standing(False, before.resolution)
            refused = _refusal(connection, key.call)
            if refused is not None:
                return refused
            _settle(connection, [key], resolution)
            if remember is not None:
                connection.execute(
                    'INSERT INTO remembered (session, tool_id, effect, pattern, at, reason, "by", via)'
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    msgspec.structs.astuple(remember),
                )
            return Standing(True, resolution)

        return await self._writer.do(work)

    async def end_wait(self, key: WaitKey, resolution: Resolution) -> Resolution | None:
        def work(connection: Connection) -> Resolution | None:
            if not is_mine(connection, self._owner, key.call):
                return None
            before = _find(connection, key)
            if before is not None and before.resolution is not None:
                return before.resolution if was_answered(before.resolution) else None
            _settle(connection, [key], resolution)
            return None

        return await self._writer.do(work)

    async def cancel_waits(self, session: str, resolution: Resolution, *, revoke: bool = False) -> list[WaitKey]:
        def work(connection: Connection) -> list[WaitKey]:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM waits WHERE session = ? AND open = 1 {_OLDEST_FIRST}", (session,)
            )
            keys = [_wait(row).key for row in rows]
            _settle(connection, keys, resolution)
            if revoke:
                connection.execute(insert_if_new("revoked", ("session", "resolution")), (session, packed(resolution)))
            return keys

        return await self._writer.do(work)

    async def arrivals(self, since: Cursor | None) -> Arrivals:
        def work(connection: Connection) -> Arrivals:
            # Counters and not the highest numbers: the last record may be forgotten, and its number must not come
            # again.
            last_resolved = one(connection, "SELECT value FROM meta WHERE name = 'arrived'")
            last_signal = one(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'signals'") or 0
            cursor = f"{last_resolved} {last_signal}"
            if since is None or since == cursor:
                return Arrivals(cursor, [], [])
            seen_resolved, seen_signal = map(int, since.split())
            resolved = connection.execute(
                f"SELECT {_COLUMNS} FROM waits WHERE arrived > ? ORDER BY arrived", (seen_resolved,)
            )
            signals: Any = connection.execute(
                "SELECT session, scope, call_id, kind, name FROM signals WHERE number > ? ORDER BY number",
                (seen_signal,),
            )
            signalled = [
                WaitKey(CallKey(session, scope, call_id), kind, name) for session, scope, call_id, kind, name in signals
            ]
            return Arrivals(cursor, [_wait(row) for row in resolved], signalled)

        return await self._writer.read(work)

    async def waiting(self, session: str | None = None, kinds: Sequence[WaitKind] = ()) -> list[Wait]:
        terms, values = ["open = 1"], list[Any]()
        if session is not None:
            terms.append("session = ?")
            values.append(session)
        elif kinds and set(kinds) <= set(INBOX):
            terms.append(_INBOX)
        if kinds:
            terms.append("kind IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(kinds)))
        query = f"SELECT {_COLUMNS} FROM waits WHERE {' AND '.join(terms)} {_OLDEST_FIRST}"

        def work(connection: Connection) -> list[Wait]:
            return [_wait(row) for row in connection.execute(query, values)]

        return await self._writer.read(work)

    async def signal(self, key: WaitKey, payload: bytes, at: float) -> int | Refused:
        def work(connection: Connection) -> int | Refused:
            refused = _refusal(connection, key.call)
            if refused is not None:
                return refused
            last = one(connection, f"SELECT max(place) FROM signals WHERE {_WAIT}", _values(key)) or 0
            connection.execute(
                "INSERT INTO signals (session, scope, call_id, kind, name, place, payload, at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*_values(key), last + 1, payload, at),
            )
            return int(last + 1)

        return await self._writer.do(work)

    async def signals(self, key: WaitKey, after: int = 0) -> list[bytes]:
        query = f"SELECT payload FROM signals WHERE {_WAIT} AND place > ? ORDER BY place"

        def work(connection: Connection) -> list[bytes]:
            return [row[0] for row in connection.execute(query, (*_values(key), after))]

        return await self._writer.read(work)

    async def waits_of(self, call: CallKey, kind: WaitKind) -> list[Wait]:
        query = f"SELECT {_COLUMNS} FROM waits WHERE {KEY} AND kind = ? AND opened_at IS NOT NULL {_OLDEST_FIRST}"

        def work(connection: Connection) -> list[Wait]:
            return [_wait(row) for row in connection.execute(query, (*call, kind))]

        return await self._writer.read(work)

    async def decided(
        self, session: str | None, before: int | None, limit: int, kinds: Sequence[WaitKind] = APPROVALS
    ) -> list[Decided]:
        terms = [f"arrived IS NOT NULL AND {_INBOX} AND opened_at IS NOT NULL"]
        terms.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values: list[Any] = list(kinds)
        if session is not None:
            terms.append("session = ?")
            values.append(session)
        if before is not None:
            terms.append("arrived < ?")
            values.append(before)
        query = f"SELECT {_COLUMNS}, arrived FROM waits WHERE {' AND '.join(terms)} ORDER BY arrived DESC LIMIT ?"

        def work(connection: Connection) -> list[Decided]:
            rows: Any = connection.execute(query, (*values, limit))
            return [Decided(number, _wait(row)) for *row, number in rows]

        return await self._writer.read(work)

    async def remembered(self, session: str) -> list[Remembered]:
        query = (
            'SELECT session, tool_id, effect, pattern, at, reason, "by", via FROM remembered WHERE session = ?'
            " ORDER BY number DESC"
        )

        def work(connection: Connection) -> list[Remembered]:
            return [Remembered(*row) for row in connection.execute(query, (session,))]

        return await self._writer.read(work)


def completion_came(connection: Connection, key: CallKey) -> bool:
    """True when the completion of a call was resolved, and the resolver was told that it was the first."""
    wait = _find(connection, WaitKey(key, "completion"))
    return wait is not None and was_answered(wait.resolution)


def _find(connection: Connection, key: WaitKey) -> Wait | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM waits WHERE {_WAIT}", _values(key)).fetchone()
    return None if row is None else _wait(row)


def _revoked(connection: Connection, session: str) -> Resolution | None:
    blob = one(connection, "SELECT resolution FROM revoked WHERE session = ?", (session,))
    return None if blob is None else _decode(blob)


def _refusal_of_run(connection: Connection, key: CallKey) -> Refused | None:
    """As below, for a call that has not begun: a run may be sent signals while it still waits for a worker."""
    if not key.scope.startswith(RUN_SCOPE):
        return Refused("unknown")
    state = one(connection, "SELECT state FROM processes WHERE id = ? AND session = ?", (key.call_id, key.session))
    if state is None:
        return Refused("unknown")
    return Refused("over") if state in OVER else None


def _refusal(connection: Connection, key: CallKey) -> Refused | None:
    """Why nothing more may come in for a call; None where it may."""
    finished = one(connection, f"SELECT outcome IS NOT NULL FROM every_call WHERE {KEY}", key)
    if finished is None and (refused := _refusal_of_run(connection, key)) is not None:
        return refused
    if one(connection, "SELECT 1 FROM revoked WHERE session = ?", (key.session,)) is not None:
        return Refused("revoked")
    return Refused("over") if finished else None


def _settle(connection: Connection, keys: list[WaitKey], resolution: Resolution) -> None:
    """Write how waits ended, each with the number of its arrival."""
    if not keys:
        return
    last = one(connection, "UPDATE meta SET value = value + ? WHERE name = 'arrived' RETURNING value", (len(keys),))
    blob = packed(resolution)
    connection.executemany(
        "INSERT INTO waits (session, scope, call_id, kind, name, detail, resolution, arrived, open)"
        f" VALUES (?, ?, ?, ?, ?, CAST('null' AS BLOB), ?, ?, 0) {_RENEW}"
        " resolution = excluded.resolution, arrived = excluded.arrived, open = 0",
        [(*_values(key), blob, last - len(keys) + place) for place, key in enumerate(keys, start=1)],
    )


def _values(key: WaitKey) -> tuple[str, ...]:
    return (*key.call, key.kind, key.name)


def _wait(values: Sequence[Any]) -> Wait:
    row = WaitRow._make(values)
    key = WaitKey(CallKey(row.session, row.scope, row.call_id), row.kind, row.name)
    resolution = None if row.resolution is None else _decode(row.resolution)
    return Wait(key, row.opened_at, row.deadline, row.detail, resolution)
