"""The answer of each provider, streamed and whole, as the same neutral answer."""

import json
from typing import Any

import pytest

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, MESSAGES, RESPONSES, events
from tests.providers.loopback import streamed, whole
from toolwright import Image, ToolCall
from toolwright.providers import Price
from toolwright.tools.model import (
    CallDelta,
    ModelAnswer,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolResults,
    Usage,
    UserMessage,
)
from toolwright.tools.outcome import ToolOutcome

HELLO = ModelRequest("s1", [UserMessage("Hello")])
WEATHER = ToolCall("get_weather", '{"city": "Köln", "days": 3}', "call_a")
NEWS = ToolCall("get_news", '{"about": "\\"the\\" Rhine"}', "call_b")
USAGE = Usage(input=120, output=30, cache_read=100, reasoning=12)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("size", [0, 1, 7], ids=lambda size: f"pieces of {size}" if size else "one piece")
async def test_a_text_is_streamed_and_whole(model, dialect, server, size):
    server.will(dialect.reply(ModelAnswer(text="Grüße aus Köln ☂", usage=USAGE), size=size))
    deltas, answer = await asked(model, HELLO)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Grüße aus Köln ☂"
    assert len(deltas) > 3
    assert answer.text == "Grüße aus Köln ☂"
    assert (answer.stop, answer.calls) == ("end", ())
    assert answer.usage == USAGE
    assert answer.model == f"{model.provider}:a-model"
    assert answer.id
    assert server.asked[0].path == dialect.path


@pytest.mark.promise("TURN-02")
async def test_calls_are_streamed_and_whole(model, dialect, server):
    given = ModelAnswer(text="Let me look.", calls=(WEATHER, NEWS), stop="calls", usage=USAGE)
    server.will(dialect.reply(given))
    deltas, answer = await asked(model, HELLO)
    whole_answer = await model.complete(HELLO)
    for one in (answer, whole_answer):
        assert one.text == "Let me look."
        assert one.stop == "calls"
        assert [(call.name, call.id, call.cut_off) for call in one.calls] == [
            ("get_weather", "call_a", None),
            ("get_news", "call_b", None),
        ]
        assert [arguments(call) for call in one.calls] == [
            {"city": "Köln", "days": 3},
            {"about": '"the" Rhine'},
        ]
    streamed_arguments = {"call_a": "", "call_b": ""}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            streamed_arguments[delta.call_id] += delta.arguments
    assert streamed_arguments == {"call_a": WEATHER.arguments, "call_b": NEWS.arguments}
    assert answer == whole_answer


def arguments(call):
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


@pytest.mark.promise("TURN-02")
async def test_reasoning_is_shown_apart_from_the_text(model, dialect, server):
    server.will(dialect.reply(ModelAnswer(text="42", reasoning="First this.\n\nThen that.", usage=USAGE)))
    deltas, answer = await asked(model, HELLO)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "First this.\n\nThen that."
    assert (answer.text, answer.reasoning) == ("42", "First this.\n\nThen that.")
    assert (await model.complete(HELLO)).reasoning == "First this.\n\nThen that."


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_calls_of_a_truncated_answer_are_marked_as_cut_off(model, dialect, server, how):
    server.will(dialect.reply(ModelAnswer(text="I will", calls=(WEATHER,), stop="length")))
    answer = (await asked(model, HELLO))[1] if how == "stream" else await model.complete(HELLO)
    assert answer.stop == "length"
    assert [bool(call.cut_off) for call in answer.calls] == [True]


@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_a_refusal_says_so(model, dialect, server, how):
    server.will(dialect.reply(ModelAnswer(text="I cannot help with that.", stop="refusal")))
    answer = (await asked(model, HELLO))[1] if how == "stream" else await model.complete(HELLO)
    assert (answer.stop, answer.text, answer.calls) == ("refusal", "I cannot help with that.", ())


@pytest.mark.parametrize("stop", ["pause", "context"])
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_anthropic_tells_of_a_pause_and_of_a_full_context(open_model_of, server, stop, how):
    model = await open_model_of(MESSAGES)
    server.will(MESSAGES.reply(ModelAnswer(text="So far", stop=stop)))
    answer = (await asked(model, HELLO))[1] if how == "stream" else await model.complete(HELLO)
    assert (answer.stop, answer.text) == (stop, "So far")


async def test_a_paused_answer_is_sent_back_so_that_the_model_continues(open_model_of, server):
    model = await open_model_of(MESSAGES)
    server.will(MESSAGES.reply(ModelAnswer(text="So far", stop="pause")))
    paused = await model.complete(HELLO)
    await model.complete(ModelRequest("s1", [UserMessage("Hello"), paused]))
    assert server.asked[-1].body["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "So far"}],
    }


async def test_cache_writes_count_as_input(model, dialect, server):
    usage = Usage(input=1_000, output=7, cache_read=600, cache_write=300, reasoning=3)
    server.will(dialect.reply(ModelAnswer(text="x", usage=usage)))
    assert (await asked(model, HELLO))[1].usage == usage
    assert (await model.complete(HELLO)).usage == usage


async def test_a_price_gives_each_answer_its_cost(dialect, open_model_of, server):
    model = await open_model_of(dialect, price=Price(input=3, output=15, cached=0.3))
    server.will(dialect.reply(ModelAnswer(text="x", usage=USAGE)))
    _, answer = await asked(model, HELLO)
    assert answer.usage.cost == pytest.approx((20 * 3 + 100 * 0.3 + 30 * 15) / 1_000_000)
    assert (await model.complete(HELLO)).usage.cost == answer.usage.cost


async def test_an_empty_answer_is_an_answer(model, dialect, server):
    server.will(dialect.reply(ModelAnswer()))
    deltas, answer = await asked(model, HELLO)
    assert deltas == []
    assert (answer.text, answer.calls, answer.stop) == ("", (), "end")
    server.will(dialect.reply(ModelAnswer(text="Now")))
    assert (await model.complete(ModelRequest("s1", [UserMessage("a"), answer, UserMessage("b")]))).text == "Now"
    dialect.check(server.asked[-1].body)


async def test_images_that_a_model_makes_are_images_of_its_answer(open_model_of, server):
    picture = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="}
    response = {**RESPONSES.response(ModelAnswer(text="Here")), "output": [picture]}
    server.will(streamed(events({"type": "response.completed", "response": response}, named=True)))
    _, answer = await asked(await open_model_of(RESPONSES), HELLO)
    assert answer.images == (Image("iVBORw0KGgo=", "image/png"),)

    message = {
        "role": "assistant",
        "content": "Here",
        "images": [{"type": "image_url", "image_url": {"url": "data:image/webp;base64,UklGRg=="}}],
    }
    server.will(whole({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
    assert (await (await open_model_of(CHAT)).complete(HELLO)).images == (Image("UklGRg==", "image/webp"),)


@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_a_call_whose_arguments_are_not_json_fails_alone_and_spoils_no_history(open_model_of, server, how):
    broken = ToolCall("get_weather", '{"city": "Kö', "call_a")
    for dialect in (CHAT, RESPONSES) if how == "complete" else (CHAT, RESPONSES, MESSAGES):
        model = await open_model_of(dialect)
        if dialect is MESSAGES:
            said = events(
                {"type": "message_start", "message": {"id": "m", "usage": {}}},
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {}},
                },
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": broken.arguments},
                },
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
                {"type": "message_stop"},
                named=True,
            )
            server.will(streamed(said))
        else:
            server.will(dialect.reply(ModelAnswer(calls=(broken,), stop="calls")))
        answer = (await asked(model, HELLO))[1] if how == "stream" else await model.complete(HELLO)
        assert [call.arguments for call in answer.calls] == ['{"city": "Kö'], dialect
        failed = ToolOutcome(call_id="call_a", tool="get_weather", status="success", payload=b'"not run"')
        server.will(dialect.reply(ModelAnswer(text="Sorry")))
        await model.complete(ModelRequest("s1", [UserMessage("Hello"), answer, ToolResults((failed,))]))
        body = server.asked[-1].body
        dialect.check(body)
        assert "_unparsed" in str(body)


async def test_a_block_that_was_not_finished_is_cut_off(open_model_of, server):
    said = MESSAGES.stream(ModelAnswer(calls=(WEATHER,), stop="calls")).decode().split("\n\n")
    kept = [event for event in said if "content_block_stop" not in event]
    server.will(streamed("\n\n".join(kept).encode()))
    _, answer = await asked(await open_model_of(MESSAGES), HELLO)
    assert [call.cut_off for call in answer.calls] == ["incomplete"]


async def test_ids_that_a_provider_leaves_out_or_gives_twice_are_made_anew(model, dialect, server):
    same = ToolCall("get_weather", '{"city": "Bonn"}', "call_a")
    server.will(dialect.reply(ModelAnswer(calls=(WEATHER, same, ToolCall("get_news", "{}", "")), stop="calls")))
    for answer in ((await asked(model, HELLO))[1], await model.complete(HELLO)):
        ids = [call.id for call in answer.calls]
        assert ids[0] == "call_a"
        assert len(set(ids)) == 3
        assert all(ids)
        native = str(answer.native)
        assert all(str(call_id) in native for call_id in ids)

    # ... also an id that an earlier answer used.
    results = ToolResults(
        tuple(ToolOutcome(call_id=call.id, tool=call.name, status="success", payload=b"1") for call in answer.calls)
    )
    server.will(dialect.reply(ModelAnswer(calls=(WEATHER,), stop="calls")))
    again = await model.complete(ModelRequest("s1", [UserMessage("a"), answer, results]))
    assert again.calls[0].id not in ids
    assert again.calls[0].name == "get_weather"


async def test_a_server_that_streams_nothing_is_understood(model, dialect, server):
    server.will(whole(dialect.response(ModelAnswer(text="All at once", calls=(WEATHER,), stop="calls"))))
    deltas, answer = await asked(model, HELLO)
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["All at once"]
    assert [call.id for call in answer.calls] == ["call_a"]


async def test_usage_that_is_missing_or_nonsense_counts_nothing(open_model_of, server):
    model = await open_model_of(CHAT)
    response = CHAT.response(ModelAnswer(text="x"))
    for usage in (None, {}, "many", {"prompt_tokens": "9", "completion_tokens": -3}, {"prompt_tokens": True}, [1]):
        server.will(whole({**response, "usage": usage}))
        assert (await model.complete(HELLO)).usage == Usage()


async def test_an_error_inside_a_stream_is_a_model_error(open_model_of, server):
    begun = {"choices": [{"index": 0, "delta": {"content": "He"}}]}
    cases = [
        (CHAT, events(begun, {"error": {"message": "Too busy", "code": 503}}), "overloaded"),
        (CHAT, events(begun, {"error": {"message": "x", "code": "context_length_exceeded"}}), "context_overflow"),
        (RESPONSES, events({"type": "error", "code": "rate_limit_exceeded", "message": "slower"}), "rate_limited"),
        (
            RESPONSES,
            events(
                {
                    "type": "response.failed",
                    "response": {"status": "failed", "error": {"code": "server_error", "message": "oops"}},
                }
            ),
            "unavailable",
        ),
        (
            MESSAGES,
            events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, named=True),
            "overloaded",
        ),
        (
            MESSAGES,
            events(
                {
                    "type": "error",
                    "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
                },
                named=True,
            ),
            "content_refused",
        ),
    ]
    for dialect, said, code in cases:
        server.will(streamed(said))
        with pytest.raises(ModelError) as told:
            await asked(await open_model_of(dialect), HELLO)
        assert told.value.code == code


@pytest.mark.promise("TURN-02")
async def test_a_character_that_is_cut_in_half_is_whole_again(open_model_of, server):
    def halves(text):
        units = text.encode("utf-16-le")
        return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]

    chat: list[Any] = [{"choices": [{"index": 0, "delta": {"content": half}}]} for half in halves("a 😀 b")]
    chat += [
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "w", "arguments": half}}]
                    },
                }
            ]
        }
        for half in halves('{"a": "😀"}')
    ]
    chat += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"]
    messages: list[Any] = [{"type": "message_start", "message": {"id": "m"}}]
    messages += [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
    messages += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": half}}
        for half in halves("a 😀 b")
    ]
    used = {"type": "tool_use", "id": "call_1", "name": "w", "input": {}}
    messages += [{"type": "content_block_stop", "index": 0}]
    messages += [{"type": "content_block_start", "index": 1, "content_block": used}]
    messages += [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": half}}
        for half in halves('{"a": "😀"}')
    ]
    messages += [{"type": "content_block_stop", "index": 1}]
    messages += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    for dialect, said in ((CHAT, events(*chat)), (MESSAGES, events(*messages, named=True))):
        model = await open_model_of(dialect)
        server.will(streamed(said))
        deltas, answer = await asked(model, HELLO)
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "a 😀 b"
        assert "".join(delta.arguments for delta in deltas if isinstance(delta, CallDelta)) == '{"a": "😀"}'
        assert answer.text == "a 😀 b"
        assert [arguments(call) for call in answer.calls] == [{"a": "😀"}]
        assert "😀" in str(answer.native)
        results = ToolResults((ToolOutcome(call_id="call_1", tool="w", status="success", payload=b"1"),))
        server.will(dialect.reply(ModelAnswer(text="x")))
        await model.complete(ModelRequest("s1", [UserMessage("a"), answer, results]))
        assert "😀" in str(server.asked[-1].body)
