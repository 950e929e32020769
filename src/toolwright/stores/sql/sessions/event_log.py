"""The event log in a SQL store. Owns reading it: rows become events, with the content of their subjects.

The rows are written by `event_rows.py` and by triggers of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from toolwright import jsonx
from toolwright.events import CallEvent, CallFinished, CallStarted
from toolwright.stores.contracts.event_log import EventPage, LoggedEvent
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.codec import columns_of, one, unpacker
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import OPENED
from toolwright.stores.sql.jobs import Read
from toolwright.tools.outcome import ToolOutcome

_TOLD_BY_CALLS = frozenset({"call.started", "call.finished", "call.waiting"})
"""Events in the log of a turn that the journal and the waits of its calls tell, too."""
_NESTED = "agent."
"""Prefix of the events of a sub-agent in the log of the turn above it; its own turn tells them, too."""
_BARE = frozenset({"text", "reasoning"})
"""Events of a turn whose kind does not say that they are of a turn."""
_outcome = unpacker(ToolOutcome)


class EventRow(NamedTuple):
    """A row of the log as it is read."""

    number: int
    session: str
    kind: str
    at: float
    scope: str
    subject: Any
    detail: Any


_NEWEST = "SELECT coalesce(max(number), 0) FROM events"
_ROWS = f"SELECT {columns_of(EventRow)} FROM events WHERE number > ? ORDER BY number LIMIT ?"


class SqlEventLog:
    """`EventLogStore` in a SQL store.

    `write_log` lets a database in memory write a log, which it has not before. `read_settled` is for a store in which
    an event may be seen before one with a lower number is committed: it reads at a moment without such.
    """

    def __init__(
        self,
        changes: Changes,
        write_log: Callable[[Connection], None] | None = None,
        read_settled: Read | None = None,
    ) -> None:
        self._changes = changes
        self._write_log = write_log
        self._read_settled = read_settled

    async def after(self, number: int | None, limit: int) -> EventPage:
        def work(connection: Connection) -> EventPage:
            # Apart from each other: SQLite finds only a single one of them without reading the table.
            first = one(connection, "SELECT coalesce(min(number), 0) FROM events")
            last = one(connection, _NEWEST)
            if number is None or number >= last:
                return EventPage([], last, first)
            found: list[LoggedEvent] = []
            seen = number
            for row in map(EventRow._make, connection.execute(_ROWS, (number, limit)).fetchall()):
                found += filter(None, _events(connection, row, number, limit - len(found)))
                if len(found) >= limit and found[-1].number < row.number:
                    return EventPage(found, found[-1].number, first)
                seen = row.number
                if len(found) >= limit:
                    break
            return EventPage(found, seen, first)

        if self._read_settled is None:
            return await self._changes.read(work)
        newest, first = await self._changes.read(
            lambda connection: (
                one(connection, _NEWEST),
                one(connection, "SELECT coalesce(min(number), 0) FROM events"),
            )
        )
        if number is not None and number >= newest:
            # Not read once more: of the events that come meanwhile, a later one may be visible first.
            return EventPage([], newest, first)
        return await self._read_settled(work)

    async def begin(self) -> None:
        """Write a log from now on; for a database in memory, which does not have one before."""
        if self._write_log is not None:
            await self._changes.change(None, self._write_log)

    async def forget(self, number: int) -> None:
        """Remove the events up to a number, but not the newest; for a database in memory."""
        statement = "DELETE FROM events WHERE number <= ? AND number < (SELECT max(number) FROM events)"
        await self._changes.change(None, lambda connection: connection.execute(statement, (number,)).fetchall())


def _events(connection: Connection, row: EventRow, after: int, limit: int) -> Iterator[LoggedEvent | None]:
    """The events of a row beyond a number, at most so many; nothing for an event whose subject was removed with it."""
    if row.kind in ("call.started", "call.finished", "call.forgotten", "call.released", "call.reopened"):
        yield from _of_calls(connection, row, after, limit)
    elif row.kind == "turn":
        yield from _of_turn(connection, row, after, limit)
    elif row.kind.startswith("run."):
        yield _of_run(connection, row)
    elif row.kind != OPENED:
        yield _single(connection, row)


def _single(connection: Connection, row: EventRow) -> LoggedEvent:
    call_id: str | None = None
    data: dict[str, Any] = {}
    if row.kind == "batch.started":
        batch, parent, calls = jsonx.decode(row.subject)
        data = {"batch": batch, "scope": row.scope, "parent": parent, "calls": calls}
    elif row.kind in ("call.waiting", "call.resolved"):
        call_id = row.subject
        what, _, name = row.detail.partition(":")
        data = {"call_id": call_id, "scope": row.scope, "what": what, "name": name}
        tool = connection.execute(
            "SELECT tool, batch FROM every_call WHERE session = ? AND scope = ? AND call_id = ?",
            (row.session, row.scope, call_id),
        ).fetchone()
        data |= {} if tool is None else {"tool": tool[0], "batch": tool[1]}
    elif row.kind == "turn.queued":
        data = {"turn": row.subject}
    elif row.kind == "message.added":
        data = {"message": int(row.subject), "sender": row.detail}
    elif row.kind.startswith("file."):
        data = {"path": row.subject}
    elif row.kind.startswith("kv."):
        data = {"key": row.subject}
    elif row.kind.startswith("schedule."):
        data = {"schedule": row.subject}
        data |= {"state": row.detail} if row.kind == "schedule.changed" else {}
        data |= {"run": row.detail} if row.kind == "schedule.fired" else {}
    return LoggedEvent(row.number, row.session, row.kind, row.at, data, call_id)


def _of_run(connection: Connection, row: EventRow) -> LoggedEvent | None:
    """Of a run; None for one that newer progress replaced, or that was cut out of long output."""
    query = "SELECT payload FROM process_events WHERE process = ? AND number = ?"
    payload = one(connection, query, (row.subject, row.detail))
    if payload is None:
        return None
    data = {"run": row.subject, "run_number": int(row.detail), "payload": jsonx.decode(payload)}
    return LoggedEvent(row.number, row.session, row.kind, row.at, data)


def _of_turn(connection: Connection, row: EventRow, after: int, limit: int) -> Iterator[LoggedEvent]:
    data = one(connection, "SELECT data FROM turn_events WHERE turn = ? AND last = ?", (row.subject, row.detail))
    if data is None:
        return
    events = jsonx.decode(data)
    for number, event in enumerate(events, row.number - len(events) + 1):
        kind: str = event["kind"]
        if number <= after or kind in _TOLD_BY_CALLS or kind.startswith(_NESTED):
            continue
        if limit <= 0:
            return
        limit -= 1
        told = {**event["data"], "turn": row.subject, "turn_number": event["number"]}
        kind = f"turn.{kind}" if kind in _BARE else kind
        yield LoggedEvent(number, row.session, kind, event["at"], told, event["data"].get("call_id"))


# --- calls


class _Call(NamedTuple):
    """A call, as far as its events tell of it."""

    call_id: str
    batch: str
    tool: str
    source: str
    parent: str | None
    queued_at: float
    started_at: float | None
    finished_at: float | None
    arguments: bytes
    outcome: bytes | None


class _Facts(Struct, gc=False):
    """`CallFacts` of a call in the journal."""

    session: str
    scope: str
    batch: str
    call_id: str
    tool: str
    source: str
    parent: str | None
    queued_at: float
    started_at: float | None
    finished_at: float | None
    raw_arguments: bytes
    outcome: ToolOutcome | None

    @property
    def arguments(self) -> Any:
        return jsonx.decode(self.raw_arguments)

    @property
    def attempts(self) -> int:
        return int(self.started_at is not None) if self.outcome is None else self.outcome.attempts

    @property
    def queue_time(self) -> float:
        until = self.finished_at if self.started_at is None else self.started_at
        return 0.0 if until is None else until - self.queued_at

    @property
    def run_time(self) -> float:
        return 0.0 if self.started_at is None or self.finished_at is None else self.finished_at - self.started_at

    @property
    def status(self) -> str:
        return "running" if self.outcome is None else self.outcome.status

    @property
    def category(self) -> str | None:
        failure = None if self.outcome is None else self.outcome.failure
        return None if failure is None else failure.category

    @property
    def code(self) -> str | None:
        failure = None if self.outcome is None else self.outcome.failure
        return None if failure is None else failure.code

    @property
    def replayed(self) -> bool:
        return False


def _of_calls(connection: Connection, row: EventRow, after: int, limit: int) -> Iterator[LoggedEvent]:
    ids: list[str] = jsonx.decode(row.subject)
    first = row.number - len(ids) + 1
    skipped = max(0, after + 1 - first)
    wanted = ids[skipped : skipped + limit]
    known = _find(connection, row, wanted)
    for number, call_id in enumerate(wanted, first + skipped):
        data: dict[str, Any] = {"call_id": call_id, "scope": row.scope}
        call = known.get(call_id)
        if call is not None:
            view: CallEvent | None = None
            if row.kind == "call.started":
                view = CallStarted(call)
            elif row.kind == "call.finished" and call.outcome is not None:
                view = CallFinished(call)
            data |= {"tool": call.tool, "batch": call.batch} if view is None else _without_facts(view.to_json())
        yield LoggedEvent(number, row.session, row.kind, row.at, data, call_id)


def _without_facts(told: dict[str, Any]) -> dict[str, Any]:
    for name in ("kind", "session", "at"):  # the event itself has them
        told.pop(name)
    return told


def _find(connection: Connection, row: EventRow, ids: Sequence[str]) -> Mapping[str, _Facts]:
    if row.kind == "call.forgotten":
        return {}
    listed, values = "SELECT value FROM json_each(?)", [json.dumps(ids)]
    if "\\u0000" in values[0]:  # from JSON, not every SQLite reads the character 0
        listed, values = ", ".join("?" * len(ids)), list(ids)
    rows = connection.execute(
        f"SELECT {columns_of(_Call)} FROM calls WHERE session = ? AND scope = ? AND call_id IN ({listed})",
        (row.session, row.scope, *values),
    )
    found: dict[str, _Facts] = {}
    for call in map(_Call._make, rows):
        found[call.call_id] = _Facts(
            row.session,
            row.scope,
            call.batch,
            call.call_id,
            call.tool,
            call.source,
            call.parent,
            call.queued_at,
            call.started_at,
            call.finished_at,
            call.arguments,
            None if call.outcome is None else _outcome(call.outcome),
        )
    return found
