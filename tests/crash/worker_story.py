"""One file, several workers, many kills. Owns when workers are killed, and holding their traces against each other."""

import json
import random
from collections import Counter
from typing import Any, NamedTuple

import apsw
import msgspec

from tests.crash.workers import CHOICE, FENCED, INSIDE, PER_SESSION, PER_WORKER, REPEATED, SURE, worker
from toolwright.testing import CrashKit, Ended, Running
from toolwright.testing.crash_points import POINTS, RUN_POINTS

OVER = ("completed", "failed", "cancelled", "abandoned")
ALL_POINTS = [
    *RUN_POINTS,
    # The call of a run does not wait for others, so its start is written with its intent.
    *(point for point in POINTS if not any(no in point for no in (" wait ", "taken back", "the start is written"))),
    *INSIDE,
]
DRAINED = ("handed back", "worker leaves", "released")
"""Points that only a worker which is drained passes."""


class Row(NamedTuple):
    """A run as it is stored in the file."""

    session: str
    parent: str | None
    tool: str
    key: str
    state: str
    worker: str | None
    token: int
    attempts: int
    status: str | None
    value: Any
    code: str | None


class WorkerStory:
    """The runs of one seed. `hands` workers are alive at any time; one that was killed is followed by another.

    With `robbers`, the clocks of some are ahead: they take from the others what these are still at work on.
    """

    def __init__(
        self, kit: CrashKit, seed: int, hands: int, point: str | None = None, *, robbers: bool = False
    ) -> None:
        self._kit = kit
        self._hands = hands
        self._point = point
        self._robbers = robbers
        self._tools = FENCED if robbers else CHOICE
        self._chance = random.Random(f"{seed} of {hands}")
        self._started: set[str] = set()
        self._ended: dict[str, list[Any]] = {}
        self._seen: dict[str, Row] = {}
        self._workers = 0
        self._doomed: dict[Running, str] = {}
        self.kills: Counter[str] = Counter()

    def play(self, kills: int) -> None:
        """Kill that often, at the one point if there is one, then let a last worker finish everything."""
        alive = [self._start() for _ in range(self._hands)]
        while self.kills.total() < kills:
            place = self._chance.randrange(self._hands)
            self._hear(self._end(alive[place]))
            self._check()
            alive[place] = self._start()
        for left in alive:
            self._hear(left.kill())
        self._check()
        self._hear(self._kit.run(worker, numbers=[self._workers], way="finish", tools=self._tools))
        self._check()
        self._check_end()

    def check_frozen(self, ahead: float) -> None:
        """Let one worker stand still at the point until another, for which its leases have passed, has done all."""
        assert self._point is not None
        way = "drain" if any(word in self._point for word in DRAINED) else "finish"
        frozen = self._kit.start_frozen(self._point, worker, numbers=[11], way=way, tools=FENCED)
        self._hear(self._kit.run(worker, numbers=[7], way="finish", ahead=ahead, tools=FENCED))
        self._check()
        frozen.thaw()
        self._hear(frozen.wait(), warned=True)
        self._check()
        if way == "drain":
            self._hear(self._kit.run(worker, numbers=[11], way="finish", tools=FENCED))
        self._check_end()

    def _start(self) -> Running:
        self._workers += 1
        # Now and then it starts what another started: that is the same run.
        numbers = [self._workers, *self._chance.sample([0, self._workers - 1], self._chance.randint(0, 1))]
        given: dict[str, Any] = {"numbers": numbers, "sync": self._chance.choice(["full", "normal", "normal"])}
        if self._robbers:
            given |= {"tools": self._tools, "ahead": self._chance.choice([0.0, 60.0, 120.0])}
        if not self._point and self._chance.random() < 0.5:
            return self._kit.start(worker, **given)
        point = self._point or self._chance.choice(ALL_POINTS)
        if any(word in point for word in DRAINED):
            given["way"] = "drain"
        nth = self._chance.randint(1, 3) if "drain" not in given.values() else 1
        doomed = self._kit.start_doomed(point, worker, nth=nth, **given)
        self._doomed[doomed] = point
        return doomed

    def _end(self, running: Running) -> Ended:
        """Let a worker come to its point, or kill it wherever it is."""
        point = self._doomed.pop(running, None)
        if point is None:
            running.listen(self._chance.uniform(0, 0.15))
            self.kills["instant"] += 1
            return running.kill()
        self.kills[point] += 1
        ended = running.wait()
        assert ended.killed, f"it ended before it came to {point!r}"
        return ended

    def _hear(self, ended: Ended, *, warned: bool = False) -> None:
        assert warned or self._robbers or ended.output == "", ended.output
        for what, id, how in ended.said:
            if what == "started":
                self._started.add(id)
            else:
                assert self._ended.setdefault(id, how) == how, f"{id} ended as {self._ended[id]}, and as {how}"

    def _check(self) -> None:
        before = self._kit.ledger
        connection = apsw.Connection(str(self._kit.store))
        try:
            connection.set_busy_timeout(5_000)
            connection.execute("BEGIN")
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'processes'").fetchall():
                assert not self._started  # it was killed before it had made the store
                return
            rows = _rows(connection)
            self._check_events(connection, rows)
            self._check_endings(connection, rows)
        finally:
            connection.close()
        self._check_effects(before, rows)
        self._check_limits(rows)
        for id in self._started:
            assert id in rows, f"{id} was started, and the store does not know it"
        for id, how in self._ended.items():
            assert [rows[id].status, rows[id].value] == how, f"{id} was told as {how}: {rows[id]}"
        for id, old in self._seen.items():
            new = rows[id]
            assert new.token >= old.token, f"the token of {id} sank: {old}, {new}"
            if new.worker not in (old.worker, None):
                assert new.token > old.token, f"{id} was taken over under the same token: {old}, {new}"
            if old.state in OVER:
                assert new == old, f"{id} was over as {old}, and now is {new}"
        self._seen = rows

    def _check_events(self, connection: apsw.Connection, rows: dict[str, Row]) -> None:
        """Each worker that takes a run says so once, and nothing follows the one event that ends it."""
        events: dict[str, list[tuple[str, Any]]] = {id: [] for id in rows}
        found: Any = connection.execute("SELECT process, type, payload FROM process_events ORDER BY process, number")
        for id, type, payload in found:
            events[id].append((type, json.loads(payload)))
        for id, row in rows.items():
            types = [type for type, _ in events[id]]
            assert types[0] == "queued", f"{id}: {types}"
            ends = [place for place, type in enumerate(types) if type in OVER]
            assert ends == ([len(types) - 1] if row.state in OVER else []), f"{id} is {row.state}: {types}"
            starts = [payload for type, payload in events[id] if type == "started"]
            assert [start["attempt"] for start in starts] == list(range(1, row.attempts + 1)), f"{id}: {starts}"
            assert row.token == row.attempts
            assert not starts or row.worker in (None, starts[-1]["worker"]), f"{id} is {row}: {starts}"

    def _check_endings(self, connection: apsw.Connection, rows: dict[str, Row]) -> None:
        """A result and one message for what is over, nothing of it for the rest; and what keepers said, once."""
        paths = {path for (path,) in connection.execute("SELECT path FROM files WHERE path LIKE '%/result.json'")}
        told: Counter[str] = Counter()
        said: Counter[str] = Counter()
        for sender, content, about in connection.execute("SELECT sender, content, metadata FROM messages"):
            if sender == "runtime":
                told[json.loads(about)["run_id"]] += 1
            else:
                said[json.loads(content)] += 1
        over = {id for id, row in rows.items() if row.state in OVER}
        assert told == Counter(over)
        assert paths == {f"/.background/{id}/result.json" for id in over}
        assert not said or said.most_common(1)[0][1] == 1, said
        for id, row in rows.items():
            if row.tool == "keeper" and row.state == "completed":
                assert said[f"{id} begins"] == said[f"{id} ends"] == 1, f"{id}: {said}"

    def _check_effects(self, before: list[str], rows: dict[str, Row]) -> None:
        keys = {row.key for row in rows.values()}
        values: dict[str, set[str]] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for line in self._kit.ledger:
            name, key, value = line.split()
            counts[name, key] += 1
            values.setdefault(key, set()).add(value)
            assert name in REPEATED or counts[name, key] == 1, f"{name} of {key} happened twice"
        for line in before:
            assert line.split()[1] in keys, f"{line!r} happened, and the store does not know its run"
        children: Counter[tuple[str, str]] = Counter()
        for id, row in rows.items():
            if row.status == "success":
                assert set(row.value.split("+")) <= values[row.key], f"{id} has a value that nobody gave: {row}"
            if row.parent is not None:
                children[row.parent, row.key] += 1
        for (parent, key), count in children.items():
            assert count == 1, f"{parent} started the run of {key} {count} x"
        for id, row in rows.items():
            if row.tool == "family" and row.state == "completed":
                assert {key for parent, key in children if parent == id} == {f"{id}a", f"{id}b"}

    def _check_limits(self, rows: dict[str, Row]) -> None:
        active = Counter(row.session for row in rows.values() if row.state in ("queued", "running", "waiting"))
        for session, count in active.items():
            assert count <= PER_SESSION, f"{session} has {count} active runs"
        held = Counter(row.worker for row in rows.values() if row.state in ("running", "waiting"))
        assert all(count <= PER_WORKER for count in held.values()), held

    def _check_end(self) -> None:
        with self._kit.look() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            rows = _rows(connection)
            assert connection.execute("SELECT call_id FROM every_call WHERE outcome IS NULL").fetchall() == []
            assert connection.execute("SELECT * FROM workers").fetchall() == []
        for id, row in rows.items():
            assert row.state in ("completed", "failed", "abandoned"), f"{id} is not over: {row}"
            if row.state != "completed":
                assert row.tool not in SURE, f"{id} failed: {row}"
                assert row.code == "interrupted", f"{id} failed: {row}"


def _rows(connection: apsw.Connection) -> dict[str, Row]:
    found: Any = connection.execute(
        "SELECT id, session, parent, tool, arguments, state, worker, token, attempts, outcome FROM processes"
    )
    rows = {}
    for id, session, parent, tool, arguments, state, holder, token, attempts, outcome in found:
        kept = None if outcome is None else msgspec.msgpack.decode(outcome)
        assert (kept is not None) == (state in OVER), f"{id} is {state}, with the outcome {kept}"
        value = json.loads(kept.get("payload", b"null")) if kept else None
        code = kept["failure"]["code"] if kept and "failure" in kept else None
        status, key = (kept["status"] if kept else None), json.loads(arguments)["key"]
        rows[id] = Row(session, parent, tool, key, state, holder, token, attempts, status, value, code)
    return rows
