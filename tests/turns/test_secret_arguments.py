"""Secret arguments that a model writes: neither shown nor recorded by a turn."""

from typing import Any

import pytest

from tests.session.leaks import files_beside
from tests.support import fail_after
from toolwright import ToolCall, tool
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer

PIN = "PIN-98765-0"


def with_pin(arguments: Any = None) -> ModelAnswer:
    given = {"pin": PIN, "door": "front"} if arguments is None else arguments
    call = ToolCall(id="c1", name="unlock", arguments=given)
    return ModelAnswer(calls=(call,), native={"format": "test", "items": [{"arguments": given}]})


@pytest.mark.promise("TURN-05", "SES-03")
@pytest.mark.parametrize("given", [None, f'{{"pin": "{PIN}", "door": "front"}}', f"pin={PIN}"])
async def test_a_secret_argument_of_a_model_is_neither_shown_nor_recorded(file, open_runtime, given):
    used = []

    @tool(secret="pin")
    async def unlock(pin: str, door: str) -> str:
        """Unlock."""
        used.append(pin)
        return "open"

    model = ScriptedModel([with_pin(given), "Done."])
    runtime = await open_runtime(file, unlock, model=model)
    session = runtime.session("s")
    turn = await session.start_turn("Open the door.")
    async with fail_after(10):
        events = [event async for event in turn.follow()]
        history = await session.messages.list()
    assert used == ([] if given == f"pin={PIN}" else [PIN])
    (answered,) = [each for each in events if each.kind == "model.answered" and each.data["calls"]]
    shown = "[secret]" if given == f"pin={PIN}" else {"pin": "[secret]", "door": "front"}
    assert answered.data["calls"][0]["arguments"] == shown
    assert history[1].content["calls"][0]["arguments"] == shown
    assert "native" not in history[1].metadata
    assert PIN not in repr(events) + repr(history) + repr(model.requests)
    await runtime.close()
    assert not [name for name, content in files_beside(file) if PIN.encode() in content]


@pytest.mark.promise("TURN-05", "SES-03")
async def test_a_call_with_a_secret_argument_that_waited_does_not_run_in_the_next_process(file, open_runtime):
    used = []

    @tool(secret="pin", approval="required")
    async def unlock(pin: str, door: str) -> str:
        """Unlock."""
        used.append(pin)
        return "open"

    script = [with_pin(), "Please give me the pin again."]
    runtime = await open_runtime(file, unlock, model=ScriptedModel(script))
    async with fail_after(10):
        assert (await runtime.session("s").ask("Open the door.")).status == "waiting"
    await runtime.close()
    assert not [name for name, content in files_beside(file) if PIN.encode() in content]

    runtime = await open_runtime(file, unlock, model=ScriptedModel(script))
    async with fail_after(10):
        (turn,) = await runtime.recover_turns()
        outcome = await turn
    assert (outcome.status, outcome.text) == ("answered", "Please give me the pin again.")
    (call,) = outcome.calls
    assert call.failure is not None
    assert call.failure.code == "value_not_kept"
    assert "call the tool again with the value itself" in call.text
    assert used == []
    assert await runtime.approvals("s") == []


@pytest.mark.promise("TURN-05", "SES-03")
async def test_a_finished_call_with_a_secret_argument_is_found_again_after_a_restart(file, open_runtime):
    used = []

    @tool(secret="pin")
    async def unlock(pin: str, door: str) -> str:
        """Unlock."""
        used.append(pin)
        return "open"

    @tool(approval="required")
    async def enter() -> str:
        """Enter."""
        return "inside"

    both = ModelAnswer(calls=(*with_pin().calls, ToolCall(id="c2", name="enter", arguments={})))
    script = [both, "Done."]
    runtime = await open_runtime(file, unlock, enter, model=ScriptedModel(script))
    async with fail_after(10):
        assert (await runtime.session("s").ask("Open the door.")).status == "waiting"
    await runtime.close()
    runtime = await open_runtime(file, unlock, enter, model=ScriptedModel(script))
    async with fail_after(10):
        (turn,) = await runtime.recover_turns()
        assert (await turn).status == "waiting"
        (request,) = await runtime.approvals("s")
        await runtime.approve(request.key, by="ann")
        outcome = await turn.wait()
    assert outcome is not None
    assert [(each.status, each.value) for each in outcome.calls] == [("success", "open"), ("success", "inside")]
    assert used == [PIN]


@pytest.mark.promise("TURN-05", "SES-03")
async def test_a_model_that_copies_the_placeholder_of_a_secret_is_told_to_give_the_value(place, open_runtime):
    used = []

    @tool(secret="pin")
    async def unlock(pin: str, door: str) -> str:
        """Unlock."""
        used.append(pin)
        return "open"

    model = FunctionModel(lambda request: "No." if request.number else with_pin({"pin": "[secret]", "door": "front"}))
    runtime = await open_runtime(place, unlock, model=model)
    async with fail_after(10):
        outcome = await runtime.session("s").ask("Open the door.")
    assert outcome.calls[0].failure is not None
    assert outcome.calls[0].failure.code == "value_not_kept"
    assert used == []
