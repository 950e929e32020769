"""Asking for a turn that is there already, options that are not usable, and cancelling in the process of the turn."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support import fail_after
from toolwright import ToolCall, TurnError, tool
from toolwright.testing import FunctionModel, ScriptedModel


class Triage(BaseModel):
    number: int
    stale: bool


class Other(BaseModel):
    name: str


TRIAGE = '{"number": 7, "stale": true}'


@pytest.mark.promise("TURN-03")
@pytest.mark.parametrize("ticks", range(12))
async def test_no_call_begins_after_a_turn_was_cancelled(place, open_runtime, ticks):
    begun = asyncio.Event()
    cancelled_at: list[int] = []
    started: list[int] = []

    @tool
    async def act() -> str:
        """Act."""
        started.append(len(cancelled_at))
        return "acted"

    async def model(request: Any) -> Any:
        begun.set()
        return [ToolCall(name="act", arguments={}) for _ in range(3)] if request.number < 5 else "Done."

    runtime = await open_runtime(place, act, model=FunctionModel(model))
    turn = await runtime.session("s").start_turn("Go.")
    async with fail_after(10):
        await begun.wait()
        for _ in range(ticks):
            await asyncio.sleep(0)
        cancelling = asyncio.ensure_future(turn.cancel())
        await asyncio.sleep(0)  # the request is made; the store may not have it yet
        cancelled_at.append(1)
        taken = await cancelling
        outcome = await turn
    assert (outcome.status == "cancelled") == taken
    if taken:
        assert not [each for each in started if each]
    # Whatever was stopped, the history is one that the next turn continues.
    async with fail_after(10):
        assert (await runtime.session("s").ask("And?", model=ScriptedModel(["Fine."] * 20))).text == "Fine."


@pytest.mark.promise("TURN-03")
@pytest.mark.parametrize("ticks", range(8))
async def test_a_turn_that_answered_was_not_cancelled(place, open_runtime, ticks):
    answered = asyncio.Event()

    async def model(request: Any) -> str:
        answered.set()
        return "Done."

    runtime = await open_runtime(place, model=FunctionModel(model))
    turn = await runtime.session("s").start_turn("Go.")
    async with fail_after(10):
        await answered.wait()
        for _ in range(ticks):
            await asyncio.sleep(0)
        taken = await turn.cancel()
        outcome = await turn
    assert outcome.status == ("cancelled" if taken else "answered")


@pytest.mark.promise("TURN-05")
async def test_the_value_of_an_ended_turn_has_the_form_that_is_asked_for(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel([TRIAGE] * 3))
    session = runtime.session("s")
    async with fail_after(10):
        first = await session.ask("Which?", answer=Triage, id="t1")
        again = await session.ask("Which?", answer=Triage, id="t1")
        assert first.value == again.value == Triage(number=7, stale=True)
        assert (await session.ask("Which?", id="t1")).value == {"number": 7, "stale": True}
        with pytest.raises(TurnError, match="ask with the form that it was asked for"):
            await session.ask("Which?", answer=Other, id="t1")


@pytest.mark.promise("TURN-05")
async def test_an_answer_of_text_is_the_text_itself(place, open_runtime):
    model = ScriptedModel(["Issue 7."])
    runtime = await open_runtime(place, model=model)
    async with fail_after(10):
        outcome = await runtime.session("s").ask("Which?", answer=str, id="t1")
        again = await runtime.session("s").ask("Which?", answer=str, id="t1")
    assert (outcome.value, outcome.model_calls, again.value) == ("Issue 7.", 1, "Issue 7.")
    assert model.requests[0].answer_schema is None


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"Sure!\n```json\n{TRIAGE}\n```", 1),
        (f"Sure!\n```\n{TRIAGE}\n```\nAnything else?", 1),
        (f"```json\n{TRIAGE}\n```", 1),
        (f"Either\n```json\n{TRIAGE}\n```\nor\n```json\n{TRIAGE}\n```", 2),
        (f"```json\n{TRIAGE}\n```\nor\n```json\n{TRIAGE}\n```", 2),
        (f"Sure: ```{TRIAGE}", 2),
    ],
)
async def test_the_only_block_of_code_of_an_answer_is_read(open_runtime, text, calls):
    runtime = await open_runtime(model=ScriptedModel([text, TRIAGE]))
    outcome = await runtime.session("s").ask("Which?", answer=Triage)
    assert (outcome.value, outcome.model_calls) == (Triage(number=7, stale=True), calls)


@pytest.mark.promise("TURN-05")
async def test_fences_of_code_without_an_end_do_not_hold_up_the_program(open_runtime, loop_watch):
    model = ScriptedModel(["Sure!\n" + "```a\n" * 5_000, TRIAGE])
    runtime = await open_runtime(model=model)
    loop_watch.restart()
    outcome = await runtime.session("s").ask("Which?", answer=Triage)
    assert (outcome.value, outcome.model_calls) == (Triage(number=7, stale=True), 2)


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
async def test_a_number_that_json_does_not_have_is_asked_for_again(place, open_runtime, number):
    runtime = await open_runtime(place, model=ScriptedModel([f'{{"share": {number}}}', '{"share": 0.5}']))
    outcome = await runtime.session("s").ask("How much?", answer=dict[str, float], id="t1")
    assert (outcome.value, outcome.model_calls) == ({"share": 0.5}, 2)
    assert (await (await runtime.turn("t1"))).value == {"share": 0.5}  # as the store has it


@pytest.mark.promise("TURN-05")
async def test_json_whose_text_has_a_fence_is_read_as_it_is(open_runtime):
    text = '{"name": "a\\n```\\nb\\n```\\n"}'
    runtime = await open_runtime(model=ScriptedModel([text]))
    outcome = await runtime.session("s").ask("Which?", answer=Other)
    assert outcome.value == Other(name="a\n```\nb\n```\n")


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"images": 5}, r"images=5 is not usable; use a list of Image\(\.\.\.\)"),
        ({"images": ("x",)}, r"images=\('x',\) is not usable"),
        ({"images": "x"}, "images='x' is not usable"),
        ({"id": ""}, "id='' is not usable; use text that is not empty"),
        ({"id": "\ud800"}, r"id='\\ud800' is not usable; use text that is not empty and has a form in UTF-8"),
    ],
)
async def test_options_that_are_not_usable_are_refused_with_the_remedy(place, open_runtime, options, told):
    runtime = await open_runtime(place, model=ScriptedModel(["Hi."]))
    with pytest.raises(TurnError, match=told):
        await runtime.session("s").ask("Hello.", **options)
    assert await runtime.turns() == []


@pytest.mark.promise("TURN-05")
async def test_an_id_that_no_turn_can_have_is_that_of_no_turn(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel(["Hi."]))
    with pytest.raises(TurnError, match="There is no turn"):
        await runtime.turn("\ud800")


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("after", [-1, "1", 1.5, None, True])
async def test_events_are_followed_from_a_whole_number(open_runtime, after):
    runtime = await open_runtime(model=ScriptedModel(["Hi."]))
    turn = await runtime.session("s").start_turn("Hello.")
    with pytest.raises(TurnError, match="is not usable; use the number of an event, or 0 for all"):
        async for _ in turn.follow(after=after):
            pass
    await turn


@pytest.mark.promise("TURN-05")
async def test_the_id_of_a_turn_of_another_session_is_refused(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel(["Hi."]))
    await runtime.session("first").ask("Hello.", id="t1")
    with pytest.raises(TurnError, match="'t1' is that of another turn; give each turn its own id") as refused:
        await runtime.session("second").ask("Hello.", id="t1")
    assert "first" not in str(refused.value)  # the caller may know no other session
    with pytest.raises(TurnError, match="belongs to session 'first', not to 'second'"):
        await runtime.session("second").turn("t1")
