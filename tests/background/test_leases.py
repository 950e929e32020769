"""Workers and their leases: several runtimes on one file, each with a clock of its own, so that one can stand still."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from toolwright import Runtime, ToolContext, tool
from toolwright.stores.contracts.background_run import Options, Registration
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.sql.background.runs import SqlRunStore
from toolwright.stores.sqlite.admin.history import calls
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock


class Pair:
    """Two runtimes. The first is frozen while time passes for the second; then it is thawed."""

    def __init__(self) -> None:
        self.frozen = Stage()
        self.other = Stage()

    async def thaw(self, seconds: float) -> None:
        """Let the first live through the time that has passed for the second."""
        await self.frozen.pass_time(seconds, 0.5)

    async def open(self, file: Path, *tools: Any, only_second: tuple[Any, ...] = ()) -> tuple[Any, Any]:
        first = await self.frozen.open(file, *tools)
        second = await self.other.open(file, *tools, *only_second, worker=False)
        self._open_worker = partial(self.other.open, file, *tools, *only_second, worker=True)
        return first.session("s"), second.session("s")

    async def lose(self, run: Any, there: Any) -> Any:
        """Let the first begin a run and freeze, until the second has taken it over; the second's handle of it."""
        await self.frozen.status(run, "running")
        return await self.take_over(run, there)

    async def take_over(self, run: Any, there: Any) -> Any:
        """Let no time pass for the first, until the second has taken its run over; the second's handle of it."""
        handle = await there.run(run.id)
        if len(self.other.opened) == 1:
            await self._open_worker()

        async def taken() -> bool:
            return bool((await handle.refresh()).token == 2)

        await self.other.until_so(taken)
        return handle


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    for stage in (made.frozen, made.other):
        for runtime in stage.opened:
            await stage.close(runtime)


@pytest.mark.promise("PROC-04")
async def test_a_lease_is_renewed_for_as_long_as_the_run_takes(stage: Stage, file: Path):
    ran = []

    @tool(supports_background=True)
    async def work() -> str:
        ran.append(1)
        await stage.clock.sleep(300)
        return "done"

    session = (await stage.open(file, work)).session("s")
    await stage.open(file, work, worker=True)
    run = await session.spawn("work")
    await stage.status(run, "running")
    for _ in range(29):
        await stage.pass_time(10)
        record = await run.refresh()
        assert 15 <= record.lease_until - stage.clock.now() <= 30
        assert record.token == 1
    assert (await stage.until(run.wait())).value == "done"
    assert ran == [1]


@pytest.mark.promise("PROC-04")
async def test_the_run_of_a_worker_that_is_silent_too_long_is_taken_over(pair: Pair, file: Path):
    ran: list[str] = []

    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> str:
        ran.append(ctx.idempotency_key)
        if len(ran) == 1:
            await asyncio.Event().wait()
        return "by the second"

    here, there = await pair.open(file, work)
    run = await here.spawn("work")
    begun = pair.other.clock.now()
    handle = await pair.lose(run, there)
    assert 29 <= pair.other.clock.now() - begun <= 32, "not while the lease lasts, and soon after"
    assert (await pair.other.until(handle.wait())).value == "by the second"
    assert ran[0] == ran[1]
    record = handle.record
    assert (record.token, record.attempts) == (2, 2)
    started = [event.payload async for event in handle.follow() if event.type == "started"]
    assert [one["attempt"] for one in started] == [1, 2]
    assert started[1]["taken_over_from"] == started[0]["worker"] != started[1]["worker"]


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("how", ["output", "event", "step", "change", "return"])
async def test_what_a_stale_worker_writes_is_refused(pair: Pair, file: Path, how: str):
    """Its reports, its events, its steps, its changes of the session, and its end."""
    go, begun, hold = asyncio.Event(), asyncio.Event(), asyncio.Event()
    did: list[str] = []

    @tool(supports_background=True, idempotent=True, events={"count": int})
    async def work(ctx: ToolContext) -> str:
        if not did:
            did.append("first")
            await go.wait()
            if how == "output":
                await ctx.output("stdout", "stale")
                await ctx.progress(99)
                await asyncio.Event().wait()
            elif how == "event":
                await ctx.emit("count", 99)
            elif how == "step":
                await ctx.step("stale", lambda: 1)
            elif how == "change":
                await ctx.kv.set("stale", 1)
            did.append("went on")
            return "stale"
        did.append("second")
        begun.set()
        await ctx.output("stdout", "fresh")
        await hold.wait()
        return "fresh"

    here, there = await pair.open(file, work)
    run = await here.spawn("work", signal_on_completion=True)
    handle = await pair.lose(run, there)
    await pair.other.until(begun.wait())
    go.set()
    await pair.thaw(2)
    record = await handle.refresh()
    assert (record.token, record.status, record.progress) == (2, "running", None)
    hold.set()
    assert (await pair.other.until(handle.wait())).value == "fresh"
    await pair.thaw(15)
    assert did == (["first", "second", "went on"] if how == "return" else ["first", "second"])
    assert await handle.log() == "[stdout] fresh"
    types = [event.type async for event in handle.follow()]
    assert "count" not in types
    assert types[-1] == "completed"
    assert await there.kv.get("stale") is None
    (told,) = await there.messages.list()
    assert '"fresh"' in told.content


@pytest.mark.promise("PROC-04")
async def test_a_worker_that_was_silent_but_not_replaced_goes_on(pair: Pair, file: Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await go.wait()
        await ctx.step("one", lambda: 1)
        return "done"

    here = (await pair.frozen.open(file, work)).session("s")
    there = (await pair.other.open(file, worker=True)).session("s")  # it has no such tool
    run = await here.spawn("work")
    await pair.frozen.status(run, "running")
    handle = await there.run(run.id)
    await pair.other.pass_time(100, 5)
    assert (await handle.refresh()).token == 1
    await pair.thaw(100)
    assert (await run.refresh()).lease_until > pair.other.clock.now()
    go.set()
    assert (await pair.frozen.until(run.wait())).value == "done"
    assert run.record.attempts == 1


@pytest.mark.promise("PROC-04")
async def test_a_run_that_is_resumed_does_not_repeat_its_steps(pair: Pair, file: Path):
    did: list[str] = []
    held = asyncio.Event()

    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> list[Any]:
        def note(what: str) -> str:
            did.append(what)
            return what.upper()

        one = await ctx.step("one", note, "one")
        got = await ctx.receive("go")
        await ctx.kv.set("one", one)
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return [one, got, await ctx.step("two", note, "two")]

    here, there = await pair.open(file, work)
    run = await here.spawn("work")
    await run.signal("go", 5)
    await pair.frozen.until(held.wait())
    handle = await pair.lose(run, there)
    assert (await pair.other.until(handle.wait())).value == ["ONE", 5, "TWO"]
    assert did == ["one", "two"]


@pytest.mark.promise("PROC-04")
async def test_a_run_that_is_to_begin_anew_repeats_them(pair: Pair, file: Path):
    did: list[str] = []
    held = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> list[Any]:
        await ctx.step("one", did.append, "one")
        got = await ctx.receive("go")
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return [got]

    here, there = await pair.open(file, work)
    run = await here.spawn("work", disposition="rerun")
    await run.signal("go", 5)
    await pair.frozen.until(held.wait())
    handle = await pair.lose(run, there)
    assert (await pair.other.until(handle.wait())).value == [5], (
        "signals are sent once, and received by the worker that runs it"
    )
    assert did == ["one", "one"]


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("why", ["disposition", "crash policy"])
async def test_a_run_that_may_not_run_again_is_abandoned_with_what_is_known(pair: Pair, file: Path, why: str):
    ran = []

    @tool(supports_background=True, on_crash="fail" if why == "crash policy" else "rerun")
    async def work(ctx: ToolContext) -> None:
        ran.append(1)
        await ctx.progress(3, 10, "copied")
        await ctx.output("stdout", "half way")
        await asyncio.Event().wait()

    here, there = await pair.open(file, work)
    options: Any = {"disposition": "abandon"} if why == "disposition" else {}
    run = await here.spawn("work", signal_on_completion=True, **options)
    await pair.frozen.status(run, "running")
    await pair.frozen.pass_time(1, 0.25)
    worker = (await run.refresh()).worker
    handle = await pair.lose(run, there)
    outcome = await pair.other.until(handle.wait())
    assert outcome.failure is not None
    assert outcome.failure.code == "interrupted"
    assert handle.status == "abandoned"
    *_, last = [event async for event in handle.follow()]
    assert last.type == "abandoned"
    evidence = last.payload["evidence"]
    assert evidence["worker"] == worker
    assert evidence["progress"] == {"current": 3, "total": 10, "label": "copied"}
    assert evidence["output_tail"] == "[stdout] half way"
    assert evidence["started_at"] == handle.record.started_at
    assert ran == [1]
    (message,) = await there.messages.list()
    assert message.content.startswith("Background run abandoned.")
    assert await there.files.read(f"/.background/{run.id}/output.log") == "[stdout] half way"


@pytest.mark.promise("PROC-04")
async def test_a_run_that_was_to_stop_when_it_was_abandoned_runs_once_it_is_resumed(
    pair: Pair, file: Path, monkeypatch: pytest.MonkeyPatch
):
    ends, may_end, resumed = asyncio.Event(), asyncio.Event(), False
    finish = SqlRunStore.finish

    async def finish_late(self: SqlRunStore, ending: Any, quotas: Any) -> bool:
        ends.set()
        await may_end.wait()
        return await finish(self, ending, quotas)

    monkeypatch.setattr(SqlRunStore, "finish", finish_late)

    @tool(supports_background=True)
    async def work() -> str:
        if not resumed:
            await asyncio.Event().wait()
        return "done"

    here, there = await pair.open(file, work)
    run = await here.spawn("work", disposition="abandon")
    handle = await pair.lose(run, there)
    await pair.other.until(ends.wait())
    assert await pair.other.until(handle.cancel())
    may_end.set()
    await pair.other.until(handle.wait())
    assert handle.status == "abandoned"
    resumed = True
    await pair.other.until(handle.resume(by="ann"))
    assert (await pair.other.until(handle.wait())).value == "done"


@pytest.mark.promise("APP-04", "PROC-04")
async def test_a_run_that_a_restricted_call_resumes_is_under_the_restrictions_of_that_call(pair: Pair, file: Path):
    ran: list[str] = []
    resumes = False

    @tool
    async def mutate() -> None:
        ran.append("mutated")

    @tool(supports_background=True, readonly=True)
    async def work(ctx: ToolContext) -> str:
        if not resumes:
            await asyncio.Event().wait()
        return (await ctx.call("mutate")).text

    @tool(readonly=True)
    async def resume(ctx: ToolContext, id: str) -> None:
        await (await ctx.runs.get(id)).resume(by="ann")

    here, there = await pair.open(file, mutate, work, resume)
    run = await here.spawn("work", disposition="abandon")
    await pair.frozen.status(run, "running")
    handle = await pair.lose(run, there)
    await pair.other.until(handle.wait())
    resumes = True
    call = {"name": "resume", "arguments": {"id": run.id}}
    (resumed,) = await pair.other.until(there.run_batch([call], read_only=True))
    assert resumed.ok, resumed.text
    outcome = await pair.other.until(handle.wait())
    assert "read-only" in str(outcome.value)
    assert ran == []


@pytest.mark.promise("PROC-04")
async def test_what_an_abandoned_run_had_called_is_over_too(pair: Pair, file: Path):
    @tool
    async def inner() -> None:
        await asyncio.Event().wait()

    @tool(supports_background=True)
    async def outer(ctx: ToolContext) -> None:
        await ctx.call("inner")

    here, there = await pair.open(file, inner, outer)
    run = await here.spawn("outer", disposition="abandon")
    await pair.frozen.status(run, "running")
    await pair.frozen.pass_time(1, 0.25)
    handle = await pair.lose(run, there)
    await pair.other.until(handle.wait())
    found = {call.tool: call for call in await calls(file, session="s")}
    assert set(found) == {"inner", "outer"}
    for name, call in found.items():
        assert call.outcome is not None
        outcome = call.outcome
        assert (outcome.tool, outcome.call_id, outcome.status) == (name, call.key.call_id, "failure")


@pytest.mark.promise("PROC-04", "PROC-09")
async def test_the_time_of_a_run_goes_on_when_it_is_taken_over(pair: Pair, file: Path):
    @tool(supports_background=True, idempotent=True)
    async def work() -> None:
        await asyncio.Event().wait()

    here, there = await pair.open(file, work)
    run = await here.spawn("work", timeout=50)
    await pair.frozen.status(run, "running")
    deadline = (await run.refresh()).deadline
    handle = await pair.lose(run, there)
    outcome = await pair.other.until(handle.wait())
    assert outcome.failure is not None
    assert outcome.failure.category == "timeout"
    assert handle.record.deadline == deadline
    assert deadline <= handle.record.ended_at <= deadline + 7  # with the grace of its call


@pytest.mark.promise("PROC-04", "PROC-09")
async def test_a_run_whose_time_was_up_meanwhile_does_not_run_again(pair: Pair, file: Path):
    ran = []

    @tool(supports_background=True, idempotent=True)
    async def work() -> None:
        ran.append(1)
        await asyncio.Event().wait()

    here, there = await pair.open(file, work)
    run = await here.spawn("work", timeout=20)
    handle = await pair.lose(run, there)
    outcome = await pair.other.until(handle.wait())
    assert outcome.failure is not None
    assert (outcome.failure.category, ran) == ("timeout", [1])


@pytest.mark.promise("PROC-04", "PROC-09")
async def test_a_run_that_was_cancelled_while_its_worker_was_silent_ends_cancelled(pair: Pair, file: Path):
    ran = []

    @tool(supports_background=True, idempotent=True)
    async def work() -> None:
        ran.append(1)
        await asyncio.Event().wait()

    here, there = await pair.open(file, work)
    run = await here.spawn("work")
    await pair.frozen.status(run, "running")
    handle = await there.run(run.id)
    await handle.cancel("no longer needed")
    await pair.take_over(run, there)
    outcome = await pair.other.until(handle.wait())
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "no longer needed", True)
    assert ran == [1]


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("how", ["close", "drain"])
async def test_a_worker_that_stops_hands_back_what_it_runs(stage: Stage, file: Path, how: str):
    ran: list[str] = []
    go = asyncio.Event()

    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.step("one", ran.append, "step")
        ran.append("run")
        await go.wait()
        return "done"

    first = await stage.open(file, work)
    run = await first.session("s").spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(0.5, 0.25)
    worker = (await run.refresh()).worker
    if how == "close":
        await stage.close(first)
    else:
        await stage.until(first.drain(3))
    there = (await stage.open(file, work, worker=False)).session("s")
    handle = await there.run(run.id)
    assert (handle.status, handle.record.lease_until) == ("queued", None)
    again = await stage.open(file, work, worker=True)
    go.set()
    begun = stage.clock.now()
    assert (await stage.until(handle.wait())).value == "done"
    assert stage.clock.now() - begun < 5, "nobody waits for a lease that was handed back"
    assert ran == ["step", "run", "run"]
    types = [event.type async for event in handle.follow()]
    assert types.count("handed_back") == 1
    started = [event.payload async for event in handle.follow() if event.type == "started"]
    assert started[1]["taken_over_from"] == worker
    assert again is not None


@pytest.mark.promise("PROC-04")
async def test_a_worker_that_is_drained_lets_short_runs_end_and_takes_no_more(stage: Stage, file: Path):
    @tool(supports_background=True)
    async def nap(seconds: float) -> float:
        await stage.clock.sleep(seconds)
        return seconds

    runtime = await stage.open(file, nap)
    session = runtime.session("s")
    short, long = await session.spawn("nap", {"seconds": 5}), await session.spawn("nap", {"seconds": 500})
    await stage.status(short, "running")
    await stage.status(long, "running")
    draining = asyncio.ensure_future(runtime.drain(60))
    await stage.pass_time(1)
    late = await session.spawn("nap", {"seconds": 1})
    assert (await stage.until(short.wait())).value == 5
    await stage.pass_time(40)
    assert (await long.refresh()).status == "running", "its lease is renewed until the bound"
    assert (await long.refresh()).lease_until > stage.clock.now()
    await stage.until(draining)
    assert (await long.refresh()).status == "queued"
    assert (await late.refresh()).status == "queued"
    assert (await session.call("nap", seconds=0)).value == 0, "the runtime itself goes on"


@pytest.mark.promise("PROC-04")
async def test_closing_while_a_worker_is_drained_does_not_wait_for_the_bound(stage: Stage, file: Path):
    @tool(supports_background=True)
    async def endless() -> None:
        await asyncio.Event().wait()

    runtime = await stage.open(file, endless)
    run = await runtime.session("s").spawn("endless")
    await stage.status(run, "running")
    draining = asyncio.ensure_future(runtime.drain(10_000))
    await stage.pass_time(1)
    begun = stage.clock.now()
    await stage.close(runtime)
    assert stage.clock.now() - begun < 20
    await stage.until(draining)
    other = (await stage.open(file, endless, worker=False)).session("s")
    assert (await other.run(run.id)).status == "queued"


@pytest.mark.promise("PROC-03", "PROC-04")
async def test_a_runtime_that_closes_at_any_moment_leaves_its_runs_to_the_next(stage: Stage, file: Path):
    """Also in the middle of a claim, or before the tool has begun: no run fails by it, hangs, or loses a signal."""
    done = asyncio.Event()

    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> Any:
        got = await ctx.receive("go")
        await done.wait()
        return got

    session = (await stage.open(file, work, worker=False)).session("s")
    runs = [await session.spawn("work") for _ in range(5)]
    for number, run in enumerate(runs):
        await run.signal("go", number)
    for answers, turns in itertools.product(range(8), range(8)):
        async with Runtime.open(file, tools=[work], clock=stage.clock, sync="normal", worker=True) as runtime:
            for _ in range(answers):
                await runtime.approvals()  # each is an answer of the store
            for _ in range(turns):
                await asyncio.sleep(0)
        for run in runs:
            record = await run.refresh()
            assert (record.status, record.lease_until) == ("queued", None)
    done.set()
    await stage.open(file, work, worker=True)
    for number, run in enumerate(runs):
        assert (await stage.until(run.wait(), most=20)).value == number
    assert max(run.record.attempts for run in runs) > 1


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("jump", [3_600.0, -3_600.0])
async def test_no_worker_loses_a_run_when_the_wall_clock_is_set(stage: Stage, file: Path, jump: float):
    ran = []

    @tool(supports_background=True, idempotent=True)
    async def work() -> str:
        ran.append(1)
        await stage.clock.sleep(120)
        return "done"

    session = (await stage.open(file, work)).session("s")
    await stage.open(file, work, worker=True)
    run = await session.spawn("work")
    await stage.status(run, "running")
    stage.clock.jump(jump)
    await stage.pass_time(60)
    record = await run.refresh()
    assert (record.token, record.crashes) == (1, 0)
    assert 15 <= record.lease_until - stage.clock.now() <= 30
    assert (await stage.until(run.wait())).value == "done"
    assert ran == [1]


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("jump", [3_600.0, -3_600.0])
async def test_a_frozen_worker_is_replaced_in_time_when_the_wall_clock_is_set(pair: Pair, file: Path, jump: float):
    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> str:
        await pair.frozen.clock.sleep(5)
        return "done"

    here, there = await pair.open(file, work)
    run = await here.spawn("work")
    pair.other.clock.jump(jump)
    began = pair.other.clock.monotonic()
    await pair.lose(run, there)
    assert 25 <= pair.other.clock.monotonic() - began <= 45


@pytest.mark.promise("PROC-04")
async def test_a_lease_from_before_the_machine_was_started_anew_has_passed(tmp_path: Path):
    """The clock of leases begins at nothing with the machine, and what it was before says nothing."""
    registration = Registration(id="p", session="s", tool="work", arguments=b"{}", title="t", options=Options(), at=0.0)
    clock = FakeClock()
    await clock.advance(1_000_000.0)
    before = SqliteStore(tmp_path / "agent.db", clock=clock)
    await before.services.runs.register([registration], Limits(), None)
    (first,) = await before.services.runs.claim("w1", ["work"], 1.0, 30.0, 1)
    after = SqliteStore(tmp_path / "agent.db", clock=FakeClock())
    assert await after.services.runs.work_waits("w2", ["work"], 30.0)
    (second,) = await after.services.runs.claim("w2", ["work"], 2.0, 30.0, 1)
    await before.close()
    await after.close()

    assert (first.run.token, second.run.token) == (1, 2)


@pytest.mark.promise("PROC-02", "PROC-04", "EFF-01")
async def test_an_event_without_a_key_is_kept_once_when_the_run_is_taken_over(pair: Pair, file: Path):
    stand_still = [True]

    @tool(supports_background=True, idempotent=True, events={"copied": int})
    async def copy(ctx: ToolContext) -> str:
        await ctx.emit("copied", 1)
        await ctx.emit("copied", 1)
        await ctx.emit("copied", 2)
        if stand_still.pop() if stand_still else False:
            await asyncio.Event().wait()
        await ctx.emit("copied", 3)
        return "done"

    here, there = await pair.open(file, copy)
    run = await here.spawn("copy")
    handle = await pair.lose(run, there)
    assert (await pair.other.until(handle.wait())).value == "done"
    assert [event.payload async for event in handle.events() if event.type == "copied"] == [1, 1, 2, 3]
    await pair.thaw(60)


@pytest.mark.promise("EFF-15", "PROC-04")
async def test_a_refusal_that_a_run_was_told_stands_for_the_next_worker_and_a_stale_worker_writes_none(
    pair: Pair, file: Path
):
    told: list[str] = []
    go_on = asyncio.Event()

    @tool
    async def later() -> str:
        return "it runs"

    @tool(supports_background=True, on_crash="rerun")
    async def work(ctx: ToolContext) -> str:
        outcome = await ctx.call("later")
        told.append(outcome.failure.code if outcome.failure else outcome.value)
        if len(told) == 1:
            await go_on.wait()
            with contextlib.suppress(Exception):
                await ctx.call("never", by="the stale worker")
        return told[-1]

    here, there = await pair.open(file, work, only_second=(later,))
    run = await here.spawn("work")

    async def was_told() -> bool:
        return bool(told)

    await pair.frozen.until_so(was_told)
    handle = await pair.lose(run, there)
    assert (await pair.other.until(handle.wait())).value == "unknown_tool"
    go_on.set()
    await pair.thaw(40)
    assert told == ["unknown_tool", "unknown_tool"]
    written = {record.tool: record.status for record in await calls(file, session="s")}
    assert written["later"] == "failure"
    assert "never" not in written
