"""`toolwright batch` and `toolwright call` with a store."""

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CRASHING, Run
from toolwright import jsonx

KIT = ("--tools", "kit.py", "--db", "agent.db")
CALLS = [
    {"id": "c1", "name": "append", "arguments": {"name": "log", "line": "x"}},
    {"id": "c2", "name": "refuse", "arguments": {}},
]


def written(calls: list[dict[str, Any]]) -> str:
    Path("batch.json").write_bytes(jsonx.encode(calls))
    return "batch.json"


@pytest.mark.promise("EFF-02")
def test_a_batch_that_is_run_again_gives_the_recorded_outcomes(run: Run, project: Path) -> None:
    first = run("batch", written(CALLS), *KIT)
    again = run("batch", written(CALLS), *KIT)
    assert (first.code, again.code) == (1, 1)
    assert [item["replayed"] for item in first.json + again.json] == [False, False, True, True]
    assert (project / "log").read_text() == "x\n"
    for apart in (("--session", "other"), ("--scope", "turn 2")):
        assert not run("batch", written(CALLS), *KIT, *apart).json[0]["replayed"]


def test_the_same_id_with_other_arguments_is_an_error_that_says_what_differs(run: Run) -> None:
    run("call", "add", "a=1", "--id", "c1", *KIT)
    again = run("call", "add", "a=1", "--id", "c1", *KIT)
    assert (again.code, again.out) == (0, "3\n")
    assert "replayed" in again.err
    ended = run("call", "add", "a=2", "--id", "c1", *KIT)
    assert (ended.code, ended.out) == (2, "")
    assert "$.a: 1 before, 2 now" in ended.err


def test_a_store_in_a_directory_that_is_not_there_is_named(run: Run) -> None:
    ended = run("call", "add", "a=1", "--tools", "kit.py", "--db", "gone/agent.db")
    assert ended.code == 2
    assert re.search("there is no directory '[^']*gone'; make it first", ended.err)


def test_a_call_that_needs_approval_waits_and_says_how_to_give_it(run: Run, command: list[str]) -> None:
    calls = written([{"id": "l 1", "name": "launch"}, {"id": "c1", "name": "add", "arguments": {"a": 1}}])
    with subprocess.Popen(
        [*command, "batch", calls, *KIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "'l 1' of tool 'launch' waits for a person, as it needs approval" in said
        assert said.endswith(": toolwright approvals approve 'l 1' --db agent.db\n")
        assert run("approvals", "approve", "l 1", "--db", "agent.db").code == 0
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert [item["text"] for item in jsonx.decode(out)] == ["launched", "3"]


def test_ctrl_c_leaves_what_waits_to_be_gone_on_with(run: Run, command: list[str], project: Path) -> None:
    (project / "crashing.py").write_text(CRASHING)
    tools = ("--tools", "crashing.py", "--db", "agent.db")
    calls = written([{"id": "o1", "name": "order"}, {"id": "l1", "name": "launch"}])
    with subprocess.Popen(
        [*command, "batch", calls, *tools], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        assert "waits for its completion; Ctrl-C leaves it waiting" in said
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert [item["status"] for item in jsonx.decode(out)] == ["pending", "pending"]
    assert "2 are left in the store: run it again to continue." in " ".join(err.split())
    assert run("approvals", "approve", "l1", "--db", "agent.db").code == 0
    assert run("resolve", (project / "key").read_text(), "5", "--db", "agent.db").code == 0
    ended = run("batch", calls, *tools)
    assert (ended.code, [item["text"] for item in ended.json]) == (0, ["5", "launched to moon"])


def test_without_a_store_a_call_that_needs_approval_is_refused(run: Run) -> None:
    ended = run("call", "launch", "--tools", "kit.py")
    assert ended.code == 1
    assert "let it run with --approve launch, or wait with --db" in ended.err


WAITING = """
from toolwright import Pending, ToolContext, ToolError, tool


@tool
def pay(ctx: ToolContext, deadline: float | None = None) -> Pending:
    ctx.completion_key()
    return Pending(deadline)


@tool
async def hear(ctx: ToolContext) -> str:
    return await ctx.wait(ctx.event_key("paid"))


@tool
async def look(ctx: ToolContext) -> str:
    try:
        return await ctx.receive("stop", deadline=0)
    except ToolError as error:
        return error.failure.code


@tool(supports_background=True)
async def answer(ctx: ToolContext) -> str:
    return await ctx.receive("question")


@tool
async def ask(ctx: ToolContext) -> str:
    run = await ctx.runs.spawn("answer", {}, title="answers")
    async for event in run.follow():
        if event.type == "waiting":
            await run.signal("question", "six by nine")
    return (await run.wait()).text
"""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["pay"], "cancelled", "it cannot get its completion without a store; wait for it with --db"),
        (["pay", "deadline=3600"], "cancelled", "it cannot get its completion without a store"),
        (["hear"], "failure", "it cannot get its event 'paid' without a store; wait for it with --db"),
        (["look"], "success", "expired"),
        (["ask"], "success", "six by nine"),
    ],
    ids=["pay", "deadline", "event", "look", "signal"],
)
def test_without_a_store_a_call_does_not_wait_for_what_nobody_can_give_it(
    command: list[str], project: Path, words: list[str], status: str, said: str
) -> None:
    (project / "waiting.py").write_text(WAITING)
    tools = ["--tools", "waiting.py"]
    ended = subprocess.run([*command, "call", *words, *tools, "--json"], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, jsonx.decode(ended.stdout)["status"]) == (int(status != "success"), status)
    assert said in jsonx.decode(ended.stdout)["text"]


def test_without_a_store_the_rest_of_a_batch_goes_on_when_a_call_cannot_wait(run: Run, project: Path) -> None:
    (project / "waiting.py").write_text(WAITING)
    ended = run("batch", written([{"name": "pay"}, {"name": "look"}]), "--tools", "waiting.py")
    assert (ended.code, [item["status"] for item in ended.json]) == (1, ["cancelled", "success"])
