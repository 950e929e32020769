"""What a runtime that is closed in the middle of its work leaves behind."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after, until
from toolwright import Policy, Runtime, RuntimeClosed, StoreError, ToolCall, ToolContext, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import slots_in_use


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


@pytest.mark.promise("EFF-05", "EFF-06")
async def test_a_cut_off_call_that_is_cancelled_before_it_runs_again_keeps_what_it_did(file, open_runtime):
    paid, hold = [], asyncio.Event()

    async def pay() -> int:
        paid.append(1)
        return len(paid)

    @tool(idempotent=True)
    async def work(ctx: ToolContext) -> int:
        done = await ctx.step("pay", pay, on_crash="fail")
        await hold.wait()
        return done

    @tool
    async def block() -> None:
        await hold.wait()

    calls = [ToolCall(id="c1", name="work", arguments={})]
    async with fail_after(10):
        first = await open_runtime(file, work)
        first.session("s").start_batch(calls)
        await until(lambda: paid)
        await first.close()

        second = await open_runtime(file, work, block)
        session = second.session("s")
        blocking = session.start_batch([ToolCall(id="c0", name="block", arguments={})])
        await until(lambda: slots_in_use(session))
        batch = session.start_batch(calls)
        await until(lambda: (past := batch.calls[0].past) is not None and past.recovered == "rerun")
        batch.cancel()
        assert (await batch)[0].status == "cancelled"
        hold.set()
        await blocking
        (outcome,) = await session.run_batch(calls)
    assert (outcome.value, paid) == (1, [1])


@pytest.mark.promise("EFF-05")
async def test_a_cut_off_call_that_is_cancelled_while_a_person_is_asked_about_it_is_still_in_doubt(file, open_runtime):
    ran = []

    @tool(on_crash="ask")
    async def work() -> int:
        ran.append(1)
        if len(ran) == 1:
            await asyncio.Event().wait()
        return len(ran)

    calls = [ToolCall(id="c1", name="work", arguments={})]
    async with fail_after(10):
        first = await open_runtime(file, work)
        first.session("s").start_batch(calls)
        await until(lambda: ran)
        await first.close()

        second = await open_runtime(file, work)
        for last in (False, True):
            events = second.subscribe()
            batch = second.session("s").start_batch(calls)
            assert (await waiting(events)).what == "crash"
            if not last:
                batch.cancel()
                assert (await batch)[0].status == "cancelled"
        assert ran == [1]
        (approval,) = await second.approvals()
        await second.approve(approval.key)
        (outcome,) = await batch
    assert (outcome.value, ran) == (2, [1, 1])


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


@pytest.mark.promise("CANCEL-02")
async def test_a_close_that_is_cancelled_is_finished_by_the_next_one(file, open_runtime):
    begun, end = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        begun.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    def writers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "toolwright-journal"]

    others = len(writers())
    runtime = await open_runtime(file, stubborn, policy=Policy(grace=3600))
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="stubborn")])
    async with fail_after(10):
        await begun.wait()
        closing = asyncio.create_task(runtime.close())
        for _ in range(3):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not batch.done
        again = asyncio.create_task(runtime.close())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not again.done()
        end.set()
        await again
        assert batch.done
        assert len(writers()) == others
        await runtime.close()


@pytest.mark.promise("CANCEL-01", "CANCEL-02", "SCHED-06")
@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_calls_that_are_nested_deeper_than_the_stack_can_be_cancelled(place, open_runtime, how):
    reached, depth = asyncio.Event(), 1100

    @tool(parallel=True)
    async def descend(ctx: ToolContext, left: int) -> str:
        if left == 0:
            reached.set()
            await asyncio.Event().wait()
        return (await ctx.call("descend", left=left - 1)).status

    policy = Policy(on_loop="ignore", timeout=3600, max_nesting=2000)
    runtime = await open_runtime(place, descend, policy=policy)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="descend", arguments={"left": depth})])
    async with fail_after(60):
        await reached.wait()
        if how == "cancel":
            batch.cancel()
            (outcome,) = await batch
            assert outcome.status in ("cancelled", "success")
        await runtime.close()
    assert batch.done


@pytest.mark.promise("SCHED-06")
async def test_calls_are_nested_no_deeper_than_the_policy_says(place, open_runtime):
    @tool(parallel=True)
    async def descend(ctx: ToolContext, left: int) -> str:
        outcome = await ctx.call("descend", left=left - 1)
        return outcome.value if outcome.ok else f"{left} {outcome.failure.code}"  # type: ignore[union-attr]

    runtime = await open_runtime(place, descend, policy=Policy(on_loop="ignore", max_nesting=5))
    async with fail_after(10):
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="descend", arguments={"left": 10})])
    assert outcome.value == "5 nested_too_deeply"
