"""What a runtime writes to the disk can be read by its owner only, whatever the umask."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolwright import Policy, Runtime, StoreError, ToolCall, tool
from toolwright.stores import copy_store


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{stat.S_IMODE(path.stat().st_mode):04o}"
        for path in folder.rglob("*")
        if path.is_file()
    }


@tool
async def talk() -> str:
    return "long\n" * 20_000


@pytest.mark.promise("SAFE-03")
@pytest.mark.usefixtures("umask")
async def test_every_file_that_a_runtime_makes_is_its_owners(file, open_runtime):
    spills = file.parent / "spills"
    spills.mkdir()
    spills.chmod(0o700)
    runtime = await open_runtime(file, talk, events_file=file.parent / "events.jsonl", policy=Policy(spill_dir=spills))
    session = runtime.session("s")
    await session.secrets.set("k", "correct horse")
    await session.run_batch([ToolCall(name="talk")])
    await runtime.export_session("s", file.parent / "s.zip")
    found = modes(file.parent)
    assert {"agent.db", "agent.db-wal", "agent.db-shm", "agent.db.key", "events.jsonl", "s.zip"} <= set(found)
    assert any("-owner-" in name for name in found)
    assert any(name.startswith("spills/") for name in found)
    assert set(found.values()) == {"0600"}, found


@pytest.mark.promise("SAFE-03")
@pytest.mark.usefixtures("umask")
async def test_the_copy_of_a_store_is_its_owners(file, open_runtime):
    await (await open_runtime(file, talk)).close()
    seen = set[str]()
    await copy_store(file, file.parent / "copy.db", tell=lambda progress: seen.update(modes(file.parent).values()))
    assert "copy.db" in modes(file.parent)
    assert {*seen, *modes(file.parent).values()} == {"0600"}


@pytest.mark.promise("SAFE-03")
@pytest.mark.parametrize(("before", "after"), [(0o644, "0600"), (0o666, "0660"), (0o660, "0660"), (0o640, "0600")])
async def test_files_that_others_may_read_are_taken_from_them_and_a_group_that_may_write_keeps_them(
    file, open_runtime, before, after
):
    events = file.parent / "events.jsonl"
    runtime = await open_runtime(file, talk, events_file=events)
    await runtime.session("s").kv.set("a", 1)
    await runtime.close()
    file.chmod(before)
    events.chmod(before)
    runtime = await open_runtime(file, talk, events_file=events)
    assert await runtime.session("s").kv.get("a") == 1
    assert {mode for name, mode in modes(file.parent).items() if "owner" not in name and "key" not in name} == {after}


def write_text(file: Path) -> None:
    file.write_text("my notes\n" * 200)


def make_database(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE notes (body TEXT)")
    connection.close()


@pytest.mark.promise("SAFE-03")
@pytest.mark.parametrize("make", [write_text, make_database])
async def test_a_file_of_another_program_is_refused_and_keeps_its_mode(tmp_path, make):
    file = tmp_path / "notes"
    make(file)
    file.chmod(0o644)
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"not a SQLite database|belongs to another program"):
        await Runtime.open(file)
    assert modes(tmp_path)["notes"] == "0644"
    assert file.read_bytes() == before
