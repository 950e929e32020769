"""One store, many kills. Owns when the mixed program is killed, and holding its traces against each other."""

import json
import random
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from tests.crash.mixed import INSIDE, RERUN, agent
from toolwright.testing import CrashKit, Ended
from toolwright.testing.crash_points import POINTS

ALL_POINTS = [*(point for point in POINTS if " wait " not in point), *INSIDE]


class Row(NamedTuple):
    """A call as it stands in the file."""

    tool: str
    key: str
    started: bool
    status: str | None
    value: Any
    category: str | None


class Story:
    """The runs of one seed. After each kill, what the dead process left is looked at before anybody repairs it."""

    def __init__(self, kit: CrashKit, seed: int, point: str | None = None) -> None:
        self._kit = kit
        self._seed = seed
        self._point = point
        self._chance = random.Random(seed)
        self._acknowledged: dict[str, tuple[str, Any]] = {}
        self._runs = 0
        self.kills: Counter[str] = Counter()

    def play(self, kills: int) -> None:
        """Kill that often, at the one point if there is one, then let a last run finish everything."""
        plan = 0
        while self.kills.total() < kills:
            way = self._chance.choice(["recover", "open", "again", "leave"])
            if way != "again":
                plan += 1
            self._kill(plan, way)
            self._check()
        self._hear(self._kit.run(agent, **self._given(plan, "recover"), batches=0))
        self._check()
        self._check_end()

    def _kill(self, plan: int, way: str) -> None:
        kind = self._chance.choices(["instant", "point", "twins"], [11, 7, 2])[0]
        if self._point or kind == "point":
            point = self._point or self._chance.choice(ALL_POINTS)
            given, nth = self._given(plan, way), self._chance.randint(1, 25)
            if "taken back" in point:
                nth = 1
            elif "released" in point:  # which happens to the last call of a program that comes to its end
                given["batches"], nth = 2, 1
            self._hear(self._kit.kill_at(point, agent, nth=nth, **given))
            self.kills[point] += 1
            return
        programs = [self._kit.start(agent, **self._given(plan, way)) for _ in range(2 if kind == "twins" else 1)]
        for program in programs:
            if self._chance.random() < 0.7:  # else it may die while it opens the store or recovers
                self._remember(program.hear())
            program.listen(self._chance.uniform(0, 0.05))
            self._hear(program.kill())
            self.kills[kind] += 1

    def _given(self, plan: int, way: str) -> dict[str, Any]:
        self._runs += 1
        sync = self._chance.choice(["full", "normal"])
        return {"seed": self._seed, "run": self._runs, "plan": plan, "way": way, "sync": sync}

    def _hear(self, ended: Ended) -> None:
        assert ended.output == "", ended.output
        for outcomes in ended.said:
            self._remember(outcomes)

    def _remember(self, outcomes: list[Any]) -> None:
        for call_id, status, value, may_have_run in outcomes:
            if status != "cancelled" or may_have_run:  # else it did not run, and may another time
                known = self._acknowledged.setdefault(call_id, (status, value))
                assert known == (status, value), f"{call_id} was told as {known}, and now as {(status, value)}"

    def _check(self) -> None:
        rows = self._rows()
        by_key = {row.key: row for row in rows.values()}
        done: dict[str, set[str]] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for line in self._kit.ledger:
            name, key, value = line.split()
            counts[name, key] += 1
            done.setdefault(key, set()).add(value)
            assert key in by_key, f"{name} ran for {key}, and the store does not know it"
            if name not in RERUN:
                # The start of a call that may run again is not written; its step is.
                assert by_key[key].started or name == "steady", (
                    f"{name} ran for {key}, and the store does not know that it began: {by_key[key]}"
                )
                assert counts[name, key] == 1, f"{name} ran twice for {key}"
        for call_id, told in self._acknowledged.items():
            assert call_id in rows, f"{call_id} was told as {told}, and the store does not know it"
            assert (rows[call_id].status, rows[call_id].value) == told, f"{call_id} was told as {told}: {rows[call_id]}"
        for row in rows.values():
            if row.status == "success":
                assert row.value in done.get(row.key, ()), f"{row} has a value that its tool did not return"
        self._check_events(rows)

    def _check_events(self, rows: dict[str, Row]) -> None:
        """What was told to watchers is what is kept; a call ends once, and not before it began."""
        for path in self._kit.folder.glob("events-*.jsonl"):
            open_calls: Counter[str] = Counter()
            for line in path.read_bytes().split(b"\n")[:-1]:  # the last one may be cut off
                event = json.loads(line)
                call_id = event.get("call_id", "")
                if event["kind"] == "call.started":
                    open_calls[call_id] += 1
                elif event["kind"] == "call.finished":
                    open_calls[call_id] -= 1
                    assert open_calls[call_id] >= 0, f"{call_id} ended before it began, in {path.name}"
                    if event["status"] != "cancelled":
                        assert rows[call_id].status == event["status"], f"{path.name}: {line.decode()}"

    def _check_end(self) -> None:
        for call_id, row in self._rows().items():
            assert row.status is not None, f"{call_id} is unfinished: {row}"
            if row.tool in RERUN or row.tool == "deliver":
                assert row.status in ("success", "cancelled"), f"{call_id} did not succeed: {row}"
            elif row.status == "failure":
                assert row.category == "interrupted", f"{call_id} failed: {row}"

    def _rows(self) -> dict[str, Row]:
        with self._kit.look() as store:
            assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if not store.execute("SELECT 1 FROM sqlite_schema WHERE name = 'calls'").fetchall():
                return {}
            calls: Any = store.execute("SELECT call_id, tool, arguments, started_at, status, outcome FROM every_call")
            rows = {}
            for call_id, tool, arguments, started_at, status, outcome in calls:
                kept = None if outcome is None else msgspec.msgpack.decode(outcome)
                assert (kept is None) == (status is None)
                value = None if kept is None else json.loads(kept.get("payload", b"null"))
                category = kept["failure"]["category"] if kept and "failure" in kept else None
                key = json.loads(arguments)["key"]
                rows[call_id] = Row(tool, key, started_at is not None, status, value, category)
            return rows
