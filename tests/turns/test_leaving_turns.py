"""A process that stops: which turns it takes, lets end, and leaves to others, and what their handles say then."""

import asyncio
import logging
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import RuntimeClosed, ToolCall, tool
from toolwright.testing import FakeClock, FunctionModel, ScriptedModel


class Held:
    """A tool that runs until it is let go, and whether it was cut off."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.cut = False

        @tool(idempotent=True)
        async def hold() -> str:
            """Hold."""
            self.begun.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cut = True
                raise
            return "held"

        self.tool = hold


def hold_then_answer() -> FunctionModel:
    async def model(request: Any) -> Any:
        return [ToolCall("hold", {}, "h")] if request.number == 0 else "Done."

    return FunctionModel(model)


@pytest.mark.promise("TURN-03")
@pytest.mark.parametrize("background", [True, False], ids=["of_the_worker", "own"])
async def test_draining_lets_a_turn_at_work_end(place, open_runtime, background):
    held = Held()
    runtime = await open_runtime(place, held.tool, model=hold_then_answer(), worker=True)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.", background=background)
        await held.begun.wait()
        draining = asyncio.ensure_future(runtime.drain(600))
        late = await runtime.session("t").start_turn("Later.", background=True)
        await asyncio.wait({draining}, timeout=0)
        assert not draining.done()
        held.go.set()
        await draining
        info = await turn.info()
        assert (info.state, info.text, held.cut) == ("answered", "Done.", False)
        assert (await late.info()).state == "queued"


@pytest.mark.promise("TURN-03")
async def test_draining_takes_no_later_turn_of_the_same_session(place, open_runtime):
    held = Held()
    runtime = await open_runtime(place, held.tool, model=hold_then_answer(), worker=True)
    async with fail_after(20):
        await runtime.session("s").start_turn("Go.", background=True)
        second = await runtime.session("s").start_turn("Next.", background=True)
        await held.begun.wait()
        draining = asyncio.ensure_future(runtime.drain(600))
        await asyncio.wait({draining}, timeout=0)
        held.go.set()
        await draining
        await runtime.session("s").wait_for_idle()
        assert (await second.info()).state == "queued"


@pytest.mark.promise("TURN-03")
async def test_draining_waits_no_longer_than_its_bound_and_another_worker_continues(file, open_runtime):
    held, clock = Held(), FakeClock()
    first = await open_runtime(file, held.tool, model=hold_then_answer(), worker=True, clock=clock)
    async with fail_after(20):
        turn = await first.session("s").start_turn("Go.", background=True)
        await held.begun.wait()
        draining = asyncio.ensure_future(first.drain(10))
        await clock.advance(9)
        assert not draining.done()
        assert not held.cut
        await clock.advance(1.5)
        await draining
        assert (await turn.info()).state == "running"
        closing = asyncio.ensure_future(first.close())
        while not closing.done():
            await clock.advance(1)
        await closing
        assert held.cut
        assert first.worker is not None
        assert first.worker.state()["turns"]["handed_back"] == 1
        assert first.worker.state()["turns_running"] == 0
        held.go.set()
        second = await open_runtime(file, held.tool, model=hold_then_answer(), worker=True)
        assert (await (await second.turn(turn.id))).text == "Done."


@pytest.mark.promise("TURN-08")
async def test_draining_does_not_wait_for_a_turn_that_waits_for_a_person(place, open_runtime):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    model = ScriptedModel([[ToolCall("wipe", {}, "w")], "Gone."])
    runtime = await open_runtime(place, wipe, model=model, worker=True, clock=FakeClock())
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Wipe it.")
        assert (await turn).status == "waiting"
        await runtime.drain(600)
        assert (await turn.info()).state == "waiting"


@pytest.mark.promise("TURN-03")
async def test_closing_while_turns_are_drained_does_not_wait_for_the_bound(place, open_runtime):
    held = Held()
    runtime = await open_runtime(place, held.tool, model=hold_then_answer(), worker=True)
    async with fail_after(20):
        await runtime.session("s").start_turn("Go.")
        await held.begun.wait()
        draining = asyncio.ensure_future(runtime.drain(10_000))
        await asyncio.wait({draining}, timeout=0)
        await runtime.close()
        await draining
    assert held.cut


@pytest.mark.promise("TURN-03")
async def test_a_program_leaves_its_background_turn_to_a_worker_of_the_store(file, open_runtime):
    model = ScriptedModel(["One.", "Two."])
    program = await open_runtime(file, model=model)
    async with fail_after(20):
        session = program.session("s")
        own = await session.start_turn("one")
        left = await session.start_turn("two", background=True)
        assert (await own).text == "One."
        await session.wait_for_idle()
        assert program.worker is None
        assert (await left.info()).state == "queued"
        await program.close()
        worker = await open_runtime(file, model=ScriptedModel(["By the worker."]), worker=True)
        assert (await (await worker.turn(left.id))).text == "By the worker."
    assert len(model.requests) == 1


@pytest.mark.promise("TURN-03")
async def test_in_memory_the_program_takes_its_background_turn_itself(open_runtime):
    runtime = await open_runtime(model=ScriptedModel(["One.", "Two."]))
    async with fail_after(20):
        assert (await (await runtime.session("s").start_turn("one", background=True))).text == "One."
        own = await runtime.session("t").start_turn("one")
        behind = await runtime.session("t").start_turn("two", background=True)
        assert [(await own).text, (await behind).text] == ["One.", "Two."]


async def events_of(turn: Any) -> list[str]:
    return [event.kind async for event in turn.follow()]


@pytest.mark.promise("TURN-07")
@pytest.mark.parametrize("kind", ["running", "queued", "in_no_process", "waiting"])
async def test_followers_and_waiters_are_told_when_the_runtime_closes(file, open_runtime, kind):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    held = Held()

    async def model(request: Any) -> Any:
        return [ToolCall("wipe" if kind == "waiting" else "hold", {}, "c")]

    runtime = await open_runtime(file, held.tool, wipe, model=FunctionModel(model))
    async with fail_after(20):
        session = runtime.session("s")
        turn = await session.start_turn("Go.", background=kind == "in_no_process")
        if kind == "waiting":
            assert (await turn).status == "waiting"
        elif kind != "in_no_process":
            await held.begun.wait()
        if kind == "queued":
            turn = await session.start_turn("Next.")
        tasks = [asyncio.ensure_future(events_of(turn)), asyncio.ensure_future(turn.wait())]
        await asyncio.wait(tasks, timeout=0)
        await runtime.close()
        for task in tasks:
            with pytest.raises(RuntimeClosed):
                await task


@pytest.mark.promise("TURN-07")
async def test_a_follower_of_another_process_need_not_look_again_to_know_of_the_closing(file, open_runtime):
    """The clock stands still: a follower that only looks from time to time would never know."""
    runtime = await open_runtime(file, model=ScriptedModel(["Never."]), clock=FakeClock())
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.", background=True)
        following = asyncio.ensure_future(events_of(turn))
        await runtime.session("s").turns()
        await runtime.close()
        with pytest.raises(RuntimeClosed):
            await following


@pytest.mark.promise("TURN-07")
@pytest.mark.parametrize("ended", [True, False])
async def test_a_handle_of_a_closed_runtime_says_so(place, open_runtime, ended):
    held = Held()
    runtime = await open_runtime(place, held.tool, model=hold_then_answer())
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        await held.begun.wait()
        if ended:
            held.go.set()
            assert (await turn).text == "Done."
        await runtime.close()
        for use in (events_of(turn), turn.cancel(), turn.info(), turn.wait()):
            with pytest.raises(RuntimeClosed, match="The runtime is closed; open another"):
                await use
        for when in ("next_model_call", "next_turn"):
            with pytest.raises(RuntimeClosed, match="The runtime is closed; open another"):
                await turn.steer("Faster.", when=when)


@pytest.mark.promise("TURN-03")
async def test_a_worker_logs_and_counts_the_turns_that_it_takes(place, open_runtime, caplog):
    held = Held()
    caplog.set_level(logging.INFO, "toolwright.background")
    runtime = await open_runtime(place, held.tool, model=hold_then_answer(), worker=True)
    worker = runtime.worker
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.", background=True)
        await held.begun.wait()
        assert worker.state()["turns_running"] == 1
        held.go.set()
        await turn
        await runtime.session("s").wait_for_idle()
    state = worker.state()
    assert (state["turns_running"], state["turns"]["started"], state["turns"]["answered"]) == (0, 1, 1)
    told = [record for record in caplog.records if getattr(record, "turn_id", None) == turn.id]
    assert [(each.action, each.session, each.worker) for each in told] == [
        ("turn.started", "s", worker.name),
        ("turn.answered", "s", worker.name),
    ]
