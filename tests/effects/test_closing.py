"""What a runtime that is closed in the middle of its work leaves behind."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, RuntimeClosed, StoreError, ToolCall, tool
from toolwright.effects.memory import MemoryDatabase, MemoryStore


@pytest.mark.promise("EFF-05")
@pytest.mark.parametrize(("hint", "action"), [({"readonly": True}, "rerun"), ({}, "interrupted")])
async def test_a_call_cut_off_by_closing_follows_its_crash_policy_like_one_cut_off_by_a_crash(tmp_path, hint, action):
    begun = asyncio.Event()
    answers = iter([asyncio.Event().wait, lambda: asyncio.sleep(0, "done")])

    @tool(**hint)
    async def work() -> Any:
        begun.set()
        return await next(answers)()

    async with fail_after(10):
        runtime = await Runtime.open(tmp_path / "a.db", tools=[work])
        batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work")])
        await begun.wait()
        await runtime.close()
        assert (await batch)[0].status == "cancelled"
        async with Runtime.open(tmp_path / "a.db", tools=[work]) as again:
            (recovered,) = await again.recover()
    assert recovered.action == action
    assert recovered.outcome.status == ("success" if action == "rerun" else "failure")


@pytest.mark.promise("RUN-10")
async def test_a_closed_runtime_takes_no_subscribers():
    async with Runtime.open() as runtime:
        session = runtime.session("s")
    for subscribe in (runtime.subscribe, session.subscribe):
        with pytest.raises(RuntimeClosed):
            subscribe()


@pytest.mark.parametrize("place", [None, 3, "", "a\0b"])
async def test_what_is_no_path_opens_no_store(place):
    with pytest.raises(StoreError, match="not usable"):
        await Runtime.open(place)


async def test_a_runtime_opens_on_a_store_of_ones_own_and_closes_it():
    rows = MemoryDatabase()

    @tool
    async def work() -> int:
        return 7

    calls = [ToolCall(id="c1", name="work", arguments={})]
    for replayed in (False, True):
        async with Runtime.open(MemoryStore(rows), tools=[work]) as runtime:
            (outcome,) = await runtime.session("s").run_batch(calls)
            assert (outcome.value, outcome.replayed) == (7, replayed)
        assert rows.owners == set()
