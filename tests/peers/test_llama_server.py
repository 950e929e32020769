"""Against a real inference server, llama.cpp's, with a tiny model of random weights: nobody here wrote what it says."""

import json

import pytest

from tests.support import fail_after
from toolwright import ToolDefinition
from toolwright.tools.model import CallDelta, ModelAnswer, ModelError, ModelRequest, ToolResults, UserMessage
from toolwright.tools.outcome import ToolOutcome

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition(name="get_weather", id="get_weather", description="Tells the weather.", input_schema=SCHEMA)
REQUIRED = ModelRequest(
    "s1",
    [UserMessage("What is the weather?")],
    tools=(WEATHER,),
    tool_choice="required",
    parallel=False,
    max_tokens=400,
)


def checked(answer):
    """The one call of an answer, whose arguments fulfil the schema of the tool."""
    assert answer.stop == "calls"
    [call] = answer.calls
    given = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
    assert call.name == "get_weather"
    assert set(given) == {"city", "days"}
    assert given["city"] in ("Rome", "Oslo")
    assert given["days"] in (1, 2, 3)
    assert call.cut_off is None
    assert call.id
    return call


@pytest.mark.promise("TURN-02")
async def test_a_real_server_streams_a_call_that_is_put_together(llama, model_at):
    model = await model_at(llama)
    async with fail_after(60):
        *deltas, answer = [piece async for piece in model.stream(REQUIRED)]
    assert isinstance(answer, ModelAnswer)
    call = checked(answer)
    pieces = [delta.arguments for delta in deltas if isinstance(delta, CallDelta) and delta.call_id == call.id]
    assert len(pieces) > 5
    assert json.loads("".join(pieces))["city"] in ("Rome", "Oslo")
    assert answer.usage.input > 100
    assert answer.usage.output > 5


@pytest.mark.promise("TURN-02", "TURN-09")
async def test_a_real_server_takes_its_own_answer_and_the_results_back(llama, model_at):
    model = await model_at(llama)
    async with fail_after(60):
        answer = await model.complete(REQUIRED)
        call = checked(answer)
        outcome = ToolOutcome(call_id=call.id, tool=call.name, status="success", payload=b'"sunny"')
        again = await model.complete(
            ModelRequest(
                "s1",
                [*REQUIRED.messages, answer, ToolResults((outcome,)), UserMessage("And tomorrow?")],
                tools=(WEATHER,),
                tool_choice="required",
                parallel=False,
                max_tokens=400,
            )
        )
    checked(again)
    assert again.usage.input > answer.usage.input


@pytest.mark.promise("TURN-02")
async def test_a_real_server_tells_that_a_conversation_is_too_long(llama, model_at):
    model = await model_at(llama)
    with pytest.raises(ModelError) as told:
        await model.complete(ModelRequest("s1", [UserMessage("word " * 4_000)], max_tokens=5))
    assert told.value.code == "context_overflow"
