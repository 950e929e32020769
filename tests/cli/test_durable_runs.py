"""`toolwright batch` and `toolwright call` with a store."""

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
    assert "there is no directory 'gone'; make it first" in ended.err


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
    assert "2 are left in the store: run it again to go on." in " ".join(err.split())
    assert run("approvals", "approve", "l1", "--db", "agent.db").code == 0
    assert run("resolve", (project / "key").read_text(), "5", "--db", "agent.db").code == 0
    ended = run("batch", calls, *tools)
    assert (ended.code, [item["text"] for item in ended.json]) == (0, ["5", "launched to moon"])


def test_without_a_store_a_call_that_needs_approval_is_refused(run: Run) -> None:
    ended = run("call", "launch", "--tools", "kit.py")
    assert ended.code == 1
    assert "let it run with --approve launch, or wait with --db" in ended.err
