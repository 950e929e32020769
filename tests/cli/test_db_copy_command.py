"""`toolwright db copy`: a whole store to another place."""

import asyncio
import base64
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.postgres_server import PostgresServer
from toolwright import Runtime
from toolwright.stores import copying

NOTE = {"id": "n1", "name": "note", "arguments": {"text": "x"}}
pytestmark = pytest.mark.promise("ENG-01")


def set_secret(store: str) -> None:
    async def work() -> None:
        async with Runtime.open(store, worker=False) as runtime:
            await runtime.session("s1").secrets.set("token", "opensesame-123")

    asyncio.run(work())


def get_secret(store: str) -> str | None:
    async def work() -> str | None:
        async with Runtime.open(store, worker=False) as runtime:
            return await runtime.session("s1").secrets.get("token")

    return asyncio.run(work())


def test_a_copy_is_made_once_and_said_to_be_there_then(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    first = run("db", "copy", "agent.db", "copy.db")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith("Copied agent.db to copy.db: ")
    assert "with the same counts and hashes of their content" in first.out
    assert "use one of them only" in first.out
    assert "master key" not in first.out
    assert run("db", "copy", "agent.db", "copy.db").out.startswith("All of agent.db is in copy.db already: ")
    assert run("db", "stats", "--db", "copy.db", "--json").json["calls"] == {"success": 1}
    found = run("db", "copy", "agent.db", "copy.db", "--json").json
    assert (found["written"], found["master_keys"], found["key_file"]) == (0, [], None)
    assert found["tables"]["calls"]["rows"] == 1
    assert found["rows"] == sum(table["rows"] for table in found["tables"].values())


def test_what_cannot_be_copied_is_an_error_with_the_remedy(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE)
    Path("other.db").write_text("text")
    for source, target, told in [
        ("missing.db", "copy.db", "There is no store 'missing.db'; check the path"),
        ("agent.db", "agent.db", "cannot be copied to itself; name another target"),
        ("agent.db", "other.db", "is not a SQLite database; choose another file"),
        ("agent.db", ":memory:", "name a file or a URL"),
        ("agent.db", "nowhere://one", "has the scheme 'nowhere', which is not known"),
    ]:
        ended = run("db", "copy", source, target)
        assert (ended.code, ended.out) == (2, ""), target
        assert told in ended.err
    assert "error" in run("db", "copy", "agent.db", "agent.db", "--json").err


def test_the_line_that_takes_the_master_key_along_does(
    run: Run, left: Callable[..., Path], postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(NOTE)
    set_secret("agent.db")
    (beside,) = [line for line in run("db", "copy", "agent.db", "a copy.db").out.splitlines() if line.startswith("  ")]
    subprocess.run(shlex.split(beside), check=True)
    assert get_secret("a copy.db") == "opensesame-123"
    with postgres.schema() as schema:
        url = f"{postgres.url}?schema={schema}"
        postgres.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        told = run("db", "copy", "agent.db", url).out
        (line,) = [line for line in told.splitlines() if line.startswith("  ")]
        command = f'{line.strip()}; printf %s "$TOOLWRIGHT_MASTER_KEY"'
        key = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout
        assert len(base64.b64decode(key)) == 32
        assert key not in told
        monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", key)
        assert get_secret(url) == "opensesame-123"


def test_ctrl_c_leaves_a_copy_that_continues(
    run: Run, left: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(NOTE)

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(copying._Copy, "_note_masters", interrupt)
        ended = run("db", "copy", "agent.db", "copy.db")
    assert (ended.code, ended.out) == (130, "")
    assert "give the same command again to continue" in ended.err
    assert "is the unfinished copy of another store" in run("batches", "--db", "copy.db").err
    assert run("db", "copy", "agent.db", "copy.db").code == 0
    assert len(run("batches", "--db", "copy.db", "--json").json) == 1
