"""The schedule's promises as a comparison of every pair of calls. Owns programs of calls, and judging how they ran.

Nothing here knows how the schedule works. A tool of a program stops when it begins and again when its nested calls are
over; whoever plays the program lets them go one at a time. The judge is the call log: it sees each call come, begin
and end at the very moment, and whenever nothing moves it looks at who should be running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.calls.schedule.stage import settle
from toolwright import Batch, CallRecord, Policy, Runtime, Tool, ToolContext, resource, tool, tree
from toolwright.testing import FakeClock, is_idle

PATHS = ("a", "a/b", "a/b/c", "a/d", "e")
KEYS = ("k", "l")
LIMITS = {"narrow": 1, "pair": 2, "narrow_write": 1}
TOOLS = ("read", "write", "search", "wipe", "move", "keyed", "peek", "exclusive", "parallel", *LIMITS)


@dataclass(eq=False)
class Node:
    """One call of a program, with what its tool calls: groups of batches, one group after the other."""

    tool: str
    paths: tuple[str, ...]
    key: str
    groups: list[list[list[Node]]] = field(default_factory=list)
    elsewhere: bool = False  # its nested calls go to the other session
    detached: bool = False  # it does not wait for its nested calls, and may end before them
    # Filled in when the program is laid out.
    id: str = ""
    parent: Node | None = None
    batch: tuple = ()
    session: str = ""
    # What became of it. `order` counts the calls as they come; `above` is the nearest ancestor that still ran then.
    order: int = 0
    above: Node | None = None
    slots: frozenset[str] = frozenset()
    inside: bool = False
    record: CallRecord | None = None

    @property
    def unfinished(self) -> bool:
        return self.record is not None and self.record.outcome is None

    @property
    def running(self) -> bool:
        """Started, and without an outcome or still in its code."""
        return self.record is not None and self.record.started_at is not None and (self.unfinished or self.inside)

    @property
    def waiting(self) -> bool:
        return self.record is not None and self.record.outcome is None and self.record.started_at is None

    @cached_property
    def ancestors(self) -> tuple[Node, ...]:
        return () if self.parent is None else (self.parent, *self.parent.ancestors)

    @cached_property
    def conflicts(self) -> dict[Node, bool]:
        """What was compared before: claims never change."""
        return {}

    def __repr__(self) -> str:
        about = self.key if self.tool == "keyed" else ",".join(self.paths) if claims_of(self) else ""
        return f"{self.session}:{self.id}:{self.tool}({about})"


def claims_of(node: Node) -> list[tuple[str, str, bool, bool]]:
    """What a call touches: the kind of name, the name, whether it writes, whether with everything below."""
    first, last = node.paths[0], node.paths[-1]
    return {
        "read": [("path", path, False, False) for path in node.paths],
        "write": [("path", path, True, False) for path in node.paths],
        "narrow_write": [("path", path, True, False) for path in node.paths],
        "search": [("path", first, False, True)],
        "wipe": [("path", first, True, True)],
        "move": [("path", first, True, True), ("path", last, False, False)],
        "keyed": [("key", node.key, True, False)],
        "peek": [("name", node.key, False, False), ("path", first, True, False)],
    }.get(node.tool, [])


def conflict(one: Node, other: Node) -> bool:
    """SCHED-01 for two calls, SCHED-03 for their sessions, SCHED-06 for ancestors."""
    known = one.conflicts.get(other)
    if known is None:
        known = one.conflicts[other] = other.conflicts[one] = _conflict(one, other)
    return known


def _conflict(one: Node, other: Node) -> bool:
    if one is other or one.session != other.session or one in other.ancestors or other in one.ancestors:
        return False
    if "exclusive" in (one.tool, other.tool):
        return True
    for kind, name, write, whole in claims_of(one):
        for other_kind, other_name, other_write, other_whole in claims_of(other):
            if kind == other_kind and (write or other_write):
                if name == other_name:
                    return True
                if whole and other_name.startswith(f"{name}/"):
                    return True
                if other_whole and name.startswith(f"{other_name}/"):
                    return True
    return False


class Play:
    """A program that runs, and the log of its calls, which judges it."""

    def __init__(
        self,
        program: list[tuple[str, list[Node]]],
        policy: Policy,
        choose: Callable[[list], Any],
        *,
        keeps_slots: bool = False,
    ) -> None:
        self.program = program
        self.keeps_slots = keeps_slots  # then a call may wait for one that is kept for another
        self.policy = policy
        self.choose = choose
        self.nodes: dict[str, Node] = {}
        self.stops: dict[str, asyncio.Future[None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.broken: list[str] = []
        self.came: list[Node] = []
        self.refused: list[Node] = []
        self.cancelled = 0
        self.over = False
        for number, (session, batch) in enumerate(program):
            for position, node in enumerate(batch):
                self._lay_out(node, f"{number}.{position}", (number,), session, None)

    def _lay_out(self, node: Node, id: str, batch: tuple, session: str, parent: Node | None) -> None:
        node.id, node.batch, node.session, node.parent = id, batch, session, parent
        self.nodes[id] = node
        inner = {"s": "t", "t": "s"}[session] if node.elsewhere else session
        for g, group in enumerate(node.groups):
            for b, nested in enumerate(group):
                for position, child in enumerate(nested):
                    self._lay_out(child, f"{id}/{g}{b}.{position}", (id, g, b), inner, node)

    # --- the tools

    def tools(self) -> list[Tool]:
        def make(name: str, **options: Any) -> Tool:
            async def play(ctx: ToolContext, paths: list[str], first: str, last: str, key: str) -> str:
                return await self._perform(self.nodes[ctx.call_id], ctx)

            return tool(name=name, id=name, max_concurrency=LIMITS.get(name), **options)(play)  # type: ignore[no-any-return]

        return [
            make("read", reads="paths"),
            make("write", writes="paths"),
            make("narrow_write", writes="paths"),
            make("search", reads=tree("first")),
            make("wipe", writes=tree("first")),
            make("move", writes=tree("first"), reads="last"),
            make("keyed", key="{key}"),
            make("peek", reads=resource("{key}"), writes="first"),
            make("exclusive"),
            make("parallel", parallel=True),
            make("narrow", parallel=True),
            make("pair", parallel=True),
        ]

    async def _perform(self, node: Node, ctx: ToolContext) -> str:
        self._enter(node)
        try:
            await self._stop(node)
            if node.detached:
                self.tasks.append(asyncio.create_task(self._nest(node, ctx)))
            else:
                await self._nest(node, ctx)
            if node.groups:
                await self._stop(node)
        finally:
            node.inside = False
        return node.id

    async def _nest(self, node: Node, ctx: ToolContext) -> None:
        for group in node.groups:
            if node.elsewhere:
                session = self.runtime.session({"s": "t", "t": "s"}[node.session])
                await asyncio.gather(*(session.run_batch(calls(batch)) for batch in group))
            else:
                await asyncio.gather(*(ctx.run_batch(calls(batch)) for batch in group))

    async def _stop(self, node: Node) -> None:
        if self.over:
            return
        self.stops[node.id] = asyncio.get_running_loop().create_future()
        try:
            await self.stops[node.id]
        finally:
            del self.stops[node.id]

    # --- the log, which judges each call as it comes, begins and ends

    def open(self, record: CallRecord) -> None:
        node = self.nodes[record.call_id]
        self._expect(node.record is None, f"{node} has two records")
        node.record = record
        self.came.append(node)
        node.order = len(self.came)
        node.above = next((ancestor for ancestor in node.ancestors if ancestor.unfinished), None)
        # The slots it needs beside its batch's: those that no ancestor holds for it.
        wanted = frozenset({"the runtime", f"session {node.session}"} | ({node.tool} & LIMITS.keys()))
        held: set[str] = set()
        upper = node.above
        while upper is not None:
            held |= upper.slots
            upper = upper.above
        node.slots = wanted - held

    def close(self, record: CallRecord) -> None:
        node, outcome = self.nodes[record.call_id], record.outcome
        assert outcome is not None
        self._expect(node.record is record and outcome.call_id == node.id, f"{node} has the record of another")
        self._expect(not node.inside, f"{node} has its outcome and still runs")
        if outcome.failure is not None:
            self._expect(outcome.failure.code == "deadlock", f"{node} failed: {outcome.failure}")
            self._expect(outcome.failure.category == "unavailable", f"{node} has {outcome.failure.category}")
            self._expect(node.above is not None and record.started_at is None, f"{node} was refused")
            self._expect(not self._can_end(node), f"{node} was refused although it only had to wait")
            self.refused.append(node)
        elif outcome.status == "success":
            self._expect(record.started_at is not None and outcome.value == node.id, f"{node} has a wrong outcome")
        else:
            self._expect(outcome.status == "cancelled" and self.cancelled > 0, f"{node} is {outcome.status}")

    def _enter(self, node: Node) -> None:
        self._expect(node.running, f"{node} runs and was not started")
        self._expect(not node.inside, f"{node} runs twice")
        node.inside = True
        for other in self.came:
            if not conflict(node, other):
                continue
            self._expect(not other.inside, f"{node} overlaps {other}")
            if other.above is node.above and other.order < node.order:
                self._expect(not other.unfinished, f"{node} starts before {other}, which came first")

    def _expect(self, holds: bool, broken: str) -> None:
        if not holds:
            self.broken.append(broken)

    def _can_end(self, start: Node) -> bool:
        """False when `start` waits, in the end, for itself: a cycle that could never proceed."""
        unfinished = [node for node in self.came if node.unfinished or node is start]
        ends: set[Node] = set()
        grown = True
        while grown:
            grown = False
            for node in unfinished:
                if node not in ends and not self._holding_up(node, [o for o in unfinished if o not in ends]):
                    ends.add(node)
                    grown = True
        return start in ends

    def _holding_up(self, node: Node, others: list[Node]) -> bool:
        """True when one of `others`, which never end, keeps this call from ending."""
        if node.running:
            return any(other.above is node for other in others)
        for other in others:
            first = other.above is node.above and other.order < node.order
            if other is not node and conflict(node, other) and (other.running or first):
                return True
        return any(self._held(name, others) >= self._limit(name) for name in node.slots)

    @staticmethod
    def _held(name: str, among: list[Node]) -> int:
        return sum(node.running and name in node.slots for node in among)

    def _limit(self, name: str) -> int:
        if name == "the runtime":
            return self.policy.runtime_concurrency
        return self.policy.session_concurrency if name.startswith("session") else LIMITS[name]

    # --- what must hold whenever nothing moves

    def check(self) -> None:
        running = [node for node in self.came if node.running]
        for node in running:
            self._expect(node.inside, f"{node} was started and does not run")
        for what, found, most in self._usage(running):
            self._expect(found <= most, f"{found} run at once in {what}, where {most} may")
        for node in self.came:
            if node.waiting and self._may_start(node, running):
                self.broken.append(f"{node} could run and does not, beside {running}")
        assert not self.broken, self.broken

    def _usage(self, running: list[Node]) -> Iterator[tuple[str, int, int]]:
        for name in ("the runtime", "session s", "session t", *LIMITS):
            yield name, self._held(name, running), self._limit(name)
        for batch in {node.batch for node in running}:
            found = sum(node.batch == batch for node in running)
            yield f"batch {batch}", found, self.policy.max_concurrency

    def _may_start(self, node: Node, running: list[Node]) -> bool:
        for other in self.came:
            if other is node or not conflict(node, other):
                continue
            # A nested call looks only at those that run, at its siblings, and at those that wait for the same.
            if other.running or (other.waiting and other.order < node.order):
                return False
        if self.keeps_slots:
            return False  # A free slot may be kept for another call, which was passed over more often.
        full = {what for what, found, most in self._usage(running) if found >= most}
        return not full & {f"batch {node.batch}", *node.slots}

    # --- the way through

    async def run(self) -> None:
        """Play the program to its end.

        Raises:
            AssertionError: a promise was broken.
        """
        opening = Runtime.open(tools=self.tools(), policy=self.policy, clock=FakeClock(), call_log=self)
        async with opening as self.runtime:
            try:
                await self._to_the_end([])
            finally:
                self.over = True  # A program that broke a promise must not hang when it is closed.
                for waiting in (*self.stops.values(), *self.tasks):
                    waiting.cancel()
                await settle()

    async def _to_the_end(self, started: list[Batch]) -> None:
        while True:
            await settle()
            self.check()
            running = [batch for batch in started if not batch.done]
            choices = ["go"] * (4 if self.stops else 0) + ["start"] * (2 if len(started) < len(self.program) else 0)
            if not choices:
                break
            if running and self.cancelled < 2:
                choices.append("cancel")
            choice = self.choose(choices)
            if choice == "go":
                self.stops[self.choose(sorted(self.stops))].set_result(None)
            elif choice == "start":
                session, batch = self.program[len(started)]
                started.append(self.runtime.session(session).start_batch(calls(batch)))
            else:
                self.cancelled += 1
                self.choose(running).cancel()
        hanging = [node for node in self.came if node.waiting]
        for number, started_batch in enumerate(started):
            assert started_batch.done, f"nobody can go on, and these still wait: {hanging}"
            outcomes = await started_batch
            assert [outcome.call_id for outcome in outcomes] == [node.id for node in self.program[number][1]]
        assert all(task.done() for task in self.tasks), f"nobody can go on, and these still wait: {hanging}"
        assert not any(node.unfinished for node in self.came)
        assert is_idle(self.runtime), "a claim or a slot is left"


def calls(batch: list[Node]) -> list[dict[str, Any]]:
    return [
        {
            "id": node.id,
            "name": node.tool,
            "arguments": {
                "paths": list(node.paths),
                "first": node.paths[0],
                "last": node.paths[-1],
                "key": node.key,
            },
        }
        for node in batch
    ]
