"""Which shape a payload has, and answering in the same one."""

from typing import Any

import pytest
from hypothesis import given

from tests.wire.shapes import ANTHROPIC, CHAT, RESPONSES, calls, dumped, meaning, outcomes
from tests.wire.shapes import PROVIDERS as NAMES
from toolwright.errors import ConversionError
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome
from toolwright.wire.detect import PROVIDERS, detect

pytestmark = pytest.mark.promise("OUT-08")


@given(made=calls(min_size=1))
def test_calls_are_known_by_the_shape_they_were_written_in(made: list[ToolCall]):
    for name in NAMES:
        written = PROVIDERS[name].write_calls(made)
        assert detect(written) == name
        assert detect(dumped(written)) == name


@given(made=outcomes(min_size=1))
def test_results_are_known_by_the_shape_they_were_written_in(made: list[ToolOutcome]):
    for name in ("openai-chat", "openai-responses", "anthropic", "mcp"):
        assert detect(PROVIDERS[name].write_results(made)) == name


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (CHAT, "openai-chat"),
        (CHAT["choices"][0]["message"]["tool_calls"], "openai-chat"),
        ({"role": "assistant", "function_call": {"name": "t", "arguments": "{}"}}, "openai-chat"),
        (RESPONSES, "openai-responses"),
        (RESPONSES["output"], "openai-responses"),
        (RESPONSES["output"][2], "openai-responses"),
        (ANTHROPIC, "anthropic"),
        (ANTHROPIC["content"], "anthropic"),
        ({"role": "assistant", "stop_reason": "end_turn", "content": []}, "anthropic"),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}, "mcp"),
        ([{"id": "1", "name": "t", "arguments": {}}], "plain"),
        ({"name": "t"}, "plain"),
        ([], "plain"),
        ([{"role": "user", "content": "Hello."}, CHAT["choices"][0]["message"]], "openai-chat"),
        ([{"role": "user", "content": "Hello."}, ANTHROPIC], "anthropic"),
        ([{"role": "user", "content": "Hello."}, RESPONSES["output"][1]], "openai-responses"),
        ({"role": "user", "content": "Hello."}, "openai-chat"),
    ],
)
def test_responses_messages_and_histories_are_told_apart(payload: Any, name: str):
    assert detect(payload) == name
    assert detect(dumped(payload)) == name


@pytest.mark.parametrize("payload", [5, "calls", None, {}, {"a": 1}, [{"a": 1}], [[]]])
def test_what_has_no_known_shape_is_refused_with_the_shapes_that_are(payload: Any):
    with pytest.raises(ConversionError, match="give a response or messages of OpenAI chat"):
        detect(payload)


@pytest.mark.parametrize("payload", [CHAT, RESPONSES, ANTHROPIC], ids=["chat", "responses", "anthropic"])
def test_a_whole_response_is_answered_in_its_own_shape(payload: Any):
    provider = PROVIDERS[detect(payload)]
    asked = provider.read_calls(payload)
    made = [ToolOutcome(call_id=call.id or "", tool=call.name, status="success") for call in asked]
    answer = provider.write_results(made, asked)
    assert detect(answer) == detect(payload)
    assert [item.call_id for item in provider.read_results(answer)] == [meaning(call)[0] for call in asked]
