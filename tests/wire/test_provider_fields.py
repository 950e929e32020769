"""Fields that a provider puts beside a call: kept unread, and given back to the same provider unchanged."""

from typing import Any

import pytest

from tests.wire.shapes import dumped
from toolwright import Runtime, tool
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

pytestmark = pytest.mark.promise("OUT-09")

SIGNED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "t", "arguments": "{}", "signature": "in"},
    "extra_content": {"google": {"thought_signature": "AbC="}},
}
CALLED = {
    "type": "function_call",
    "call_id": "c1",
    "name": "t",
    "arguments": "{}",
    "namespace": "crm",
    "caller": {"type": "program", "caller_id": "cm_1"},
    "brand_new": [1, None],
}
USED = {"type": "tool_use", "id": "c1", "name": "t", "input": {}, "caller": {"type": "code_execution", "tool_id": "s1"}}
REQUEST = {
    "jsonrpc": "2.0",
    "id": 4,
    "method": "tools/call",
    "params": {"name": "t", "arguments": {}, "_meta": {"progressToken": 7}},
}


@pytest.mark.parametrize(
    ("module", "payload", "written"),
    [
        (openai_chat, [SIGNED], [{"role": "assistant", "content": None, "tool_calls": [SIGNED]}]),
        (openai_responses, [CALLED], [CALLED]),
        (anthropic, [USED], [{"role": "assistant", "content": [USED]}]),
        (mcp, [REQUEST], [REQUEST]),
    ],
)
def test_fields_that_mean_nothing_here_go_back_to_their_provider_as_they_came(module: Any, payload: Any, written: Any):
    calls = module.read_calls(payload)
    assert module.write_calls(calls) == written
    assert module.write_calls(plain.read_calls(plain.write_calls(calls))) == written
    assert module.write_calls(module.read_calls(dumped(payload))) == written


@pytest.mark.parametrize("levels", [129, 100_000])
@pytest.mark.parametrize(
    ("module", "payload", "name"),
    [
        (openai_chat, SIGNED, "extra_content"),
        (openai_responses, CALLED, "brand_new"),
        (anthropic, USED, "caller"),
        (mcp, REQUEST["params"], "_meta"),
    ],
)
def test_a_field_that_is_nested_too_deeply_is_left_out_and_the_call_is_read(
    module: Any, payload: Any, name: str, levels: int
):
    deep: Any = None
    for number in range(levels):
        deep = [deep] if number % 2 else {"a": deep}

    def read(payload: Any) -> Any:
        (call,) = module.read_calls(payload if module is mcp else [payload])
        return call

    without = read({key: payload[key] for key in payload if key != name})
    assert read({**payload, name: deep}).meta == without.meta
    assert read(payload).meta != without.meta


def test_they_do_not_reach_another_provider():
    calls = openai_responses.read_calls([CALLED])
    [message] = openai_chat.write_calls(calls)
    assert message["tool_calls"][0].keys() == {"id", "type", "function"}


def test_a_result_names_the_caller_of_its_call_where_the_provider_wants_it():
    calls = openai_responses.read_calls([CALLED])
    outcomes = openai_responses.read_results([{"type": "function_call_output", "call_id": "c1", "output": "ok"}])
    [item] = openai_responses.write_results(outcomes, calls)
    assert item["caller"] == CALLED["caller"]


async def test_a_call_with_fields_of_its_provider_runs_like_any_other():
    @tool(readonly=True)
    def t() -> str:
        return "done"

    [call] = openai_chat.read_calls([SIGNED])
    async with Runtime.open(tools=[t]) as runtime:
        [outcome] = await runtime.session("s").run_batch([call])
        [again] = await runtime.session("s").run_batch(plain.write_calls([call]))
    assert outcome.value == "done"
    assert again.replayed
