"""`toolwright secrets`: the secrets of a session, whose values nobody is shown."""

import asyncio
import base64
import os
import pty
import secrets
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_live import read_until
from tests.session.leaks import files_beside
from toolwright import Runtime

DB = ("--db", "agent.db")
S1 = ("--session", "s1", *DB)
VALUE = "hunter2-s3cret"
KEY = "TOOLWRIGHT_MASTER_KEY"


@pytest.fixture
def kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a session that has secrets."""
    monkeypatch.delenv(KEY, raising=False)

    async def fill() -> None:
        async with Runtime.open(project / "agent.db") as runtime:
            for name in ("github", "mail"):
                await runtime.session("s1").secrets.set(name, f"{VALUE} of {name}")

    asyncio.run(fill())
    return project / "agent.db"


def read(name: str, session: str = "s1") -> str | None:
    """What a tool would be given."""

    async def work() -> str | None:
        async with Runtime.open("agent.db") as runtime:
            return await runtime.session(session).secrets.get(name)

    return asyncio.run(work())


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def test_a_secret_is_set_from_stdin_and_not_shown(run: Run, kept: Path) -> None:
    ended = run("secrets", "set", "token", *S1, stdin=f"{VALUE}\n")
    assert ended == (0, "token is set\n", "")
    assert read("token") == VALUE
    for name, content in files_beside(kept):
        assert VALUE.encode() not in content, name


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (VALUE, VALUE),
        (f"{VALUE}\r\n", VALUE),
        (f"{VALUE}\n\n", f"{VALUE}\n"),
        (f"-----BEGIN KEY-----\n{VALUE}\n-----END KEY-----\n", f"-----BEGIN KEY-----\n{VALUE}\n-----END KEY-----"),
        ("x" * 16 * 1024 + "\r\n", "x" * 16 * 1024),
    ],
    ids=["bare", "windows", "two lines", "many lines", "longest"],
)
def test_of_stdin_one_end_of_line_is_left_out(run: Run, kept: Path, typed: str, value: str) -> None:
    ended = run("secrets", "set", "github", *S1, "--json", stdin=typed)
    assert ended.json == {"session": "s1", "name": "github", "set": True}
    assert read("github") == value


def test_a_secret_makes_a_session_that_is_new(run: Run, kept: Path) -> None:
    assert run("secrets", "set", "token", "--session", "s2", *DB, stdin=VALUE).code == 0
    assert read("token", "s2") == VALUE


def test_a_value_on_the_command_line_is_refused_and_not_repeated(run: Run, kept: Path) -> None:
    for words in (
        (VALUE,),
        (VALUE, "more"),
        ("--value", VALUE),
        (f"--value={VALUE}",),
        (f"--{VALUE}",),
    ):
        ended = run("secrets", "set", "token", *words, *S1, stdin="another value")
        assert (ended.code, ended.out) == (2, "")
        assert VALUE not in ended.err
    ended = run("secrets", "set", f"token={VALUE}", *S1, stdin="another value")
    assert (ended.code, ended.out, VALUE in ended.err) == (2, "", False)
    assert [info["name"] for info in run("secrets", "list", *S1, "--json").json] == ["github", "mail"]


def test_on_a_terminal_the_value_is_asked_for_and_not_shown(kept: Path, command: list[str]) -> None:
    ours, theirs = pty.openpty()
    words = [*command, "secrets", "set", "token", *S1]
    # In a session of its own, for the terminal must be this one and not that of whoever runs the tests.
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, b"Value of token: ")
            os.write(ours, f"{VALUE}\n".encode())
            shown += read_until(ours, None)
            assert process.wait(30) == 0
        finally:
            os.close(ours)
            process.kill()
    assert VALUE.encode() not in shown
    assert b"token is set" in shown
    assert read("token") == VALUE


def test_names_are_listed_and_values_are_not(run: Run, kept: Path) -> None:
    ended = run("secrets", "list", *S1, "--json")
    assert [sorted(info) for info in ended.json] == [["created_at", "name", "updated_at"]] * 2
    assert [info["name"] for info in ended.json] == ["github", "mail"]
    shown = run("secrets", "list", *S1)
    assert "github" in shown.out
    assert VALUE not in f"{ended}{shown}"


def test_a_secret_is_removed(run: Run, kept: Path) -> None:
    assert run("secrets", "rm", "github", *S1) == (0, "github is removed\n", "")
    assert run("secrets", "rm", "mail", *S1, "--json").json == {"session": "s1", "name": "mail", "removed": True}
    assert read("github") is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("list", "--session", "nobody", *DB), "no session 'nobody'"),
        (("list", *DB), "--session"),
        (("list", "--session", "s1", "--db", "none.db"), "no store 'none.db'"),
        (("list", "--session", "s1", "--db", "kit.py"), "kit.py"),
        (("rm", "none", *S1), "no secret 'none'"),
        (("rm", "github", "--session", "nobody", *DB), "no session 'nobody'"),
        (("set", "bad\nname", *S1), "not usable"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_what_cannot_be_done_ends_with_two_and_says_why(
    run: Run, kept: Path, words: tuple[str, ...], says: str
) -> None:
    ended = run("secrets", *words, stdin=VALUE)
    assert (ended.code, ended.out) == (2, "")
    assert says in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "too short"),
        ("\n", "too short"),
        ("ab", "too short"),
        ("x" * (64 * 1024 + 1), "too long"),
        ("é" * 64 * 1024, "too long"),
        (b"\xff\xfe" * 8, "not text"),
    ],
    ids=["nothing", "a line", "short", "long", "very long", "binary"],
)
def test_a_value_that_is_none_is_refused_and_what_was_there_stays(
    run: Run, kept: Path, typed: str | bytes, says: str
) -> None:
    ended = run("secrets", "set", "github", *S1, stdin=typed)
    assert (ended.code, ended.out, says in ended.err) == (2, "", True)
    assert read("github") == f"{VALUE} of github"


@pytest.mark.parametrize("session", ["s1", "s2"])
def test_under_another_master_key_than_the_store_has_nothing_is_set(
    run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setenv(KEY, new_key())
    ended = run("secrets", "set", "token", "--session", session, *DB, stdin=VALUE)
    assert (ended.code, ended.out) == (2, "")
    assert "Nothing was set" in ended.err
    assert "which is not known" in ended.err
    assert [info["name"] for info in run("secrets", "list", *S1, "--json").json] == ["github", "mail"]


def test_a_secret_whose_key_is_lost_is_set_again(run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.with_name("agent.db.key").unlink()
    assert run("secrets", "set", "github", *S1, stdin=VALUE).code == 2
    assert not kept.with_name("agent.db.key").exists()
    assert run("secrets", "rm", "mail", *S1).code == 0
    assert run("secrets", "set", "github", *S1, stdin=VALUE).code == 0
    assert read("github") == VALUE


def test_a_master_key_that_is_none_is_named_and_not_shown(
    run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "nearly a key")
    ended = run("secrets", "set", "token", *S1, stdin=VALUE)
    assert (ended.code, KEY in ended.err) == (2, True)
    assert "nearly" not in ended.err
