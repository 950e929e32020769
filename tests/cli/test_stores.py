"""Which store the commands work on, and the files that are none."""

import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.stores.sqlite.older_schemas import make_version_1
from toolwright.stores.sqlite.core.schema import VERSION

pytestmark = pytest.mark.usefixtures("background")

OVER_A_STORE = [
    ("batches",),
    ("batches", "show", "ab"),
    ("runs",),
    ("runs", "show", "ab"),
    ("runs", "logs", "ab"),
    ("runs", "cancel", "ab"),
    ("runs", "wait", "ab"),
    ("runs", "signal", "ab", "go"),
    ("runs", "follow"),
    ("worker", "--tools", "background.py"),
    ("schedules", "list"),
    ("schedules", "pause", "ab"),
    ("approvals",),
    ("approvals", "approve", "c1"),
    ("approvals", "deny", "c1"),
    ("resolve", "key", "1"),
    ("recover", "--tools", "kit.py"),
    ("db", "stats"),
    ("db", "check"),
    ("db", "prune", "--before", "1d"),
    ("db", "migrate"),
]
each_command = pytest.mark.parametrize("words", OVER_A_STORE, ids=" ".join)


@pytest.mark.parametrize("words", [words for words in OVER_A_STORE if words[0] != "worker"], ids=" ".join)
def test_a_missing_store_is_an_error_that_creates_nothing(run: Run, project: Path, words: tuple[str, ...]) -> None:
    before = sorted(project.iterdir())
    ended = run(*words, "--db", "gone.db")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no store 'gone.db'; check the path" in ended.err
    assert sorted(project.iterdir()) == before


@each_command
def test_no_store_at_all_is_answered_with_both_ways_to_name_one(run: Run, words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert ended.code == 2
    assert "--db FILE" in ended.err
    assert 'db = "agent.db" under [tool.toolwright]' in ended.err


@pytest.mark.parametrize(
    "words",
    [
        *OVER_A_STORE,
        ("call", "add", "a=1", "-t", "kit.py"),
        ("batch", "calls.json", "-t", "kit.py"),
        ("ask", "hi", "--model", "openai:gpt-5"),
        ("chat", "--model", "openai:gpt-5"),
        ("serve", "--tools", "kit.py", "--port", "0"),
        ("mcp", "serve", "-t", "kit.py"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_name_of_a_store_that_is_empty_is_refused_and_nothing_runs_without_one(
    run: Run, words: tuple[str, ...]
) -> None:
    Path("calls.json").write_text('[{"name": "add", "arguments": {"a": 1}}]')
    ended = run(*words, "--db", "")
    assert (ended.code, ended.out) == (2, "")
    assert "--db '' names no store; check the variable that it came from" in ended.err


@each_command
@pytest.mark.parametrize("kind", ["foreign", "newer", "empty", "rubbish"])
def test_a_file_that_is_no_store_of_ours_is_left_as_it_is(
    run: Run, project: Path, words: tuple[str, ...], kind: str
) -> None:
    file = project / "some.db"
    said = {
        "foreign": "belongs to another program",
        "newer": "was written by a newer toolwright (schema 99",
        "empty": "is an empty file: nothing was ever kept in it; check the path",
        "rubbish": "it is not a SQLite database",
    }
    if kind == "newer":
        run("call", "add", "a=1", "-t", "kit.py", "--db", file)
    if kind in ("foreign", "newer"):
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA user_version = 99" if kind == "newer" else "CREATE TABLE theirs (a)")
        connection.commit()
        connection.close()
    else:
        file.write_text("x" * 5000 if kind == "rubbish" else "")
    before = file.read_bytes()

    ended = run(*words, "--db", file)
    assert (ended.code, ended.out) == (2, "")
    assert said[kind] in ended.err
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("spawn", "film", "--tools", "background.py"),
        ("schedules", "add", "film", "--cron", "0 6 * * *", "--tools", "background.py"),
        ("session", "import", "s1.zip"),
    ],
    ids=lambda words: words[0],
)
def test_what_fills_a_store_takes_an_empty_file_for_a_new_one(run: Run, project: Path, words: tuple[str, ...]) -> None:
    run("call", "add", "a=1", "-t", "kit.py", "--db", "other.db", "--session", "s1")
    assert run("session", "export", "s1", "s1.zip", "--db", "other.db").code == 0
    (project / "touched.db").touch()
    assert run(*words, "--db", "touched.db").code == 0
    assert run("db", "check", "--db", "touched.db").code == 0


def test_the_project_names_the_store_relative_to_itself(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text('[tool.toolwright]\ntools = ["kit.py"]\ndb = "kept.db"\n')
    deep = project / "a"
    deep.mkdir()
    monkeypatch.chdir(deep)
    assert run("call", "add", "a=1", "--id", "c1").code == 0
    assert (project / "kept.db").exists()
    assert [batch["calls"] for batch in run("batches", "--json").json] == [1]
    assert run("call", "add", "a=1", "--id", "c1", "--db", ":memory:", "--json").json["replayed"] is False
    assert run("batches", "--db", "other.db").code == 2


def test_a_project_may_name_a_store_and_no_tools(run: Run, project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.toolwright]\ndb = "kept.db"\n')
    run("call", "add", "a=1", "-t", "kit.py")
    assert len(run("batches", "--json").json) == 1
    assert "has no tools and no app; write a list" in run("tools").err


@pytest.mark.parametrize("value", ["5", '""', "[]"])
def test_a_store_that_is_no_path_is_named_with_the_remedy(run: Run, project: Path, value: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.toolwright]\ndb = {value}\n")
    ended = run("batches")
    assert ended.code == 2
    assert 'write a path, as in db = "agent.db"' in ended.err


def test_an_older_store_says_how_to_bring_it_up_to_date(run: Run, project: Path) -> None:
    make_version_1(project / "old.db")
    assert "toolwright db migrate" in run("batches", "--db", "old.db").err
    assert run("db", "migrate", "--db", "old.db").out == f"old.db went from version 1 to {VERSION}.\n"
    assert run("db", "migrate", "--db", "old.db", "--json").json == {"before": VERSION, "after": VERSION}
    assert run("batches", "--db", "old.db").code == 0
