"""How often calls were running when their process died. Owns this count and its rows; does not own which processes are
dead, nor what follows from the count."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from toolwright.stores.contracts.journal import CallKey, Entry
from toolwright.stores.contracts.turns import TURN_SCOPE, written_caller
from toolwright.stores.sql.codec import KEY, columns_of, one, put
from toolwright.stores.sql.connection import Connection

_CRASHED = put("crashes", CallKey._fields, ("count", "started_at", "steps"))
_COUNTED = f"SELECT count, started_at, steps FROM crashes WHERE {KEY}"
_STEPS = f"SELECT count(*) FROM effects WHERE {KEY} AND done = 1"
_WAITING = (
    f"SELECT 1 FROM waits WHERE {KEY} AND open = 1 AND NOT (kind = 'signal' AND EXISTS (SELECT 1 FROM signals"
    " WHERE signals.session = waits.session AND signals.scope = waits.scope AND signals.call_id = waits.call_id"
    " AND signals.name = waits.name))"
)
_SLEEPS = f"SELECT payload FROM effects WHERE {KEY} AND label LIKE 'sleep:%'"
_AGENT_WAITING = "SELECT 1 FROM turns WHERE caller = ? AND state = 'waiting'"
_AGENT_PROGRESS = "SELECT progress FROM turns WHERE caller = ?"
_AGENTS = "SELECT session, id FROM turns WHERE caller = ? AND ended_at IS NULL"
_NESTED_STEPS = (
    "SELECT parent, count(*) FROM calls WHERE session = ? AND scope = ? AND parent IS NOT NULL AND outcome IS NOT NULL"
    " GROUP BY parent"
)


class _Progress(Struct):
    """How far a turn is, as far as it matters here."""

    model_calls: int = 0


_progress = msgspec.json.Decoder(_Progress).decode


class _Unfinished(NamedTuple):
    """An unfinished call as it is read."""

    session: str
    scope: str
    call_id: str
    parent: str | None
    owner: str
    started_at: float | None
    queued_at: float


_UNFINISHED = f"SELECT {columns_of(_Unfinished)} FROM every_call WHERE outcome IS NULL AND session = ?"


class CrashCounter:
    """Counts deaths for the calls that one request takes over."""

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self._now = now
        # By session and scope, and then by the call that made them.
        self._nested: dict[tuple[str, str], dict[str, list[_Unfinished]]] = {}
        self._nested_steps: dict[tuple[str, str], dict[str, int]] = {}

    def count(self, entry: Entry, *, crashed: bool, may_rerun: bool) -> int:
        """How often a call was running when its process died, since it got a step further, this time included.

        A death counts for the innermost call: where a call that this one made was running, or a call of its sub-agent,
        it counts for that one.
        """
        key, started_at = entry.intent.key, entry.started_at
        count, counted, steps = self._connection.execute(_COUNTED, key).fetchone() or (0, None, 0)
        # Of a call that may simply run again no start is written the first time.
        ran = started_at != counted if started_at is not None else may_rerun and not count
        if not crashed or not ran or self._is_waiting(key) or self._is_running_below(entry):
            return int(count)
        done = self._steps(key)
        count = count + 1 if done <= steps else 1
        self._connection.execute(_CRASHED, (*key, count, started_at, done))
        return count

    def _steps(self, key: CallKey) -> int:
        """How far a call is: its steps that are done, its finished calls, and the answers that its sub-agents got."""
        place = key.session, key.scope
        if place not in self._nested_steps:
            rows: list[Any] = self._connection.execute(_NESTED_STEPS, place).fetchall()
            self._nested_steps[place] = dict(rows)
        agents = self._connection.execute(_AGENT_PROGRESS, (written_caller(key),)).fetchall()
        answers = sum(_progress(row[0]).model_calls for row in agents)
        done: int = one(self._connection, _STEPS, key)
        return done + answers + self._nested_steps[place].get(key.call_id, 0)

    def _is_waiting(self, key: CallKey) -> bool:
        """True when the code of a call was waiting for something outside, or for a call that was, and not running."""
        connection, left, seen = self._connection, [key], {key}
        while left:
            each = left.pop()
            if (
                one(connection, _WAITING, each) is not None
                or any(float(row[0]) > self._now for row in connection.execute(_SLEEPS, each))
                or one(connection, _AGENT_WAITING, (written_caller(each),)) is not None
            ):
                return True
            nested = {CallKey(*made[:3]) for made in self._nested_of(each)} - seen
            seen |= nested
            left += nested
        return False

    def _is_running_below(self, entry: Entry) -> bool:
        """True when a call that an unfinished call made was running, or one of its sub-agent."""
        since = entry.started_at
        for each in (*self._nested_of(entry.intent.key), *self._of_agents(entry.intent.key)):
            # One that was only cut off earlier, and did not begin again, has the start of another process. No start
            # means for a new call that it may have run, as above.
            began = each.queued_at if each.started_at is None else each.started_at
            if each.owner == entry.owner and (since is None or began >= since):
                return True
        return False

    def _nested_of(self, key: CallKey) -> list[_Unfinished]:
        place = key.session, key.scope
        if place not in self._nested:
            made = self._nested[place] = {}
            query = f"{_UNFINISHED} AND scope = ? AND parent IS NOT NULL"
            for each in map(_Unfinished._make, self._connection.execute(query, place)):
                made.setdefault(each.parent or "", []).append(each)
        return self._nested[place].get(key.call_id, [])

    def _of_agents(self, key: CallKey) -> list[_Unfinished]:
        found: list[_Unfinished] = []
        for session, turn in self._connection.execute(_AGENTS, (written_caller(key),)).fetchall():
            # The character after "/" is "0".
            scopes = f"{TURN_SCOPE}{turn}/", f"{TURN_SCOPE}{turn}0"
            rows = self._connection.execute(f"{_UNFINISHED} AND scope > ? AND scope < ?", (session, *scopes))
            found += map(_Unfinished._make, rows)
        return found
