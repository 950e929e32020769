"""Whatever is cancelled or runs out of time, and whenever: each call ends once, and nothing is left."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.calls.execute.watching import take_all
from toolwright import BatchFailed, Policy, RetryPolicy, Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.testing import FakeClock

ENDINGS = ["success", "failure", "cancelled"]
INSTANTS = st.integers(0, 40).map(lambda tenths: tenths / 10)

calls = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(["exclusive", "parallel", "keyed", "retried", "on_thread", "nesting", "nobody"]),
        "seconds": INSTANTS,
        "then": st.sampled_from(["return", "raise", "retry", "exit", "nonsense"]),
        # What the tool does when it is cancelled: end, answer within its grace, or go on for a while.
        "stubborn": st.sampled_from([0.0, 0.0, 0.03, 0.3]),
    }
)
actions = st.one_of(
    st.tuples(st.just("advance"), INSTANTS),
    st.tuples(st.just("cancel batch"), st.integers(0, 3)),
    st.tuples(st.just("cancel waiter"), st.integers(0, 3)),
    st.tuples(st.just("cancel session"), st.sampled_from("st")),
    st.tuples(st.just("open gate"), st.integers(0, 3)),
    st.tuples(
        st.just("start batch"),
        st.tuples(
            st.sampled_from("st"),
            st.lists(calls, max_size=5),
            st.fixed_dictionaries(
                {"continue_on_failure": st.booleans(), "queue_timeout": st.sampled_from([None, 0.5])}
            ),
            st.booleans(),
        ),
    ),
)


class Scene:
    """A runtime with tools that do as their arguments say, and everything that happened in it."""

    def __init__(self, hooked: bool) -> None:
        self.clock = FakeClock()
        self.gates = [threading.Event() for _ in range(4)]
        self.begun: list[str] = []
        self.batches: list[Any] = []
        self.waiters: list[asyncio.Task[Any]] = []
        self.started: set[str] = set()
        self.count = 0
        self.hooked = hooked

    def tools(self) -> list[Any]:
        clock, begun, gates = self.clock, self.begun, self.gates

        async def work(ctx: ToolContext, seconds: float, then: str, stubborn: float) -> object:
            begun.append(ctx.call_id)
            ctx.progress(1)
            try:
                await clock.sleep(seconds)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
                await clock.sleep(stubborn)
            ctx.progress(2)
            if then == "raise":
                raise ValueError("broken")
            if then == "retry":
                raise ToolError("again", retry_after=0.3)
            if then == "exit":
                raise SystemExit(3)
            return object() if then == "nonsense" else "done"

        def on_thread(ctx: ToolContext, seconds: float, then: str, stubborn: float) -> str:
            begun.append(ctx.call_id)
            ctx.progress(1)
            if stubborn:
                gates[int(seconds * 10) % 4].wait(20)
            ctx.progress(2)
            if then == "raise":
                raise ValueError("broken")
            return "done"

        async def nesting(ctx: ToolContext, seconds: float, then: str, stubborn: float) -> list[str]:
            begun.append(ctx.call_id)
            arguments = {"seconds": seconds, "then": then, "stubborn": stubborn}
            outcomes = await ctx.run_batch([ToolCall(name=name, arguments=arguments) for name in ("keyed", "parallel")])
            return [outcome.status for outcome in outcomes]

        again = RetryPolicy(attempts=3, base_delay=0.2, jitter=0, on=(TimeoutError, ValueError))
        return [
            tool(name="exclusive", timeout=2)(work),
            tool(name="parallel", parallel=True, timeout=2)(work),
            tool(name="keyed", key="door", timeout=1)(work),
            tool(name="retried", parallel=True, idempotent=True, retry=again, timeout=1)(work),
            tool(name="on_thread", parallel=True, timeout=1)(on_thread),
            tool(name="nesting", parallel=True, timeout=3)(nesting),
        ]

    async def open(self) -> None:
        async def hook(call: Any, *outcome: Any) -> None:
            await self.clock.sleep(0.05)

        hooks: dict[str, Any] = {"before": [hook], "after": [hook]} if self.hooked else {}
        policy = Policy(max_concurrency=3, session_concurrency=4, runtime_concurrency=5, on_loop="ignore")
        self.runtime = await Runtime.open(tools=self.tools(), clock=self.clock, policy=policy, **hooks)
        self.events = self.runtime.subscribe(limit=1_000_000)

    async def act(self, verb: str, thing: Any) -> None:
        if verb == "advance":
            await self.clock.advance(thing)
        elif verb == "cancel session":
            self.runtime.session(thing).cancel()
        elif verb == "open gate":
            self.gates[thing].set()
        elif verb == "start batch":
            self.start(*thing)
        elif self.batches and verb == "cancel batch":
            self.batches[thing % len(self.batches)].cancel()
        elif self.waiters and verb == "cancel waiter":
            self.waiters[thing % len(self.waiters)].cancel()

    def start(self, session: str, batch: list[dict[str, Any]], changes: dict[str, Any], waits: bool) -> None:
        made = []
        for arguments in batch:
            self.count += 1
            rest = {name: value for name, value in arguments.items() if name != "tool"}
            made.append(ToolCall(id=f"c{self.count}", name=arguments["tool"], arguments=rest))
        if waits:
            coroutine = self.runtime.session(session).run_batch(made, **changes)
        else:
            started = self.runtime.session(session).start_batch(made, **changes)
            self.started.update(str(call.id) for call in made)
            self.batches.append(started)
            coroutine = started.wait()
        self.waiters.append(asyncio.create_task(coroutine))

    async def close(self) -> None:
        for gate in self.gates:
            gate.set()
        closing = asyncio.create_task(self.runtime.close())
        for _ in range(60):
            if closing.done():
                break
            await self.clock.advance(0.1)
            await asyncio.wait([closing], timeout=0.01)
        assert closing.done(), "closing hangs"
        await closing
        await asyncio.wait(self.waiters, timeout=60) if self.waiters else None


def check(scene: Scene) -> None:
    log = list(scene.runtime.log)
    assert {record.call_id for record in log} >= scene.started
    assert len({record.call_id for record in log}) == len(log)
    events = take_all(scene.events)
    of: dict[str, list[Any]] = {}
    for event in events:
        if hasattr(event, "call_id"):
            of.setdefault(event.call_id, []).append(event)
    for record in log:
        outcome = record.outcome
        assert outcome is not None
        assert outcome.call_id == record.call_id
        assert outcome.status in ENDINGS
        assert (outcome.failure is not None) == (outcome.status == "failure")
        if outcome.status == "cancelled" and not outcome.may_have_run:
            assert record.call_id not in scene.begun
        if record.call_id not in scene.begun and record.tool != "nobody":
            assert outcome.status != "success"
        kinds = [event.kind for event in of[record.call_id]]
        assert kinds[0] == "call.started"
        assert kinds[-1] == "call.finished"
        assert set(kinds[1:-1]) <= {"call.progress", "call.retrying"}
        assert of[record.call_id][-1].status == outcome.status
        assert record.attempts == outcome.attempts
        assert scene.begun.count(record.call_id) == record.attempts or record.tool == "on_thread"
        assert record.finished_at is not None
        assert record.run_time >= 0
        assert record.queue_time >= 0
    assert sum(event.kind == "batch.finished" for event in events) == sum(
        event.kind == "batch.started" for event in events
    )
    assert all(batch.done for batch in scene.batches)
    for waiter in scene.waiters:
        assert waiter.done()
        if not waiter.cancelled() and (error := waiter.exception()) is not None:
            assert isinstance(error, BatchFailed)


@pytest.mark.promise("CANCEL-01", "CANCEL-02", "TIME-01", "RUN-09", "RUN-10")
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(
    first=st.lists(calls, min_size=1, max_size=6),
    rest=st.lists(actions, max_size=12),
    waits=st.booleans(),
    hooked=st.booleans(),
)
def test_every_call_has_one_outcome_one_record_and_one_pair_of_events(first, rest, waits, hooked):
    async def play() -> None:
        scene = Scene(hooked)
        await scene.open()
        try:
            try:
                scene.start("s", first, {}, waits)
                for verb, thing in rest:
                    await scene.act(verb, thing)
            finally:
                await scene.close()
            check(scene)
            assert asyncio.all_tasks() == {asyncio.current_task()}
        finally:
            # So that what fails here does not hang: a batch that lost a call waits on at its first cancellation.
            for _ in range(3):
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await asyncio.sleep(0)

    before = set(threading.enumerate())
    asyncio.run(play())
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
