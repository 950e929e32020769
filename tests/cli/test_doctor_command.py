"""`toolwright doctor`: what keeps an app from working here, with remedies."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Run

DB = ("--db", "agent.db")
NOTE = {"id": "n1", "name": "note", "arguments": {"text": "x"}}


def states(run: Run, *options: str) -> dict[str, list[str]]:
    """The findings that are not fine, by subject: what is said, with the remedy."""
    found: dict[str, list[str]] = {}
    for finding in run("doctor", *options, "--json").json:
        if finding["state"] in ("problem", "damage"):
            found.setdefault(finding["subject"], []).append(f"{finding['said']}; {finding['remedy']}")
    return found


def test_a_sound_place_has_no_problem_and_is_not_changed(run: Run, left: Callable[..., Path], tmp_path: Path) -> None:
    store = left(NOTE)
    before = (sorted(os.listdir(store.parent)), store.read_bytes())
    ended = run("doctor", *DB)
    assert ended.code == 0, ended.out
    assert "agent.db is sound" in ended.out
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in ended.out
    assert states(run, *DB) == {}
    assert (sorted(os.listdir(store.parent)), store.read_bytes()) == before


def test_a_store_that_is_not_there_yet_is_no_problem_and_is_not_made(run: Run, tmp_path: Path) -> None:
    ended = run("doctor", "--db", "new.db")
    assert (ended.code, "There is no store 'new.db' yet" in ended.out) == (0, True)
    assert run("doctor").code == 0
    found = states(run, "--db", "nowhere/new.db")
    assert "mkdir -p" in found["permissions"][0]
    assert not Path("nowhere").exists()


@pytest.mark.skipif(os.name == "nt", reason="devices and modes are those of POSIX")
def test_a_name_that_no_store_can_have_is_a_problem_and_the_file_of_others_is_left_alone(run: Run) -> None:
    Path("notes.txt").write_text("not a database, and longer than a header\n" * 9)
    Path("notes.txt").chmod(0o644)
    for name, said in (
        (".", "it is a directory"),
        ("/", "it is a directory"),
        ("sqlite:////nowhere/new.db", "mkdir -p /nowhere"),
        ("n" * 300, "its name is too long"),
        ("/dev/null", "it is no regular file"),
        ("notes.txt", "it is not a SQLite database"),
    ):
        found = states(run, "--db", name)
        (told,) = [line for lines in found.values() for line in lines if "MiB are free" not in line]
        assert said in told
        assert "chmod" not in told
    assert "There is no store" in run("db", "stats", "--db", "n" * 300).err


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
def test_files_that_others_may_read_are_named_with_the_command_that_helps(run: Run, left: Callable[..., Path]) -> None:
    store = left(NOTE)
    store.chmod(0o644)
    key = store.with_name("agent.db.key")
    key.write_text("no key\n")
    key.chmod(0o644)
    found = states(run, *DB)
    assert "chmod 600" in found["permissions"][0]
    assert "chmod 600" in found["keys"][0]
    assert run("doctor", *DB).code == 2
    key.chmod(0o600)
    assert "damaged; restore it from a copy" in states(run, *DB)["keys"][0]


def test_a_master_key_of_the_environment_is_checked_and_never_shown(
    run: Run, left: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(NOTE)
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", "hunter2")
    ended = run("doctor", *DB)
    assert (ended.code, "hunter2" in ended.out) == (2, False)
    assert "base64 of 32 random bytes" in states(run, *DB)["keys"][0]
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", "A" * 43 + "=")
    ended = run("doctor", *DB)
    assert (ended.code, "A" * 43 in ended.out) == (0, False)


def test_a_damaged_store_ends_it_with_four(run: Run, left: Callable[..., Path]) -> None:
    store = left(NOTE)
    content = bytearray(store.read_bytes())
    content[3 * 4096 : 6 * 4096] = b"\7" * (3 * 4096)
    store.write_bytes(content)
    assert run("doctor", *DB).code == 4


def test_a_newer_store_and_records_of_the_future_are_problems(run: Run, left: Callable[..., Path]) -> None:
    store = left(NOTE)
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE calls SET finished_at = finished_at + 86400")
    assert "the clock was put back" in states(run, *DB)["clock"][0]
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "upgrade toolwright" in states(run, *DB)["store"][0]


def test_calls_that_were_cut_off_are_advice(run: Run, left: Callable[..., Path]) -> None:
    left({"id": "d1", "name": "die"})
    ended = run("doctor", *DB)
    assert (ended.code, "toolwright recover" in ended.out) == (0, True)


def test_an_app_that_lacks_something_is_a_problem_by_name(run: Run, tmp_path: Path) -> None:
    Path("needy.py").write_text(
        "from toolwright import App, ToolContext, tool\n\n\n"
        "@tool(needs=['model'])\nasync def think(ctx: ToolContext) -> str:\n    'Think.'\n    return ''\n\n\n"
        "app = App(tools=[think])\n"
    )
    found = states(run, "--app", "needy.py:app")
    assert "'think'" in found["app"][0]
    assert "App(model=...)" in found["app"][0]


def test_an_app_that_cannot_be_loaded_is_a_problem_among_the_other_findings(
    run: Run, left: Callable[..., Path]
) -> None:
    left(NOTE)
    ended = run("doctor", "--app", "nowhere:app", *DB)
    assert ended.code == 2
    assert "nowhere" in states(run, "--app", "nowhere:app", *DB)["app"][0]
    assert "agent.db is sound" in ended.out
    assert "Python" in ended.out


def test_the_app_of_the_project_that_cannot_be_loaded_is_a_problem_too(run: Run, tmp_path: Path) -> None:
    Path("pyproject.toml").write_text('[tool.toolwright]\napp = "nowhere:app"\n')
    assert "nowhere" in states(run)["app"][0]
