"""The ways in which compatible servers stream calls, each of which must give the same calls."""

import json

import pytest

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, events
from tests.providers.loopback import streamed
from toolwright.tools.model import CallDelta, ModelRequest, UserMessage

HELLO = ModelRequest("s1", [UserMessage("Hello")])
ROME = '{"city": "Rome"}'
OSLO = '{"city": "Oslo"}'


def piece(arguments=None, *, index=None, id=None, name=None, **more):
    called = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {"index": index, "id": id, "function": called, **more}
    return {key: value for key, value in given.items() if value is not None}


WAYS = {
    "as OpenAI does": [
        [piece("", index=0, id="a", name="get_weather", type="function")],
        [piece('{"city":', index=0)],
        [piece(' "Rome"}', index=0)],
        [piece("", index=1, id="b", name="get_weather", type="function")],
        [piece(OSLO, index=1)],
    ],
    "whole calls in one chunk": [
        [piece(ROME, index=0, id="a", name="get_weather"), piece(OSLO, index=1, id="b", name="get_weather")]
    ],
    "all calls under the index 0": [
        [piece(ROME, index=0, id="a", name="get_weather")],
        [piece(OSLO, index=0, id="b", name="get_weather")],
    ],
    "an index that begins at 1": [
        [piece("", index=1, id="a", name="get_weather")],
        [piece(ROME, index=1)],
        [piece("", index=2, id="b", name="get_weather")],
        [piece(OSLO, index=2)],
    ],
    "no index": [
        [piece('{"city": ', id="a", name="get_weather")],
        [piece('"Rome"}')],
        [piece(OSLO, id="b", name="get_weather")],
    ],
    "no index, and the id in each chunk": [
        [piece('{"city": ', id="a", name="get_weather")],
        [piece(OSLO, id="b", name="get_weather")],
        [piece('"Rome"}', id="a")],
    ],
    "id and name in each chunk": [
        [piece('{"city"', index=0, id="a", name="get_weather")],
        [piece(': "Rome"}', index=0, id="a", name="get_weather")],
        [piece("", index=0, id="a", name="get_weather")],
        [piece('{"city": "O', index=1, id="b", name="get_weather")],
        [piece('slo"}', index=1, id="b", name="get_weather")],
    ],
    "arguments as an object": [
        [piece({"city": "Rome"}, index=0, id="a", name="get_weather")],
        [piece({"city": "Oslo"}, index=1, id="b", name="get_weather")],
    ],
    "no ids": [
        [piece("", index=0, name="get_weather")],
        [piece(ROME, index=0)],
        [piece("", index=1, name="get_weather")],
        [piece(OSLO, index=1)],
    ],
    "empty ids, and all calls under the index 0": [
        [piece(ROME, index=0, id="", name="get_weather")],
        [piece(OSLO, index=0, id="", name="get_weather")],
    ],
    "the same id for all calls": [
        [piece(ROME, index=0, id="call_0", name="get_weather")],
        [piece(OSLO, index=0, id="call_0", name="get_weather")],
    ],
    "neither id nor index, and the name in each chunk": [
        [piece('{"city": ', name="get_weather")],
        [piece('"Rome"}', name="get_weather")],
        [piece('{"city": ', name="get_weather")],
        [piece('"Oslo"}', name="get_weather")],
    ],
    "all arguments once more at the end": [
        [piece(ROME, index=0, id="a", name="get_weather")],
        [piece('{"city": ', index=1, id="b", name="get_weather")],
        [piece('"Oslo"}', index=1)],
        [piece(ROME, index=0, id="a", name="get_weather"), piece(OSLO, index=1, id="b", name="get_weather")],
    ],
    "an empty object that holds the place of the arguments": [
        [piece("{}", index=0, id="a", name="get_weather")],
        [piece('{"city": ', index=0)],
        [piece('"Rome"}', index=0)],
        [piece("{}", index=1, id="b", name="get_weather")],
        [piece(OSLO, index=1)],
    ],
    "the name in pieces": [
        [piece(index=0, id="a", name="get_")],
        [piece(index=0, name="weather")],
        [piece(ROME, index=0)],
        [piece(OSLO, index=1, id="b", name="get_weather")],
    ],
    "numbers as ids": [
        [piece(ROME, index=0, id=1, name="get_weather")],
        [piece(OSLO, index=1, id=2, name="get_weather")],
    ],
    "calls that take turns": [
        [piece('{"city"', index=0, id="a", name="get_weather"), piece('{"city"', index=1, id="b", name="get_weather")],
        [piece(': "Rome"}', index=0), piece(': "Oslo"}', index=1)],
    ],
}


def chunks(*deltas, finish="tool_calls"):
    said = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return events(*said, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, "[DONE]")


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("way", WAYS)
async def test_calls_are_put_together_however_a_server_streams_them(way, open_model_of, server):
    server.will(streamed(chunks(*({"tool_calls": pieces} for pieces in WAYS[way]))))
    deltas, answer = await asked(await open_model_of(CHAT), HELLO)
    assert [(call.name, call.arguments) for call in answer.calls] == [("get_weather", ROME), ("get_weather", OSLO)] or [
        (call.name, json.loads(call.arguments)) for call in answer.calls
    ] == [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo"})]
    assert len({call.id for call in answer.calls}) == 2
    assert answer.stop == "calls"
    assert {delta.call_id for delta in deltas if isinstance(delta, CallDelta)} == {call.id for call in answer.calls}
    assert answer.native is not None
    [message] = answer.native["items"]
    assert [call["id"] for call in message["tool_calls"]] == [call.id for call in answer.calls]
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        {"city": "Rome"},
        {"city": "Oslo"},
    ]


async def test_calls_make_an_answer_stop_for_calls_whatever_the_server_says(open_model_of, server):
    model = await open_model_of(CHAT)
    server.will(streamed(chunks({"tool_calls": [piece(ROME, index=0, id="a", name="w")]}, finish="stop")))
    assert (await asked(model, HELLO))[1].stop == "calls"
    server.will(streamed(chunks({"content": "None needed"}, finish="tool_calls")))
    assert (await asked(model, HELLO))[1].stop == "end"


async def test_a_call_in_the_old_form_is_a_call(open_model_of, server):
    said = [{"function_call": {"name": "w", "arguments": ""}}, {"function_call": {"arguments": ROME}}]
    server.will(streamed(chunks(*said, finish="function_call")))
    _, answer = await asked(await open_model_of(CHAT), HELLO)
    assert [(call.name, call.arguments) for call in answer.calls] == [("w", ROME)]


async def test_a_whole_message_inside_a_stream_is_understood(open_model_of, server):
    message = {"role": "assistant", "content": "Hi", "tool_calls": [piece(ROME, id="a", name="w")]}
    server.will(streamed(events({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}, "[DONE]")))
    _, answer = await asked(await open_model_of(CHAT), HELLO)
    assert (answer.text, [call.arguments for call in answer.calls]) == ("Hi", [ROME])


async def test_fields_beside_a_call_and_a_message_come_back_as_they_were(open_model_of, server):
    details = [
        {"type": "reasoning.text", "index": 0, "text": "Fir", "format": "f"},
        {"type": "reasoning.text", "index": 0, "text": "st.", "format": "f"},
        {"type": "reasoning.text", "index": 0, "signature": "sig", "format": "f"},
        {"type": "reasoning.encrypted", "index": 1, "data": "gAAA", "format": "f"},
    ]
    signed = piece(ROME, index=0, id="a", name="w", extra_content={"google": {"thought_signature": "Cs=="}})
    deltas = [*({"reasoning_details": [each]} for each in details), {"tool_calls": [signed]}]
    server.will(streamed(chunks(*deltas)))
    _, answer = await asked(await open_model_of(CHAT), HELLO)
    assert answer.native is not None
    [message] = answer.native["items"]
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "First.", "signature": "sig", "format": "f"},
        {"type": "reasoning.encrypted", "index": 1, "data": "gAAA", "format": "f"},
    ]
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "Cs=="}}


@pytest.mark.parametrize(
    "pieces",
    [
        [None],
        ["x"],
        [{}],
        [{"function": None}],
        [{"function": {"name": ["w"], "arguments": [1]}}],
        [{"index": "0", "id": [], "function": {"name": 3, "arguments": 4}}],
        [{"index": -1, "id": {"a": 1}, "function": {"arguments": "}{"}}],
    ],
    ids=str,
)
async def test_pieces_of_another_kind_are_a_call_that_fails_alone(pieces, open_model_of, server):
    good = piece(ROME, index=7, id="good", name="get_weather")
    server.will(streamed(chunks({"tool_calls": pieces}, {"tool_calls": [good]})))
    _, answer = await asked(await open_model_of(CHAT), HELLO)
    assert len(answer.calls) == 2
    assert (answer.calls[1].id, answer.calls[1].arguments) == ("good", ROME)
