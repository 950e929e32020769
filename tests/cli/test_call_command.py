"""`toolwright call`."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from toolwright import jsonx

KIT = ("--tools", "kit.py")


def test_the_text_goes_to_stdout_and_how_it_went_to_stderr(run: Run) -> None:
    ended = run("call", "echo", "text=hello", *KIT)
    assert (ended.code, ended.out) == (0, "hello\n")
    assert "success in" in ended.err


def test_text_that_ends_its_line_is_printed_to_the_letter(run: Run) -> None:
    assert run("call", "echo", '{"text": "a\\nb\\n"}', *KIT).out == "a\nb\n"


def test_json_prints_the_whole_outcome_and_nothing_else(run: Run) -> None:
    ended = run("call", "add", "a=1", "--json", *KIT)
    assert ended.err == ""
    found = ended.json
    assert found.pop("call_id").startswith("call_")
    assert found == {
        "tool": "add",
        "status": "success",
        "value": 3,
        "attempts": 1,
        "replayed": False,
        "text": "3",
    }


@pytest.mark.parametrize(
    "words",
    [
        ("a=5", "b=6"),
        ('{"a": 5, "b": 6}',),
        (' {"a": 5, "b": 6}',),
    ],
)
def test_arguments_are_pairs_or_an_object(run: Run, words: tuple[str, ...]) -> None:
    assert run("call", "add", *words, *KIT).out == "11\n"


def test_a_dash_reads_the_arguments_from_stdin(run: Run) -> None:
    assert run("call", "add", "-", *KIT, stdin='{"a": 40}').out == "42\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text=plain", "plain"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text=90210", "90210"),
        ("text=true", "true"),
        ('text="quoted"', "quoted"),
        ("text={broken", "{broken"),
    ],
)
def test_a_value_that_should_be_text_stays_text(run: Run, given: str, expected: str) -> None:
    assert run("call", "echo", given, "--json", *KIT).json["value"] == expected


def test_a_failed_call_ends_with_one_and_prints_what_the_model_reads(run: Run) -> None:
    ended = run("call", "refuse", *KIT)
    assert ended.code == 1
    assert jsonx.decode(ended.out) == {"error": "Nothing doing"}
    assert "failure" in ended.err
    assert "execution/refused" in ended.err


def test_arguments_that_do_not_fit_are_a_failure_of_the_call(run: Run) -> None:
    ended = run("call", "add", "b=1", "--json", *KIT)
    assert ended.code == 1
    assert ended.json["failure"]["category"] == "invalid_arguments"


def test_the_owner_sees_the_cause_of_a_crash_and_the_model_does_not(run: Run) -> None:
    ended = run("call", "crash", *KIT)
    assert ended.code == 1
    assert "lost" not in ended.out
    assert "KeyError: 'lost'" in ended.err
    assert "Traceback" not in ended.err


def test_verbose_shows_the_traceback_of_a_crash(run: Run) -> None:
    err = run("call", "crash", "--verbose", *KIT).err
    assert "Traceback" in err
    assert 'raise KeyError("lost")' in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ecko",), "no tool 'ecko'; did you mean 'echo'?"),
        (("zzz",), "no tool 'zzz'; there are: add, append, crash, echo"),
        (("echo", "hello"), "'hello' is not an argument; use key=value pairs"),
        (("echo", "=x"), "'=x' is not an argument"),
        (("echo", "text=a", "text=b"), "'text' is given twice"),
        (("echo", '{"text": '), "not JSON"),
        (("echo", "{}", "text=a"), "'{}' is not an argument"),
    ],
)
def test_words_that_are_no_call_end_with_two_and_the_remedy(run: Run, words: tuple[str, ...], said: str) -> None:
    ended = run("call", *words, *KIT)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.parametrize(("stdin", "said"), [("", "on stdin are not JSON"), ("[1]", "not a JSON object")])
def test_stdin_that_is_no_object_ends_with_two(run: Run, stdin: str, said: str) -> None:
    ended = run("call", "echo", "-", *KIT, stdin=stdin)
    assert ended.code == 2
    assert said in ended.err


def test_a_call_without_a_name_is_wrong_usage(run: Run) -> None:
    assert run("call").code == 2


def test_a_tool_that_needs_approval_runs_only_with_it(run: Run) -> None:
    refused = run("call", "launch", *KIT)
    assert refused.code == 1
    assert "let it run with --approve launch" in refused.err
    assert run("call", "launch", "--approve", "laun*", *KIT).out == "launched\n"


def test_read_only_refuses_a_tool_that_may_change_something(run: Run, project: Path) -> None:
    ended = run("call", "append", "name=out.txt", "line=x", "--read-only", "--json", *KIT)
    assert ended.code == 1
    assert ended.json["decided_by"] == "read_only"
    assert not (project / "out.txt").exists()


def test_a_call_that_takes_too_long_is_a_timeout(run: Run) -> None:
    ended = run("call", "hang", "--timeout", "0.01", "--json", *KIT)
    assert ended.code == 1
    assert ended.json["failure"]["code"] == "timeout"


@pytest.mark.parametrize(("option", "value"), [("--timeout", "0"), ("--timeout", "soon"), ("--approve", "")])
def test_a_setting_that_makes_no_sense_is_named(run: Run, option: str, value: str) -> None:
    ended = run("call", "echo", option, value, *KIT)
    assert ended.code == 2
    assert option in ended.err or "Rule tools" in ended.err


def test_long_output_is_kept_whole_in_the_spill_directory(run: Run, project: Path) -> None:
    text = "x" * 100_000
    ended = run(
        "call",
        "echo",
        "-",
        "--spill-dir",
        "spilled",
        "--json",
        *KIT,
        stdin=jsonx.encode({"text": text}).decode(),
    )
    assert len(ended.json["text"]) < 60_000
    assert Path(ended.json["spilled_to"]).read_text() == text
    assert Path(ended.json["spilled_to"]).parent.resolve() == project / "spilled"


def test_events_are_appended_to_a_file_as_lines_of_json(run: Run, project: Path) -> None:
    run("call", "add", "a=1", "--events", "events.jsonl", *KIT)
    kinds = [jsonx.decode(line)["kind"] for line in (project / "events.jsonl").read_bytes().splitlines()]
    assert kinds == ["batch.started", "call.started", "call.finished", "batch.finished"]


def test_an_events_file_that_cannot_be_written_is_named(run: Run) -> None:
    ended = run("call", "add", "a=1", "--events", "no/such/dir/events", *KIT)
    assert ended.code == 2
    assert "'no/such/dir/events' cannot be written" in ended.err


def test_what_tools_and_their_programs_print_stays_out_of_stdout(fresh_command: list[str], project: Path) -> None:
    (project / "noisy.py").write_text(
        "import subprocess, sys\n"
        "from toolwright import tool\n"
        "@tool\n"
        "def shout() -> str:\n"
        "    print('printed')\n"
        "    subprocess.run([sys.executable, '-c', 'print(\"spawned\")'])\n"
        "    return 'value'\n"
        "@tool(isolation='process')\n"
        "def shout_apart() -> str:\n"
        "    print('isolated', flush=True)\n"
        "    return 'value'\n"
    )
    for name, noise in (("shout", ("printed", "spawned")), ("shout_apart", ("isolated",))):
        ended = subprocess.run([*fresh_command, "call", name, "-t", "noisy.py"], capture_output=True, text=True)
        assert ended.stdout == "value\n"
        for word in noise:
            assert word in ended.stderr
