"""`toolwright ask`: one message, its answer, and how the command ends."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.talking import APP, DB, write_agent
from toolwright import jsonx


@pytest.fixture(autouse=True)
def agent(project: Path) -> None:
    write_agent(project)


def test_the_answer_goes_to_stdout_and_the_calls_to_stderr(run: Run) -> None:
    ended = run("ask", "add them", *APP)
    assert ended.code == 0
    assert ended.out.startswith("The results: 3, ")
    assert "a tool prints this" not in ended.out
    assert '✓ add {"a":1,"b":2}' in ended.err
    assert '✗ add {"a":"x"}' in ended.err
    assert "✓ answered" in ended.err
    assert "2 model calls, 2 tool calls" in ended.err
    assert run("ask", "-", *APP, stdin="from stdin").out == "You said: from stdin\n"


@pytest.mark.promise("TURN-07")
def test_json_is_the_events_of_the_turn_one_a_line(run: Run) -> None:
    ended = run("ask", "add them", *APP, "--json")
    events = [jsonx.decode(line) for line in ended.out.splitlines()]
    kinds = [event["kind"] for event in events]
    assert (ended.code, kinds[0], kinds[-1]) == (0, "turn.started", "turn.ended")
    assert {"model.answered", "call.started", "call.finished", "text"} <= set(kinds)
    assert events[-1]["data"]["status"] == "answered"
    assert events[0]["at"].endswith("Z")
    assert len({event["turn"] for event in events}) == 1
    assert [event["number"] for event in events] == sorted(event["number"] for event in events)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fail", *APP], 1, "✗ failed: empty_answer"),
        (["add", *APP, "--budget-model-calls", "1"], 1, "out of budget: The budget of model_calls is used up"),
        (["add", *APP, "--budget-tool-calls", "1"], 1, "The budget of tool_calls is used up"),
        (["add", *APP, "--budget-cost", "1"], 2, "has no price"),
        (["hello", "--tools", "kit.py"], 2, "There is no model to ask; name one with --model"),
        (["hello"], 2, "There is no model to ask; name one with --model"),
        (["hello", "--model", "nobody:x"], 2, "Model 'nobody:x' is not known"),
        (["hello", "--model", "x"], 2, "model='x' is not usable"),
        (["  ", *APP], 2, "use text that is not empty"),
        (["hello", *APP, "--no-wait"], 2, "name one with --db"),
        (["hello", *APP, "--budget-tokens", "-1"], 2, "--budget-tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_exit_code_and_an_error_tell_what_went_wrong(run: Run, words: list[str], code: int, said: str) -> None:
    ended = run("ask", *words)
    assert (ended.code, ended.out) == (code, "")
    assert said in " ".join(ended.err.split())


def test_without_a_store_and_a_terminal_a_call_that_needs_approval_fails_and_says_so(run: Run, project: Path) -> None:
    ended = run("ask", "wipe", *APP)
    assert ended.code == 0  # The model has answered: it was told.
    assert "needs_approval" in ended.err
    assert not (project / "ledger").exists()
    assert run("ask", "wipe", *APP, "--approve", "wipe").code == 0
    assert (project / "ledger").read_text() == "wiped\n"
    assert "wait for it with --db" in run("ask", "order", *APP).out


@pytest.mark.promise("TURN-06")
def test_a_session_is_continued_and_a_new_one_is_begun_without_its_name(run: Run) -> None:
    assert run("ask", "one", *APP, *DB, "--session", "s1").code == 0
    ended = run("ask", "two", *APP, *DB, "--session", "s1")
    assert "Continue with: toolwright chat --session s1 --db agent.db" in ended.err
    assert run("ask", "three", *APP, *DB).code == 0
    turns = run("turns", *DB, "--json").json
    assert [turn["message"] for turn in turns] == ["three", "two", "one"]
    assert [turn["number"] for turn in turns if turn["session"] == "s1"] == [2, 1]
    assert turns[0]["session"].startswith("chat-")
    again = run("ask", "two", *APP, *DB, "--session", "s1", "--id", turns[1]["id"])
    assert (again.code, again.out) == (0, "You said: two\n")
    assert len(run("turns", *DB, "--json").json) == 3


@pytest.mark.promise("TURN-08")
def test_a_turn_is_left_waiting_and_recovery_continues_it_after_the_decision(run: Run, project: Path) -> None:
    ended = run("ask", "wipe", *APP, *DB, "--session", "s1", "--no-wait")
    assert (ended.code, ended.out) == (5, "")
    assert "waits for a person, as it needs approval: toolwright approvals approve c0-0 --db agent.db" in ended.err
    recovered = run("recover", *APP, *DB)
    assert recovered.code == 1
    assert "1 still wait; calls for a person to decide: toolwright approvals --db agent.db" in recovered.err
    assert run("approvals", "approve", "c0-0", *DB).code == 0
    recovered = run("recover", *APP, *DB)
    assert recovered.code == 0
    assert "continued" in recovered.out
    assert "✓ answered" in recovered.out
    assert (project / "ledger").read_text() == "wiped\n"
    assert run("recover", *APP, *DB).err == "Nothing was cut off.\n"


@pytest.mark.promise("TURN-03")
def test_a_turn_whose_process_was_killed_is_shown_as_cut_off_and_recovery_continues_it(
    run: Run, project: Path, command: list[str]
) -> None:
    killed = subprocess.run([*command, "ask", "crash", *APP, *DB], capture_output=True, timeout=60)
    assert killed.returncode == -9
    (turn,) = run("turns", *DB, "--json").json
    assert (turn["state"], turn["cut_off"], turn["model_calls"]) == ("running", True, 1)
    assert "! cut off" in run("turns", *DB).out
    left = run("turns", "follow", turn["id"], *DB)
    assert left.code == 5
    assert "continue it with toolwright recover --db agent.db" in left.err
    (recovered,) = run("recover", *APP, *DB, "--json").json
    assert (recovered["turn_id"], recovered["action"]) == (turn["id"], "continued")
    assert recovered["outcome"]["text"] == "The results: before, alive"
    assert (project / "ledger").read_text() == "before\n"
    assert (project / "asked").read_text() == "0\n1\n"
    followed = run("turns", "follow", turn["id"], *DB, "--json")
    kinds = [jsonx.decode(line)["kind"] for line in followed.out.splitlines()]
    assert (kinds[0], kinds[-1]) == ("turn.started", "turn.ended")
    assert "turn.continued" in kinds


def test_recovery_says_why_a_turn_cannot_continue_here(run: Run, project: Path, command: list[str]) -> None:
    assert subprocess.run([*command, "ask", "crash", *APP, *DB], capture_output=True, timeout=60).returncode == -9
    ended = run("recover", "--tools", "kit.py", *DB)
    assert ended.code == 1
    assert "cannot continue here: its model 'function:function' was given as an object" in ended.err
    assert ended.err.count("was not continued") == 0  # the error names the turn itself
    assert run("turns", "--active", *DB, "--json").json[0]["cut_off"]


@pytest.mark.promise("TURN-08")
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_without_a_terminal_a_turn_that_waits_for_a_person_is_left_and_the_command_ends(
    project: Path, command: list[str], run: Run, more: tuple[str, ...]
) -> None:
    ended = subprocess.run(
        [*command, "ask", "-", *APP, *DB, *more], input=b"wipe", capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 5, ended.stderr
    assert b"toolwright approvals approve c0-0 --db agent.db" in ended.stderr
    assert b"There is no terminal to decide at, so the turn is left; after the decision: toolwright rec" in ended.stderr
    assert run("approvals", "approve", "c0-0", *DB).code == 0
    assert run("recover", *APP, *DB).code == 0
    assert (project / "ledger").read_text() == "wiped\n"


@pytest.mark.promise("TURN-08")
def test_without_a_terminal_a_turn_waits_for_a_person_where_that_is_asked_for(
    project: Path, command: list[str], run: Run
) -> None:
    words = [*command, "ask", "wipe", *APP, *DB, "--wait"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"approvals approve c0-0" in line:
                break
        assert run("approvals", "approve", "c0-0", *DB).code == 0
        out, _ = process.communicate(timeout=40)
    assert process.returncode == 0
    assert out.startswith(b"The results: wiped /x")


def test_text_on_stdin_that_is_not_utf_8_is_replaced(project: Path, command: list[str]) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "utf-8:surrogateescape"}
    for word, given in (("-", b"caf\xe9 \xed\xa0\x80"), (b"caf\xe9 \xed\xa0\x80", b"")):
        ended = subprocess.run(
            [*command, "ask", word, *APP], input=given, capture_output=True, timeout=60, check=False, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.decode().startswith("You said: caf\ufffd ")
    told = subprocess.run(
        [*command, "call", "note", "-", *APP], input=b'{"text": "\xe9"}', capture_output=True, timeout=60, check=False
    )
    assert told.returncode == 2
    assert b"not text in UTF-8" in told.stderr
