"""Schedules in a SQL store. Owns their queries: which are due, and firing each instant once."""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from toolwright import jsonx
from toolwright.errors import ScheduleError
from toolwright.stores.contracts.background_run import Options, Registration
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.schedule import Fired, Schedule, State, Timing
from toolwright.stores.contracts.schedule_store import Firing
from toolwright.stores.contracts.sessions import Mark
from toolwright.stores.sql.background.runs import PENDING, enter_run
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import KEY, insert, insert_if_new, one, packed
from toolwright.stores.sql.connection import Connection

_NAMES = Schedule.__struct_fields__
"""The columns of a schedule are its fields."""
_COLUMNS = ", ".join(_NAMES)
_LIVE = "state IN ('active', 'paused')"
_options = msgspec.msgpack.Decoder(Options).decode
_timing = msgspec.msgpack.Decoder(Timing).decode


class SqlScheduleStore:
    """`ScheduleStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def add(self, schedule: Schedule, most: int, mark: Mark | None) -> str:
        def work(connection: Connection) -> str:
            there = _find(connection, schedule.id)
            if there is not None:
                if not schedule.same_as(there):
                    raise ScheduleError(
                        f"The id {schedule.id!r} is that of another schedule; use another id, and cancel the old one "
                        "if it is yours",
                        "conflict",
                    )
                # Adding it again starts it from now on, with the permissions of the new caller.
                connection.execute("UPDATE schedules SET authority = ? WHERE id = ?", (schedule.authority, there.id))
                return there.id
            query = f"SELECT count(*) FROM schedules WHERE session = ? AND {_LIVE}"
            if one(connection, query, (schedule.session,)) >= most:
                raise ScheduleError(
                    f"Maximum {most} active schedules per session. Cancel an existing schedule first.", "session_limit"
                )
            connection.execute(insert("schedules", _NAMES), _row(schedule))
            return schedule.id

        return await self._changes.change(mark, work)

    async def added(self, mark: Mark) -> str | None:
        query = f"SELECT payload FROM effects WHERE {KEY} AND label = ?"

        def work(connection: Connection) -> str | None:
            payload = one(connection, query, (*mark.call, mark.label))
            return None if payload is None else msgspec.msgpack.decode(payload, type=str)

        return await self._changes.read(work)

    async def find(self, id: str) -> Schedule | None:
        return await self._changes.read(lambda connection: _find(connection, id))

    async def list(self, session: str | None, *, active: bool = False) -> builtins.list[Schedule]:
        where = " AND ".join([*(["session = ?"] if session is not None else []), *([_LIVE] if active else [])])
        query = f"SELECT {_COLUMNS} FROM schedules WHERE {where or '1 = 1'} ORDER BY created_at, id"
        values = () if session is None else (session,)
        return await self._changes.read(
            lambda connection: [_schedule(row) for row in connection.execute(query, values)]
        )

    async def due(self, now: float, limit: int, after: tuple[float, str] | None = None) -> builtins.list[Schedule]:
        query = (
            f"SELECT {_COLUMNS} FROM schedules WHERE state = 'active' AND next_at <= ?"
            " AND (next_at, id) > (?, ?) ORDER BY next_at, id LIMIT ?"
        )
        values = (now, *(after or (-math.inf, "")), limit)
        return await self._changes.read(
            lambda connection: [_schedule(row) for row in connection.execute(query, values)]
        )

    async def fire(
        self,
        id: str,
        expected: float | None,
        firings: Sequence[Firing],
        next_at: float | None,
        at: float,
        limits: Limits,
    ) -> builtins.list[str] | None:
        def work(connection: Connection) -> builtins.list[str] | None:
            connection.execute(
                "UPDATE schedules SET next_at = ?2, state = CASE WHEN ?2 IS NULL THEN 'ended' ELSE state END"
                " WHERE id = ?1 AND state = 'active' AND next_at = ?3",
                (id, next_at, expected),
            )
            if connection.changes() != 1:
                return None
            now = self._changes.lease_time(connection)
            runs = [_fire(connection, id, firing, at, limits, now) for firing in firings]
            return [run for run in runs if run is not None]

        return await self._changes.change(None, work)

    async def run_now(
        self, id: str, registration: Registration, at: float, limits: Limits, mark: Mark | None
    ) -> str | None:
        def work(connection: Connection) -> str | None:
            if one(connection, "SELECT 1 FROM schedules WHERE id = ? AND state != 'cancelled'", (id,)) is None:
                return None
            enter_run(connection, registration, limits, self._changes.lease_time(connection))
            connection.execute(
                "INSERT INTO firings (schedule, instant, at, what, process) VALUES (?, ?, ?, ?, ?)",
                (id, at, at, f"now {registration.id}", registration.id),
            )
            return registration.id

        return await self._changes.change(mark, work)

    async def change(
        self, id: str, before: Sequence[State], state: State, next_at: float | None, mark: Mark | None
    ) -> bool:
        allowed = ", ".join(f"'{one_state}'" for one_state in before)
        # The caller may have read it before the last firing: a fired instant must not be due again.
        statement = (
            "UPDATE schedules SET state = ?1, next_at = CASE WHEN next_at > ?2 THEN next_at"
            f" WHEN next_at IS NOT NULL THEN ?2 END WHERE id = ?3 AND state IN ({allowed})"
        )

        def work(connection: Connection) -> bool:
            connection.execute(statement, (state, next_at, id))
            return connection.changes() == 1

        return await self._changes.change(mark, work)

    async def history(self, id: str, limit: int) -> builtins.list[Fired]:
        query = (
            "SELECT instant, at, what, process FROM firings WHERE schedule = ? ORDER BY instant DESC, what DESC LIMIT ?"
        )

        def work(connection: Connection) -> builtins.list[Fired]:
            rows: Any = connection.execute(query, (id, limit))
            return [Fired(instant, at, what.partition(" ")[0], run) for instant, at, what, run in rows]

        return await self._changes.read(work)


def _fire(connection: Connection, id: str, firing: Firing, at: float, limits: Limits, now: float) -> str | None:
    """Fire one instant, unless it was fired before; the id of the run, if one is started."""
    query = "SELECT 1 FROM firings WHERE schedule = ? AND instant = ? AND what = 'fired'"
    if one(connection, query, (id, firing.instant)) is not None:
        return None
    what, run = firing.what, None
    active = f"SELECT 1 FROM processes WHERE schedule = ? AND {PENDING} LIMIT 1"
    if firing.unless_active and one(connection, active, (id,)) is not None:
        what = "skipped"
    elif firing.registration is not None:
        enter_run(connection, firing.registration, limits, now)
        run = firing.registration.id
    connection.execute(
        insert_if_new("firings", ("schedule", "instant", "at", "what", "process")),
        (id, firing.instant, at, what, run),
    )
    return run


def prune_firings(connection: Connection, before: float, sessions: Collection[str] | None, dry_run: bool) -> int:
    """Remove firings before an instant, and then finished schedules without any; count the firings.

    The next instant of a schedule decides when it is due, never its past firings.
    """
    mine = "(?2 IS NULL OR session IN (SELECT value FROM json_each(?2)))"
    chosen = None if sessions is None else json.dumps(list(sessions))
    old = f"FROM firings WHERE at < ?1 AND schedule IN (SELECT id FROM schedules WHERE {mine})"
    if dry_run:
        found: int = one(connection, f"SELECT count(*) {old}", (before, chosen))
        return found
    connection.execute(f"DELETE {old}", (before, chosen))
    removed = connection.changes()
    connection.execute(
        f"DELETE FROM schedules WHERE NOT {_LIVE} AND created_at < ?1 AND {mine}"
        " AND NOT EXISTS (SELECT 1 FROM firings WHERE schedule = schedules.id)",
        (before, chosen),
    )
    return removed


def _find(connection: Connection, id: str) -> Schedule | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM schedules WHERE id = ?", (id,)).fetchone()
    return None if row is None else _schedule(row)


def _row(schedule: Schedule) -> tuple[Any, ...]:
    written = {name: getattr(schedule, name) for name in _NAMES} | {
        "arguments": jsonx.encode(schedule.arguments),
        "options": packed(schedule.options),
        "timing": packed(schedule.timing),
        "provenance": jsonx.encode(schedule.provenance),
    }
    return tuple(written.values())


def _schedule(row: Sequence[Any]) -> Schedule:
    fields = dict(zip(_NAMES, row, strict=True))
    fields["arguments"] = jsonx.decode(fields["arguments"])
    fields["options"] = _options(fields["options"])
    fields["timing"] = _timing(fields["timing"])
    fields["provenance"] = jsonx.decode(fields["provenance"])
    fields["authority"] = fields["authority"] or b""
    return Schedule(**fields)
