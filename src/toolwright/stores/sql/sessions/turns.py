"""Turns in a SQL store. Owns their queries: the queue of a session, the state of a turn, its events and its signals."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable
from typing import Any

from toolwright import jsonx
from toolwright.errors import TurnError
from toolwright.stores.contracts.sessions import NewMessage, Quota
from toolwright.stores.contracts.turns import (
    ENDED,
    EVENT_GAP,
    Advance,
    EventChunk,
    NewTurn,
    Steering,
    StoredMessage,
    TurnRecord,
    TurnSignals,
    TurnSteered,
    is_cancelled_so,
)
from toolwright.stores.sql.calls.journal import NOBODY
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import insert, one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.liveness import Liveness
from toolwright.stores.sql.sessions.messages import list_messages, put_messages

_NAMES = TurnRecord.__struct_fields__
_COLUMNS = ", ".join(_NAMES)
_LAST_NUMBER = (
    "SELECT max(last) FROM (SELECT max(number) AS last FROM turns WHERE session = ?1"
    " UNION ALL SELECT last FROM turn_numbers WHERE session = ?1) AS numbers"
)
_STEERED = "SELECT 1 FROM turn_steering WHERE turn = ? AND number > ? LIMIT 1"
_BEYOND_ALL = 2**62
"""Beyond the number of every turn."""
_LAST_CHARACTER = "\U0010ffff"
_HEAD = f"SELECT {_COLUMNS} FROM turns WHERE session = ? AND ended_at IS NULL ORDER BY number LIMIT 1"


class SqlTurnStore:
    """`TurnStore` in a SQL store. `owner` is the sign of life of this process in the file, if it has one."""

    def __init__(self, changes: Changes, owner: str | None = None, liveness: Liveness | None = None) -> None:
        self._changes = changes
        self._owner = owner or "memory"
        self._liveness = liveness

    async def add(self, new: NewTurn, quota: Quota) -> TurnRecord:
        def work(connection: Connection) -> TurnRecord:
            known = _find(connection, new.id)
            if known is not None:
                if (known.session, known.message) != (new.session, new.message):
                    raise TurnError(
                        f"The id {new.id!r:.200} is that of another turn; "
                        "give each turn its own id, or the same message",
                        "conflict",
                    )
                return known
            last = one(connection, _LAST_NUMBER, (new.session,)) or 0
            turn = TurnRecord(
                id=new.id,
                session=new.session,
                number=last + 1,
                state="queued",
                message=new.message,
                options=new.options,
                created_at=new.at,
                owner=None if new.anywhere else self._owner,
                caller=new.caller,
                above=new.above,
            )
            connection.execute(insert("turns", _NAMES), [getattr(turn, name) for name in _NAMES])
            head = _read(connection.execute(_HEAD, (new.session,)).fetchone())
            if new.anywhere or head is None or head.id != new.id:
                return turn
            return self._take(connection, head, new.at, quota)

        return await self._changes.change(None, work)

    async def claim(self, session: str, at: float, quota: Quota) -> TurnRecord | None:
        def work(connection: Connection) -> TurnRecord | None:
            head = _read(connection.execute(_HEAD, (session,)).fetchone())
            if head is None or not self._is_free(connection, head):
                return None
            return self._take(connection, head, at, quota)

        return await self._changes.change(None, work)

    async def release(self, id: str, token: int) -> bool:
        def work(connection: Connection) -> bool:
            query = "UPDATE turns SET owner = ? WHERE id = ? AND token = ? AND owner IN (?, ?) AND ended_at IS NULL"
            connection.execute(query, (NOBODY, id, token, self._owner, NOBODY))
            return connection.changes() > 0

        return await self._changes.change(None, work)

    async def ready(self, *, anywhere: bool, limit: int = 100) -> builtins.list[str]:
        query = (
            "SELECT session, owner FROM turns AS head WHERE ended_at IS NULL AND caller IS NULL AND number ="
            " (SELECT min(number) FROM turns WHERE session = head.session AND ended_at IS NULL)"
            " AND (owner IS NULL OR owner <> ?) ORDER BY created_at"
        )

        def work(connection: Connection) -> builtins.list[str]:
            heads: builtins.list[Any] = connection.execute(query, (self._owner,)).fetchall()
            dead = {NOBODY} | self._dead(connection, {owner for _, owner in heads if owner is not None})
            free = [session for session, owner in heads if (anywhere if owner is None else owner in dead)]
            return free[:limit]

        return await self._changes.read(work)

    async def below(self, above: str) -> builtins.list[TurnRecord]:
        query = f"SELECT {_COLUMNS} FROM turns WHERE above = ? ORDER BY created_at"
        rows = await self._changes.read(lambda connection: connection.execute(query, (above,)).fetchall())
        return [_known(row) for row in rows]

    async def of_call(self, caller: str) -> builtins.list[TurnRecord]:
        query = f"SELECT {_COLUMNS} FROM turns WHERE caller = ? AND ended_at IS NULL ORDER BY created_at, number"
        rows = await self._changes.read(lambda connection: connection.execute(query, (caller,)).fetchall())
        return [_known(row) for row in rows]

    def _is_free(self, connection: Connection, head: TurnRecord) -> bool:
        return head.owner in (None, self._owner, NOBODY) or bool(self._dead(connection, {head.owner}))

    def _dead(self, connection: Connection, owners: set[str]) -> set[str]:
        return set() if self._liveness is None or not owners else self._liveness.dead_among(owners, connection)

    def _take(self, connection: Connection, head: TurnRecord, at: float, quota: Quota) -> TurnRecord:
        if head.started_at is None:
            message = NewMessage("user", head.message, jsonx.encode({"turn": head.id}))
            put_messages(connection, head.session, [message], at, quota)
        row = connection.execute(
            "UPDATE turns SET state = 'running', owner = ?, token = token + 1, advances = 0,"
            " started_at = coalesce(started_at, ?),"
            f" events = CASE WHEN started_at IS NULL THEN events ELSE (events / {EVENT_GAP} + 1) * {EVENT_GAP} END"
            f" WHERE id = ? RETURNING {_COLUMNS}",
            (self._owner, at, head.id),
        ).fetchone()
        assert row is not None
        return _known(row)

    async def history(self, session: str, after: int, limit: int) -> builtins.list[StoredMessage]:
        return await list_messages(self._changes, session, after, limit)

    def advance(self, advance: Advance, quota: Quota) -> Awaitable[bool]:
        def work(connection: Connection) -> bool:
            ended = advance.at if advance.state in ENDED else None
            connection.execute(
                "UPDATE turns SET state = ?, progress = ?, answer = ?, outcome = ?, ended_at = ?,"
                " events = max(events, ?), advances = ?"
                " WHERE id = ? AND token = ? AND owner = ? AND ended_at IS NULL AND advances < ?",
                (
                    advance.state,
                    advance.progress,
                    advance.answer,
                    advance.outcome,
                    ended,
                    0 if advance.events is None else advance.events.last,
                    advance.number,
                    advance.id,
                    advance.token,
                    self._owner,
                    advance.number,
                ),
            )
            if not connection.changes():
                return self._is_written(connection, advance)
            if advance.steered is not None and one(connection, _STEERED, (advance.id, advance.steered)) is not None:
                raise TurnSteered(advance.id)
            if advance.events is not None:
                _write_events(connection, advance.id, advance.events)
            if advance.messages:
                session = one(connection, "SELECT session FROM turns WHERE id = ?", (advance.id,))
                put_messages(connection, session, advance.messages, advance.at, quota)
            return True

        return self._changes.submit(work)

    def _is_written(self, connection: Connection, advance: Advance) -> bool:
        """True when this very state was written already: its owner repeats it, because it got no answer."""
        query = "SELECT 1 FROM turns WHERE id = ? AND token = ? AND owner = ? AND advances = ?"
        return one(connection, query, (advance.id, advance.token, self._owner, advance.number)) is not None

    async def log(self, id: str, token: int, events: EventChunk) -> bool:
        def work(connection: Connection) -> bool:
            query = "UPDATE turns SET events = max(events, ?) WHERE id = ? AND token = ? AND owner = ?"
            connection.execute(query, (events.last, id, token, self._owner))
            if not connection.changes():
                return False
            _write_events(connection, id, events)
            return True

        return await self._changes.submit(work, synced=False)

    async def events(self, id: str, after: int, limit: int = 100) -> builtins.list[EventChunk]:
        query = "SELECT last, data FROM turn_events WHERE turn = ? AND last > ? ORDER BY last LIMIT ?"
        rows: builtins.list[Any] = await self._changes.read(
            lambda connection: connection.execute(query, (id, after, limit)).fetchall()
        )
        return [EventChunk(*row) for row in rows]

    async def signals(self, id: str, after: int) -> TurnSignals:
        steering = "SELECT number, text FROM turn_steering WHERE turn = ? AND number > ? ORDER BY number"

        def work(connection: Connection) -> TurnSignals:
            reason = one(connection, "SELECT cancel_reason FROM turns WHERE id = ?", (id,))
            return TurnSignals(reason, [Steering(*row) for row in connection.execute(steering, (id, after))])

        return await self._changes.read(work)

    async def cancel(self, id: str, reason: str, at: float, outcome: bytes) -> TurnRecord | None:
        def work(connection: Connection) -> TurnRecord | None:
            connection.execute(
                "UPDATE turns SET cancel_reason = coalesce(cancel_reason, ?) WHERE id = ? AND ended_at IS NULL",
                (reason, id),
            )
            if not connection.changes():
                found = _find(connection, id)
                return found if found is not None and is_cancelled_so(found, at, outcome) else None
            connection.execute(
                "UPDATE turns SET state = 'cancelled', ended_at = ?, outcome = ?"
                " WHERE id = ? AND started_at IS NULL AND ended_at IS NULL",
                (at, outcome, id),
            )
            return _find(connection, id)

        return await self._changes.change(None, work)

    async def signalled(self) -> dict[str, str | None]:
        query = (
            "SELECT id, cancel_reason FROM turns WHERE ended_at IS NULL AND owner = ?"
            " AND (cancel_reason IS NOT NULL OR EXISTS (SELECT 1 FROM turn_steering WHERE turn = turns.id))"
        )
        rows: builtins.list[Any] = await self._changes.read(
            lambda connection: connection.execute(query, (self._owner,)).fetchall()
        )
        return dict(rows)

    async def steer(self, id: str, text: str, at: float) -> bool:
        def work(connection: Connection) -> bool:
            if one(connection, "SELECT 1 FROM turns WHERE id = ? AND ended_at IS NULL", (id,)) is None:
                return False
            known = "SELECT 1 FROM turn_steering WHERE turn = ? AND at = ? AND text = ?"
            if one(connection, known, (id, at, text)) is not None:
                return True
            last = one(connection, "SELECT max(number) FROM turn_steering WHERE turn = ?", (id,)) or 0
            connection.execute("INSERT INTO turn_steering VALUES (?, ?, ?, ?)", (id, last + 1, text, at))
            return True

        return await self._changes.change(None, work)

    async def find(self, id: str) -> TurnRecord | None:
        return await self._changes.read(lambda connection: _find(connection, id))

    async def list(
        self,
        session: str | None,
        *,
        active: bool = False,
        limit: int = 100,
        prefix: str = "",
        before: int | None = None,
    ) -> builtins.list[TurnRecord]:
        query = list_query(session is not None, active, bool(prefix))
        values: tuple[Any, ...] = (session, limit)
        if session is not None:
            values += (_BEYOND_ALL if before is None else before,)
        if prefix:
            values += (prefix, prefix + _LAST_CHARACTER)
        rows = await self._changes.read(lambda connection: connection.execute(query, values).fetchall())
        return [_known(row) for row in rows]


def list_query(of_session: bool, active: bool, by_prefix: bool) -> str:
    """The query of a list of turns: the session, the limit, with a session the number to be below, and the bounds of
    the ids are its values."""
    where = "session = ?1 AND number < ?3" if of_session else "CAST(?1 AS TEXT) IS NULL"
    where += " AND ended_at IS NULL" if active else ""
    if by_prefix:
        where += " AND id >= ?4 AND id < ?5" if of_session else " AND id >= ?3 AND id < ?4"
    # Few ids have the same beginning, and few turns are unfinished: these are found, and then sorted. Those of a
    # session are in the order of their numbers.
    order = "+created_at DESC, number DESC" if by_prefix or active else "created_at DESC, number DESC"
    order = "number DESC" if of_session else order
    return f"SELECT {_COLUMNS} FROM turns WHERE {where} ORDER BY {order} LIMIT ?2"


def _find(connection: Connection, id: str) -> TurnRecord | None:
    return _read(connection.execute(f"SELECT {_COLUMNS} FROM turns WHERE id = ?", (id,)).fetchone())


def _read(row: tuple[Any, ...] | None) -> TurnRecord | None:
    return None if row is None else _known(row)


def _known(row: tuple[Any, ...]) -> TurnRecord:
    return TurnRecord(**dict(zip(_NAMES, row, strict=True)))


def _write_events(connection: Connection, id: str, events: EventChunk) -> None:
    connection.execute("INSERT OR REPLACE INTO turn_events VALUES (?, ?, ?)", (id, *events))
