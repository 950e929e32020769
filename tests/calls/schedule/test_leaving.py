"""Calls that leave the order early: cancelled or out of time while they wait, or given up while they run."""

import asyncio

import pytest

from tests.calls.schedule.stage import Stage, call, settle
from tests.support import fail_after
from toolwright import BatchFailed, Policy, Runtime, Tool, ToolContext, tool, tree
from toolwright.testing import FakeClock, is_idle, slots_in_use

PATIENT = Policy(timeout=1000)


def file_tools(stage: Stage) -> list[Tool]:
    @tool(reads="path")
    async def read(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="paths")
    async def write(ctx: ToolContext, paths: list[str]) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes=tree("folder"))
    async def wipe(ctx: ToolContext, folder: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def outer(ctx: ToolContext, name: str, tool: str, paths: list[str]) -> list[str]:
        return [outcome.status for outcome in await ctx.run_batch([call(name, tool, paths=paths)])]

    return [read, write, wipe, everything, look, outer]


@pytest.mark.promise("SCHED-01")
async def test_those_behind_a_cancelled_call_still_wait_for_those_before_it():
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        session = runtime.session("s")
        first = session.start_batch([call("a", "write", paths=["x"])])
        middle = session.start_batch([call("b", "write", paths=["x"]), call("b2", "everything")])
        behind = session.start_batch([call("c", "write", paths=["x"])])
        await settle()
        middle.cancel()
        assert [outcome.status for outcome in await middle] == ["cancelled", "cancelled"]
        assert await stage.settled() == ["a"]
        later = session.start_batch([call("d", "write", paths=["x"]), call("e", "read", path="x")])
        assert await stage.settled() == ["a"], "those that come after the cancellation wait too"
        assert await stage.after("a") == ["c"]
        assert await stage.after("c") == ["d"]
        assert await stage.after("d") == ["e"]
        stage.open()
        for batch in (first, behind, later):
            await batch
        assert is_idle(session)
    assert "b" not in stage.entered


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    ("first", "middle", "behind"),
    [
        (call("a", "read", path="x"), call("b", "write", paths=["x"]), call("c", "read", path="x")),
        (call("a", "look"), call("b", "everything"), call("c", "look")),
        (call("a", "read", path="x/y"), call("b", "wipe", folder="x"), call("c", "write", paths=["x/z"])),
        (call("a", "write", paths=["x"]), call("b", "write", paths=["x", "y"]), call("c", "write", paths=["y"])),
        (call("a", "wipe", folder="x"), call("b", "everything"), call("c", "wipe", folder="y")),
    ],
    ids=["reader writer reader", "parallel exclusive parallel", "below tree below", "chain", "trees"],
)
async def test_a_cancelled_call_holds_nobody_up(first, middle, behind):
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        session = runtime.session("s")
        batches = [session.start_batch([one]) for one in (first, middle, behind)]
        assert await stage.settled() == ["a"]
        batches[1].cancel()
        assert await stage.settled() == ["a", "c"], "nothing before c conflicts with it any more"
        stage.open()
        for batch in batches:
            await batch
        assert is_idle(session)


@pytest.mark.promise("SCHED-05")
async def test_a_call_that_waited_too_long_holds_nobody_up():
    stage, clock = Stage(), FakeClock()
    async with fail_after(5), Runtime.open(tools=file_tools(stage), policy=PATIENT, clock=clock) as runtime:
        session = runtime.session("s")
        batches = [
            session.start_batch([call("a", "look")]),
            session.start_batch([call("b", "everything")], queue_timeout=1),
            session.start_batch([call("c", "look")]),
        ]
        assert await stage.settled() == ["a"]
        await clock.advance(1)
        assert await stage.settled() == ["a", "c"]
        stage.open()
        for batch in batches:
            await batch


@pytest.mark.promise("SCHED-01")
async def test_a_large_batch_cancelled_in_the_middle_leaves_the_others_in_order():
    stage = Stage()
    async with fail_after(10), Runtime.open(tools=file_tools(stage), policy=Policy(on_loop="ignore")) as runtime:
        session = runtime.session("s")
        first = session.start_batch([call("a1", "read", path="x"), call("a2", "write", paths=["x"])])
        thrice = [("read", {"path": "x"}), ("everything", {}), ("look", {})] * 333
        middle = session.start_batch([call(f"m{n}", name, **args) for n, (name, args) in enumerate(thrice)])
        behind = session.start_batch(
            [call("c1", "read", path="x"), call("c2", "look"), call("c3", "everything"), call("c4", "read", path="x")]
        )
        assert await stage.settled() == ["a1"]
        middle.cancel()
        await middle
        assert await stage.settled() == ["a1", "c2"]
        assert await stage.after("a1") == ["a2", "c2"]
        assert await stage.after("a2") == ["c1", "c2"]
        assert await stage.after("c1", "c2") == ["c3"]
        assert await stage.after("c3") == ["c4"]
        stage.open()
        await first
        await behind
        assert is_idle(session)


@pytest.mark.promise("SCHED-04")
async def test_a_call_cancelled_while_it_waits_for_a_slot_leaves_its_place_to_the_next():
    stage = Stage()
    policy = Policy(session_concurrency=1)
    async with fail_after(5), Runtime.open(tools=file_tools(stage), policy=policy) as runtime:
        session = runtime.session("s")
        batches = [session.start_batch([call(id, "look")]) for id in "abcde"]
        await settle()
        batches[1].cancel()
        batches[3].cancel()
        assert await stage.after("a") == ["c"]
        assert await stage.after("c") == ["e"]
        stage.open()
        statuses = [(await batch)[0].status for batch in batches]
        assert slots_in_use(session) == 0
    assert statuses == ["success", "cancelled", "success", "cancelled", "success"]


@pytest.mark.promise("SCHED-06")
async def test_a_call_cancelled_while_it_waits_for_a_nested_one_lets_those_behind_it_go_on():
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        session = runtime.session("s")
        outer = session.start_batch([call("o", "outer", name="n", tool="write", paths=["x"])])
        assert await stage.settled() == ["n"]
        gated = session.start_batch([call("w", "write", paths=["x", "y"])])
        behind = session.start_batch([call("v", "write", paths=["y"])])
        assert await stage.settled() == ["n"]
        gated.cancel()
        assert await stage.settled() == ["n", "v"]
        stage.open()
        for batch in (outer, gated, behind):
            await batch
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_cancelled_while_it_waits_is_out_of_the_way():
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        session = runtime.session("s")
        writer = session.start_batch([call("w", "write", paths=["x"])])
        outer = session.start_batch([call("o", "outer", name="n", tool="write", paths=["x", "y"])])
        await settle()
        behind = session.start_batch([call("v", "write", paths=["y"])])
        assert await stage.settled() == ["w"], "n came first, and waits for w"
        outer.cancel()
        assert await stage.settled() == ["v", "w"]
        (cancelled,) = await outer
        assert cancelled.status == "cancelled"
        stage.open()
        await writer
        await behind
        assert is_idle(session)
        assert {record.call_id: record.status for record in runtime.log}["n"] == "cancelled"


@pytest.mark.promise("SCHED-01")
async def test_calls_stopped_by_a_failure_leave_the_order():
    stage = Stage()

    @tool(writes="path")
    async def fail(ctx: ToolContext, path: str) -> None:
        await stage.visit(ctx.call_id)
        raise RuntimeError("broken")

    async with fail_after(5), Runtime.open(tools=[*file_tools(stage), fail]) as runtime:
        session = runtime.session("s")
        stopping = session.start_batch(
            [call("f", "fail", path="x"), call("w", "write", paths=["x"]), call("e", "everything")],
            continue_on_failure=False,
        )
        other = session.start_batch([call("o", "write", paths=["x"])])
        assert await stage.settled() == ["f"]
        assert await stage.after("f") == ["o"]
        with pytest.raises(BatchFailed):
            await stopping
        stage.open()
        await other
    assert stage.entered == ["f", "o"]


# --- given up


def stubborn(stage: Stage) -> Tool:
    @tool(writes="path", timeout=1)
    async def stubborn(ctx: ToolContext, path: str) -> None:
        """Does not stop when it is asked to, only when it is let go."""
        visit = asyncio.ensure_future(stage.visit(ctx.call_id))
        while not visit.done():
            try:
                await asyncio.shield(visit)
            except asyncio.CancelledError:
                continue

    return stubborn


@pytest.mark.promise("SCHED-04", "SCHED-01")
async def test_a_call_that_was_given_up_gives_back_its_slots_and_keeps_its_claims():
    stage, clock = Stage(), FakeClock()
    policy = Policy(session_concurrency=1, grace=1, timeout=1000)
    tools = [*file_tools(stage), stubborn(stage)]
    async with fail_after(5), Runtime.open(tools=tools, policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [call("a", "stubborn", path="x"), call("w", "write", paths=["x"]), call("l", "look"), call("m", "look")]
        )
        assert await stage.settled() == ["a"]
        await clock.advance(1)
        assert await stage.settled() == ["a"], "it still has its grace"
        await clock.advance(1)
        assert await stage.settled() == ["a", "l"], "one slot, and the writer still waits for what runs on"
        assert await stage.after("l") == ["a", "m"]
        assert await stage.after("a") == ["m"], "the claims are free, and the slot is not"
        assert await stage.after("m") == ["w"]
        stage.open()
        outcomes = await batch
        assert is_idle(runtime)
    assert [outcome.status for outcome in outcomes] == ["failure", "success", "success", "success"]


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_waits_for_one_that_was_given_up():
    stage, clock = Stage(), FakeClock()
    policy = Policy(grace=1, timeout=1000)
    tools = [*file_tools(stage), stubborn(stage)]
    async with fail_after(5), Runtime.open(tools=tools, policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        given_up = session.start_batch([call("a", "stubborn", path="x")])
        await clock.advance(2)
        assert given_up.done
        outer = session.start_batch([call("o", "outer", name="n", tool="write", paths=["x"])])
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["n"]
        stage.open()
        await outer
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_that_was_given_up_keeps_its_claims_after_its_parent():
    stage, clock = Stage(), FakeClock()
    policy = Policy(grace=1, timeout=1000)

    @tool(parallel=True)
    async def outer_stubborn(ctx: ToolContext) -> str:
        (outcome,) = await ctx.run_batch([call("n", "stubborn", path="x")])
        return outcome.status

    tools = [*file_tools(stage), stubborn(stage), outer_stubborn]
    async with fail_after(5), Runtime.open(tools=tools, policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        outer = session.start_batch([call("o", "outer_stubborn")])
        await clock.advance(2)
        (outcome,) = await outer
        assert outcome.value == "failure"
        later = session.start_batch([call("w", "write", paths=["x"]), call("v", "write", paths=["y"])])
        assert await stage.settled() == ["n", "v"]
        assert await stage.after("n") == ["v", "w"]
        stage.open()
        await later
        assert is_idle(session)
