"""A completion that was acknowledged decides: no cancellation, no failure and no end of the tool takes it back."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import OpenRuntime
from tests.support import fail_after
from toolwright import Pending, ToolCall, ToolContext, ToolError, tool
from toolwright.errors import KeyRefused

CALL = ToolCall(id="c1", name="order")


@pytest.mark.promise("WAIT-07", "WAIT-02")
@pytest.mark.parametrize("then", ["cancelled", "fails", "returns", "late"])
async def test_a_completion_that_comes_before_the_tool_ends_is_the_outcome(place, open_runtime: OpenRuntime, then):
    keys: asyncio.Queue[str] = asyncio.Queue()
    go = asyncio.Event()

    @tool(timeout=0.2 if then == "late" else 30)
    async def order(ctx: ToolContext) -> str | dict[str, str]:
        keys.put_nowait(ctx.completion_key())
        await go.wait()
        if then == "fails":
            raise ToolError("the connection broke")
        return "a value of its own"

    runtime = await open_runtime(place, order)
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        resolved = await runtime.resolve(await keys.get(), {"from": "outside"})
        if then == "cancelled":
            batch.cancel("no longer wanted")
        elif then != "late":
            go.set()
        (outcome,) = await batch
        (again,) = await runtime.session("s").run_batch([CALL])

    assert resolved.first
    assert (outcome.status, outcome.value) == ("success", {"from": "outside"})
    assert again.value == {"from": "outside"}


@pytest.mark.promise("WAIT-07", "WAIT-02")
@pytest.mark.parametrize("then", ["cancelled", "fails", "returns"])
async def test_a_completion_that_comes_after_the_call_has_ended_is_refused(place, open_runtime: OpenRuntime, then):
    keys: list[str] = []
    inside = asyncio.Event()

    @tool
    async def order(ctx: ToolContext) -> str:
        keys.append(ctx.completion_key())
        inside.set()
        if then == "cancelled":
            await asyncio.Event().wait()
        if then == "fails":
            raise ToolError("the connection broke")
        return "a value of its own"

    runtime = await open_runtime(place, order)
    async with fail_after(10):
        batch = runtime.session("s").start_batch([CALL])
        await inside.wait()
        if then == "cancelled":
            batch.cancel("no longer wanted")
        (outcome,) = await batch
        with pytest.raises(KeyRefused, match="is finished, and no longer waits for this"):
            await runtime.resolve(keys[0], 1)

    assert outcome.status == {"cancelled": "cancelled", "fails": "failure", "returns": "success"}[then]


@pytest.mark.promise("WAIT-07", "CANCEL-01")
async def test_whoever_is_told_that_it_was_first_decides_between_completion_and_cancellation(
    file: Path, open_runtime: OpenRuntime
):
    """On two runtimes, and in every order of the two that some turns of the loop between them make."""
    keys: dict[str, str] = {}

    @tool(parallel=True)
    async def order(ctx: ToolContext) -> Pending:
        keys[ctx.call_id] = ctx.completion_key()
        return Pending()

    here, there = await open_runtime(file, order), await open_runtime(file, order)
    seen = set()
    events = here.subscribe()
    waiting = (event async for event in events if event.kind == "call.waiting")
    async with fail_after(60):
        for turns in range(-20, 40):
            name = f"c{turns}"
            batch = here.session("s").start_batch([ToolCall(id=name, name="order")])
            await anext(waiting)
            if turns < 0:
                batch.cancel("no longer wanted")
            resolving = asyncio.ensure_future(there.resolve(keys[name], "done"))
            for _ in range(abs(turns) * 3):
                await asyncio.sleep(0)
            if turns >= 35:  # a commit takes longer than all these turns of the loop
                await asyncio.wait({resolving})
            batch.cancel("no longer wanted")
            (outcome,) = await batch
            try:
                first = (await resolving).first
            except KeyRefused:
                first = False
            assert outcome.status == ("success" if first else "cancelled")
            seen.add(first)

    events.close()
    assert seen == {True, False}
