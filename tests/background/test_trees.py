"""Runs that start runs: the tree is visible, and who cancels one cancels what it started."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from toolwright import App, Policy, ToolCall, ToolContext, tool
from toolwright.errors import RunError
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelRequest

POLICY = Policy(background_per_session=50)


@tool(supports_background=True)
async def grow(ctx: ToolContext, depth: int, width: int = 2) -> None:
    if depth:
        for number in range(width):
            await ctx.runs.spawn("grow", {"depth": depth - 1}, title=f"{depth - 1}.{number}")
    await asyncio.Event().wait()


@pytest.mark.promise("PROC-09")
async def test_a_run_that_is_cancelled_takes_all_that_it_started_with_it(stage: Stage, place: str | Path):
    session = (await stage.open(place, grow, policy=POLICY)).session("s")
    root = await session.spawn("grow", {"depth": 2})
    other = await session.spawn("grow", {"depth": 0})

    async def grown() -> bool:
        return len(await root.children()) == 6

    await stage.until_so(grown)
    children = await root.children()
    depths = [run.record.title.split(".")[0] for run in children]
    assert depths == ["1", "1", "0", "0", "0", "0"], "each after its parent"
    above = {run.id for run in (root, *children)}
    assert all(run.record.parent in above for run in children)
    assert [run.record.parent for run in children[:2]] == [root.id] * 2
    assert children[0].record.provenance["by"] == "call"
    await root.cancel("enough")
    outcomes = await stage.until(asyncio.gather(root.wait(), *(run.wait() for run in children)))
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [("cancelled", "enough")] * 7
    assert not (await other.refresh()).over


@pytest.mark.promise("PROC-09")
async def test_a_child_is_cancelled_without_its_parent(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def parent(ctx: ToolContext) -> str:
        child = await ctx.runs.spawn("grow", {"depth": 0})
        return (await child.wait()).status

    session = (await stage.open(place, grow, parent, policy=POLICY)).session("s")
    root = await session.spawn("parent")

    async def grown() -> bool:
        return bool(await root.children())

    await stage.until_so(grown)
    (child,) = await root.children()
    await child.cancel()
    assert (await stage.until(root.wait())).value == "cancelled"


@pytest.mark.promise("PROC-09")
async def test_a_run_that_was_cancelled_starts_no_more(stage: Stage, place: str | Path):
    refused: list[RunError] = []
    going, go = asyncio.Event(), asyncio.Event()

    @tool(supports_background=True)
    async def stubborn(ctx: ToolContext) -> None:
        going.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            try:
                await ctx.runs.spawn("grow", {"depth": 0})
            except RunError as error:
                refused.append(error)
            raise

    session = (await stage.open(place, grow, stubborn, policy=POLICY)).session("s")
    run = await session.spawn("stubborn")
    await stage.until(going.wait())
    await run.cancel()
    await stage.until(run.wait())
    assert [error.code for error in refused] == ["over"]
    assert len(await session.runs()) == 1


@pytest.mark.promise("PROC-09", "CANCEL-01")
async def test_a_run_that_is_cancelled_elsewhere_and_starts_another_then_is_cancelled(stage: Stage, file: Path):
    going, go = asyncio.Event(), asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> None:
        going.set()
        await go.wait()  # its worker has not looked yet, and does not know that it is cancelled
        await ctx.runs.spawn("grow", {"depth": 0})

    session = (await stage.open(file, grow, work, policy=POLICY)).session("s")
    there = (await stage.open(file, grow, work, policy=POLICY, worker=False)).session("s")
    run = await session.spawn("work")
    await stage.until(going.wait())
    await (await there.run(run.id)).cancel("enough")
    go.set()
    outcome = await run.wait()
    assert (outcome.status, outcome.reason, run.status) == ("cancelled", "enough", "cancelled")
    assert len(await session.runs()) == 1


@pytest.mark.promise("PROC-09")
async def test_a_run_awaits_what_it_started_and_gets_its_value(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def leaf(number: int) -> int:
        return number * number

    @tool(supports_background=True)
    async def total(ctx: ToolContext) -> int:
        runs = [await ctx.runs.spawn("leaf", {"number": number}) for number in range(4)]
        return sum([(await run.wait()).value for run in runs])

    session = (await stage.open(place, leaf, total, policy=POLICY)).session("s")
    run = await session.spawn("total")
    assert (await stage.until(run.wait())).value == 14


@pytest.mark.promise("PROC-04")
async def test_a_run_that_is_taken_over_finds_the_runs_it_started(stage: Stage, file: Path):
    held = asyncio.Event()

    @tool(supports_background=True)
    async def leaf() -> str:
        return "leaf"

    @tool(supports_background=True, idempotent=True)
    async def parent(ctx: ToolContext) -> str:
        child = await ctx.runs.spawn("leaf")
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return f"{child.id} {(await child.wait()).value}"

    first = await stage.open(file, leaf, parent)
    root = await first.session("s").spawn("parent")
    await stage.until(held.wait())
    await stage.close(first)
    again = (await stage.open(file, leaf, parent, worker=True)).session("s")
    handle = await again.run(root.id)
    outcome = await stage.until(handle.wait())
    (child,) = await handle.children()
    assert outcome.value == f"{child.id} leaf"


@pytest.mark.promise("PROC-09")
async def test_what_a_run_that_is_over_started_goes_on_when_somebody_cancels_it(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def endless() -> None:
        await asyncio.Event().wait()

    @tool(supports_background=True)
    async def parent(ctx: ToolContext) -> str:
        return (await ctx.runs.spawn("endless")).id

    session = (await stage.open(place, endless, parent)).session("s")
    run = await session.spawn("parent")
    child = await session.run((await stage.until(run.wait())).value)
    assert not await run.cancel()
    await stage.pass_time(2)
    assert (await child.refresh()).status == "running"
    assert await child.cancel()
    assert (await stage.until(child.wait())).status == "cancelled"


@pytest.mark.promise("PROC-09", "TURN-12")
async def test_a_run_that_is_cancelled_between_two_workers_takes_its_sub_agents_with_it(stage: Stage, file: Path):
    @tool(approval="required")
    async def wipe() -> str:
        return "wiped"

    def answer(request: ModelRequest) -> Any:
        return [ToolCall(id="w", name="wipe", arguments={})] if request.number == 0 else "Done."

    agent = App(tools=[wipe], model=FunctionModel(answer)).as_tool("agent")
    policy = Policy(background_tools="all")
    first = await stage.open(file, agent, policy=policy)
    run = await first.session("s").spawn("agent", {"message": "Go."})
    await stage.until_so(first.approvals)
    await stage.close(first)
    second = await stage.open(file, agent, policy=policy, worker=False)
    run = await second.session("s").run(run.id)
    assert run.status == "queued"
    assert await run.cancel("enough")
    assert run.status == "cancelled"
    assert [(turn.state, turn.reason) for turn in await second.turns()] == [("cancelled", "enough")]
    assert await second.approvals() == []
