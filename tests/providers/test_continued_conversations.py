"""What a provider said goes back to it as it was, and a conversation can be continued by another one."""

import copy
import itertools

import pytest
from msgspec.structs import replace

from tests.providers.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES
from toolwright import ToolCall
from toolwright.tools.model import ModelAnswer, ModelRequest, ToolResults, UserMessage
from toolwright.tools.outcome import Failure, Image, ToolOutcome

CALLS = (ToolCall("get_weather", '{"city": "Rome"}', "call_a"), ToolCall("get_news", "{}", "call_b"))
GIVEN = ModelAnswer(text="Let me look.", reasoning="The user wants\n\nthe weather.", calls=CALLS, stop="calls")


def results_of(answer):
    return ToolResults(
        (
            ToolOutcome(call_id=answer.calls[0].id, tool="get_weather", status="success", payload=b'"sunny"'),
            ToolOutcome(call_id=answer.calls[1].id, tool="get_news", status="failure", failure=Failure(message="none")),
        )
    )


@pytest.mark.promise("TURN-09")
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_reasoning_and_signatures_go_back_unchanged(dialect, open_model_of, server, how):
    model = await open_model_of(dialect)
    server.will(dialect.reply(GIVEN))
    request = ModelRequest("s1", [UserMessage("Weather?")])
    answer = [piece async for piece in model.stream(request)][-1] if how == "stream" else await model.complete(request)
    before = copy.deepcopy(answer)
    server.will(dialect.reply(ModelAnswer(text="Sunny.")))
    await model.complete(ModelRequest("s1", [UserMessage("Weather?"), answer, results_of(answer)]))
    body = server.asked[-1].body
    dialect.check(body)
    assert answer == before
    if dialect is RESPONSES:
        assert body["input"][1:5] == RESPONSES.items(GIVEN)
        assert [item["call_id"] for item in body["input"][5:]] == ["call_a", "call_b"]
    elif dialect is MESSAGES:
        assert body["messages"][1] == {"role": "assistant", "content": MESSAGES.blocks(GIVEN)}
        assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ["call_a", "call_b"]
    else:
        message = body["messages"][1]
        assert message["reasoning_content"] == GIVEN.reasoning
        assert message["content"] == "Let me look."
        assert [call["id"] for call in message["tool_calls"]] == ["call_a", "call_b"]
        assert [each["tool_call_id"] for each in body["messages"][2:]] == ["call_a", "call_b"]


@pytest.mark.promise("TURN-09")
@pytest.mark.parametrize(("first", "dialect"), list(itertools.permutations(DIALECTS, 2)), ids=repr)
async def test_another_provider_can_continue(first, dialect, open_model_of, server):
    server.will(first.reply(GIVEN))
    answer = await (await open_model_of(first)).complete(ModelRequest("s1", [UserMessage("Weather?")]))
    server.will(dialect.reply(ModelAnswer(text="Sunny.")))
    asked = ModelRequest("s1", [UserMessage("Weather?"), answer, results_of(answer), UserMessage("And?")])
    await (await open_model_of(dialect)).complete(asked)
    body = server.asked[-1].body
    dialect.check(body)
    text = str(body)
    assert "Let me look." in text
    assert "sunny" in text
    assert "the weather." not in text  # the reasoning of the other model
    assert "sealed" not in text
    assert "sig==" not in text


@pytest.mark.promise("TURN-09")
async def test_another_server_of_the_same_protocol_does_not_get_what_only_the_first_one_reads(
    dialect, open_model_of, server
):
    server.will(dialect.reply(GIVEN))
    model = await open_model_of(dialect)
    answer = await model.complete(ModelRequest("s1", [UserMessage("Weather?")]))
    moved = ModelAnswer(
        text=answer.text, calls=answer.calls, stop="calls", native={**answer.native, "server": "elsewhere.test"}
    )
    server.will(dialect.reply(ModelAnswer(text="Sunny.")))
    await model.complete(ModelRequest("s1", [UserMessage("Weather?"), moved, results_of(moved)]))
    body = server.asked[-1].body
    dialect.check(body)
    assert "the weather." not in str(body)
    assert "sunny" in str(body)


@pytest.mark.promise("TURN-09")
async def test_ids_that_a_provider_would_refuse_are_mapped_with_their_results(dialect, open_model_of, server):
    calls = (ToolCall("w", '{"a": 1}', "functions.w:0|fc_" + "x" * 80), ToolCall("w", "{}", "call ü"))
    answer = ModelAnswer(calls=calls, stop="calls", native={"format": "another", "items": [{}]})
    results = ToolResults(
        tuple(ToolOutcome(call_id=call.id, tool="w", status="success", payload=b"1") for call in calls)
    )
    server.will(dialect.reply(ModelAnswer(text="x")))
    await (await open_model_of(dialect)).complete(ModelRequest("s1", [UserMessage("a"), answer, results]))
    body = server.asked[-1].body
    dialect.check(body)
    if dialect is CHAT:
        asked = [call["id"] for call in body["messages"][1]["tool_calls"]]
        answered = [each["tool_call_id"] for each in body["messages"][2:]]
    elif dialect is RESPONSES:
        asked = [each["call_id"] for each in body["input"] if each.get("type") == "function_call"]
        answered = [each["call_id"] for each in body["input"] if each.get("type") == "function_call_output"]
    else:
        asked = [block["id"] for block in body["messages"][1]["content"]]
        answered = [block["tool_use_id"] for block in body["messages"][2]["content"]]
    assert asked == answered
    assert all(
        len(each) <= 64 and each.replace("_", "").replace("-", "").isalnum() and each.isascii() for each in asked
    )


async def test_an_image_that_a_model_made_is_mentioned_to_another(dialect, open_model_of, server):
    answer = ModelAnswer(text="Here:", images=(Image("iVBORw0KGgo="),))
    server.will(dialect.reply(ModelAnswer(text="x")))
    await (await open_model_of(dialect)).complete(ModelRequest("s1", [UserMessage("a"), answer, UserMessage("b")]))
    assert "[an image of type image/png was made here]" in str(server.asked[-1].body)


async def test_anthropic_does_not_think_in_the_middle_of_an_answer_of_another_provider(open_model_of, server):
    model = await open_model_of(MESSAGES, settings={"thinking": {"type": "enabled", "budget_tokens": 1_024}})
    foreign = ModelAnswer(calls=CALLS, stop="calls")
    server.will(MESSAGES.reply(GIVEN))
    own = await model.complete(ModelRequest("s1", [UserMessage("a")]))
    assert "thinking" in server.asked[-1].body
    for answer, thinks in ((own, True), (foreign, False)):
        await model.complete(ModelRequest("s1", [UserMessage("a"), answer, results_of(answer)]))
        assert ("thinking" in server.asked[-1].body) is thinks
    await model.complete(
        ModelRequest("s1", [UserMessage("a"), foreign, results_of(foreign), ModelAnswer(text="c"), UserMessage("d")])
    )
    assert "thinking" in server.asked[-1].body


async def test_messages_of_one_role_are_one_message_for_anthropic(open_model_of, server):
    model = await open_model_of(MESSAGES, cache=None)
    server.will(MESSAGES.reply(ModelAnswer(text="x")))
    answer = ModelAnswer(calls=CALLS, stop="calls")
    said = [answer, results_of(answer), UserMessage("Hurry"), UserMessage("please")]
    await model.complete(ModelRequest("s1", said))
    messages = server.asked[-1].body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["type"] for block in messages[-1]["content"]] == ["tool_result", "tool_result", "text", "text"]


async def test_a_server_that_refuses_its_own_reasoning_is_not_sent_it(open_model_of, server):
    model = await open_model_of(CHAT, send_reasoning=False)
    server.will(CHAT.reply(GIVEN))
    answer = await model.complete(ModelRequest("s1", [UserMessage("a")]))
    await model.complete(ModelRequest("s1", [UserMessage("a"), answer, results_of(answer)]))
    assert "reasoning" not in str(server.asked[-1].body)
    assert "Let me look." in str(server.asked[-1].body)


@pytest.mark.promise("TURN-06")
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_an_answer_that_was_cut_in_its_reasoning_does_not_spoil_the_conversation(
    dialect, open_model_of, server, how
):
    model = await open_model_of(dialect)
    server.will(dialect.reply(ModelAnswer(reasoning="The user wants", stop="length")))
    first = ModelRequest("s1", [UserMessage("Weather?")])
    cut = [piece async for piece in model.stream(first)][-1] if how == "stream" else await model.complete(first)
    assert (cut.stop, cut.text) == ("length", "")
    server.will(dialect.reply(ModelAnswer(text="Sunny.")))
    await model.complete(ModelRequest("s1", [UserMessage("Weather?"), cut, UserMessage("Go on.")]))
    body = server.asked[-1].body
    dialect.check(body)
    assert "The user wants" not in str(body)
    if dialect is RESPONSES:
        assert body["input"] == [{"role": "user", "content": text} for text in ("Weather?", "Go on.")]
    elif dialect is CHAT:
        assert body["messages"] == [{"role": "user", "content": text} for text in ("Weather?", "Go on.")]
    else:
        (message,) = body["messages"]  # the roles must alternate
        assert [block["text"] for block in message["content"]] == ["Weather?", "Go on."]


@pytest.mark.promise("TURN-06")
@pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=repr)
async def test_reasoning_with_nothing_after_it_is_left_out_of_an_answer(dialect, open_model_of, server):
    model = await open_model_of(dialect)
    server.will(dialect.reply(ModelAnswer(text="Sunny so far.", reasoning="Look", stop="length")))
    cut = await model.complete(ModelRequest("s1", [UserMessage("Weather?")]))
    thought, said = cut.native["items"]
    cut = replace(cut, native={**cut.native, "items": [thought, said, thought]})
    await model.complete(ModelRequest("s1", [UserMessage("Weather?"), cut, UserMessage("Go on.")]))
    body = server.asked[-1].body
    dialect.check(body)
    if dialect is RESPONSES:
        assert body["input"][1:-1] == [thought, said]
    else:
        assert body["messages"][1] == {"role": "assistant", "content": [thought, said]}
        # An answer that goes on without a message between is one message, and keeps what was thought in its middle.
        goes_on = ModelRequest("s1", [UserMessage("Weather?"), cut, cut, UserMessage("And?")])
        await model.complete(goes_on)
        (_, message, _) = server.asked[-1].body["messages"]
        assert message["content"] == [thought, said, thought, thought, said]
