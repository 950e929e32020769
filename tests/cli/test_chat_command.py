"""`toolwright chat`: a conversation at a terminal, and through a pipe."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.talking import APP, DB, Terminal, write_agent
from toolwright import jsonx

Sit = Callable[..., Terminal]
PROMPT = "> "


@pytest.fixture
def sit(project: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Sit]:
    """Starts the command on a terminal."""
    write_agent(project)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    begun: list[Terminal] = []

    def start(*words: str) -> Terminal:
        begun.append(Terminal([*command, *words]))
        return begun[-1]

    yield start
    for each in begun:
        each.close()


@pytest.mark.promise("TURN-05", "TURN-07")
def test_a_person_talks_sees_calls_and_stops_a_turn_but_not_the_program(sit: Sit, run: Run, project: Path) -> None:
    screen = sit("chat", *APP, *DB, "--session", "s1")
    screen.until(PROMPT)
    screen.type("hello\n")
    screen.until("You said: hello")
    screen.until(PROMPT)
    screen.type("hang\n")
    screen.until("a quarter")
    screen.type("\x03")
    screen.until("interrupted by Ctrl-C")
    screen.until(PROMPT)
    screen.type("still there?\n")
    screen.until("You said: still there?")
    screen.until(PROMPT)
    screen.type("\x03")
    assert screen.end() == 130
    assert "toolwright chat --session s1 --db agent.db" in screen.shown
    assert "\x1b]0;owned" not in screen.shown
    assert "\u202e" not in screen.shown
    assert [turn["state"] for turn in run("turns", *DB, "--json").json] == ["answered", "cancelled", "answered"]


@pytest.mark.promise("TURN-08", "AUTH-02")
def test_approvals_are_asked_for_in_place_and_the_turn_continues(sit: Sit, run: Run, project: Path) -> None:
    screen = sit("chat", *APP, *DB, "--session", "s1")
    screen.until(PROMPT)
    screen.type("wipe\ny\n")  # The second line was typed before the question, and is no answer to it.
    screen.until("or why not: ")
    assert not (project / "ledger").exists()
    screen.type("\n")
    screen.until("or why not: ")
    screen.type("not this one\n")
    screen.until("The results:")
    assert not (project / "ledger").exists()
    screen.until(PROMPT)
    screen.type("wipe again\n")
    screen.until("or why not: ")
    screen.type("always\n")
    screen.until("The results: wiped /x")
    screen.until(PROMPT)
    screen.type("wipe a third time\n")
    screen.until("The results: wiped /x")
    screen.until(PROMPT)
    screen.type("\x04")
    assert screen.end() == 0
    assert (project / "ledger").read_text() == "wiped\nwiped\n"
    assert "\x1b]0;owned" not in screen.shown
    decided = run("approvals", "--decided", *DB, "--json").json
    assert [one["decision"]["reason"] for one in decided] == [None, "not this one"]


def test_a_decision_is_stopped_by_ctrl_c_and_stdin_that_ends_leaves_the_turn_waiting(sit: Sit, run: Run) -> None:
    screen = sit("chat", *APP, *DB, "--session", "s1")
    screen.until(PROMPT)
    screen.type("wipe\n")
    screen.until("or why not: ")
    screen.type("\x03")
    screen.until("cancelled")
    screen.until(PROMPT)
    screen.type("wipe\n")
    screen.until("or why not: ")
    screen.type("\x04")
    assert screen.end() == 0
    assert [turn["state"] for turn in run("turns", *DB, "--json").json] == ["waiting", "cancelled"]


@pytest.mark.promise("TURN-03")
def test_a_session_is_resumed_with_the_turn_that_was_cut_off(
    sit: Sit, run: Run, command: list[str], project: Path
) -> None:
    assert run("ask", "hello", *APP, *DB, "--session", "s1").code == 0
    killed = subprocess.run([*command, "ask", "crash", *APP, *DB, "--session", "s1"], capture_output=True, timeout=60)
    assert killed.returncode == -9
    screen = sit("chat", *APP, *DB, "--session", "s1")
    shown = screen.until("The results: before, alive")
    assert "You said: hello" in shown
    assert "the process that worked on it is gone" in shown
    screen.until(PROMPT)
    screen.type("\x04")
    assert screen.end() == 0
    assert (project / "ledger").read_text() == "before\n"


def test_approvals_are_asked_for_in_place_without_a_store_and_by_ask(sit: Sit, project: Path) -> None:
    screen = sit("ask", "wipe", *APP)
    screen.until("or why not: ")
    screen.type("y\n")
    screen.until("✓ answered")
    assert screen.end() == 0
    assert (project / "ledger").read_text() == "wiped\n"


@pytest.mark.promise("WAIT-08", "SAFE-04")
@pytest.mark.parametrize("store", [(), DB], ids=["in memory", "in a file"])
def test_a_question_of_a_tool_is_asked_in_place(sit: Sit, run: Run, project: Path, store: tuple[str, ...]) -> None:
    screen = sit("chat", *APP, *store)
    screen.until(PROMPT)
    screen.type("fit\n38\n")  # The second line was typed before the question, and is no answer to it.
    asked = screen.until("and why: ")
    assert "  │ Which size?" in asked
    assert "  │ ? wipe needs your approval: yes" in asked  # A text of the tool cannot look like a line of ours.
    screen.type("XXL\n")
    assert "not one of the allowed values" in screen.until("and why: ")
    screen.type("38\n")
    screen.until("The results: size 38")
    screen.until(PROMPT)
    screen.type("fit\n")
    screen.until("and why: ")
    screen.type("S\n")
    screen.until("The results: size 'S'")
    screen.until(PROMPT)
    screen.type("fit\n")
    screen.until("and why: ")
    screen.type("/decline it is a gift\n")
    screen.until("The results:")
    assert "it is a gift" in screen.until(PROMPT)
    screen.type("\x04")
    assert screen.end() == 0
    assert "\x1b]0;owned" not in screen.shown
    assert "\u202e" not in screen.shown
    if store:
        decided = run("approvals", "--decided", *DB, "--json").json
        assert [one["answer"] for one in decided] == [None, "S", 38]


def test_lines_of_a_pipe_are_messages_and_one_without_an_answer_is_the_exit_code(run: Run, project: Path) -> None:
    write_agent(project)
    ended = run("chat", *APP, stdin="one\n\ntwo")
    assert (ended.code, ended.out) == (0, "You said: one\nYou said: two\n")
    ended = run("chat", *APP, *DB, stdin="fail\ntwo\n")
    assert (ended.code, ended.out) == (1, "You said: two\n")
    ended = run("chat", *APP, "--json", stdin="one\ntwo\n")
    events = [jsonx.decode(line) for line in ended.out.splitlines()]
    assert [event["data"]["text"] for event in events if event["kind"] == "turn.ended"] == [
        "You said: one",
        "You said: two",
    ]


def test_chat_reads_a_real_pipe_while_its_turns_run(project: Path, command: list[str]) -> None:
    write_agent(project)
    words = [*command, "chat", *APP, *DB]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("one", "add"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(("You said: one", "The results: 3"))
        process.stdin.close()
        assert process.wait(timeout=40) == 0


EDITOR = '''
from toolwright import App, ToolCall, tool
from toolwright.testing import ScriptedModel


@tool(approval="required")
async def wipe(path: str) -> str:
    """Wipe."""
    return f"wiped {path}"


cleaner = App(
    tools=[wipe], model=ScriptedModel([[ToolCall(id="1", name="wipe", arguments={"path": "/x"})], "It is clean."])
)
app = App(
    tools=[cleaner.as_tool("cleaner", description="Cleans.")],
    model=ScriptedModel([[ToolCall(id="1", name="cleaner", arguments={"message": "Clean."})], "All is clean now."]),
)
'''


@pytest.mark.promise("TURN-04", "TURN-08")
@pytest.mark.parametrize("store", [(), DB], ids=["memory", "file"])
def test_an_approval_for_a_sub_agent_is_asked_for_in_place(sit: Sit, project: Path, store: tuple[str, ...]) -> None:
    (project / "editor.py").write_text(EDITOR)
    screen = sit("ask", "Clean up.", "--app", "editor:app", *store)
    shown = screen.until("or why not: ")
    assert "needs your approval" in shown
    assert "wipe" in shown
    screen.type("y\n")
    screen.until("All is clean now.")
    assert screen.end() == 0


@pytest.mark.promise("TURN-08")
def test_messages_from_a_pipe_end_at_a_turn_that_waits_for_a_person(
    run: Run, project: Path, command: list[str]
) -> None:
    write_agent(project)
    words = [*command, "chat", *APP, *DB, "--session", "s1"]
    for _ in range(2):  # the second time, the turn from before waits
        ended = subprocess.run(words, input=b"hello\nwipe\nbye\n", capture_output=True, timeout=60, check=False)
        assert ended.returncode == 5, ended.stderr
        assert b"toolwright approvals approve c1-0 --db agent.db" in ended.stderr
    assert ended.stdout == b""
    assert [turn["state"] for turn in run("turns", *DB, "--json").json] == ["waiting", "answered"]
    assert run("approvals", "approve", "c1-0", *DB).code == 0
    ended = subprocess.run(words, input=b"bye\n", capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert [line.partition(b" /x")[0] for line in ended.stdout.splitlines()] == [
        b"The results: wiped",
        b"You said: bye",
    ]


@pytest.mark.promise("TURN-08", "TURN-04")
def test_an_approval_for_a_sub_agent_leaves_the_turn_of_a_pipe(project: Path, command: list[str]) -> None:
    (project / "editor.py").write_text(EDITOR)
    words = [*command, "chat", "--app", "editor:app", *DB]
    ended = subprocess.run(words, input=b"go\n", capture_output=True, timeout=60, check=False)
    assert ended.returncode == 5, ended.stderr
