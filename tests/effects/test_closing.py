"""What a runtime that is closed in the middle of its work leaves behind."""

import asyncio
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, RuntimeClosed, StoreError, ToolCall, tool
from toolwright.stores.sqlite.store import SqliteStore


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


async def test_a_store_that_was_open_already_is_closed_with_its_runtime(file):
    @tool
    async def pay(amount: int) -> str:
        return "paid"

    call = ToolCall(id="c1", name="pay", arguments={"amount": 5})
    async with Runtime.open(SqliteStore(file), tools=[pay]) as runtime:
        await runtime.session("s").run_batch([call])
    assert [path.name for path in file.parent.iterdir()] == ["agent.db"]

    async with Runtime.open(file, tools=[pay]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([call])
    assert outcome.replayed
