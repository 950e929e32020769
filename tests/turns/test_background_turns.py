"""Turns that any worker may take: here by the worker of the runtime itself."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, ToolCall, tool
from toolwright.testing import FakeClock, FunctionModel, ScriptedModel


@pytest.mark.promise("TURN-03", "PROC-06")
async def test_more_turns_than_a_worker_takes_at_once_all_end(place, open_runtime):
    running = most = 0

    async def model(request: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "Done."

    policy = Policy(background_per_worker=2)
    runtime = await open_runtime(place, model=FunctionModel(model), worker=True, policy=policy)
    async with fail_after(20):
        turns = [await runtime.session(f"s{n}").start_turn("Go.", background=True) for n in range(30)]
        outcomes = [await turn for turn in turns]
    assert [outcome.text for outcome in outcomes] == ["Done."] * 30
    assert 0 < most <= 2


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
async def test_an_answer_without_an_end_to_its_levels_is_asked_for_again(place, open_runtime, deep):
    runtime = await open_runtime(place, model=ScriptedModel([deep, "[1]"]), worker=True)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Which?", answer=list[int], background=True)
        outcome = await turn
    assert (outcome.value, outcome.model_calls, outcome.reason) == ([1], 2, None)


@pytest.mark.promise("TURN-08", "PROC-06")
async def test_a_turn_that_waits_takes_no_place_of_its_worker(place, open_runtime):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    async def model(request: Any) -> Any:
        if request.session == "a" and request.number == 0:
            return [ToolCall("wipe", {}, "w")]
        return f"Done in {request.session}."

    policy = Policy(background_per_worker=1)
    runtime = await open_runtime(place, wipe, model=FunctionModel(model), worker=True, policy=policy)
    async with fail_after(20):
        first = await runtime.session("a").start_turn("Wipe.", background=True)
        assert (await first).status == "waiting"
        second = await runtime.session("b").start_turn("Go.", background=True)
        assert (await second).text == "Done in b."
        (approval,) = await runtime.approvals("a")
        await runtime.approve(approval.key)
        ended = await first.wait()
    assert ended is not None
    assert ended.text == "Done in a."


@pytest.mark.promise("TURN-05")
async def test_the_end_of_a_turn_that_this_process_took_is_told_at_once(place, open_runtime):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    def model(request: Any) -> Any:
        asked = request.messages[-1].text == "Wipe." if request.number == 0 else False
        return [ToolCall("wipe", {}, "w")] if asked else "Done."

    # A clock that stands still: whoever looks at the store after some time would wait forever.
    runtime = await open_runtime(place, wipe, model=FunctionModel(model), worker=True, clock=FakeClock())
    async with fail_after(5):
        ended = await (await runtime.session("a").start_turn("Go.", background=True)).wait()
        waits = await (await runtime.session("b").start_turn("Wipe.", background=True))
    assert ended is not None
    assert (ended.text, waits.status) == ("Done.", "waiting")


@pytest.mark.promise("TURN-03")
async def test_a_turn_for_any_worker_waits_in_the_queue_of_its_session(place, open_runtime):
    begun, go, order = asyncio.Event(), asyncio.Event(), []

    async def model(request: Any) -> str:
        order.append(request.messages[-1].text)
        begun.set()
        await go.wait()
        return "Done."

    runtime = await open_runtime(place, model=FunctionModel(model))
    session = runtime.session("s")
    async with fail_after(20):
        first = await session.start_turn("one")
        second = await session.start_turn("two", background=True)
        third = await session.start_turn("three")
        await begun.wait()
        go.set()
        assert [(await turn).status for turn in (first, second, third)] == ["answered"] * 3
    assert order == ["one", "two", "three"]
