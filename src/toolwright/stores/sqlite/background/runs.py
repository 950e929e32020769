"""Processes in SQLite. Owns their store: finding, claiming and cancelling them, and the leases of workers."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from typing import Any

import apsw
from msgspec.structs import replace

from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import BackgroundRun, Registration
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.run_store import Claimed, Ending, Limits, Renewal, Report, Telling
from toolwright.stores.contracts.sessions import Mark, Quotas
from toolwright.stores.sqlite.background.run_leases import enter_run, queue_again, reopen_run, take_run
from toolwright.stores.sqlite.background.run_reports import append_event, end_run, list_events, write_report
from toolwright.stores.sqlite.background.run_rows import COLUMNS, LEASED, PENDING, add_event, read_run, to_run
from toolwright.stores.sqlite.core.codec import one
from toolwright.stores.sqlite.core.idempotent_writes import Changes
from toolwright.stores.sqlite.core.owners import dead_among
from toolwright.stores.sqlite.core.store_file import StorePlace

_TREE = (
    "WITH RECURSIVE below(id, depth) AS (SELECT ?, 0 UNION ALL"
    " SELECT child.id, depth + 1 FROM processes AS child JOIN below ON child.parent = below.id)"
)

BEYOND = 3_600.0
"""A lease that ends so many seconds later than a new one was given before the machine was restarted."""
_PASSED = "(lease_until < ?1 OR lease_until > ?2)"
_KNOWN = "tool IN (SELECT value FROM json_each(?))"


class SqliteRunStore:
    """`RunStore` in SQLite. `owner` is the sign of life of this process in the file, if it has one."""

    def __init__(self, changes: Changes, owner: str | None = None, place: StorePlace | None = None) -> None:
        self._changes = changes
        self._owner = owner
        self._place = place
        self._clock = changes.clock

    async def register(self, registrations: Sequence[Registration], limits: Limits, mark: Mark | None) -> list[str]:
        def work(connection: apsw.Connection) -> builtins.list[str]:
            for registration in registrations:
                known = read_run(connection, registration.id)
                if known is None:
                    enter_run(connection, registration, limits, self._changes.lease_time())
                elif not registration.same_as(known):
                    raise RunError(
                        f"The id {registration.id!r} is that of another process; give each its own", "conflict"
                    )
            return [registration.id for registration in registrations]

        return await self._changes.change(mark, work)

    async def find(self, id: str) -> BackgroundRun | None:
        found = await self._changes.read(lambda connection: read_run(connection, id))
        return None if found is None else self._shown(found)

    async def list(
        self, session: str | None, *, active: bool = False, limit: int = 1_000
    ) -> builtins.list[BackgroundRun]:
        query = (
            f"SELECT {COLUMNS} FROM processes WHERE (?1 IS NULL OR session = ?1)"
            f" AND {PENDING if active else '1'} ORDER BY created_at DESC, rowid DESC LIMIT ?2"
        )
        if session is not None:
            query = query.replace("(?1 IS NULL OR session = ?1)", "session = ?1")
        found = await self._changes.read(
            lambda connection: [to_run(row) for row in connection.execute(query, (session, limit))]
        )
        return [self._shown(process) for process in found]

    async def tree(self, id: str) -> builtins.list[BackgroundRun]:
        found = await self._changes.read(lambda connection: _tree(connection, id))
        return [self._shown(process) for process in found]

    async def claim(
        self, worker: str, tools: Sequence[str], at: float, lease: float, most: int
    ) -> builtins.list[Claimed]:
        known = json.dumps(list(tools))

        def work(connection: apsw.Connection) -> builtins.list[Claimed]:
            self._end_leases_of_the_dead(connection)
            now = self._changes.lease_time()
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM processes WHERE {LEASED} AND {_PASSED} AND worker != ?3"
                f" AND {_KNOWN.replace('?', '?4')} ORDER BY lease_until LIMIT ?5",
                (now, now + lease + BEYOND, worker, known, most),
            ).fetchall()
            rows += connection.execute(
                f"SELECT {COLUMNS} FROM processes WHERE state = 'queued' AND {_KNOWN}"
                " ORDER BY created_at, rowid LIMIT ?",
                (known, most - len(rows)),
            ).fetchall()
            return [take_run(connection, to_run(row), worker, at, now + lease) for row in rows]

        return [one._replace(process=self._shown(one.process)) for one in await self._changes.attempt(work)]

    async def renew(
        self, worker: str, held: Sequence[tuple[str, int]], at: float, lease: float, capacity: int
    ) -> Renewal:
        statement = f"UPDATE processes SET lease_until = ? WHERE id = ? AND token = ? AND {LEASED}"

        def work(connection: apsw.Connection) -> Renewal:
            until = self._changes.lease_time() + lease
            connection.execute(
                "INSERT INTO workers VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET capacity = excluded.capacity, until = excluded.until",
                (worker, self._owner, capacity, until),
            )
            lost = []
            for id, token in held:
                connection.execute(statement, (until, id, token))
                if connection.changes() != 1:
                    lost.append(id)
            query = f"SELECT id, token FROM processes WHERE {LEASED} AND worker = ?"
            mine: Any = connection.execute(query, (worker,)).fetchall()
            queue_again(connection, worker, set(mine) - set(held), at)
            return Renewal(lost, dict(_cancelled(connection, worker)))

        return await self._changes.attempt(work)

    async def report(self, reports: Sequence[Report]) -> builtins.list[str]:
        def work(connection: apsw.Connection) -> builtins.list[str]:
            return [report.id for report in reports if not write_report(connection, report)]

        return await self._changes.attempt(work)

    async def finish(self, ending: Ending, quotas: Quotas) -> bool:
        return await self._changes.attempt(lambda connection: end_run(connection, ending, quotas))

    async def hand_back(self, worker: str, held: Sequence[tuple[str, int]], at: float) -> None:
        await self._changes.attempt(lambda connection: queue_again(connection, worker, held, at))

    async def leave(self, worker: str) -> None:
        await self._changes.attempt(
            lambda connection: connection.execute("DELETE FROM workers WHERE name = ?", (worker,)).fetchall()
        )

    async def cancel(self, id: str, reason: str, at: float) -> builtins.list[BackgroundRun]:
        def work(connection: apsw.Connection) -> builtins.list[BackgroundRun]:
            known = read_run(connection, id)
            if known is None or known.over:
                return []  # the runs that it started continue, as they did when it ended
            for process in _tree(connection, id):
                if not process.over and process.cancel_reason is None:
                    connection.execute("UPDATE processes SET cancel_reason = ? WHERE id = ?", (reason, process.id))
                    add_event(connection, process.id, "cancel_asked", {"reason": reason}, at)
            return [process for process in _tree(connection, id) if not process.over]

        return [self._shown(process) for process in await self._changes.attempt(work)]

    async def reopen(self, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None) -> None:
        """Queue an abandoned process again."""
        await self._changes.attempt(lambda connection: reopen_run(connection, id, by, limits, at, authority))

    async def append(
        self,
        id: str,
        token: int | None,
        type: str,
        payload: bytes,
        key: str | None,
        at: float,
        telling: Telling | None = None,
    ) -> int | None:
        return await self._changes.attempt(
            lambda connection: append_event(connection, id, token, type, payload, key, at, telling)
        )

    async def events(self, id: str, after: int, limit: int) -> builtins.list[RunEvent]:
        return await self._changes.read(lambda connection: list_events(connection, id, after, limit))

    async def grant(self, id: str, session: str) -> None:
        statement = "INSERT OR IGNORE INTO process_grants VALUES (?, ?)"
        await self._changes.attempt(lambda connection: connection.execute(statement, (id, session)).fetchall())

    async def granted(self, id: str, session: str) -> bool:
        query = (
            "SELECT 1 FROM processes WHERE id = ?1 AND session = ?2"
            " UNION ALL SELECT 1 FROM process_grants WHERE process = ?1 AND session = ?2"
        )
        return await self._changes.read(lambda connection: one(connection, query, (id, session)) is not None)

    async def changed(self, since: int) -> tuple[int, builtins.list[str]]:
        def work(connection: apsw.Connection) -> tuple[int, builtins.list[str]]:
            now: int = one(connection, "SELECT value FROM meta WHERE name = 'changed'")
            if now == since or since < 0:
                return now, []
            query = "SELECT id FROM processes WHERE changed > ? AND changed <= ?"
            return now, [row[0] for row in connection.execute(query, (since, now))]

        return await self._changes.read(work)

    async def cancelled(self, worker: str) -> dict[str, str]:
        return dict(await self._changes.read(lambda connection: _cancelled(connection, worker)))

    async def work_waits(self, worker: str, tools: Sequence[str], lease: float) -> bool:
        known = _KNOWN.replace("?", "?4")
        query = (
            f"SELECT EXISTS (SELECT 1 FROM processes WHERE state = 'queued' AND {known})"
            f" OR EXISTS (SELECT 1 FROM processes WHERE {LEASED} AND {_PASSED} AND worker != ?3 AND {known})"
        )

        def work(connection: apsw.Connection) -> bool:
            now = self._changes.lease_time()
            values = (now, now + lease + BEYOND, worker, json.dumps(list(tools)))
            return bool(one(connection, query, values)) or bool(self._dead_workers(connection))

        return await self._changes.read(work)

    def _shown(self, process: BackgroundRun) -> BackgroundRun:
        """A process with the end of its lease as an instant of the wall clock, for people to read."""
        if process.lease_until is None:
            return process
        left = process.lease_until - self._changes.lease_time()
        return replace(process, lease_until=self._clock.now() + left)

    def _dead_workers(self, connection: apsw.Connection) -> builtins.list[str]:
        """Workers whose process has ended, whatever the state of their leases."""
        if self._place is None:
            return []
        found: Any = connection.execute("SELECT name, owner FROM workers WHERE owner != ?", (self._owner,)).fetchall()
        dead = dead_among({owner for _, owner in found}, connection, self._place) if found else set()
        return [name for name, owner in found if owner in dead]

    def _end_leases_of_the_dead(self, connection: apsw.Connection) -> None:
        for name in self._dead_workers(connection):
            connection.execute(f"UPDATE processes SET lease_until = 0 WHERE {LEASED} AND worker = ?", (name,))
            connection.execute("DELETE FROM workers WHERE name = ?", (name,))


def _tree(connection: apsw.Connection, id: str) -> list[BackgroundRun]:
    query = f"{_TREE} SELECT {COLUMNS} FROM below JOIN processes USING (id) ORDER BY depth, created_at, processes.rowid"
    return [to_run(row) for row in connection.execute(query, (id,))]


def _cancelled(connection: apsw.Connection, worker: str) -> list[Any]:
    query = f"SELECT id, cancel_reason FROM processes WHERE {LEASED} AND worker = ? AND cancel_reason IS NOT NULL"
    return connection.execute(query, (worker,)).fetchall()
