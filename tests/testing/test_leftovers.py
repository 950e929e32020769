"""A test can ask whether a runtime or a session holds anything."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.testing import is_idle, left_over, slots_in_use


async def test_a_session_is_idle_unless_a_call_of_it_runs_or_waits_for_its_turn(place: Any) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(max_concurrency=1)
    async def work() -> None:
        entered.set()
        await leave.wait()

    async with fail_after(5), Runtime.open(place, tools=[work]) as runtime:
        busy, other = runtime.session("busy"), runtime.session("other")
        assert is_idle(runtime)
        batch = busy.start_batch([ToolCall(name="work"), ToolCall(name="work")])
        await entered.wait()
        assert (is_idle(busy), is_idle(other), is_idle(runtime)) == (False, True, False)
        assert (slots_in_use(busy), slots_in_use(other), slots_in_use(runtime)) == (1, 0, 1)
        assert {"slots", "sessions", "batches", "deadlines"} <= set(left_over(runtime))
        leave.set()
        await batch
        assert is_idle(runtime)
        assert is_idle(busy)
        assert left_over(runtime) == {}


async def test_a_call_that_waits_for_something_outside_holds_its_claims_and_no_slot(place: Any) -> None:
    keys: list[str] = []

    @tool
    async def deliver(ctx: ToolContext) -> str:
        keys.append(ctx.event_key("signed"))
        return str(await ctx.wait(keys[0]))

    async with fail_after(5), Runtime.open(place, tools=[deliver]) as runtime:
        batch = runtime.session("s").start_batch([ToolCall(name="deliver")])
        assert await runtime.session("s").wait_for_idle()
        assert not is_idle(runtime)
        assert slots_in_use(runtime) == 0
        assert {"batches", "sessions", "waits"} <= set(left_over(runtime))
        await runtime.resolve(keys[0], "Ada")
        assert [outcome.value for outcome in await batch] == ["Ada"]
        assert left_over(runtime) == {}


@pytest.mark.parametrize("nested", [False, True])
async def test_what_a_call_that_failed_or_was_cancelled_held_is_free(nested: bool) -> None:
    entered = asyncio.Event()

    @tool
    async def fail() -> None:
        raise ValueError("no")

    @tool
    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    @tool
    async def outer(ctx: ToolContext, name: str) -> None:
        await ctx.call(name)

    def call(name: str) -> ToolCall:
        return ToolCall(name="outer", arguments={"name": name}) if nested else ToolCall(name=name)

    async with fail_after(5), Runtime.open(tools=[fail, hang, outer]) as runtime:
        batch = runtime.session("s").start_batch([call("fail"), call("hang")])
        await entered.wait()
        assert not is_idle(runtime)
        batch.cancel()
        await batch
        assert is_idle(runtime)
        assert set(left_over(runtime)) <= {"deadlines"}  # the grace of a cancelled call passes, and then it is gone
