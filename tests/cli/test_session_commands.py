"""`toolwright session` and `toolwright kv`: what sessions keep."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from toolwright import Runtime

DB = ("--db", "agent.db")
S1 = ("--session", "s1", *DB)


@pytest.fixture
def kept(project: Path) -> Path:
    """A store with a session that keeps something of everything."""

    async def fill() -> None:
        async with Runtime.open(project / "agent.db") as runtime:
            session = runtime.session("s1")
            for number in range(12):
                await session.messages.append(f"hello {number}\x1b[31m[red]", sender="user")
            await session.kv.set("a", {"b": 1})
            await session.kv.set("text", "plain")
            await session.resources.upsert("r1", kind="run", name="R", status="ok")
            await session.attachments.put(b"x", name="x.bin", media_type="a/b")
            await session.connect("github", detail={"login": "ada"})

    asyncio.run(fill())
    return project / "agent.db"


def test_sessions_are_listed_with_what_they_keep(run: Run, kept: Path) -> None:
    (found,) = run("session", "list", *DB, "--json").json
    assert (found["id"], found["calls"], found["unfinished"]) == ("s1", 0, 0)
    assert {name: usage["entries"] for name, usage in found["usage"].items()} == {
        "attachments": 1,
        "connections": 1,
        "key_values": 2,
        "messages": 12,
        "resources": 1,
    }
    out = run("session", "list", *DB).out
    assert "s1" in out
    assert "12 messages" in out


@pytest.mark.promise("SES-10")
def test_sessions_are_listed_and_shown_with_their_title_and_locale(run: Run, kept: Path) -> None:
    async def name() -> None:
        async with Runtime.open(kept) as runtime:
            await runtime.session("s1").details.set(title="Trip [red]to\x1b[31m Rome", locale="de")

    assert "title" not in run("session", "list", *DB).out
    asyncio.run(name())
    (found,) = run("session", "list", *DB, "--json").json
    assert (found["title"], found["locale"]) == ("Trip [red]to\x1b[31m Rome", "de")
    for words in (("list",), ("show", "s1")):
        out = run("session", *words, *DB).out
        assert "Trip [red]to" in out
        assert "\x1b[31m" not in out


def test_a_session_is_shown_with_its_latest_messages(run: Run, kept: Path) -> None:
    found = run("session", "show", "s1", *DB, "--json").json
    assert [message["number"] for message in found["messages"]] == list(range(3, 13))
    assert [info["key"] for info in found["keys"]] == ["a", "text"]
    assert (found["resources"][0]["id"], found["connections"][0]["detail"]) == ("r1", {"login": "ada"})
    out = run("session", "show", "s1", *DB).out
    for shown in ("hello 11", "[red]", "github", "x.bin", "r1"):
        assert shown in out
    assert "\x1b[31m" not in out


def test_a_session_goes_to_another_store_by_its_archive(run: Run, kept: Path, project: Path) -> None:
    ended = run("session", "export", "s1", "s1.zip", *DB)
    assert ended.code == 0
    assert "12 messages" in ended.out
    assert run("session", "export", "s1", "s1.zip", *DB).code == 2
    assert run("session", "export", "s1", "s1.zip", *DB, "--force", "--json").json["counts"]["messages"] == 12
    other = ("--db", "other.db")
    assert run("session", "import", "s1.zip", *other).code == 0
    refused = run("session", "import", "s1.zip", *other)
    assert (refused.code, "already" in refused.err) == (2, True)
    assert run("session", "import", "s1.zip", *other, "--replace").code == 0
    assert run("session", "import", "s1.zip", *other, "--as", "s2", "--json").json["session"] == "s2"
    assert [info["id"] for info in run("session", "list", *other, "--json").json] == ["s1", "s2"]
    assert run("kv", "get", "text", "--session", "s2", *other).out == "plain\n"


def test_a_session_is_deleted_after_a_yes(run: Run, kept: Path) -> None:
    for words in ((), ("--json",)):
        refused = run("session", "delete", "s1", *DB, *words)
        assert (refused.code, refused.out, "add --yes" in refused.err) == (2, "", True)
    assert run("session", "delete", "s1", *DB, "--yes").out == "s1 is removed\n"
    assert run("session", "list", *DB, "--json").json == []
    assert run("session", "delete", "s1", *DB, "--yes").code == 2


def test_a_session_with_something_unfinished_stays(run: Run, left: Callable[..., Path]) -> None:
    left({"id": "d1", "name": "die"})
    assert run("session", "list", *DB, "--json").json[0]["unfinished"] == 1
    refused = run("session", "delete", "s1", *DB, "--yes")
    assert (refused.code, "1 unfinished" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("session", "show", "nobody", *DB),
        ("session", "export", "nobody", "n.zip", *DB),
        ("session", "import", "none.zip", *DB),
        ("session", "import", "kit.py", *DB),
        ("session", "list", "--db", "none.db"),
        ("session", "list", "--db", "kit.py"),
        ("session", "import", "none.zip", "--db", "kit.py"),
        ("kv", "get", "none", *S1),
        ("kv", "rm", "none", *S1),
        ("kv", "set", "a", "not json", *S1),
        ("kv", "set", "a\n", "1", *S1),
        ("kv", "list", *DB),
        ("kv", "list", "--session", "none", *DB),
        ("kv", "list", "--session", "none", *DB, "--json"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_ends_with_two_and_says_why(run: Run, kept: Path, words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err


def test_keys_are_listed_read_written_and_removed(run: Run, kept: Path) -> None:
    def keys(*words: Any) -> list[str]:
        return [info["key"] for info in run("kv", "list", *words, *S1, "--json").json]

    assert keys() == ["a", "text"]
    assert keys("te") == ["text"]
    assert "text" in run("kv", "list", *S1).out
    assert run("kv", "get", "a", *S1).out == '{"b":1}\n'
    assert run("kv", "get", "text", *S1, "--json").json == "plain"
    assert run("kv", "set", "n", "[1,2]", *S1).out == "n is set\n"
    assert run("kv", "set", "m", "-", *S1, "--json", stdin='"in"').json["value"] == "in"
    assert run("kv", "get", "n", *S1, "--json").json == [1, 2]
    assert run("kv", "rm", "n", *S1).out == "n is removed\n"
    assert run("kv", "rm", "m", *S1, "--json").json["removed"]
    assert keys() == ["a", "text"]
    assert run("kv", "set", "z", "0", "--session", "s2", *DB).out == "z is set\n"
    assert run("kv", "get", "z", "--session", "s2", *DB).out == "0\n"
    assert run("kv", "rm", "z", "--session", "s2", *DB).code == 0


def test_no_id_of_a_session_steers_the_terminal(run: Run, left: Callable[..., Path]) -> None:
    evil = "\x1b[2Js\x9b1m"
    left({"id": "\x1b[31mc1", "name": "launch", "arguments": {}}, session=evil)
    for words in (["session", "list"], ["session", "show", evil], ["batches"], ["approvals"]):
        ended = run(*words, *DB)
        assert ended.code == 0, ended.err
        assert "[2Js" in ended.out
        assert not {"\x1b", "\x9b"} & set(ended.out)
    ended = run("kv", "set", "k", "1", "--session", evil, *DB)
    assert ended.code == 0
    assert "\x1b" not in run("session", "delete", evil, "--yes", *DB).err
