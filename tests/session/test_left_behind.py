"""What is over leaves nothing behind: no memory of sessions that are gone, no halves of archives."""

import asyncio
import fcntl
import gc
import os
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from toolwright import Policy, Rule, Runtime, ToolCall, ToolContext, tool
from toolwright.effects.memory_rows import CallRow
from toolwright.errors import RunError
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.conformance.cases import intent


async def memory_kept(use: Callable[[range], Awaitable[None]]) -> float:
    """Bytes that stay for each session that is used, after the first ones."""
    await use(range(20))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        await use(range(20, 120))
        return (tracemalloc.get_traced_memory()[0] - before) / 100
    finally:
        tracemalloc.stop()


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

        kept = await memory_kept(use)

    # The record of each call stays for a while, which is some hundred bytes; a session and a child take 5,000.
    assert kept < 2_000


async def test_what_calls_waited_for_is_forgotten_when_their_session_is_deleted():
    keys: asyncio.Queue[str] = asyncio.Queue()

    @tool
    async def waits(ctx: ToolContext) -> object:
        key = ctx.event_key("go")
        keys.put_nowait(key)
        return await ctx.wait(key)

    async with Runtime.open(tools=[waits]) as runtime:
        for number in range(2_100):
            batch = runtime.session(f"s{number}").start_batch([ToolCall(name="waits")])
            await runtime.resolve(await keys.get(), number)
            assert [outcome.value for outcome in await batch] == [number]
            await runtime.delete_session(f"s{number}")
        del batch
        gc.collect()
        assert sum(type(each) is CallRow for each in gc.get_objects()) < 1_100  # they are dropped by the thousand


async def cut_off(path: Path, *sessions: str) -> None:
    """Leave a call unfinished in each of these sessions, as a process does that is killed."""
    store = await SqliteStore.open(path)
    await store.journal.begin([intent(CallKey(session, "", "c1")) for session in sessions])
    await store.close()


@tool(readonly=True)
async def book() -> str:
    return "booked"


async def test_sessions_whose_calls_were_recovered_take_no_memory(tmp_path: Path):
    path = tmp_path / "agent.db"
    async with Runtime.open(path, tools=[book], sync="normal") as runtime:

        async def recover(numbers: range) -> None:
            await cut_off(path, *(f"s{number}" for number in numbers))
            recovered = await runtime.recover()
            assert [each.outcome.value for each in recovered] == ["booked"] * len(numbers)
            gc.collect()

        kept = await memory_kept(recover)

    assert kept < 2_000


async def test_a_session_whose_calls_were_recovered_is_set_up_by_the_program_afterwards(tmp_path: Path):
    path = tmp_path / "agent.db"
    await cut_off(path, "s")
    async with Runtime.open(path, tools=[book]) as runtime:
        assert [each.action for each in await runtime.recover()] == ["rerun"]
        session = runtime.session("s", policy=Policy(rules=[Rule("deny", "book")]))
        (outcome,) = await session.run_batch([ToolCall(id="c2", name="book")])
    assert outcome.failure.code == "denied"


async def test_the_sessions_of_triggers_take_no_memory_when_an_occurrence_is_refused(tmp_path: Path):
    @tool(supports_background=True)
    async def tell() -> None: ...

    path = tmp_path / "agent.db"
    async with Runtime.open(path, tools=[tell], sync="normal") as runtime:
        for number in range(120):
            await runtime.session(f"s{number}").on(f"news {number}", "tell")
            await runtime.occur(f"news {number}", 1, key=f"{number}")
    async with Runtime.open(path, tools=[tell], worker=False) as runtime:

        async def refused(numbers: range) -> None:
            for number in numbers:
                with pytest.raises(RunError, match="another payload"):
                    await runtime.occur(f"news {number}", 2, key=f"{number}")
            gc.collect()

        kept = await memory_kept(refused)

    assert kept < 2_000


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
