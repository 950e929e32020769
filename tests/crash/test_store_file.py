"""A store is its file, however the path is spelled; and a file that is gone acknowledges nothing."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite.admin.maintenance import prune

CALL = ToolCall(id="c1", name="hold")
HOLD = """
import os

@tool
async def hold() -> str:
    note("held")
    say("inside")
    await hear()
    return "held by another"

async def main():
    async with Runtime.open(spelling, tools=[hold]) as runtime:
        os.chdir("/")
        await runtime.session("s").run_batch([ToolCall(id="c1", name="hold")])
        say("done")
"""


@tool(name="hold", on_crash="rerun")
async def forbidden() -> str:
    raise AssertionError("The call runs in another process.")


@pytest.mark.promise("EFF-12")
@pytest.mark.parametrize("spelling", ["agent.db", "./down/../agent.db", "linked.db", "linked/agent.db"])
async def test_an_owner_is_alive_however_it_and_others_spell_the_path_of_the_store(crashes, spelling):
    folder = crashes.folder
    (folder / "down").mkdir()
    (folder / "linked.db").symlink_to("agent.db")
    (folder / "linked").symlink_to(folder)
    other = crashes.start(HOLD, spelling=spelling)
    assert other.hear() == "inside"

    for here in (folder / "agent.db", folder / "linked.db", folder / "linked" / "linked.db"):
        async with fail_after(10), Runtime.open(here, tools=[forbidden]) as runtime:
            assert await runtime.recover() == []
    async with fail_after(10), Runtime.open(crashes.store, tools=[forbidden]) as runtime:
        batch = runtime.session("s").start_batch([CALL])
        other.tell("go")
        (outcome,) = await batch
    assert other.wait().said == ["done"]

    assert (outcome.value, crashes.ledger) == ("held by another", ["held"])


@pytest.mark.promise("EFF-12")
async def test_a_program_that_changed_its_directory_still_sees_that_another_owner_lives(crashes, monkeypatch):
    other = crashes.start(HOLD, spelling="agent.db")
    assert other.hear() == "inside"
    monkeypatch.chdir(crashes.folder)
    async with fail_after(10), Runtime.open("agent.db", tools=[forbidden]) as runtime:
        monkeypatch.chdir("/")
        assert await runtime.recover() == []
        batch = runtime.session("s").start_batch([CALL])
        other.tell("go")
        (outcome,) = await batch
    other.wait()

    assert outcome.value == "held by another"


@pytest.mark.promise("EFF-12")
async def test_owners_find_each_other_after_the_directory_of_the_store_was_moved(crashes):
    before, after = crashes.folder / "before", crashes.folder / "after"
    before.mkdir()
    other = crashes.start(HOLD, spelling=str(before / "agent.db"))
    assert other.hear() == "inside"
    async with fail_after(10), Runtime.open(before / "agent.db", tools=[forbidden]) as first:
        before.rename(after)
        async with Runtime.open(after / "agent.db", tools=[forbidden]) as second:
            assert await first.recover() == await second.recover() == []
            batch = second.session("s").start_batch([CALL])
            other.tell("go")
            (outcome,) = await batch
    other.wait()

    assert outcome.value == "held by another"


@pytest.mark.promise("EFF-12")
async def test_a_file_with_several_names_is_refused_because_each_name_would_have_its_own_log(tmp_path: Path):
    async with Runtime.open(tmp_path / "agent.db") as runtime:
        os.link(tmp_path / "agent.db", tmp_path / "hard.db")
        await runtime.session("s").kv.set("k", 1)
        with pytest.raises(StoreError, match=r"2 names \(hard links\).*; remove the other names"):
            await Runtime.open(tmp_path / "hard.db")
    (tmp_path / "hard.db").unlink()

    async with Runtime.open(tmp_path / "agent.db") as runtime:
        assert await runtime.session("s").kv.get("k") == 1


def delete(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    shutil.copy(file, file.with_name("copy"))
    file.with_name("copy").replace(file)


def move_away(file: Path) -> None:
    file.rename(file.with_name("moved.db"))


def delete_the_log(file: Path) -> None:
    file.with_name(file.name + "-wal").unlink()


@pytest.mark.promise("EFF-07")
@pytest.mark.parametrize("harm", [delete, replace, move_away, delete_the_log])
@pytest.mark.parametrize("sync", ["full", "normal"])
async def test_a_store_whose_file_is_gone_acknowledges_nothing_more(tmp_path: Path, harm, sync):
    file = tmp_path / "agent.db"
    ran = []

    @tool
    async def send() -> str:
        ran.append("sent")
        return "sent"

    async with fail_after(10), Runtime.open(file, tools=[send], sync=sync) as runtime:
        session = runtime.session("s")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="send")])
        await session.kv.set("k", 1)
        assert await session.kv.get("k") == 1
        harm(file)

        with pytest.raises(StoreError, match=r"was (deleted or moved|replaced) while this program had it open"):
            await session.run_batch([ToolCall(id="c2", name="send")])
        with pytest.raises(StoreError, match="end the program, put the file back or restore a copy"):
            await session.kv.set("k", 2)
        with pytest.raises(StoreError, match="can store nothing more"):
            await session.kv.get("k")

    assert (outcome.value, ran) == ("sent", ["sent"])


@pytest.mark.promise("EFF-07")
async def test_a_store_whose_file_was_put_back_goes_on(tmp_path: Path):
    file, aside = tmp_path / "agent.db", tmp_path / "aside"
    async with Runtime.open(file) as runtime:
        kv = runtime.session("s").kv
        await kv.set("k", 1)
        file.rename(aside)
        with pytest.raises(StoreError, match="was deleted or moved"):
            await kv.set("k", 2)
        aside.rename(file)
        assert await kv.get("k") == 1
        await kv.set("k", 3)
    async with Runtime.open(file) as runtime:
        assert await runtime.session("s").kv.get("k") == 3


def empty(file: Path) -> None:
    os.truncate(file, 0)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.promise("EFF-07")
@pytest.mark.parametrize("harm", [empty, halve])
async def test_a_store_whose_file_was_truncated_acknowledges_nothing_more(tmp_path: Path, harm):
    file = tmp_path / "agent.db"
    ran = []

    @tool
    async def send() -> str:
        ran.append("sent")
        return "sent"

    async with fail_after(10), Runtime.open(file, tools=[send]) as runtime:
        session = runtime.session("s")
        await session.run_batch([ToolCall(id="c1", name="send")])
        harm(file)
        for _ in range(2):
            with pytest.raises(StoreError, match="was truncated while this program had it open; end the program"):
                await session.run_batch([ToolCall(id="c2", name="send")])

    assert ran == ["sent"]


@pytest.mark.promise("EFF-07")
async def test_a_store_that_another_program_made_shorter_continues(tmp_path: Path):
    file = tmp_path / "agent.db"
    async with fail_after(20), Runtime.open(file) as runtime:
        kv = runtime.session("s").kv
        await kv.set("k", "x" * 1_000_000)
        await prune(file, None, vacuum=True)  # moves the log to the file
        await kv.set("k", 1)
        before = file.stat().st_size
        await prune(file, None, vacuum=True)
        assert file.stat().st_size < before
        await kv.set("k", 2)
        assert await kv.get("k") == 2
