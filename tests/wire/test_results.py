"""Results in the shapes of the providers: one for each call, in order, with images that a model sees."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.shapes import PROVIDERS as NAMES
from tests.wire.shapes import dumped, outcomes
from toolwright.errors import ConversionError
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import Failure, Image, ToolOutcome
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain
from toolwright.wire.detect import PROVIDERS

pytestmark = pytest.mark.promise("OUT-08")

PNG = Image("aWNvbg==", "image/png")
TIFF = Image("aWNvbg==", "image/tiff")
UNSEEN = "[an image of type image/tiff is not shown: models see PNG, JPEG, GIF and WebP]"


def success(call_id: str, value: Any, **more: Any) -> ToolOutcome:
    return ToolOutcome(call_id=call_id, tool="t", status="success", payload=json.dumps(value).encode(), **more)


def failure(call_id: str, message: str) -> ToolOutcome:
    return ToolOutcome(call_id=call_id, tool="t", status="failure", failure=Failure(message=message))


@given(made=outcomes())
def test_every_outcome_comes_back_once_in_order_with_its_text_and_images(made: list[ToolOutcome]):
    for name in NAMES:  # Making the outcomes takes longer than all shapes together.
        provider = PROVIDERS[name]
        read = provider.read_results(provider.write_results(made))
        assert [(item.call_id, item.text, item.images) for item in read] == [
            (item.call_id, item.text, item.images) for item in made
        ], name


@given(made=outcomes())
def test_a_failure_comes_back_as_one_where_the_provider_can_say_so(made: list[ToolOutcome]):
    for name in ("anthropic", "mcp"):
        provider = PROVIDERS[name]
        read = provider.read_results(provider.write_results(made))
        assert [item.ok for item in read] == [item.status in ("success", "pending") for item in made], name


@given(made=outcomes())
def test_plain_results_come_back_with_all_that_may_be_shown(made: list[ToolOutcome]):
    read = plain.read_results(json.loads(json.dumps(plain.write_results(made))))
    assert [item.to_json() for item in read] == [item.to_json() for item in made]


@given(made=outcomes(min_size=1), data=st.data())
def test_results_are_written_in_the_order_of_their_calls(made: list[ToolOutcome], data: st.DataObject):
    asked = [ToolCall(name=item.tool, arguments={}, id=item.call_id) for item in made]
    shuffled = data.draw(st.permutations(made))
    for name in NAMES:
        provider = PROVIDERS[name]
        assert provider.write_results(shuffled, asked) == provider.write_results(made), name
        with pytest.raises(ConversionError, match="has no outcome"):
            provider.write_results(made[1:], asked)
        with pytest.raises(ConversionError, match="answer no call"):
            provider.write_results(made, asked[1:])


@pytest.mark.parametrize("name", NAMES)
def test_calls_that_share_an_id_are_answered_in_order(name: str):
    provider = PROVIDERS[name]
    asked = [ToolCall(name="t", arguments={}, id="c1")] * 2
    written = provider.write_results([success("c1", "one"), failure("c1", "two")], asked)
    assert [item.text for item in provider.read_results(written)] == ["one", '{"error":"two"}']


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic", "mcp"])
def test_results_name_their_tool_when_the_calls_are_there_too(name: str):
    provider = PROVIDERS[name]
    history = [
        *provider.write_calls([ToolCall(name="weather", arguments={}, id="c1")]),
        *provider.write_results([success("c1", "sunny"), success("c2", "rain")]),
    ]
    assert [item.tool for item in provider.read_results(dumped(history))] == ["weather", ""]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_comes_back_as_the_value_it_was(name: str):
    provider = PROVIDERS[name]
    made = [success(f"c{at}", value) for at, value in enumerate([{"a": [1, None]}, [1], 5, None, True, "text"])]
    assert [item.value for item in provider.read_results(provider.write_results(made))] == [item.value for item in made]


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_told_from_a_success_by_what_is_written(name: str):
    provider = PROVIDERS[name]
    [read] = provider.read_results(provider.write_results([failure("c1", 'no "such" file')]))
    assert read.status == "failure"
    assert read.failure is not None
    assert read.failure.message == 'no "such" file'


def test_all_results_of_an_anthropic_message_stand_in_one_user_message():
    made = [success("c1", {"a": 1}), failure("c2", "no"), success("c3", "seen", images=(PNG, TIFF))]
    assert anthropic.write_results(made) == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"a": 1}'},
                {"type": "tool_result", "tool_use_id": "c2", "content": '{"error":"no"}', "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "c3",
                    "content": [
                        {"type": "text", "text": "seen"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "aWNvbg=="},
                        },
                        {
                            "type": "text",
                            "text": UNSEEN,
                        },
                    ],
                },
            ],
        }
    ]


@pytest.mark.parametrize("status", ["failure", "cancelled", "connection_required"])
def test_a_call_that_did_not_succeed_is_an_error_to_those_who_can_be_told(status: Any):
    made = ToolOutcome(call_id="c1", tool="t", status=status)
    assert anthropic.write_results([made])[0]["content"][0]["is_error"] is True
    assert mcp.write_result(made)["isError"] is True


def test_an_anthropic_result_has_no_blank_text_beside_its_images():
    [message] = anthropic.write_results([success("c1", " ", images=(PNG,))])
    assert [block["type"] for block in message["content"][0]["content"]] == ["image"]


def test_chat_images_follow_all_tool_messages_in_one_user_message():
    made = [success("c1", "a", images=(PNG,)), success('c"2', "b", images=(PNG,)), success("c3", "c")]
    messages = openai_chat.write_results(made)
    assert [message["role"] for message in messages] == ["tool", "tool", "tool", "user"]
    assert messages[0] == {"role": "tool", "tool_call_id": "c1", "content": "a"}
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWNvbg=="}}
    assert messages[3]["content"] == [
        {"type": "text", "text": 'Images from call "c1":'},
        shown,
        {"type": "text", "text": 'Images from call "c\\"2":'},
        shown,
    ]


def test_chat_images_belong_to_the_latest_result_of_their_call():
    history = [
        *openai_chat.write_results([success("c1", "first")]),
        *openai_chat.write_results([success("c1", "second", images=(PNG,))]),
    ]
    assert [item.images for item in openai_chat.read_results(history)] == [(), (PNG,)]


def test_images_in_a_response_stand_in_the_output():
    [item] = openai_responses.write_results([success("c1", "a", images=(PNG,))])
    assert item == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "data:image/png;base64,aWNvbg==", "detail": "auto"},
        ],
    }


def test_a_custom_call_is_answered_as_one():
    asked = [
        ToolCall(name="run", arguments={"input": "x"}, id="c1", kind="custom"),
        ToolCall(name="t", arguments={}, id="c2"),
    ]
    items = openai_responses.write_results([success("c1", "a"), success("c2", "b")], asked)
    assert [item["type"] for item in items] == ["custom_tool_call_output", "function_call_output"]
    assert [item.text for item in openai_responses.read_results(items)] == ["a", "b"]


def test_text_parts_and_foreign_blocks_of_a_result_are_read():
    [chat] = openai_chat.read_results(
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}
    )
    document = {"type": "document", "title": "d"}
    [other] = anthropic.read_results(
        [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}, document]}]
    )
    assert chat.text == "a\nb"
    assert other.text.startswith("a\n")
    assert json.loads(other.text.removeprefix("a\n")) == document


@pytest.mark.parametrize(
    ("module", "messages", "said"),
    [
        (openai_chat, [{"role": "tool", "content": "a"}], "messages[0].tool_call_id is nothing"),
        (openai_chat, [{"role": "tool", "tool_call_id": "c", "content": 5}], "messages[0].content is 5"),
        (
            openai_responses,
            [{"type": "function_call_output", "call_id": "c"}],
            "messages[0].output is nothing",
        ),
        (
            anthropic,
            {"role": "user", "content": [{"type": "tool_result"}]},
            "messages.content[0].tool_use_id",
        ),
        (
            mcp,
            {"id": 1, "result": {"content": [{"text": "a"}]}},
            "messages.result.content[0].type is nothing",
        ),
        (mcp, {"id": 1, "result": {}}, "messages.result.content is nothing"),
        (mcp, {"content": []}, "messages.id is nothing"),
        (plain, [{"call_id": "c", "tool": "t", "status": "done"}], "messages[0].status is 'done'"),
        (openai_chat, [{"role": "tool", "tool_call_id": "c", "content": "\ud800"}], "lone surrogates"),
    ],
)
def test_results_of_another_shape_are_refused_with_the_place(module: Any, messages: Any, said: str):
    with pytest.raises(ConversionError) as caught:
        module.read_results(messages)
    assert said in str(caught.value)
