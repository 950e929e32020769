"""Two at the same time share one execution."""

import asyncio
import threading
from typing import Any

import pytest

from tests.effects.watching import until_shared
from tests.support import fail_after, until
from toolwright import ToolCall, tool
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import queued_writes, run_on_connection


class Gate:
    """Where a tool waits for its test."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def pass_through(self) -> None:
        self.entered.set()
        await self.open.wait()


@pytest.mark.promise("EFF-11")
async def test_two_at_the_same_time_share_one_execution(place, open_runtime):
    gate, ran = Gate(), []

    @tool
    async def book() -> str:
        ran.append(1)
        await gate.pass_through()
        return "booked"

    session = (await open_runtime(place, book)).session("s")
    first = session.start_batch([ToolCall(id="c1", name="book")])
    others = [session.start_batch([ToolCall(id="c1", name="book")]) for _ in range(3)]
    async with fail_after(5):
        await gate.entered.wait()
        others.append(session.start_batch([ToolCall(id="c1", name="book")]))
        gate.open.set()
        outcomes = [(await batch)[0] for batch in (first, *others)]

    assert ran == [1]
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("booked", False)] + [("booked", True)] * 4


@pytest.mark.promise("EFF-11")
async def test_one_that_comes_while_the_outcome_is_on_its_way_to_the_disk_shares_it(file, open_runtime):
    gate, disk, ran = Gate(), threading.Event(), []

    @tool
    async def book() -> str:
        ran.append(1)
        await gate.pass_through()
        return "booked"

    store = SqliteStore(file)
    session = (await open_runtime(store, book)).session("s")
    first = session.start_batch([ToolCall(id="c1", name="book")])
    async with fail_after(5):
        await gate.entered.wait()
        held = run_on_connection(store, lambda connection: disk.wait(10))
        while queued_writes(store):  # noqa: ASYNC110 - until the thread has it
            await asyncio.sleep(0)
        second = session.start_batch([ToolCall(id="c1", name="book")])
        while queued_writes(store) < 1:  # noqa: ASYNC110 - that it begins
            await asyncio.sleep(0)
        gate.open.set()
        while queued_writes(store) < 2:  # noqa: ASYNC110 - that the first is finished; both go into one transaction
            await asyncio.sleep(0)
        disk.set()
        await held
        outcomes = [(await batch)[0] for batch in (first, second)]

    assert ran == [1]
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("booked", False), ("booked", True)]


@pytest.mark.promise("EFF-11")
async def test_one_that_shares_may_leave_without_stopping_the_other(place, open_runtime):
    gate = Gate()

    @tool
    async def book() -> str:
        await gate.pass_through()
        return "booked"

    session = (await open_runtime(place, book)).session("s")
    first = session.start_batch([ToolCall(id="c1", name="book")])
    async with fail_after(5):
        await gate.entered.wait()
        second = session.start_batch([ToolCall(id="c1", name="book")])
        await until_shared([second])
        second.cancel()
        (left,) = await second
        gate.open.set()
        (stayed,) = await first

    assert left.status == "cancelled"
    assert stayed.value == "booked"


@pytest.mark.promise("EFF-11", "CANCEL-01")
async def test_one_that_shares_runs_itself_when_the_other_is_stopped_before_it_ran(place, open_runtime):
    gate, ran = Gate(), []

    @tool
    async def block() -> str:
        await gate.pass_through()
        return "done"

    @tool
    async def book() -> str:
        ran.append(1)
        return "booked"

    session = (await open_runtime(place, block, book)).session("s")
    blocking = session.start_batch([ToolCall(id="b", name="block")])
    async with fail_after(5):
        await gate.entered.wait()
        first = session.start_batch([ToolCall(id="c1", name="book")])
        others = [session.start_batch([ToolCall(id="c1", name="book")]) for _ in range(2)]
        await until_shared(others)
        first.cancel()
        (stopped,) = await first
        gate.open.set()
        outcomes = [(await other)[0] for other in others]
        await blocking

    assert (stopped.status, stopped.may_have_run) == ("cancelled", False)
    assert ran == [1]
    assert [outcome.value for outcome in outcomes] == ["booked", "booked"]
    assert sorted(outcome.replayed for outcome in outcomes) == [False, True]


@pytest.mark.promise("EFF-11")
async def test_one_that_shares_runs_once_when_the_other_is_stopped_while_its_own_batch_is_prepared(place, open_runtime):
    ran, prepared = [], asyncio.Event()

    @tool(parallel=True)
    async def work(name: str) -> None:
        ran.append(name)
        for _ in range(50):
            await asyncio.sleep(0)

    async def prepare(call: Any) -> None:
        await prepared.wait()

    runtime = await open_runtime(place, work, before=[prepare])
    one, two = (ToolCall(id=name, name="work", arguments={"name": name}) for name in ("one", "two"))
    async with fail_after(10):
        first = runtime.session("s").start_batch([one])
        second = runtime.session("s").start_batch([one, two])
        await until(lambda: second.calls[0].shares is not None)
        first.cancel()
        assert (await first)[0].status == "cancelled"
        prepared.set()
        assert [outcome.status for outcome in await second] == ["success", "success"]
    assert sorted(ran) == ["one", "two"]


@pytest.mark.promise("EFF-11")
async def test_many_batches_at_once_run_each_call_once(place, open_runtime):
    ran = []

    @tool(readonly=True)
    async def read(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0)
        return n * n

    session = (await open_runtime(place, read)).session("s")
    batches = [
        [ToolCall(id=f"c{n}", name="read", arguments={"n": n}) for n in range(start, start + 20)] for start in range(30)
    ]
    async with fail_after(20):
        answers = await asyncio.gather(*(session.run_batch(batch) for batch in batches))

    assert sorted(ran) == list(range(49))
    for start, outcomes in enumerate(answers):
        assert [outcome.value for outcome in outcomes] == [n * n for n in range(start, start + 20)]


@pytest.mark.promise("EFF-11", "EFF-12")
async def test_two_runtimes_of_one_process_share_one_execution(file, open_runtime):
    gate, ran = Gate(), []

    @tool
    async def book() -> str:
        ran.append(1)
        await gate.pass_through()
        return "booked"

    one, two = await open_runtime(file, book), await open_runtime(file, book)
    async with fail_after(5):
        first = one.session("s").start_batch([ToolCall(id="c1", name="book")])
        await gate.entered.wait()
        second = two.session("s").start_batch([ToolCall(id="c1", name="book")])
        recovered = await two.recover()
        gate.open.set()
        outcomes = [*await first, *await second]

    assert recovered == []
    assert ran == [1]
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("booked", False), ("booked", True)]
