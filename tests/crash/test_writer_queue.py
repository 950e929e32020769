"""Programs that write to one file take turns, keep its log short, and say so when they have to wait for too long."""

import asyncio
import time
from pathlib import Path

import apsw
import pytest

from tests.crash.slow_disk import measure
from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.cli import doctor
from toolwright.errors import StoreError
from toolwright.stores.sqlite.admin.maintenance import prune, stats
from toolwright.stores.sqlite.core import side_connection, writer
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer_queue import WriterQueue

PAGE = 4096


@tool(on_crash="rerun")
async def look() -> str:
    return "seen"


@pytest.mark.promise("EFF-12")
async def test_programs_on_a_slow_disk_write_equally_often_and_none_fails(tmp_path: Path):
    seen = await asyncio.to_thread(measure, tmp_path, 4, sync_ms=30, seconds=3)

    assert seen["errors"] == []
    assert seen["slowest"] >= 0.5 * seen["fastest"], seen
    assert seen["longest"] < 1.5, seen  # four syncs and some checkpoints


@pytest.mark.promise("EFF-12")
async def test_the_log_stays_short_while_two_programs_write_all_the_time(tmp_path: Path):
    seen = await asyncio.to_thread(measure, tmp_path, 2, sync="normal", calls=40, seconds=3)

    assert seen["errors"] == []
    assert seen["batches"] > 100, "The test wrote too little to tell."
    assert seen["largest_log"] < 3 * writer.CHECKPOINT * PAGE, seen


@pytest.mark.promise("EFF-12")
async def test_the_log_becomes_short_again_after_a_reader_has_kept_it_long(tmp_path: Path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "CHECKPOINT", 10)
    monkeypatch.setattr(writer, "LARGEST_LOG", 40)
    monkeypatch.setattr(writer, "LOG_BYTES", 20 * PAGE)
    monkeypatch.setattr(writer, "LAID_OUT", 20 * PAGE)
    monkeypatch.setattr(writer, "READERS", 10)
    file, log = tmp_path / "agent.db", tmp_path / "agent.db-wal"
    async with fail_after(20), Runtime.open(file) as runtime:
        session = runtime.session("s")
        reader = apsw.Connection(str(file))
        reader.execute("BEGIN; SELECT count(*) FROM calls").fetchall()
        for number in range(200):
            await session.kv.set(f"k{number}", "x" * 1_000)
        long = log.stat().st_size
        shown = (await stats(file)).log_bytes
        monkeypatch.setattr(doctor, "LONGEST_LOG", 100 * PAGE)
        advice = [finding.said for finding in await doctor.examine(str(file), None) if "log beside" in finding.said]
        reader.close()
        for number in range(80):
            await session.kv.set(f"k{number}", "y" * 1_000)

        assert long > 200 * PAGE
        assert log.stat().st_size < 60 * PAGE
    assert shown == long
    assert len(advice) == 1
    lines = [line for line in caplog.records if getattr(line, "action", "") == "store.log_grows"]
    assert len(lines) == 1, "It is told once, and not with each commit."
    assert str(file) in lines[0].getMessage()


@pytest.mark.promise("EFF-12")
async def test_a_program_that_writes_at_once_again_stays_first_until_others_have_waited_for_long_enough(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(writer, "PAUSE", 60.0)
    monkeypatch.setattr(writer, "STAY", 60.0)
    file = tmp_path / "agent.db"
    async with fail_after(20), Runtime.open(file) as runtime:
        session = runtime.session("s")
        with StorePlace(file) as place:
            other = WriterQueue(place)
            assert other.take(5)  # It takes part from now on.
            other.give_back()
            for number in range(20):
                await session.kv.set(f"k{number}", number)
            drawn = int.from_bytes(file.with_name("agent.db-turns").read_bytes()[:8], "little")
            assert drawn <= 4, "It drew a number for each transaction."
            assert not other.take(0.01)
            await session.kv.set("more", 1)
            assert not other.take(0.01)
            monkeypatch.setattr(writer, "STAY", 0.0)
            await session.kv.set("last", 1)
            assert await asyncio.to_thread(other.take, 10)
            other.give_back()
            other.close(last=False)


@pytest.mark.promise("EFF-12")
async def test_a_program_that_has_nothing_more_to_write_leaves_the_queue(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(writer, "PAUSE", 0.3)
    monkeypatch.setattr(writer, "STAY", 60.0)
    file = tmp_path / "agent.db"
    async with fail_after(20), Runtime.open(file) as runtime:
        session = runtime.session("s")
        with StorePlace(file) as place:
            other = WriterQueue(place)
            assert other.take(5)
            other.give_back()
            for number in range(5):
                await session.kv.set(f"k{number}", number)
            assert await asyncio.to_thread(other.take, 10)
            other.give_back()
            other.close(last=False)


@pytest.mark.promise("EFF-12")
async def test_a_program_that_stands_still_in_the_queue_stops_nobody(crashes):
    first = crashes.start("""
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer_queue import WriterQueue

async def main():
    assert WriterQueue(StorePlace(store)).take(5)
    say("in turn")
    await hear()
""")
    assert first.hear() == "in turn"
    first.freeze()

    async with fail_after(20), Runtime.open(crashes.store, tools=[look]) as runtime:
        for number in range(3):
            (outcome,) = await runtime.session("s").run_batch([ToolCall(id=f"c{number}", name="look")])
            assert outcome.value == "seen"
        first.kill()
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="after", name="look")])

    assert outcome.value == "seen"


@pytest.mark.promise("EFF-12")
async def test_the_turn_of_a_program_that_is_killed_comes_to_the_next(crashes, monkeypatch):
    monkeypatch.setattr(writer, "STALL", 60.0)  # by the queue alone
    queued = """
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.core.writer_queue import WriterQueue

async def main():
    say(WriterQueue(StorePlace(store)).take(0.01))
    await hear()
"""
    async with fail_after(20), Runtime.open(crashes.store, tools=[look]) as runtime:
        first = crashes.start(queued)
        assert first.hear() is True
        second = crashes.start(queued)
        assert second.hear() is False
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="look")])
        second.kill()
        first.kill()
        (outcome,) = await batch

    assert outcome.value == "seen"


@pytest.mark.promise("EFF-07")
async def test_a_program_that_waited_too_long_for_its_turn_is_told_how_long(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(writer, "STALL", 0.05)
    monkeypatch.setattr(writer, "PATIENCE", 0.2)
    file = tmp_path / "agent.db"
    async with fail_after(10), Runtime.open(file, tools=[look]) as runtime:
        session = runtime.session("s")
        await session.run_batch([ToolCall(id="c1", name="look")])
        with StorePlace(file) as place:
            other, holder = WriterQueue(place), apsw.Connection(str(file))
            assert other.take(1)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"is busy: this program waited 0 s .*; let fewer programs write"):
                await session.run_batch([ToolCall(id="c2", name="look")])
            holder.close()
            other.give_back()
            (outcome,) = await session.run_batch([ToolCall(id="c2", name="look")])
            other.close(last=False)

    assert outcome.value == "seen"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.db"]


@pytest.mark.promise("EFF-12")
async def test_a_prune_waits_for_its_turn_among_those_who_write(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(side_connection, "STALL", 30.0)
    file = tmp_path / "agent.db"
    async with fail_after(20), Runtime.open(file, tools=[look]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="look")])
        with StorePlace(file) as place:
            other = WriterQueue(place)
            assert other.take(5)
            pruning = asyncio.ensure_future(prune(file, time.time() + 60))
            assert not (await asyncio.wait({pruning}, timeout=0.5))[0], "It did not wait."
            other.give_back()
            assert (await pruning).calls == 1
            other.close(last=False)
