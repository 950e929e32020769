"""Calls in the shapes of the providers: there and back, from whole responses, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.wire.shapes import ANTHROPIC, CHAT, RESPONSES, WRITTEN, calls, dumped, meaning, texts
from tests.wire.shapes import PROVIDERS as NAMES
from toolwright import Runtime, tool
from toolwright.errors import ConversionError
from toolwright.tools.call import ToolCall
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain
from toolwright.wire.detect import PROVIDERS

pytestmark = pytest.mark.promise("OUT-08")

MESSAGE = CHAT["choices"][0]["message"]


@given(calls())
def test_calls_come_back_from_every_shape_as_they_were(made: list[ToolCall]):
    for name in NAMES:  # Making the calls takes longer than all shapes together.
        provider = PROVIDERS[name]
        read = provider.read_calls(provider.write_calls(made))
        assert [meaning(call) for call in read] == [meaning(call) for call in made], name


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "plain"])
@given(written=texts)
def test_text_that_a_model_wrote_as_arguments_stays_as_it_is_to_the_letter(name: str, written: str):
    provider = PROVIDERS[name]
    call = ToolCall(name="t", arguments=written, id="c1")
    assert provider.read_calls(provider.write_calls([call])) == [call]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses"])
@given(written=texts)
def test_free_text_for_a_custom_tool_comes_back_as_it_was(name: str, written: str):
    provider = PROVIDERS[name]
    call = ToolCall(name="t", arguments={"input": written}, id="c1", kind="custom")
    items = provider.write_calls([call])
    assert "custom" in repr(items)
    assert provider.read_calls(items) == [call]
    assert "custom" not in repr(provider.write_calls([ToolCall(name="t", arguments={"input": ""}, id="c1")]))


@pytest.mark.parametrize(
    "payload",
    [CHAT, MESSAGE, [MESSAGE], MESSAGE["tool_calls"]],
    ids=["completion", "message", "messages", "calls"],
)
@pytest.mark.parametrize("form", [lambda value: value, dumped], ids=["dict", "object"])
def test_a_chat_completion_is_read_whole_or_in_part(payload: Any, form: Any):
    assert openai_chat.read_calls(form(payload)) == [
        ToolCall(name="weather", arguments=WRITTEN, id="c1"),
        ToolCall(name="run", arguments={"input": "print(1)"}, id="c2", kind="custom"),
    ]


@pytest.mark.parametrize("payload", [RESPONSES, RESPONSES["output"]], ids=["response", "output"])
@pytest.mark.parametrize("form", [lambda value: value, dumped], ids=["dict", "object"])
def test_a_response_is_read_whole_or_in_part(payload: Any, form: Any):
    assert openai_responses.read_calls(form(payload)) == [
        ToolCall(name="weather", arguments=WRITTEN, id="c1"),
        ToolCall(name="run", arguments={"input": "print(1)"}, id="c2", kind="custom"),
    ]


@pytest.mark.parametrize(
    "payload", [ANTHROPIC, ANTHROPIC["content"], [ANTHROPIC]], ids=["message", "blocks", "messages"]
)
@pytest.mark.parametrize("form", [lambda value: value, dumped], ids=["dict", "object"])
def test_an_anthropic_message_is_read_whole_or_in_part(payload: Any, form: Any):
    assert anthropic.read_calls(form(payload)) == [
        ToolCall(name="weather", arguments={"city": "Zürich", "days": None}, id="c1")
    ]


def test_a_message_that_holds_sdk_objects_in_a_plain_dict_is_read():
    message = {"role": "assistant", "content": dumped(ANTHROPIC["content"])}
    assert [call.id for call in anthropic.read_calls([message])] == ["c1"]


def test_a_model_that_knows_aliases_is_read_by_its_names_on_the_wire():
    class Params:
        def model_dump(self, *, by_alias: bool = False, warnings: bool = True) -> dict[str, Any]:
            return {"method" if by_alias else "method_": "tools/call", "id": 1, "params": {"name": "t"}}

    assert mcp.read_calls(Params()) == [ToolCall(name="t", arguments={}, id="jsonrpc-1", kind="mcp")]


def test_a_legacy_function_call_is_read_and_gets_an_id():
    message = {"role": "assistant", "function_call": {"name": "weather", "arguments": WRITTEN}}
    [call] = openai_chat.read_calls(message)
    assert (call.name, call.arguments) == ("weather", WRITTEN)
    assert call.id


@pytest.mark.parametrize("missing", [{}, {"id": None}, {"id": ""}])
def test_chat_calls_without_an_id_get_one_each(missing: dict[str, Any]):
    item = {**missing, "function": {"name": "weather", "arguments": "{}"}}
    first, second = openai_chat.read_calls([item, item])
    assert first.id
    assert second.id
    assert first.id != second.id


@pytest.mark.parametrize("module", [openai_chat, openai_responses, anthropic])
def test_a_message_without_calls_has_none(module: Any):
    assert module.read_calls({"role": "assistant", "content": "Hello."}) == []
    assert module.write_calls([]) == []


@pytest.mark.parametrize("call_id", [7, 0, -3, "7", "a", "jsonrpc-1", "jsonrpc-text:jsonrpc-1", "jsonrpc-x"], ids=repr)
def test_an_mcp_request_is_answered_under_its_own_id(call_id: Any):
    request = {"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": {"name": "t"}}
    [call] = mcp.read_calls(request)
    assert isinstance(call.id, str)
    [again] = mcp.write_calls([call])
    assert again["id"] == call_id
    assert type(again["id"]) is type(call_id)


@pytest.mark.parametrize("envelope", [None, "tools/call"])
def test_an_mcp_call_without_its_envelope_gets_an_id(envelope: str | None):
    params = {"name": "t", "arguments": {"a": 1}}
    [call] = mcp.read_calls(params if envelope is None else {"method": envelope, "params": params})
    assert (call.name, call.arguments) == ("t", {"a": 1})
    assert call.id


@pytest.mark.parametrize(
    ("module", "payload", "said"),
    [
        (openai_chat, 5, "payload is 5; expected a completion, a message, or a list of tool calls"),
        (openai_chat, {"choices": []}, "payload.choices is []; expected at least one choice"),
        (openai_chat, {"nothing": 1}, "payload is an object with 'nothing'; expected a completion"),
        (openai_chat, [{"id": 5, "function": {"name": "t"}}], "payload[0].id is 5; expected a string"),
        (
            openai_responses,
            {"output": [{"type": "function_call", "name": "t", "arguments": "{}"}]},
            "payload.output[0].call_id is nothing; expected the call's id",
        ),
        (openai_responses, {"a": 1}, "payload is an object with 'a'; expected a response"),
        (anthropic, {"role": "assistant", "content": 5}, "payload.content is 5; expected text, or a list"),
        (anthropic, [{"name": "t"}], "payload[0].type is nothing; expected the type of a content block"),
        (mcp, {"method": "tools/list", "id": 1}, "payload.method is 'tools/list'; expected 'tools/call'"),
        (
            mcp,
            {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t"}},
            "payload.id is nothing; expected a JSON-RPC id",
        ),
        (
            plain,
            [{"name": "t", "args": {}}],
            "payload[0] is an object with 'name', 'args'; expected a call with",
        ),
        (plain, [{"name": "t", "id": 1}], "payload[0].id is 1; expected a non-empty string"),
        (plain, "t", "payload is 't'; expected a call with a name"),
    ],
)
def test_another_shape_is_refused_with_the_place_and_what_was_expected_there(module: Any, payload: Any, said: str):
    with pytest.raises(ConversionError) as caught:
        module.read_calls(payload)
    assert said in str(caught.value)


@pytest.mark.parametrize("given", ["{", "[1]", 5])
@pytest.mark.parametrize("module", [anthropic, mcp])
def test_arguments_that_are_no_object_are_refused_where_only_objects_go(module: Any, given: Any):
    with pytest.raises(ConversionError, match="'c1' to 't'"):
        module.write_calls([ToolCall(name="t", arguments=given, id="c1")])


@given(st.sampled_from(NAMES))
def test_a_call_without_arguments_is_one_with_none(name: str):
    provider = PROVIDERS[name]
    [read] = provider.read_calls(provider.write_calls([ToolCall(name="t", id="c1")]))
    assert meaning(read) in [("c1", "t", {}), ("c1", "t", None)]


def _malformed(name: str, wrong: Any) -> Any:
    """A payload with a call to 't' and one whose name is wrong."""
    provider = PROVIDERS[name]
    good, bad = ToolCall(name="t", arguments={}, id="c1"), ToolCall(name="replaced", arguments={}, id="c2")
    return _renamed(provider.write_calls([good, bad]), wrong)


def _renamed(value: Any, wrong: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(item, wrong) for item in value]
    if isinstance(value, dict):
        return {key: wrong if item == "replaced" else _renamed(item, wrong) for key, item in value.items()}
    return value


@pytest.mark.parametrize("wrong", ["", None, 5, {"a": 1}], ids=repr)
@pytest.mark.parametrize("name", NAMES)
async def test_a_call_without_a_usable_name_fails_alone(name: str, wrong: Any):
    @tool
    def t() -> str:
        """Answer."""
        return "done"

    good, bad = PROVIDERS[name].read_calls(_malformed(name, wrong))
    kind = None if name != "mcp" else "function"
    async with Runtime.open(tools=[t]) as runtime:
        fine, failed = await runtime.session("s1").run_batch([replace(good, kind=kind), bad])
    assert fine.value == "done"
    assert (failed.status, failed.call_id) == ("failure", bad.id)
    assert PROVIDERS[name].write_calls([good, bad])


@pytest.mark.parametrize(
    "broken",
    [None, "t", {"id": "c2"}, {"id": "c2", "function": None}, {"id": "c2", "custom": {"name": "t", "input": 5}}],
    ids=repr,
)
def test_a_chat_call_that_is_not_one_leaves_the_others_as_they_are(broken: Any):
    first, second = openai_chat.read_calls({"tool_calls": [MESSAGE["tool_calls"][0], broken]})
    assert first == ToolCall(name="weather", arguments=WRITTEN, id="c1")
    assert second.id


@pytest.mark.parametrize("form", [lambda value: value, dumped], ids=["dict", "object"])
@pytest.mark.parametrize("other", NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_that_is_given_calls_in_another_shape_names_the_reader_to_use(name: str, other: str, form: Any):
    if other in (name, "plain"):
        return
    written = form(PROVIDERS[other].write_calls([ToolCall(name="t", arguments={}, id="c1")]))
    for payload in (written, written[0]):
        with pytest.raises(ConversionError, match=rf"toolwright.wire.{other.replace('-', '_')}.read_calls"):
            PROVIDERS[name].read_calls(payload)
