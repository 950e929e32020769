"""Background runs in a SQL store. Owns all that is written and read of them: rows, limits, leases, reports, ends.

In this order: the verbs of `RunStore`; rows and their events; admission of a run, claiming it and handing it back; its
reports, and its end; its resource in the session.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import (
    OVER,
    BackgroundRun,
    Options,
    Progress,
    Registration,
    artifact_paths,
    scope_of,
)
from toolwright.stores.contracts.journal import CallKey, Cursor
from toolwright.stores.contracts.run_events import Output, RunEvent, checked
from toolwright.stores.contracts.run_store import HEAD, TAIL, Claimed, Ending, Limits, Piece, Renewal, Report, Telling
from toolwright.stores.contracts.sessions import Content, Mark, NewMessage, Quota, Quotas, Writing
from toolwright.stores.contracts.turns import written_caller
from toolwright.stores.sql.calls.journal import NOBODY
from toolwright.stores.sql.calls.waits import completion_came
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import KEY, insert_if_new, one, packed, unpacker
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.liveness import Liveness
from toolwright.stores.sql.sessions.files import put_file
from toolwright.stores.sql.sessions.messages import put_messages
from toolwright.tools.outcome import Failure, ToolOutcome

LEASED = "state IN ('running', 'waiting')"
TRACKED = "state = 'running' AND worker IS NULL"
"""Work that happens elsewhere. A run of a worker has the name of that worker."""
ACTIVE = "state IN ('queued', 'running', 'waiting') AND (worker IS NOT NULL OR state = 'queued')"
"""States that take, or are about to take, a slot of a worker."""
PENDING = "state IN ('held', 'queued', 'running', 'waiting')"
_NAMES = (
    *("id", "session", "parent", "schedule", "tool", "arguments", "title", "options", "provenance", "state"),
    *("status_text", "created_at", "started_at", "ended_at", "deadline", "worker", "token", "lease_until", "attempts"),
    *("crashes", "cancel_reason", "progress", "tail", "log_chars", "outcome", "authority"),
)
"""The columns of a run: the fields of `BackgroundRun`, but for its state, which is the status it has here."""
COLUMNS = ", ".join(_NAMES)
_options = msgspec.msgpack.Decoder(Options).decode
_progress = msgspec.json.Decoder(Progress).decode
_outcome = unpacker(ToolOutcome)
_failure = unpacker(Failure)
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
KIND = "background_run"
KEPT = 500
"""How many runs of a session have a resource: the newest. A session that runs for years must not fill up with them."""
_TREE = (
    "WITH RECURSIVE below(id, depth) AS (SELECT id, 0 FROM processes WHERE id = ? UNION ALL"
    " SELECT child.id, depth + 1 FROM processes AS child JOIN below ON child.parent = below.id)"
)

BEYOND = 3_600.0
"""A lease that ends so many seconds later than a new one was given before the machine was restarted."""
COMPARED = 64
"""How many queued runs are compared beyond those that a worker may claim."""
MOST_SERVED = 10_000
"""How many sessions a store remembers to have served."""
_KNOWN_AGAIN = insert_if_new("workers", ("name", "owner", "capacity", "until"))
_PASSED = "(lease_until < ?1 OR lease_until > ?2)"
_KNOWN = "tool IN (SELECT value FROM json_each(?))"
_AMONG = "(? IS NULL OR id IN (SELECT value FROM json_each(?)))"
_WAITS = f"state = 'queued' AND {_KNOWN} ORDER BY created_at, rowid LIMIT ?"
_QUEUED = f"FROM processes WHERE {_WAITS}"


class SqlRunStore:
    """`RunStore` in a SQL store. `owner` is the sign of life of this process in the file, if it has one."""

    def __init__(self, changes: Changes, owner: str | None = None, liveness: Liveness | None = None) -> None:
        self._changes = changes
        self._owner = owner
        self._liveness = liveness
        self._clock = changes.clock
        self._shares = FairShares()

    async def register(self, registrations: Sequence[Registration], limits: Limits, mark: Mark | None) -> list[str]:
        def work(connection: Connection) -> builtins.list[str]:
            for registration in registrations:
                known = read_run(connection, registration.id)
                if known is None:
                    enter_run(connection, registration, limits, self._changes.lease_time(connection))
                elif not registration.same_as(known):
                    raise RunError(f"The id {registration.id!r} is that of another run; give each its own", "conflict")
            return [registration.id for registration in registrations]

        return await self._changes.change(mark, work)

    async def find(self, id: str) -> BackgroundRun | None:
        def work(connection: Connection) -> BackgroundRun | None:
            found = read_run(connection, id)
            return None if found is None else self._shown(connection, [found])[0]

        return await self._changes.read(work)

    async def list(
        self, session: str | None, *, active: bool = False, limit: int = 1_000
    ) -> builtins.list[BackgroundRun]:
        query = (
            f"SELECT {COLUMNS} FROM processes WHERE (?1 IS NULL OR session = ?1)"
            f" AND {PENDING if active else '1 = 1'} ORDER BY created_at DESC, rowid DESC LIMIT ?2"
        )
        if session is not None:
            query = query.replace("(?1 IS NULL OR session = ?1)", "session = ?1")
        return await self._changes.read(
            lambda connection: self._shown(connection, map(to_run, connection.execute(query, (session, limit))))
        )

    async def tree(self, id: str) -> builtins.list[BackgroundRun]:
        return await self._changes.read(lambda connection: self._shown(connection, _tree(connection, id)))

    async def claim(
        self,
        worker: str,
        tools: Sequence[str],
        at: float,
        lease: float,
        most: int,
        only: Sequence[str] | None = None,
        *,
        fair: bool = False,
    ) -> builtins.list[Claimed]:
        known = json.dumps(list(tools))
        among = None if only is None else json.dumps(list(only))

        def work(connection: Connection) -> builtins.list[Claimed]:
            self._end_leases_of_the_dead(connection)
            now = self._changes.lease_time(connection)
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM processes WHERE {LEASED} AND {_PASSED} AND worker != ?3"
                f" AND {_KNOWN.replace('?', '?4')} AND {_AMONG.replace('?', '?6')} ORDER BY lease_until LIMIT ?5",
                (now, now + lease + BEYOND, worker, known, most, among),
            ).fetchall()
            runs = [] if rows and self._spares_all(connection) else [to_run(row) for row in rows]
            if among is not None:
                query = f"SELECT {COLUMNS} FROM processes WHERE id IN (SELECT value FROM json_each(?)) AND {_WAITS}"
                rows = connection.execute(query, (among, known, most - len(runs))).fetchall()
                runs += [to_run(row) for row in rows]
            elif len(runs) < most:
                room = most - len(runs)
                if fair:
                    room = min(room, _share(connection, worker, known, room, now))
                runs += self._shares.choose(connection, known, room, at)
            if runs:
                # Others remove the row of a worker that was cut off, and without it no call of a run may begin. How
                # many it may run, its next renewal says.
                connection.execute(_KNOWN_AGAIN, (worker, self._owner, 0, now + lease))
            taken = [take_run(connection, run, worker, at, now + lease) for run in runs]
            shown = self._shown(connection, [claimed.run for claimed in taken])
            return [claimed._replace(run=run) for claimed, run in zip(taken, shown, strict=True)]

        return await self._changes.change(None, work)

    async def renew(
        self, worker: str, held: Sequence[tuple[str, int]], at: float, lease: float, capacity: int
    ) -> Renewal:
        statement = f"UPDATE processes SET lease_until = ? WHERE id = ? AND token = ? AND {LEASED}"
        more: builtins.list[tuple[str, int]] = []

        def work(connection: Connection) -> Renewal:
            more.clear()  # a transaction may be repeated
            until = self._changes.lease_time(connection) + lease
            connection.execute(
                "INSERT INTO workers (name, owner, capacity, until)"
                " VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET capacity = excluded.capacity, until = excluded.until",
                (worker, self._owner, capacity, until),
            )
            lost = []
            for id, token in held:
                connection.execute(statement, (until, id, token))
                if connection.changes() != 1:
                    lost.append(id)
            mine = f"SELECT id, token, cancel_reason FROM processes WHERE {LEASED} AND worker = ?"
            found: Any = connection.execute(mine, (worker,)).fetchall()
            more.extend({(id, token) for id, token, _ in found} - set(held))
            return Renewal(lost, {id: reason for id, _, reason in found if reason is not None})

        # No process waits for a renewal, but one may wait for a run that is handed back.
        renewal = await self._changes.change(None, work, quiet=True)
        if more:
            await self._changes.change(None, lambda connection: queue_again(connection, worker, more, at))
        return renewal

    async def report(self, reports: Sequence[Report]) -> builtins.list[str]:
        def work(connection: Connection) -> builtins.list[str]:
            return [report.id for report in reports if not write_report(connection, report)]

        return await self._changes.change(None, work)

    async def finish(self, ending: Ending, quotas: Quotas) -> bool:
        return await self._changes.change(None, lambda connection: end_run(connection, ending, quotas))

    async def hand_back(self, worker: str, held: Sequence[tuple[str, int]], at: float) -> None:
        await self._changes.change(None, lambda connection: queue_again(connection, worker, held, at))

    async def leave(self, worker: str) -> None:
        await self._changes.change(
            None, lambda connection: connection.execute("DELETE FROM workers WHERE name = ?", (worker,)).fetchall()
        )

    async def cancel(self, id: str, reason: str, at: float) -> builtins.list[BackgroundRun]:
        def work(connection: Connection) -> builtins.list[BackgroundRun]:
            known = read_run(connection, id)
            if known is None or known.over:
                return []  # the runs that it started continue, as they did when it ended
            for run in _tree(connection, id):
                if not run.over and run.cancel_reason is None:
                    connection.execute("UPDATE processes SET cancel_reason = ? WHERE id = ?", (reason, run.id))
                    add_event(connection, run.id, "cancel_asked", {"reason": reason}, at)
            return self._shown(connection, [run for run in _tree(connection, id) if not run.over])

        return await self._changes.change(None, work)

    async def reopen(self, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None) -> None:
        """Queue an abandoned run again."""
        await self._changes.change(None, lambda connection: reopen_run(connection, id, by, limits, at, authority))

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
        return await self._changes.change(
            None, lambda connection: append_event(connection, id, token, type, payload, key, at, telling)
        )

    async def events(self, id: str, after: int, limit: int) -> builtins.list[RunEvent]:
        return await self._changes.read(lambda connection: list_events(connection, id, after, limit))

    async def grant(self, id: str, session: str) -> None:
        statement = insert_if_new("process_grants", ("process", "session"))
        await self._changes.change(None, lambda connection: connection.execute(statement, (id, session)).fetchall())

    async def granted(self, id: str, session: str) -> bool:
        query = (
            "SELECT 1 FROM processes WHERE id = ?1 AND session = ?2"
            " UNION ALL SELECT 1 FROM process_grants WHERE process = ?1 AND session = ?2"
        )
        return await self._changes.read(lambda connection: one(connection, query, (id, session)) is not None)

    async def changed(self, since: Cursor | None) -> tuple[Cursor, builtins.list[str]]:
        def work(connection: Connection) -> tuple[Cursor, builtins.list[str]]:
            now: int = one(connection, "SELECT value FROM meta WHERE name = 'changed'")
            if since is None or str(now) == since:
                return str(now), []
            query = "SELECT id FROM processes WHERE changed > ? AND changed <= ?"
            return str(now), [id for (id,) in connection.execute(query, (int(since), now))]

        return await self._changes.read(work)

    async def cancelled(self, worker: str) -> dict[str, str]:
        return dict(await self._changes.read(lambda connection: _cancelled(connection, worker)))

    async def unclaimed(self, tools: Sequence[str], lease: float, limit: int) -> builtins.list[BackgroundRun]:
        known = json.dumps(list(tools))
        left = (
            f"SELECT {COLUMNS} FROM processes WHERE {LEASED} AND ({_PASSED} OR worker IN"
            f" (SELECT value FROM json_each(?3))) AND {_KNOWN.replace('?', '?4')} ORDER BY lease_until LIMIT ?5"
        )

        def work(connection: Connection) -> builtins.list[BackgroundRun]:
            now, dead = self._changes.lease_time(connection), json.dumps(self._dead_workers(connection))
            values = (now, now + lease + BEYOND, dead, known, limit)
            rows = connection.execute(left, values).fetchall()
            if rows and self._spares_all(connection):
                rows = []
            rows += connection.execute(f"SELECT {COLUMNS} {_QUEUED}", (known, limit - len(rows))).fetchall()
            return self._shown(connection, map(to_run, rows))

        return await self._changes.read(work)

    async def work_waits(self, worker: str, tools: Sequence[str], lease: float) -> bool:
        known, names = _KNOWN.replace("?", "?2"), json.dumps(list(tools))
        query = (
            f"SELECT CASE WHEN EXISTS (SELECT 1 FROM processes WHERE state = 'queued' AND {known}) THEN 2"
            f" WHEN EXISTS (SELECT 1 FROM processes WHERE {LEASED} AND worker != ?1 AND {known}) THEN 1 ELSE 0 END"
        )
        passed = (
            f"SELECT 1 FROM processes WHERE {LEASED} AND {_PASSED} AND worker != ?3 AND {_KNOWN.replace('?', '?4')}"
        )

        def work(connection: Connection) -> bool:
            found = one(connection, query, (worker, names))
            if found != 1:
                return bool(found)
            # Others have runs: do they still?
            now = self._changes.lease_time(connection)
            if one(connection, f"{passed} LIMIT 1", (now, now + lease + BEYOND, worker, names)) is not None:
                return not self._spares_all(connection)
            return bool(self._dead_workers(connection))

        return await self._changes.read(work)

    def _shown(self, connection: Connection, found: Iterable[BackgroundRun]) -> builtins.list[BackgroundRun]:
        """Runs with the ends of their leases as instants of the wall clock, for people to read."""
        runs = [*found]
        if all(run.lease_until is None for run in runs):
            return runs
        ahead = self._clock.now() - self._changes.lease_time(connection)
        return [run if run.lease_until is None else replace(run, lease_until=run.lease_until + ahead) for run in runs]

    def _spares_all(self, connection: Connection) -> bool:
        """True while workers may not have found their store again: they could not renew their leases."""
        return self._liveness is not None and self._liveness.spares_all(connection)

    def _dead_workers(self, connection: Connection) -> builtins.list[str]:
        """Workers whose process has ended, whatever the state of their leases."""
        if self._liveness is None:
            return []
        found: Any = connection.execute("SELECT name, owner FROM workers WHERE owner != ?", (self._owner,)).fetchall()
        dead = self._liveness.dead_among({owner for _, owner in found}, connection) if found else set()
        return [name for name, owner in found if owner in dead]

    def _end_leases_of_the_dead(self, connection: Connection) -> None:
        for name in self._dead_workers(connection):
            connection.execute(f"UPDATE processes SET lease_until = 0 WHERE {LEASED} AND worker = ?", (name,))
            connection.execute("DELETE FROM workers WHERE name = ?", (name,))


def _share(connection: Connection, worker: str, known: str, room: int, now: float) -> int:
    """How many of the queued runs a worker may claim, so that others with room get theirs: of all that is queued or
    runs, each has as many as fit its capacity."""
    capacities: dict[str, int] = dict(
        connection.execute("SELECT name, capacity FROM workers WHERE until >= ?", (now,)).fetchall()
    )
    query = f"SELECT worker, count(*) FROM processes WHERE {LEASED} AND worker IS NOT NULL GROUP BY worker"
    running: dict[str, int] = dict(connection.execute(query).fetchall())
    mine = running.get(worker, 0)
    others = [name for name, most in capacities.items() if name != worker and running.get(name, 0) < most]
    if not others:
        return room
    own = max(1, capacities.get(worker, 0) or mine + room)
    every = own + sum(capacities[name] for name in others)
    query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE state = 'queued' AND {_KNOWN} LIMIT ?) AS queued"
    work: int = one(connection, query, (known, every)) + mine + sum(running.get(name, 0) for name in others)
    return max(0, math.ceil(work * own / every) - mine)


def _tree(connection: Connection, id: str) -> list[BackgroundRun]:
    query = f"{_TREE} SELECT {COLUMNS} FROM below JOIN processes USING (id) ORDER BY depth, created_at, processes.rowid"
    return [to_run(row) for row in connection.execute(query, (id,))]


def _cancelled(connection: Connection, worker: str) -> list[Any]:
    query = f"SELECT id, cancel_reason FROM processes WHERE {LEASED} AND worker = ? AND cancel_reason IS NOT NULL"
    return connection.execute(query, (worker,)).fetchall()


# --- rows and events


def read_run(connection: Connection, id: str) -> BackgroundRun | None:
    """The run of an id."""
    row: Any = connection.execute(f"SELECT {COLUMNS} FROM processes WHERE id = ?", (id,)).fetchone()
    return None if row is None else to_run(row)


def to_run(row: tuple[Any, ...]) -> BackgroundRun:
    """The run of a row of `COLUMNS`."""
    fields = dict(zip(_NAMES, row, strict=True))
    state, progress, outcome = fields.pop("state"), fields["progress"], fields["outcome"]
    return BackgroundRun(
        **fields
        | {
            "status": "queued" if state == "held" else state,
            "arguments": jsonx.decode(fields["arguments"]),
            "options": _options(fields["options"]),
            "provenance": jsonx.decode(fields["provenance"]),
            "authority": fields["authority"] or b"",
            "progress": None if progress is None else _progress(progress),
            "outcome": None if outcome is None else _outcome(outcome),
        }
    )


def insert_run(connection: Connection, new: Registration, state: str) -> None:
    """Insert a new run."""
    connection.execute(
        "INSERT INTO processes (id, session, parent, schedule, alone, tool, arguments, title, options, provenance,"
        " authority, state, status_text, created_at, changed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'Queued', ?, 0)",
        (
            new.id,
            new.session,
            new.parent,
            new.schedule,
            new.alone,
            new.tool,
            new.arguments,
            new.title,
            packed(new.options),
            new.provenance,
            new.authority,
            state,
            new.at,
        ),
    )


def next_change(connection: Connection) -> int:
    """The number of a change that is being made: a watcher looks for higher numbers than it has seen."""
    number: int = one(connection, "UPDATE meta SET value = value + 1 WHERE name = 'changed' RETURNING value")
    return number


def add_event(connection: Connection, id: str, type: str, payload: object, at: float, key: str | None = None) -> int:
    """Append an event, and return its number."""
    return put_event(connection, id, type, checked(type, payload), at, key)


def put_event(connection: Connection, id: str, type: str, payload: bytes, at: float, key: str | None = None) -> int:
    """Append an event whose payload was checked, and return its number."""
    number: int = one(
        connection,
        "UPDATE processes SET last_event = last_event + 1, changed = ? WHERE id = ? RETURNING last_event",
        (next_change(connection), id),
    )
    connection.execute(
        "INSERT INTO process_events (process, number, type, at, payload, key) VALUES (?, ?, ?, ?, ?, ?)",
        (id, number, type, at, payload, key),
    )
    return number


# --- entering, taking and giving back


def enter_run(connection: Connection, registration: Registration, limits: Limits, now: float) -> None:
    """Insert a run, to be claimed at once or held until there is room. `now` is by the clock of leases.

    Raises:
        RunError: a limit is reached, and further runs are not to wait.
    """
    if registration.parent is not None:
        query = f"SELECT 1 FROM processes WHERE id = ? AND {PENDING} AND cancel_reason IS NULL"
        if one(connection, query, (registration.parent,)) is None:
            raise RunError(f"The run {registration.parent!r} is finished or cancelled, and starts no more runs", "over")
    if registration.options.tracked:
        _enter_tracked(connection, registration, limits)
        return
    full = _session_is_full(connection, registration.session, limits)
    # A run must not hold the runs that it starts: it may wait for them, and both would wait for ever.
    if full and (not limits.queue or registration.parent is not None):
        raise _session_limit(limits)
    if not limits.queue:
        query = "SELECT coalesce(sum(capacity), 0) FROM workers WHERE until >= ?"
        most: int = one(connection, query, (now,)) or limits.per_worker
        query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {ACTIVE} LIMIT ?) AS active"
        if one(connection, query, (most,)) >= most:
            raise RunError(
                f"Worker is already running the maximum {most} active background runs. "
                "Try again after an existing run finishes.",
                "worker_limit",
            )
    if registration.alone:
        query = f"SELECT 1 FROM processes WHERE schedule = ? AND {PENDING}"
        full = full or one(connection, query, (registration.schedule,)) is not None
    insert_run(connection, registration, "held" if full else "queued")
    add_resource(connection, registration, limits.resources)
    add_event(connection, registration.id, "queued", {}, registration.at)


def _enter_tracked(connection: Connection, registration: Registration, limits: Limits) -> None:
    """Insert a run that happens elsewhere: it is running, and no worker claims it."""
    most = limits.tracked_per_session
    query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {TRACKED} AND session = ? LIMIT ?) AS tracked"
    if one(connection, query, (registration.session, most)) >= most:
        raise RunError(
            f"Maximum {most} unfinished tracked runs per session. Finish or cancel one before starting another.",
            "session_limit",
        )
    insert_run(connection, registration, "running")
    statement = "UPDATE processes SET status_text = 'Running', started_at = created_at WHERE id = ?"
    connection.execute(statement, (registration.id,))
    add_resource(connection, registration, limits.resources)
    add_event(connection, registration.id, "tracked", {}, registration.at)


def _session_is_full(connection: Connection, session: str, limits: Limits) -> bool:
    query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {ACTIVE} AND session = ? LIMIT ?) AS active"
    active: int = one(connection, query, (session, limits.per_session))
    return active >= limits.per_session


def _session_limit(limits: Limits) -> RunError:
    return RunError(
        f"Maximum {limits.per_session} active background runs per session. "
        "Wait for an existing run to finish before starting another.",
        "session_limit",
    )


def reopen_run(
    connection: Connection, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None
) -> None:
    """Queue an abandoned run again; its calls and steps in doubt are forgotten, and run again.

    Raises:
        RunError: it is not abandoned, or its session has as many active as it may.
    """
    run = read_run(connection, id)
    if run is None or run.status != "abandoned":
        state = "no longer in the store" if run is None else run.status
        raise RunError(f"The run {id!r} is {state}; only an abandoned run can be resumed", "conflict")
    if _session_is_full(connection, run.session, limits):
        raise _session_limit(limits)
    scope = (run.session, scope_of(id))
    finished: list[Any] = connection.execute(
        "SELECT call_id, outcome FROM calls WHERE session = ? AND scope = ? AND outcome IS NOT NULL", scope
    ).fetchall()
    for call_id, outcome in finished:
        failure = _outcome(outcome).failure
        if call_id == id or (failure is not None and failure.code == "interrupted"):
            # As if it had not started: its crash policy is not asked, for a person has decided.
            connection.execute(
                "UPDATE calls SET owner = ?, started_at = NULL, finished_at = NULL, status = NULL, outcome = NULL"
                " WHERE session = ? AND scope = ? AND call_id = ?",
                (NOBODY, *scope, call_id),
            )
    doubtful: list[Any] = connection.execute(
        "SELECT call_id, label, failure FROM effects WHERE session = ? AND scope = ?"
        " AND (failure IS NOT NULL OR done = 0)",
        scope,
    ).fetchall()
    for call_id, label, failed in doubtful:
        if failed is None or _failure(failed).code == "interrupted":
            connection.execute(
                "DELETE FROM effects WHERE session = ? AND scope = ? AND call_id = ? AND label = ?",
                (*scope, call_id, label),
            )
    connection.execute("DELETE FROM waits WHERE session = ? AND scope = ? AND resolution IS NULL", scope)
    connection.execute(
        "UPDATE processes SET state = 'queued', status_text = 'Queued', ended_at = NULL, outcome = NULL, worker = NULL,"
        # It may have been asked to stop when it was about to end: who resumes it has decided after that.
        " deadline = NULL, crashes = 0, cancel_reason = NULL, authority = coalesce(?, authority) WHERE id = ?",
        (authority, id),
    )
    add_event(connection, id, "reopened", {"by": by}, at)
    update_resource(connection, run.session, id, at)


def take_run(connection: Connection, run: BackgroundRun, worker: str, at: float, until: float) -> Claimed:
    """Give a run to a worker; the unfinished calls of the previous one are released, so that this one may continue
    them."""
    scope = scope_of(run.id)
    # An existing outcome stays: nothing is in doubt, and only the end is missing. So does a completion that has come:
    # its sender was told that it was accepted, and it is the outcome of the call.
    query = "SELECT outcome IS NOT NULL FROM calls WHERE session = ? AND scope = ? AND call_id = ?"
    finished = one(connection, query, run.call)
    done = bool(finished) or (finished is not None and completion_came(connection, run.call))
    crashes = _crashes(connection, run, scope)
    if run.attempts and run.options.disposition == "rerun" and not done:
        for table in ("calls", "effects", "crashes", "waits"):
            connection.execute(f"DELETE FROM {table} WHERE session = ? AND scope = ?", (run.session, scope))
    elif run.attempts:
        connection.execute(
            "UPDATE calls SET owner = ? WHERE session = ? AND scope = ? AND outcome IS NULL",
            (NOBODY, run.session, scope),
        )
    timeout = run.options.timeout
    connection.execute(
        "UPDATE processes SET state = 'running', status_text = 'Starting', worker = ?2, token = token + 1,"
        " lease_until = ?3, attempts = attempts + 1, crashes = ?6,"
        " started_at = coalesce(started_at, ?4),"
        " deadline = coalesce(deadline, ?5) WHERE id = ?1",
        (run.id, worker, until, at, None if timeout is None else at + timeout, crashes),
    )
    started = {"worker": worker, "attempt": run.attempts + 1, "taken_over_from": run.worker}
    add_event(connection, run.id, "started", started, at)
    taken = read_run(connection, run.id)
    assert taken is not None
    return Claimed(taken, run.worker, done)


_GOT_FURTHER = (
    "SELECT 1 FROM effects WHERE session = ? AND scope = ? AND done = 1 AND at > ?",
    "SELECT 1 FROM calls WHERE session = ? AND scope = ? AND parent IS NOT NULL AND finished_at > ?",
)
_AGENT_GOT_FURTHER = (
    "SELECT 1 FROM turns JOIN messages ON messages.session = turns.session WHERE caller = ? AND at > ?",
    "SELECT 1 FROM turns JOIN calls ON calls.session = turns.session WHERE caller = ? AND finished_at > ?",
)
"""What a run may have done since an instant that it need not do again: steps and calls; of a sub-agent, answers and the
ends of its calls."""


def _crashes(connection: Connection, run: BackgroundRun, scope: str) -> int:
    """How many workers in a row died with a run that made no progress. A run that waited does not count."""
    if run.status != "running":
        return run.crashes
    query = "SELECT at FROM process_events WHERE process = ? AND type = 'started' ORDER BY number DESC LIMIT 1"
    since = one(connection, query, (run.id,))
    got_further = any(one(connection, query, (run.session, scope, since)) for query in _GOT_FURTHER) or any(
        one(connection, query, (written_caller(run.call), since)) for query in _AGENT_GOT_FURTHER
    )
    return 1 if got_further else run.crashes + 1


class FairShares:
    """Which queued runs are claimed where there are more than a worker may take.

    A session with fewer running goes first; between equals, the one that has waited for longer since it was last
    served here. All queued runs are never read: the oldest are compared, and with them the oldest run of some sessions
    that have none among these, each time of the next ones.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._last_other = ""

    def choose(self, connection: Connection, known: str, most: int, at: float) -> list[BackgroundRun]:
        """Up to `most` queued runs of known tools, which are about to be claimed."""
        query = f"SELECT {COLUMNS} {_QUEUED}"
        runs = [to_run(row) for row in connection.execute(query, (known, most))]
        if len(runs) == most:
            runs = self._fairest(connection, known, most) or runs
        for run in runs:
            self._served[run.session] = at
        if len(self._served) > MOST_SERVED:
            newest = sorted(self._served.items(), key=lambda item: item[1])[MOST_SERVED // 2 :]
            self._served = dict(newest)
        return runs

    def _fairest(self, connection: Connection, known: str, most: int) -> list[BackgroundRun]:
        """The runs to claim; none where no more are queued than may be claimed."""
        query = f"SELECT session, created_at, rowid, id {_QUEUED}"
        queued: list[Any] = connection.execute(query, (known, most + COMPARED)).fetchall()
        if len(queued) <= most:
            return []
        # Counted here: to group them, SQLite would read every run in the order of sessions, also the finished ones.
        query = f"SELECT session FROM processes WHERE {LEASED} AND lease_until > 0"
        share = Counter(row[0] for row in connection.execute(query))
        # A session with none running, and not served since its run was queued, goes before all that came later.
        first = {row[0] for row in queued if not share[row[0]] and self._served.get(row[0], row[1]) <= row[1]}
        if len(first) < most and len(queued) == most + COMPARED:
            queued += self._others(connection, known, {row[0] for row in queued}, most)
        ranked = []
        for session, created_at, number, id in sorted(queued, key=lambda row: row[1:3]):
            waits_since = max(created_at, self._served.get(session, created_at))
            ranked.append((share[session], waits_since, created_at, number, id))
            share[session] += 1
        chosen = [read_run(connection, id) for *_, id in sorted(ranked)[:most]]
        return [run for run in chosen if run is not None]

    def _others(self, connection: Connection, known: str, seen: set[str], most: int) -> list[Any]:
        """The oldest queued run of up to `most` sessions that are not among those seen, from where it last ended."""
        # By the index of active runs, which has those of one session in the order of their arrival.
        query = (
            "SELECT session, created_at, rowid, id FROM processes WHERE state IN ('queued', 'running', 'waiting')"
            f" AND state = 'queued' AND session > ?1 AND {_KNOWN.replace('?', '?2')} ORDER BY session, rowid LIMIT 1"
        )
        found: list[Any] = []
        start, last, wrapped = self._last_other, self._last_other, False
        for _ in range(2 * (most + len(seen)) + 1):
            row: Any = connection.execute(query, (last, known)).fetchone()
            if row is None or (wrapped and row[0] > start):
                if wrapped or not start:
                    break
                wrapped, last = True, ""
                continue
            last = row[0]
            if last not in seen:
                found.append(row)
                if len(found) == most:
                    break
        self._last_other = last
        return found


def queue_again(connection: Connection, worker: str, held: Iterable[tuple[str, int]], at: float) -> None:
    """Let others claim the runs of a worker, each by its id and the token of the lease."""
    for id, token in held:
        # Its worker stays recorded: the next one continues its unfinished calls.
        session = one(
            connection,
            f"UPDATE processes SET state = 'queued', status_text = 'Queued', lease_until = NULL"
            f" WHERE id = ? AND token = ? AND {LEASED} RETURNING session",
            (id, token),
        )
        if session is not None:
            add_event(connection, id, "handed_back", {"worker": worker}, at)
            update_resource(connection, session, id, at)


# --- reports and ends


def write_report(connection: Connection, report: Report) -> bool:
    """Write a report of a run; False when it is finished, or held by another."""
    row: Any = connection.execute(
        f"SELECT session, state, log_chars, tail_first, tail_chars, last_progress FROM processes"
        f" WHERE id = ? AND token = ? AND {LEASED}",
        (report.id, report.token),
    ).fetchone()
    if row is None:
        return False
    session, state, log_chars, tail_first, tail_chars, last_progress = row
    if report.dropped and tail_first is not None:
        # The missing output came after the tail so far, which is dropped then: there is one gap, before the tail.
        statement = "DELETE FROM process_events WHERE process = ? AND number >= ? AND type = 'output'"
        connection.execute(statement, (report.id, tail_first))
        tail_first, tail_chars = None, 0
    if report.opening_text is not None:
        add_event(connection, report.id, "status", {"text": report.opening_text}, report.at)
    for piece in report.pieces:
        number = put_event(connection, report.id, "output", msgspec.json.encode(Output(*piece)), report.at)
        if tail_first is None and log_chars + piece.cost > HEAD:
            tail_first = number
        if tail_first is not None:
            tail_chars += piece.cost
        log_chars += piece.cost
    while tail_chars > TAIL:
        tail_first, dropped = _drop_first(connection, report.id, tail_first)
        tail_chars -= dropped
    if report.progress is not None:
        # Only the newest progress is stored: a run of several days would fill the file with old ones.
        connection.execute("DELETE FROM process_events WHERE process = ? AND number = ?", (report.id, last_progress))
        payload = msgspec.json.encode(report.progress)
        last_progress = put_event(connection, report.id, "progress", payload, report.at)
        connection.execute("UPDATE processes SET progress = ? WHERE id = ?", (payload, report.id))
    if report.status_text is not None:
        add_event(connection, report.id, "status", {"text": report.status_text}, report.at)
    text = report.opening_text if report.status_text is None else report.status_text
    if report.waiting is not None:
        text = f"Waiting for {' '.join(filter(None, report.waiting))}" if report.waiting else text or "Running"
        state = "waiting" if report.waiting else "running"
        said = dict(zip(("what", "name"), report.waiting, strict=False))
        add_event(connection, report.id, "waiting" if report.waiting else "resumed", said, report.at)
    connection.execute(
        "UPDATE processes SET state = ?, status_text = coalesce(?, status_text), tail = coalesce(?, tail),"
        " log_chars = ?, tail_first = ?, tail_chars = ?, last_progress = ?, changed = ? WHERE id = ?",
        (
            state,
            text,
            report.tail,
            log_chars + report.dropped,
            tail_first,
            tail_chars,
            last_progress,
            next_change(connection),
            report.id,
        ),
    )
    update_resource(connection, session, report.id, report.at)
    return True


def _drop_first(connection: Connection, id: str, first: int) -> tuple[int, int]:
    """Drop the oldest output of the tail; return the new beginning of the tail, and the length of the dropped
    output."""
    row: Any = connection.execute(
        "SELECT number, payload FROM process_events WHERE process = ? AND number >= ? AND type = 'output'"
        " ORDER BY number LIMIT 1",
        (id, first),
    ).fetchone()
    number, payload = row
    connection.execute("DELETE FROM process_events WHERE process = ? AND number = ?", (id, number))
    output = msgspec.json.decode(payload, type=Output)
    return number + 1, Piece(output.stream, output.text).cost


def end_run(connection: Connection, ending: Ending, quotas: Quotas) -> bool:
    """End a run, with its artifacts and its message; False when it is finished, or held by another."""
    query = f"SELECT session, state, {TRACKED} FROM processes WHERE id = ? AND token = ? AND {PENDING}"
    row: Any = connection.execute(query, (ending.id, ending.token)).fetchone()
    if row is None:
        return False
    if ending.report is not None:
        write_report(connection, ending.report)
    session, before, tracked = row
    call = CallKey(session, scope_of(ending.id), ending.id)
    query = f"SELECT 1 FROM calls WHERE {KEY} AND outcome IS NULL"
    if one(connection, query, call) is not None and completion_came(connection, call):
        return False  # An accepted resolution decides: a worker ends the run with that.
    outcome = packed(ending.outcome)
    connection.execute(
        "UPDATE processes SET state = ?, status_text = ?, ended_at = ?, outcome = ?, lease_until = NULL WHERE id = ?",
        (ending.status, ending.status_text, ending.at, outcome, ending.id),
    )
    # Unfinished calls of another worker end with it.
    where = "WHERE session = ? AND scope = ?"
    left = connection.execute(
        f"SELECT call_id, tool FROM calls {where} AND outcome IS NULL", (session, scope_of(ending.id))
    ).fetchall()
    for call_id, tool in left:
        connection.execute(
            f"UPDATE calls SET finished_at = ?, status = ?, outcome = ? {where} AND call_id = ?",
            (
                ending.at,
                ending.outcome.status,
                packed(replace(ending.outcome, call_id=call_id, tool=tool)),
                session,
                scope_of(ending.id),
                call_id,
            ),
        )
    if left:
        connection.execute(f"UPDATE waits SET open = 0 {where} AND open = 1", (session, scope_of(ending.id)))
    for path, data in ending.files:
        content = Content(data, None, hashlib.sha256(data).digest(), len(data))
        put_file(connection, session, path, content, Writing(ending.at, quotas.files, None, None, True))
    if ending.tell is not None:
        about = jsonx.encode({"run_id": ending.id, "status": ending.status})
        message = NewMessage("runtime", ending.tell, about)
        put_messages(connection, session, [message], ending.at, quotas.messages)
    ended: dict[str, Any] = {"summary": ending.summary, "artifact_error": ending.artifact_error}
    ended["message_error"] = ending.message_error
    if ending.evidence:
        ended["evidence"] = jsonx.decode(ending.evidence)
    add_event(connection, ending.id, ending.status, ended, ending.at)
    update_resource(connection, session, ending.id, ending.at, ending.status, ending.summary)
    if before != "held" and not tracked:  # neither took a place that another can have now
        _let_follow(connection, session)
    return True


def _let_follow(connection: Connection, session: str) -> None:
    """One of a session's runs has ended: the oldest one that was held for it, and for nothing else, may begin."""
    connection.execute(
        "UPDATE processes SET state = 'queued', changed = ?2 WHERE id = (SELECT held.id FROM processes AS held"
        " WHERE held.state = 'held' AND held.session = ?1 AND (held.alone = 0 OR NOT EXISTS (SELECT 1 FROM processes"
        " AS other WHERE other.schedule = held.schedule AND other.state IN ('queued', 'running', 'waiting')))"
        " ORDER BY held.created_at, held.rowid LIMIT 1)",
        (session, next_change(connection)),
    )


def append_event(
    connection: Connection,
    id: str,
    token: int | None,
    type: str,
    payload: bytes,
    key: str | None,
    at: float,
    telling: Telling | None = None,
) -> int | None:
    """Append an event once, with its message; None when the run is finished, or held by another. The host has no
    token."""
    unfinished = f"({PENDING}) AND ?2 IS NULL OR ({LEASED}) AND token = ?2"
    session = one(connection, f"SELECT session FROM processes WHERE id = ?1 AND ({unfinished})", (id, token))
    if session is None:
        return None
    if type in OVER:
        raise RunError(f"A {type!r} event ends a run; let it end", "conflict")
    if key is not None:
        known: Any = connection.execute(
            "SELECT number, type, payload FROM process_events WHERE process = ? AND key = ?", (id, key)
        ).fetchone()
        if known is not None:
            if known[1:] != (type, payload):
                raise RunError(f"The key {key!r} of run {id!r} is that of another event", "conflict")
            return int(known[0])
    if telling is not None:
        about = jsonx.encode({"run_id": id, "event": type})
        put_messages(connection, session, [NewMessage("runtime", telling.content, about)], at, telling.quota)
    return put_event(connection, id, type, payload, at, key)


def list_events(connection: Connection, id: str, after: int, limit: int) -> list[RunEvent]:
    """The events of a run beyond a number."""
    query = (
        "SELECT number, type, at, payload FROM process_events WHERE process = ? AND number > ? ORDER BY number LIMIT ?"
    )
    return [
        RunEvent(id, number, type, at, jsonx.decode(payload))
        for number, type, at, payload in connection.execute(query, (id, after, limit))
    ]


# --- among the resources of the session


def add_resource(connection: Connection, new: Registration, quota: Quota) -> None:
    """Add the resource of a new run, if it fits the quota of the session."""
    shown: dict[str, Any] = {
        "tool": new.tool,
        "status_text": "Running" if new.options.tracked else "Queued",
        "progress": None,
        "output_tail": "",
        "summary": None,
        "signal_on_completion": new.options.signal_on_completion,
    }
    if new.options.tracked:
        shown["tracked"] = True
    if new.options.artifacts:
        shown |= artifact_paths(new.id)
    metadata = jsonx.encode(shown)
    connection.execute(
        "DELETE FROM resources WHERE session = ?1 AND id = (SELECT id FROM processes WHERE session = ?1"
        " ORDER BY created_at DESC LIMIT 1 OFFSET ?2) AND kind = ?3 AND status != 'active'",
        (new.session, KEPT, KIND),
    )
    query = "SELECT entries < ? AND bytes + ? <= ? FROM usage WHERE session = ? AND service = 'resources'"
    fits = one(connection, query, (quota.entries, len(metadata), quota.bytes, new.session))
    if (quota.entries > 0 and len(metadata) <= quota.bytes) if fits is None else fits:
        connection.execute(
            "INSERT INTO resources (session, id, kind, name, status, metadata, created_at, updated_at)"
            " VALUES (?1, ?2, ?3, ?4, 'active', ?5, ?6, ?6) ON CONFLICT DO NOTHING",
            (new.session, new.id, KIND, new.title, metadata, new.at),
        )


def update_resource(
    connection: Connection, session: str, id: str, at: float, status: str = "active", summary: str | None = None
) -> None:
    """Update the resource of a run from its row."""
    query = (
        "SELECT resources.metadata, run.status_text, run.progress, run.tail FROM resources JOIN processes AS run"
        " ON run.id = resources.id WHERE resources.session = ? AND resources.id = ? AND kind = ?"
    )
    row: Any = connection.execute(query, (session, id, KIND)).fetchone()
    if row is None:
        return
    metadata, text, progress, tail = row
    shown = _fields(metadata) | {
        "status_text": msgspec.Raw(msgspec.json.encode(text)),
        "progress": msgspec.Raw(progress or b"null"),
        "output_tail": msgspec.Raw(msgspec.json.encode(tail)),
        "summary": msgspec.Raw(msgspec.json.encode(summary)),
    }
    connection.execute(
        "UPDATE resources SET status = ?, updated_at = ?, metadata = ? WHERE session = ? AND id = ?",
        (status, at, msgspec.json.encode(shown), session, id),
    )


def abandon_resources(connection: Connection, session: str) -> None:
    """Mark the runs of a session that was just imported as abandoned: no worker continues them here."""
    query = "SELECT id, metadata FROM resources WHERE session = ? AND kind = ? AND status = 'active'"
    found: list[Any] = connection.execute(query, (session, KIND)).fetchall()
    connection.executemany(
        "UPDATE resources SET status = 'abandoned', metadata = ? WHERE session = ? AND id = ?",
        [
            (msgspec.json.encode(_fields(metadata) | {"status_text": msgspec.Raw(b'"Abandoned"')}), session, id)
            for id, metadata in found
        ],
    )


def _fields(metadata: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a resource; none where it is no JSON object, since others may write it, too."""
    try:
        return _decode_raw(metadata)
    except msgspec.DecodeError:
        return {}
