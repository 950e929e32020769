"""The seconds of a turn: those in which it works, also where it waits for something outside in between."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Budget, Pending, Runtime, ToolCall, ToolContext, tool
from toolwright.testing import FakeClock, FunctionModel


class Stage:
    """A model that thinks for four seconds before each answer, and a tool that waits for something outside."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.asked = asyncio.Queue[int]()
        self.keys: list[str] = []

        @tool(approval="required")
        async def approved(n: int) -> int:
            """Wait for a person."""
            return n

        @tool
        async def completed(ctx: ToolContext, n: int) -> Pending:
            """Wait for a completion."""
            self.keys.append(ctx.completion_key())
            return Pending()

        self.tools = (approved, completed)

    def model(self, name: str) -> FunctionModel:
        async def think(request: Any) -> Any:
            self.asked.put_nowait(request.number)
            await self.clock.sleep(4)
            return "Done." if request.number == 2 else [ToolCall(name=name, arguments={"n": request.number})]

        return FunctionModel(think)

    async def think(self) -> None:
        """The four seconds of the next model call."""
        await self.asked.get()
        await self.clock.advance(4)

    async def go_on(self, runtime: Runtime, name: str) -> None:
        """Let what the turn waits for come after a long time."""
        await self.clock.advance(1_000)
        if name == "approved":
            (approval,) = await runtime.approvals()
            await runtime.approve(approval.key)
        else:
            await runtime.resolve(self.keys.pop(), value=1)


@pytest.mark.promise("TURN-01", "TURN-08")
@pytest.mark.parametrize("name", ["approved", "completed"])
@pytest.mark.parametrize(("seconds", "status", "limit"), [(11, "out_of_budget", "seconds"), (13, "answered", None)])
async def test_the_seconds_of_a_turn_count_together_and_its_waits_do_not(
    place, open_runtime, name, seconds, status, limit
):
    stage = Stage()
    runtime = await open_runtime(place, *stage.tools, model=stage.model(name), clock=stage.clock)
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Go.", budget=Budget(seconds=seconds))
        for _ in range(2):
            await stage.think()
            assert (await turn).status == "waiting"
            await stage.go_on(runtime, name)
        await stage.think()
        outcome = await turn.wait()
    assert outcome is not None
    assert (outcome.status, outcome.limit) == (status, limit)


@pytest.mark.promise("TURN-01", "TURN-03")
async def test_the_seconds_of_a_turn_count_together_in_the_next_process(file, open_runtime):
    stage = Stage()
    model = stage.model("completed")
    first = await open_runtime(file, *stage.tools, model=model, clock=stage.clock)
    async with fail_after(10):
        turn = await first.session("s").start_turn("Go.", id="t", budget=Budget(seconds=11))
        await stage.think()
        assert (await turn).status == "waiting"
        await stage.go_on(first, "completed")
        await stage.think()
        assert (await turn).status == "waiting"
        await first.close()
        second = await open_runtime(file, *stage.tools, model=model, clock=stage.clock)
        (turn,) = await second.recover_turns()
        assert (await turn).status == "waiting"
        await stage.go_on(second, "completed")
        await stage.think()
        outcome = await turn.wait()
    assert outcome is not None
    assert (outcome.status, outcome.limit) == ("out_of_budget", "seconds")
