"""A tool waits until the session that it opened is idle, and closes it."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import ToolContext, tool
from toolwright.errors import ToolwrightError


@pytest.mark.promise("SES-09")
async def test_a_tool_waits_until_its_child_session_is_idle(place, open_runtime):
    go, seen = asyncio.Event(), []

    @tool
    async def slow() -> str:
        """Be slow."""
        await go.wait()
        seen.append("slow")
        return "slow"

    @tool
    async def delegate(ctx: ToolContext) -> list:
        """Delegate."""
        child = ctx.open_child("helper")
        task = asyncio.ensure_future(child.call("slow"))
        await asyncio.sleep(0)
        early = await child.wait_for_idle(timeout=0)
        go.set()
        idle = await child.wait_for_idle()
        return [early, idle, list(seen), (await task).value]

    session = (await open_runtime(place, slow, delegate)).session("s")
    async with fail_after(10):
        assert (await session.call("delegate")).value == [False, True, ["slow"], "slow"]


@pytest.mark.promise("SES-09")
async def test_a_call_does_not_wait_for_itself(place, open_runtime):
    handles = []

    async def attempt(work) -> str:
        with pytest.raises(ToolwrightError) as refused:
            await work
        return str(refused.value)

    @tool(parallel=True)
    async def inner(ctx: ToolContext) -> list:
        """Be in the child."""
        (child,) = handles
        return [await attempt(child.wait_for_idle()), await attempt(child.close())]

    @tool(parallel=True)
    async def between(ctx: ToolContext) -> list:
        """Call the other."""
        return (await ctx.call("inner")).value

    @tool
    async def outer(ctx: ToolContext) -> list:
        """Open the child."""
        handles[:] = [ctx.open_child("helper")]
        direct = (await handles[0].call("inner")).value
        return [*direct, *(await handles[0].call("between")).value]

    @tool
    async def alone(ctx: ToolContext) -> str:
        """Wait for the own session, which a program may do by mistake."""
        return await attempt(runtime.session("s").wait_for_idle())

    runtime = await open_runtime(place, inner, between, outer, alone)
    async with fail_after(10):
        said = (await runtime.session("s").call("outer")).value
        own = (await runtime.session("s").call("alone")).value
    assert ["wait for itself" in text for text in said] == [True, False, True, False]
    assert ["close its own session" in text for text in said] == [False, True, False, True]
    assert "of session 's' cannot wait for its session to be idle" in own


@pytest.mark.promise("SES-09")
async def test_a_tool_closes_its_child_session(place, open_runtime):
    started = asyncio.Event()

    @tool
    async def endless() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    @tool
    async def note(ctx: ToolContext) -> str:
        """Note."""
        await ctx.kv.set("noted", True)
        return "noted"

    @tool
    async def delegate(ctx: ToolContext) -> list:
        """Delegate."""
        child = ctx.open_child("helper")
        await child.call("note")
        task = asyncio.ensure_future(child.call("endless"))
        await started.wait()
        await child.close("enough")
        outcome = await task
        try:
            await child.call("note")
        except ToolwrightError as refused:
            error = str(refused)
        again = ctx.open_child("helper")
        return [outcome.status, outcome.reason, error, await again.kv.get("noted"), again.id == child.id]

    session = (await open_runtime(place, endless, note, delegate)).session("s")
    async with fail_after(10):
        status, reason, error, noted, same = (await session.call("delegate")).value
    assert (status, reason, noted, same) == ("cancelled", "enough", True, True)
    assert "was closed; run its calls before" in error
