"""Answers of a model that are not whole, or hold more than calls of ours: which calls run, and which fail alone."""

from typing import Any

import pytest

from toolwright import Runtime, ToolCall, tool
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

pytestmark = pytest.mark.promise("OUT-09")


def chat(finish_reason: str | None) -> dict[str, Any]:
    function = {"name": "write", "arguments": '{"text": "half"}'}
    message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    return {"object": "chat.completion", "choices": [{"finish_reason": finish_reason, "message": message}]}


def message(stop_reason: str | None) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "c1", "name": "write", "input": {"text": "half"}}
    return {"type": "message", "role": "assistant", "stop_reason": stop_reason, "content": [call]}


def response(status: str, item_status: str | None) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "name": "write", "arguments": '{"text": "half"}'}
    if item_status is not None:
        call["status"] = item_status
    why = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {"object": "response", "status": status, "incomplete_details": why, "output": [call]}


@pytest.mark.parametrize(
    ("module", "answer", "why"),
    [
        (openai_chat, chat("length"), "length"),
        (openai_chat, chat("content_filter"), "content_filter"),
        (anthropic, message("max_tokens"), "max_tokens"),
        (anthropic, message("model_context_window_exceeded"), "model_context_window_exceeded"),
        (anthropic, [message("max_tokens")], "max_tokens"),
        (openai_responses, response("incomplete", None), "max_output_tokens"),
        (openai_responses, response("incomplete", "incomplete"), "max_output_tokens"),
        (openai_responses, response("completed", "incomplete"), "incomplete"),
        (openai_responses, response("completed", "incomplete")["output"], "incomplete"),
        (openai_responses, response("failed", "in_progress"), "failed"),
    ],
)
async def test_a_call_of_an_answer_that_was_cut_off_never_runs_and_says_why(module: Any, answer: Any, why: str):
    written = []

    @tool
    def write(text: str) -> None:
        written.append(text)

    calls = module.read_calls(answer)
    async with Runtime.open(tools=[write]) as runtime:
        [outcome] = await runtime.session("s").run_batch(calls)
        [record] = runtime.log.query()
    assert written == []
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "answer_cut_off")
    assert f"cut off ({why})" in outcome.text
    assert not outcome.may_have_run
    assert record.arguments == {"text": "half"}
    # It survives the plain form, which a program may keep calls in.
    assert plain.read_calls(plain.write_calls(calls)) == calls


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        (openai_chat, chat("tool_calls")),
        (openai_chat, chat("stop")),
        (openai_chat, chat(None)),
        (anthropic, message("tool_use")),
        (anthropic, message("pause_turn")),
        (anthropic, message(None)),
        (openai_responses, response("completed", "completed")),
        (openai_responses, response("incomplete", "completed")),
    ],
)
def test_a_call_that_is_whole_is_not_marked(module: Any, answer: Any):
    [call] = module.read_calls(answer)
    assert call.cut_off is None


@pytest.mark.parametrize("given", ["{}", "half a", [1], 5, None, True])
async def test_an_input_that_is_no_object_fails_its_call_and_no_other(given: Any):
    @tool(readonly=True)
    def greet(name: str = "you") -> str:
        return f"Hello {name}"

    blocks = [
        {"type": "tool_use", "id": "c1", "name": "greet", "input": given},
        {"type": "tool_use", "id": "c2", "name": "greet", "input": {"name": "Ada"}},
    ]
    requests = [
        {"jsonrpc": "2.0", "id": block["id"], "method": "tools/call", "params": {"name": "greet", "arguments": value}}
        for block, value in zip(blocks, [given, {"name": "Ada"}], strict=True)
    ]
    async with Runtime.open(tools=[greet]) as runtime:
        session = runtime.session("s")
        bad, good = await session.run_batch(anthropic.read_calls({"role": "assistant", "content": blocks}))
        rpc_bad, rpc_good = await session.run_batch(mcp.read_calls(requests, kind=None), scope="mcp")
    assert bad.failure.category == "invalid_arguments"
    assert "not a JSON object" in bad.text
    assert good.value == rpc_good.value == "Hello Ada"
    assert rpc_bad.ok is (given is None)  # MCP leaves arguments out where there are none


async def test_chat_arguments_that_are_a_list_fail_their_call_and_no_other():
    @tool(readonly=True)
    def greet(name: str = "you") -> str:
        return f"Hello {name}"

    made = [
        {"id": "c1", "type": "function", "function": {"name": "greet", "arguments": [1]}},
        {"id": "c2", "type": "function", "function": {"name": "greet", "arguments": "{}"}},
    ]
    async with Runtime.open(tools=[greet]) as runtime:
        bad, good = await runtime.session("s").run_batch(openai_chat.read_calls(made))
    assert (bad.failure.code, good.value) == ("malformed_arguments", "Hello you")


OTHERS: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"], "results": None},
    {"type": "mcp_call", "id": "m_1", "name": "ask", "arguments": "{}", "output": "yes", "server_label": "s"},
    {"type": "mcp_list_tools", "id": "l_1", "server_label": "s", "tools": []},
    {"type": "mcp_approval_request", "id": "a_1", "name": "ask", "arguments": "{}", "server_label": "s"},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [], "container_id": "c", "status": "x"},
    {"type": "image_generation_call", "id": "ig_1", "result": "AAAA", "status": "completed"},
    {"type": "computer_call", "id": "cu_1", "call_id": "k", "action": {"type": "click"}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "k", "output": {"type": "computer_screenshot", "image_url": "u"}},
    {"type": "local_shell_call", "id": "sh_1", "call_id": "k", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "sh_1", "output": "files"},
    {"type": "shell_call_output", "call_id": "k", "output": [{"stdout": "x", "stderr": "", "outcome": {}}]},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
]


@pytest.mark.parametrize("item", OTHERS, ids=lambda item: item["type"])
def test_the_items_of_other_tools_are_passed_over(item: dict[str, Any]):
    call = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    for payload in ({"object": "response", "output": [item, call]}, [item, call], [call, item]):
        assert openai_responses.read_calls(payload) == [ToolCall(name="t", arguments="{}", id="c1")]
    [read] = openai_responses.read_results([item, call, result])
    assert (read.call_id, read.text) == ("c1", "done")
