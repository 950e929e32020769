"""The events of a turn in its store: what tools report, whatever that is, and what a store refuses for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from fractions import Fraction
from typing import Any

import pytest

from tests.support import fail_after, in_memory, until
from toolwright import ToolCall, ToolContext, tool
from toolwright.errors import StoreError
from toolwright.stores.contracts.turns import EventChunk
from toolwright.stores.sql.sessions.turns import SqlTurnStore
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelRequest, TextDelta
from toolwright.tools.turn_protocols import TurnClient, TurnEvent

HALF = "a \udc00 b"
"""Text that has no form in UTF-8, such as a file name that `os.fsdecode` gave."""


@pytest.mark.promise("TURN-07", "RUN-10")
@pytest.mark.parametrize(
    "garbage",
    [HALF, object(), float("nan"), 10**400, b"x", True],
    ids=["half-a-pair", "object", "nan", "huge", "bytes", "bool"],
)
async def test_a_turn_ends_whatever_its_tools_report(place, open_runtime, garbage: Any):
    @tool(readonly=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(garbage)
        await ctx.progress(1, total=garbage, label=garbage, unit=garbage)
        await ctx.status(garbage)
        await ctx.output(garbage, garbage)
        return "done"

    runtime = await open_runtime(place, work, model=ScriptedModel([[ToolCall(id="c", name="work")], "Done."]))
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        events = [event async for event in turn.follow()]
        outcome = await turn
    assert (outcome.status, outcome.text) == ("answered", "Done.")
    assert [event.data["current"] for event in events if event.kind == "call.progress"] == [1]
    said = [event.data["text"] for event in events if event.kind in ("call.status", "call.output")]
    assert said == (["a \\udc00 b"] * 2 if garbage is HALF else [])


class Counted:
    """A whole number of another library, as NumPy has them: it is no `int`."""

    def __index__(self) -> int:
        return 3


@pytest.mark.promise("TURN-07", "RUN-10")
async def test_numbers_of_other_libraries_are_progress(place, open_runtime):
    @tool(readonly=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(Counted(), total=Fraction(7, 2))  # type: ignore[arg-type]
        return "done"

    runtime = await open_runtime(place, work, model=ScriptedModel([[ToolCall(id="c", name="work")], "Done."]))
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        (progress,) = [event.data async for event in turn.follow() if event.kind == "call.progress"]
    assert (progress["current"], progress["total"]) == (3, 3.5)


@pytest.mark.promise("TURN-07")
@pytest.mark.parametrize("error", [StoreError("not now"), RuntimeError("a fault of a library")], ids=repr)
async def test_events_that_could_not_be_written_are_written_later(file, open_runtime, monkeypatch, error):
    refused, leave, write = asyncio.Event(), asyncio.Event(), SqlTurnStore.log

    async def log(self: SqlTurnStore, id: str, token: int, events: EventChunk) -> bool:
        if not refused.is_set() and b"first" in events.data:
            refused.set()
            raise error
        return await write(self, id, token, events)

    monkeypatch.setattr(SqlTurnStore, "log", log)

    @tool(readonly=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.output("stdout", "first")
        await refused.wait()
        await ctx.output("stdout", "second")
        await leave.wait()
        return "done"

    model = ScriptedModel([[ToolCall(id="c", name="work")], "Done."])
    runtime, other = await open_runtime(file, work, model=model), await open_runtime(file, work, model=model)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        seen: list[Any] = []
        async for event in (await other.turn(turn.id)).follow():
            seen.append(event)
            if event.kind == "call.output" and event.data["text"] == "second":
                leave.set()
    assert [event.data["text"] for event in seen if event.kind == "call.output"] == ["first", "second"]
    assert [event.number for event in seen] == list(range(1, len(seen) + 1))


class Talkative:
    """A model whose answer has more pieces than events are remembered outside of a store."""

    provider, name, pieces = "fake", "talkative", 25_000

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(text="x" * self.pieces)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelAnswer]:
        for _ in range(self.pieces):
            yield TextDelta("x")
        yield await self.complete(request)


@pytest.mark.promise("TURN-07")
async def test_a_follower_that_falls_far_behind_sees_the_end_and_all_that_is_still_there(place, open_runtime):
    runtime, ended = await open_runtime(place, model=Talkative()), asyncio.Event()
    async with fail_after(30):
        turn = await runtime.session("s").start_turn("Go.")
        seen: list[TurnEvent] = []

        async def follow() -> None:
            async for event in turn.follow():
                seen.append(event)
                await ended.wait()

        following = asyncio.ensure_future(follow())
        await turn
        ended.set()
        await following
        late = [event async for event in (await runtime.turn(turn.id)).follow()]
    assert (seen[0].kind, seen[-1].kind, late[-1].kind) == ("turn.started", "turn.ended", "turn.ended")
    numbers = [event.number for event in seen]
    assert numbers == sorted(set(numbers))
    assert late == seen[-len(late) :]
    if place == ":memory:":
        assert len(late) > 19_000
    else:
        assert numbers == [event.number for event in late] == list(range(1, Talkative.pieces + 4))


@pytest.mark.promise("TURN-07")
async def test_following_a_queued_turn_ends_when_another_program_cancels_it(file, open_runtime):
    begun, leave = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        begun.set()
        await leave.wait()
        return "Done."

    here = await open_runtime(file, model=FunctionModel(answer))
    there = await open_runtime(file, model=FunctionModel(answer))
    async with fail_after(20):
        first = await there.session("s").start_turn("One.")
        await begun.wait()
        queued = await here.session("s").start_turn("Two.")
        following = asyncio.ensure_future(_kinds(queued))
        assert await (await there.turn(queued.id)).cancel()
        assert await following == []
        leave.set()
        assert (await first).text == "Done."


async def _kinds(turn: TurnClient) -> list[str]:
    return [event.kind async for event in turn.follow()]


@pytest.mark.promise("TURN-07", "TURN-08")
async def test_those_who_wait_no_longer_for_a_turn_that_waits_leave_nothing_in_memory(place, open_runtime):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    model = FunctionModel(lambda request: [ToolCall("wipe", {}, "w")] if request.number == 0 else "Done.")
    runtime = await open_runtime(place, wipe, model=model)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Wipe.")
        assert (await turn).status == "waiting"
        last = 0
        async with aclosing(turn.follow()) as events:
            async for event in events:
                last = event.number
                if event.kind == "turn.waiting":
                    break
        before = in_memory(asyncio.Future)
        for _ in range(100):
            assert await turn.wait(0) is None
            following = asyncio.ensure_future(anext(turn.follow(last)))
            for _ in range(10):
                await asyncio.sleep(0)
            following.cancel()
            await asyncio.wait({following})
        del following
        await until(lambda: in_memory(asyncio.Future) - before < 20)
        (asked,) = await runtime.approvals()
        await runtime.approve(asked.key)
        ended = await turn.wait()
    assert ended is not None
    assert ended.text == "Done."
