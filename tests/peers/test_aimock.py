"""Against aimock, a server for tests that others wrote: all three protocols, streamed and whole."""

import asyncio
import json
import urllib.request

import pytest

from tests.support import fail_after
from toolwright import ToolDefinition
from toolwright.tools.model import CallDelta, ModelAnswer, ModelError, ModelRequest, TextDelta, ToolResults, UserMessage
from toolwright.tools.outcome import ToolOutcome

WEATHER = ToolDefinition(
    name="get_weather",
    id="get_weather",
    description="Tells the weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


async def asked(model, request):
    async with fail_after(20):
        *deltas, answer = [piece async for piece in model.stream(request)]
    assert isinstance(answer, ModelAnswer)
    return deltas, answer


def arguments(call):
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


@pytest.mark.promise("TURN-02")
async def test_a_text_of_a_server_that_others_wrote(aimock, model_at):
    model = await model_at(aimock)
    request = ModelRequest("s1", [UserMessage("Please greet me")])
    deltas, answer = await asked(model, request)
    assert answer.text == "Grüße aus Köln, how are you today?"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.text
    assert answer.stop == "end"
    whole = await model.complete(request)
    assert (whole.text, whole.stop) == (answer.text, "end")
    assert (whole.usage.input, whole.usage.output) == (11, 7)


@pytest.mark.promise("TURN-02")
async def test_reasoning_of_a_server_that_others_wrote(aimock, model_at):
    model = await model_at(aimock)
    request = ModelRequest("s1", [UserMessage("Now think")])
    for answer in ((await asked(model, request))[1], await model.complete(request)):
        assert answer.text == "42"
        assert answer.reasoning == "The question is not known. The answer is."


@pytest.mark.promise("TURN-02", "TURN-09")
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_calls_and_results_with_a_server_that_others_wrote(aimock, model_at, how):
    model = await model_at(aimock)
    said = [UserMessage("What is the weather?")]
    request = ModelRequest("s1", said, tools=(WEATHER,))
    if how == "stream":
        deltas, answer = await asked(model, request)
        assert any(isinstance(delta, CallDelta) for delta in deltas)
    else:
        answer = await model.complete(request)
    assert answer.stop == "calls"
    assert [call.id for call in answer.calls] == ["call_rome", "call_oslo"]
    assert [arguments(call) for call in answer.calls] == [{"city": "Rome"}, {"city": "Oslo"}]
    results = ToolResults(
        tuple(
            ToolOutcome(call_id=call.id, tool=call.name, status="success", payload=weather)
            for call, weather in zip(answer.calls, (b'"sun"', b'"snow"'), strict=True)
        )
    )
    _, last = await asked(model, ModelRequest("s1", [*said, answer, results], tools=(WEATHER,)))
    assert last.text == "Sunny in Rome, snow in Oslo."


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        ("rateLimitRate", {"rate_limited"}),
        ("dropRate", {"unavailable"}),
        ("disconnectRate", {"unavailable"}),
        ("malformedRate", {"bad_answer", "unavailable"}),
    ],
)
async def test_faults_of_a_server_that_others_wrote_are_model_errors(aimock, model_at, fault, codes):
    model = await model_at(aimock)
    request = ModelRequest("s1", [UserMessage("Please greet me")])
    await asyncio.to_thread(chaos, aimock, "POST", {fault: 1})
    try:
        for asking in (asked(model, request), model.complete(request)):
            with pytest.raises(ModelError) as told:
                await asking
            assert told.value.code in codes
            if fault == "rateLimitRate":
                assert told.value.after is not None
    finally:
        await asyncio.to_thread(chaos, aimock, "DELETE", None)


def chaos(address, method, rates):
    body = None if rates is None else json.dumps(rates).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}/__aimock/chaos", body, method=method)):
        pass
