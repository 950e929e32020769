"""How commands end: exit codes, Ctrl-C, a reader that goes away, a missing extra."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import toolwright
from tests.cli.conftest import Run
from toolwright import ToolOutcome, ToolwrightError, jsonx
from toolwright.cli.exits import exit_code, reported

CODES = ("0", "1", "2", "3", "4", "5", "70", "130", "141")


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"toolwright {toolwright.__version__}\n"
    assert run("--json", "--version").json == {"version": toolwright.__version__}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["ask"],
        ["chat"],
        ["turns"],
        ["turns", "follow"],
        ["tools"],
        ["call"],
        ["batch"],
        ["batches"],
        ["batches", "show"],
        ["runs"],
        ["runs", "logs"],
        ["spawn"],
        ["worker"],
        ["approvals"],
        ["approvals", "deny"],
        ["db"],
        ["db", "prune"],
    ],
)
def test_every_help_page_tells_the_exit_codes(run: Run, words: list[str]) -> None:
    ended = run(*words, "-h")
    assert ended.code == 0
    codes = ended.out[ended.out.index("Exit codes:") :]
    for code in CODES:
        assert code in codes


@pytest.mark.parametrize("words", [[], ["worker"], ["runs"], ["runs", "show"], ["session", "delete"]])
def test_the_help_shows_no_type_for_options_that_take_no_value(run: Run, words: list[str]) -> None:
    ended = run(*words, "--help")
    assert "--help" in ended.out
    assert "bool" not in ended.out.lower()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("toolwright wor", "worker"), ("toolwright worker --ap", "--app"), ("toolwright schedules run", "run-now")],
)
def test_a_shell_completes_commands_and_options(command: list[str], typed: str, offered: str) -> None:
    shell = {"_TOOLWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    ended = subprocess.run(command, env={**os.environ, **shell}, capture_output=True, text=True, timeout=30)
    assert offered in ended.stdout.split()


def test_the_help_shows_brackets_as_they_are_written(run: Run) -> None:
    assert "[tool.toolwright]" in run("tools", "--help").out


@pytest.mark.parametrize("words", [("frob",), ("tools", "--frob"), ("batch",)])
def test_wrong_usage_ends_with_two(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).code == 2


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [
        ([], False, 0),
        (["success", "success"], False, 0),
        (["success", "failure"], False, 1),
        (["cancelled"], False, 1),
        (["pending"], False, 1),
        (["success"], True, 130),
    ],
)
def test_the_code_tells_how_the_worst_call_went(statuses: list, interrupted: bool, code: int) -> None:
    outcomes = [ToolOutcome(call_id="c", tool="t", status=status) for status in statuses]
    assert exit_code(outcomes, interrupted=interrupted) == code


@pytest.mark.parametrize(
    ("error", "code"), [(ToolwrightError("bad"), 2), (ValueError("ours"), 70), (KeyboardInterrupt(), 130)]
)
def test_an_error_becomes_its_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, reported():
        raise error
    assert caught.value.exit_code == code
    assert ("Traceback" in capsys.readouterr().err) == (code == 70)


@pytest.mark.parametrize(
    "words", [("call", "hang"), ("batch", "batch.json", "--max-concurrency", "1")], ids=["call", "batch"]
)
def test_ctrl_c_cancels_what_runs_and_still_prints_what_happened(
    command: list[str], project: Path, words: tuple[str, ...]
) -> None:
    calls = [{"name": "echo", "arguments": {"text": "x"}}, {"name": "hang"}, {"name": "crash"}]
    (project / "batch.json").write_bytes(jsonx.encode(calls))
    with subprocess.Popen(
        [*command, *words, "--json", "--tools", "kit.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "hanging\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    found = jsonx.decode(out)
    outcomes = found if isinstance(found, list) else [found]
    (hung,) = (item for item in outcomes if item["tool"] == "hang")
    assert hung["status"] == "cancelled"
    assert hung["reason"] == "interrupted by Ctrl-C"
    assert hung["may_have_run"] is False  # it only reads
    if len(outcomes) > 1:
        assert [item["status"] for item in outcomes] == ["success", "cancelled", "cancelled"]
        assert "Interrupted: 1 calls were finished, 2 had no effect, 0 may have had an effect." in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("call", "echo", "text=x", "-t", "kit.py"),
        ("call", "echo", "text=x", "-t", "kit.py", "--json"),
        ("tools", "-t", "kit.py"),
        ("session", "list", "--db", "agent.db"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_failure_of_a_call(command: list[str], run: Run, words: tuple[str, ...]) -> None:
    run("call", "echo", "text=x", "-t", "kit.py", "--db", "agent.db")
    ended = unread([*command, *words], "stdout")
    assert ended.returncode == 141
    assert ended.stderr == ""


@pytest.mark.parametrize(("tool", "code"), [("echo", 141), ("nothing", 2)])
def test_nobody_who_reads_what_is_said_on_the_side_is_no_failure_of_a_call(
    fresh_command: list[str], tool: str, code: int
) -> None:
    assert unread([*fresh_command, "call", tool, "text=x", "-t", "kit.py"], "stderr").returncode == code


def unread(words: list[str], stream: str) -> subprocess.CompletedProcess[str]:
    """Run a command; whoever should read one of its streams is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        out, err = (closed if stream == name else subprocess.PIPE for name in ("stdout", "stderr"))
        return subprocess.run(words, stdout=out, stderr=err, text=True, timeout=30)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_is_one_line_with_the_remedy(missing: str, command: list[str]) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from toolwright.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert repr(missing) in ended.stderr
    assert "pip install 'toolwright[cli]'" in ended.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["batches", "--db", "missing.db"], "bad_input"),
        (["call", "nothing", "--tools", "nowhere"], "bad_input"),
        (["runs", "show", "--nonsense"], "usage"),
        (["no-such-command"], "usage"),
    ],
)
def test_an_error_is_told_in_json_where_json_is_asked_for(command, project, words, code):
    ended = subprocess.run([*command, *words, "--json"], cwd=project, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    error = json.loads(ended.stderr)["error"]
    assert error["code"] == code
    assert error["message"]


def test_an_error_is_told_in_json_where_json_is_asked_for_before_the_verb(command, project):
    words = ["runs", "--json", "show", "nothing", "--db", "missing.db"]
    ended = subprocess.run([*command, *words], cwd=project, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert json.loads(ended.stderr)["error"]["code"] == "bad_input"


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "set", "a", "caf\udce9", "--session", "s"),
        ("runs", "logs", "caf\udce9"),
        ("approvals", "approve", "caf\udce9"),
        ("schedules", "pause", "caf\udce9"),
    ],
)
def test_a_word_that_is_not_utf_8_is_bad_input(run: Run, words: tuple[str, ...]) -> None:
    assert run("call", "echo", "text=a", "--tools", "kit", "--db", "a.db").code == 0
    ended = run(*words, "--db", "a.db")
    assert ended.code == 2
    assert "UTF-8" in ended.err
    assert "Traceback" not in ended.err
