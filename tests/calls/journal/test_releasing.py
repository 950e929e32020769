"""Calls that a process owns and does not run: they are released, for others and for itself."""

import asyncio
import functools

import pytest

from tests.support import fail_after, until
from toolwright import Runtime, StoreError, ToolCall, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreUnavailable
from toolwright.testing import FakeClock

CALLS = [ToolCall(id="c1", name="book", arguments={"flight": "LH1"})]


@pytest.mark.promise("EFF-05", "EFF-07")
async def test_a_call_that_never_began_runs_when_it_is_begun_again_at_the_moment_of_its_release():
    ran, asked, answer = [], asyncio.Event(), asyncio.Event()

    class Lossy(MemoryStore):
        """Writes, and its first answer is lost; the second one is late."""

        begins = 0

        async def begin(self, intents, refused=()):
            self.begins += 1
            if self.begins > 1:
                asked.set()
                await answer.wait()
            begun = await super().begin(intents, refused)
            if self.begins == 1:
                raise StoreUnavailable("the connection was lost")
            return begun

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    clock = FakeClock()
    async with fail_after(10), Runtime.open(Lossy(), tools=[book], clock=clock) as runtime:
        with pytest.raises(StoreUnavailable):
            await runtime.session("s").run_batch(CALLS)
        batch = runtime.session("s").start_batch(CALLS)
        await asked.wait()
        await clock.advance(2)
        answer.set()
        (outcome,) = await batch

    assert (outcome.failure, outcome.value, ran) == (None, "LH1", ["LH1"])


class FirstAnswerLost(MemoryStore):
    """Writes the first intents it is asked for, and its answer is lost."""

    lost = False

    async def begin(self, intents, refused=()):
        begun = await super().begin(intents, refused)
        if not self.lost:
            self.lost = True
            raise StoreUnavailable("the connection was lost")
        return begun


@pytest.mark.promise("EFF-05", "EFF-07")
async def test_a_call_that_never_began_is_taken_back_and_runs_in_another_process():
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    clock, rows = FakeClock(), MemoryDatabase()
    async with (
        fail_after(10),
        Runtime.open(FirstAnswerLost(rows), tools=[book], clock=clock) as first,
        Runtime.open(MemoryStore(rows), tools=[book]) as second,
    ):
        with pytest.raises(StoreUnavailable):
            await first.session("s").run_batch(CALLS)
        await clock.advance(2)
        (outcome,) = await second.session("s").run_batch(CALLS)

    assert (outcome.failure, outcome.value, ran) == (None, "LH1", ["LH1"])


@pytest.mark.promise("EFF-05", "EFF-07", "EFF-12")
@pytest.mark.parametrize("kind", ["queued", "readonly"])
async def test_a_call_that_was_not_to_start_at_once_is_taken_back_too(kind):
    @tool(readonly=kind == "readonly")
    async def book(flight: str) -> str:
        return flight

    calls = [*CALLS, ToolCall(id="c2", name="book", arguments={"flight": "LH2"})]
    clock, rows = FakeClock(), MemoryDatabase()
    async with (
        fail_after(10),
        Runtime.open(FirstAnswerLost(rows), tools=[book], clock=clock) as first,
        Runtime.open(MemoryStore(rows), tools=[book]) as second,
    ):
        with pytest.raises(StoreUnavailable):
            await first.session("s").run_batch(calls)
        await clock.advance(2)
        outcomes = await second.session("s").run_batch(calls)

    assert [outcome.value for outcome in outcomes] == ["LH1", "LH2"]


@pytest.mark.promise("EFF-05", "EFF-07")
@pytest.mark.parametrize("where", ["here", "here, later", "elsewhere"])
async def test_a_call_that_was_cut_off_is_not_taken_for_one_that_never_began(where):
    rows, inside = MemoryDatabase(), asyncio.Event()

    @tool
    async def book(flight: str) -> str:
        assert not inside.is_set(), "It ran twice."
        inside.set()
        await asyncio.Event().wait()
        return flight

    dead = MemoryStore(rows)
    clock = FakeClock()
    async with fail_after(10), Runtime.open(dead, tools=[book], clock=clock) as former:
        batch = former.session("s").start_batch(CALLS)
        await inside.wait()
        rows.end(dead.owner)
        await clock.advance(1)
        async with (
            Runtime.open(FirstAnswerLost(rows), tools=[book], clock=clock) as first,
            Runtime.open(MemoryStore(rows), tools=[book], clock=clock) as second,
        ):
            with pytest.raises(StoreUnavailable):
                await first.session("s").run_batch(CALLS)
            if where != "here":
                await clock.advance(2)
            runtime = second if where == "elsewhere" else first
            (outcome,) = await runtime.session("s").run_batch(CALLS)
        batch.cancel("the test is over")

    assert outcome.failure.code == "interrupted"
    assert outcome.may_have_run


@pytest.mark.promise("EFF-07", "EFF-11")
async def test_a_call_that_never_began_and_runs_again_here_is_not_taken_back():
    inside, go = asyncio.Event(), asyncio.Event()

    @tool
    async def book(flight: str) -> str:
        inside.set()
        await go.wait()
        return flight

    clock, rows = FakeClock(), MemoryDatabase()
    async with fail_after(10), Runtime.open(FirstAnswerLost(rows), tools=[book], clock=clock) as runtime:
        with pytest.raises(StoreUnavailable):
            await runtime.session("s").run_batch(CALLS)
        batch = runtime.session("s").start_batch(CALLS)
        await inside.wait()
        await clock.advance(2)  # when it would be taken back
        go.set()
        (outcome,) = await batch
    async with fail_after(10), Runtime.open(MemoryStore(rows), tools=[book]) as later:
        (again,) = await later.session("s").run_batch(CALLS)

    assert outcome.value == "LH1"
    assert (again.value, again.replayed) == ("LH1", True)


@pytest.mark.promise("EFF-07", "EFF-12")
async def test_a_call_is_released_after_any_error_of_the_store():
    class Failing(MemoryStore):
        releases = 0

        async def finish(self, *args, **options):
            raise StoreError("the disk is full")

        async def finish_all(self, ended):
            raise StoreError("the disk is full")

        async def release(self, key):
            self.releases += 1
            if self.releases <= 2:
                raise RuntimeError("an error of a library")
            return await super().release(key)

        def has_tried(self, times):
            return self.releases == times

    @tool
    async def book(flight: str) -> str:
        return flight

    clock, rows = FakeClock(), MemoryDatabase()
    store = Failing(rows)
    async with (
        fail_after(3),
        Runtime.open(store, tools=[book], clock=clock) as first,
        Runtime.open(MemoryStore(rows), tools=[book]) as second,
    ):
        with pytest.raises(StoreError, match="the disk is full"):
            await first.session("s").run_batch(CALLS)
        for times in (1, 2, 3):
            await clock.advance(1)
            await until(functools.partial(store.has_tried, times), seconds=1)
        (outcome,) = await second.session("s").run_batch(CALLS)

    assert outcome.failure is not None
    assert outcome.failure.code == "interrupted"


@pytest.mark.promise("SCHED-01", "EFF-05")
async def test_a_call_that_is_continued_comes_before_the_later_calls_of_its_batch(file, open_runtime):
    began: list[str] = []
    go = asyncio.Event()

    @tool(on_crash="rerun")
    async def book(flight: str) -> str:
        began.append(flight)
        await go.wait()
        return flight

    calls = [ToolCall(id=flight, name="book", arguments={"flight": flight}) for flight in ("LH1", "LH2", "LH3")]
    async with fail_after(20):
        first = await open_runtime(file, book)
        first.session("s").start_batch(calls[:1])
        await until(lambda: began == ["LH1"])
        await first.close()
        go.set()
        second = await open_runtime(file, book)
        outcomes = await second.session("s").run_batch(calls)
    assert [outcome.value for outcome in outcomes] == ["LH1", "LH2", "LH3"]
    assert began == ["LH1", "LH1", "LH2", "LH3"]
