"""Claims between the batches of a session, and the tools a batch has."""

import pytest

from tests.calls.schedule.stage import Stage, call, settle
from tests.support import fail_after
from toolwright import Runtime, ToolContext, tool
from toolwright.testing import is_idle


@pytest.mark.promise("SCHED-03")
async def test_claims_hold_across_the_batches_of_a_session():
    stage = Stage()

    @tool(writes="path")
    async def write(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[write, everything]) as runtime:
        session = runtime.session("s")
        first = session.start_batch([call("a1", "write", path="a"), call("b1", "write", path="b")])
        second = session.start_batch([call("a2", "write", path="a"), call("c1", "write", path="c")])
        third = session.start_batch([call("all", "everything"), call("c2", "write", path="c")])
        assert await stage.settled() == ["a1", "b1", "c1"]
        assert await stage.after("a1") == ["a2", "b1", "c1"]
        assert await stage.after("b1", "c1") == ["a2"]
        assert first.done
        assert not second.done
        assert await stage.after("a2") == ["all"]
        assert await stage.after("all") == ["c2"]
        stage.open()
        for batch in (first, second, third):
            await batch
        assert is_idle(session)


@pytest.mark.promise("SCHED-03")
async def test_the_same_session_is_the_same_whoever_asks_for_it():
    stage = Stage()

    @tool(key="k")
    async def keyed(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[keyed]) as runtime:
        first = runtime.session("s").start_batch([call("a", "keyed")])
        second = runtime.session("s").start_batch([call("b", "keyed")])
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["b"]
        stage.open()
        await first
        await second


@pytest.mark.promise("SCHED-03")
async def test_claims_do_not_hold_across_sessions():
    stage = Stage()

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(f"{ctx.session_id}.{ctx.call_id}")

    async with fail_after(5), Runtime.open(tools=[everything]) as runtime:
        calls = [call("a", "everything"), call("b", "everything")]
        batches = [runtime.session(name).start_batch(calls) for name in ("one", "two", "three")]
        assert await stage.settled() == ["one.a", "three.a", "two.a"]
        assert await stage.after("two.a") == ["one.a", "three.a", "two.b"]
        stage.open()
        for batch in batches:
            await batch


@pytest.mark.promise("REG-04")
async def test_a_tool_unregistered_while_the_batch_runs_changes_nothing_in_it():
    stage = Stage()

    @tool(name="work")
    async def work(ctx: ToolContext) -> str:
        return "old " + await stage.visit(ctx.call_id)

    @tool(name="work", parallel=True)
    async def new_work(ctx: ToolContext) -> str:
        return "new " + await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[work]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("a", "work"), call("b", "work")])
        assert await stage.settled() == ["a"]
        runtime.tools.unregister("work")
        (unknown,) = await session.run_batch([call("u", "work")])
        assert unknown.failure is not None
        assert unknown.failure.code == "unknown_tool"
        assert await stage.after("a") == ["b"], "the batch still has the tool, and its claims"
        runtime.tools.register(new_work)
        later = session.start_batch([call("c", "work"), call("d", "work")])
        assert await stage.settled() == ["b"]
        assert await stage.after("b") == ["c", "d"]
        stage.open()
        assert [outcome.value for outcome in await batch] == ["old a", "old b"]
        assert [outcome.value for outcome in await later] == ["new c", "new d"]


@pytest.mark.promise("REG-04")
async def test_a_layer_popped_while_the_batch_runs_changes_nothing_in_it():
    stage = Stage()

    @tool
    async def work(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open() as runtime:
        session = runtime.session("s")
        with session.tools.layer([work]):
            batch = session.start_batch([call("a", "work"), call("b", "work")])
        await settle()
        stage.open()
        assert [outcome.status for outcome in await batch] == ["success", "success"]
        assert (await session.call("work")).status == "failure"
