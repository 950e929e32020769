"""`toolwright batch`, into a pipe."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from toolwright import jsonx

KIT = ("--tools", "kit.py")
CALLS = [
    {"id": "c1", "name": "add", "arguments": {"a": 1}},
    {"id": "c2", "name": "refuse", "arguments": {}},
    {"id": "c3", "name": "echo", "arguments": '{"text": "hi"}'},
]
CHAT = {
    "object": "chat.completion",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "refuse", "arguments": "{}"}},
                ],
            }
        }
    ],
}
RESPONSES = {
    "object": "response",
    "output": [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    ],
}
ANTHROPIC = {
    "type": "message",
    "role": "assistant",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "refuse", "input": {}},
    ],
}
MCP = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}
REFUSED = '{"error":"Nothing doing"}'


def write(project: Path, content: Any) -> Path:
    file = project / "batch.json"
    file.write_bytes(jsonx.encode(content))
    return file


def test_a_list_of_calls_gives_one_outcome_each_in_call_order(run: Run, project: Path) -> None:
    ended = run("batch", write(project, CALLS), *KIT)
    assert ended.code == 1
    assert [(item["call_id"], item["status"], item["text"]) for item in ended.json] == [
        ("c1", "success", "3"),
        ("c2", "failure", REFUSED),
        ("c3", "success", "hi"),
    ]


def test_a_batch_in_which_all_goes_well_ends_with_zero(run: Run, project: Path) -> None:
    assert run("batch", write(project, CALLS[:1]), *KIT).code == 0


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            CHAT,
            [
                {"role": "tool", "tool_call_id": "c1", "content": "3"},
                {"role": "tool", "tool_call_id": "c2", "content": REFUSED},
            ],
        ),
        (RESPONSES, [{"type": "function_call_output", "call_id": "c1", "output": "3"}]),
        (
            ANTHROPIC,
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": REFUSED, "is_error": True},
                    ],
                }
            ],
        ),
        (
            MCP,
            [
                {
                    "jsonrpc": "2.0",
                    "id": 7,
                    "result": {"content": [{"type": "text", "text": "3"}], "isError": False},
                }
            ],
        ),
    ],
    ids=["openai-chat", "openai-responses", "anthropic", "mcp"],
)
def test_a_providers_response_is_answered_in_its_own_shape(
    run: Run, project: Path, payload: Any, expected: Any
) -> None:
    assert run("batch", write(project, payload), *KIT).json == expected


def test_a_dash_reads_the_batch_from_stdin(run: Run) -> None:
    ended = run("batch", "-", *KIT, stdin=jsonx.encode(CALLS[2:]).decode())
    assert [item["value"] for item in ended.json] == ["hi"]


def test_no_calls_give_no_results(run: Run) -> None:
    ended = run("batch", "-", *KIT, stdin="[]")
    assert (ended.code, ended.json) == (0, [])


def test_an_unknown_tool_fails_alone(run: Run) -> None:
    calls = [{"id": "c1", "name": "ecko"}, *CALLS[2:]]
    ended = run("batch", "-", *KIT, stdin=jsonx.encode(calls).decode())
    assert [item["status"] for item in ended.json] == ["failure", "success"]
    assert "did you mean 'echo'?" in ended.json[0]["text"]


def test_fail_fast_cancels_the_rest(run: Run) -> None:
    calls = [
        {"id": "c1", "name": "refuse"},
        {"id": "c2", "name": "append", "arguments": {"name": "f", "line": "x"}},
    ]
    ended = run("batch", "-", "--fail-fast", *KIT, stdin=jsonx.encode(calls).decode())
    assert ended.code == 1
    assert [item["status"] for item in ended.json] == ["failure", "cancelled"]
    assert not Path("f").exists()


def test_calls_of_one_key_keep_their_order_at_any_concurrency(run: Run, project: Path) -> None:
    calls = [{"name": "append", "arguments": {"name": "log", "line": str(number)}} for number in range(40)]
    ended = run("batch", "-", "--max-concurrency", "100", *KIT, stdin=jsonx.encode(calls).decode())
    assert ended.code == 0
    assert (project / "log").read_text().split() == [str(number) for number in range(40)]


def test_a_high_concurrency_is_not_held_back_by_any_other_limit(run: Run, project: Path) -> None:
    (project / "meeting.py").write_text(
        "import asyncio\n"
        "from toolwright import tool\n"
        "everyone = asyncio.Barrier(70)\n"
        "@tool(parallel=True)\n"
        "async def meet() -> None:\n"
        "    await everyone.wait()\n"
    )
    calls = jsonx.encode([{"name": "meet"}] * 70).decode()
    ended = run("batch", "-", "--max-concurrency", "70", "--timeout", "10", "-t", "meeting.py", stdin=calls)
    assert ended.code == 0


def test_a_timeline_goes_to_stderr_when_stdout_is_for_results(run: Run, project: Path) -> None:
    ended = run("batch", write(project, CALLS), "--timeline", "--json", *KIT)
    assert len(ended.json) == 3
    for word in ("c1", "c2", "c3", "why it waited", "3 calls"):
        assert word in ended.err


def test_nothing_but_results_is_printed_without_a_terminal(run: Run, project: Path) -> None:
    assert run("batch", write(project, CALLS[:1]), *KIT).err == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{broken", "The batch on stdin is not JSON"),
        ("", "The batch on stdin is not JSON"),
        ('{"x": 1}', "has no shape that is known"),
        ("5", "has no shape that is known"),
        ('[{"name": "echo", "input": {}}]', "a call with id, name, arguments"),
    ],
)
def test_a_batch_that_cannot_be_read_ends_with_two_and_the_reason(run: Run, content: str, said: str) -> None:
    ended = run("batch", "-", *KIT, stdin=content)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_file_that_is_not_there_is_named(run: Run) -> None:
    ended = run("batch", "gone.json", *KIT)
    assert ended.code == 2
    assert "'gone.json' cannot be read (No such file or directory)" in ended.err


def test_a_named_provider_is_taken_at_its_word(run: Run, project: Path) -> None:
    ended = run("batch", write(project, CALLS), "--provider", "anthropic", *KIT)
    assert ended.code == 2
    assert "Anthropic: payload[0].type is nothing" in ended.err


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_concurrency_that_makes_no_sense_is_named(run: Run, project: Path, value: str) -> None:
    ended = run("batch", write(project, CALLS), "--max-concurrency", value, *KIT)
    assert ended.code == 2
    assert "--max-concurrency" in ended.err
