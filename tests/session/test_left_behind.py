"""What is over leaves nothing behind: no memory of sessions that are gone, no halves of archives."""

import fcntl
import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from toolwright import Runtime, ToolCall, ToolContext, tool


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_sessions_that_are_deleted_and_children_whose_call_is_over_take_no_memory(tmp_path: Path, place: str):
    @tool
    async def opens(ctx: ToolContext) -> None:
        await ctx.open_child("child").kv.set("k", 1)

    store = ":memory:" if place == "memory" else tmp_path / "agent.db"
    async with Runtime.open(store, tools=[opens], sync="normal") as runtime:

        async def use(numbers: range) -> None:
            for number in numbers:
                session = runtime.session(f"s{number}")
                await session.run_batch([ToolCall(name="opens")])
                del session
                await runtime.delete_session(f"s{number}")
            gc.collect()

        await use(range(20))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await use(range(20, 120))
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()

    # The record of each call stays for a while, which is some hundred bytes; a session and a child take 5,000.
    assert grown / 100 < 2_000


async def test_what_a_killed_export_left_is_removed_by_the_next_and_one_under_way_stays(tmp_path: Path):
    archive = tmp_path / "session.zip"
    left, under_way, other = (
        tmp_path / name
        for name in (".session.zip.part_killed", ".session.zip.part_under_way", ".other.zip.part_killed")
    )
    for path in (left, under_way, other):
        path.write_bytes(b"half")
        os.utime(path, (1, 1))
    async with Runtime.open(tmp_path / "agent.db") as runtime:
        await runtime.session("s").kv.set("k", 1)
        with under_way.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            await runtime.export_session("s", archive)

    assert (left.exists(), under_way.exists(), other.exists(), archive.exists()) == (False, True, True, True)
