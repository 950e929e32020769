"""The time that a call may wait in the queue, while the journal is slow to say what it knows of the call."""

import asyncio

import pytest

from tests.support import fail_after, until
from toolwright import HookCall, Policy, Runtime, ToolCall, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.testing import FakeClock

ONE_AT_A_TIME = Policy(queue_timeout=5, max_concurrency=1)
CALLS = [ToolCall(id=name, name="note", arguments={"name": name}) for name in ("c1", "c2", "c3")]


def waits_elsewhere(batch):
    """True when the first call of a batch waits for one of another process."""
    ticket = batch.calls[0].ticket
    return ticket is not None and ticket.state == "elsewhere"


class SlowStore(MemoryStore):
    """Says what it knows of calls when it is told to answer."""

    def __init__(self, rows):
        super().__init__(rows)
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def begin(self, intents, refused=()):
        self.asked.set()
        await self.answer.wait()
        return await super().begin(intents, refused)


@pytest.mark.promise("EFF-11", "SCHED-05")
async def test_calls_with_an_outcome_get_it_however_long_the_journal_takes_to_find_it():
    ran, clock, rows = [], FakeClock(), MemoryDatabase()

    @tool
    async def note(name: str) -> str:
        ran.append(name)
        return name

    async with fail_after(10), Runtime.open(MemoryStore(rows), tools=[note]) as runtime:
        await runtime.session("s").run_batch(CALLS)
    slow = SlowStore(rows)
    async with fail_after(10), Runtime.open(slow, tools=[note], clock=clock, policy=ONE_AT_A_TIME) as runtime:
        batch = runtime.session("s").start_batch(CALLS)
        await slow.asked.wait()
        await clock.advance(60)
        slow.answer.set()
        outcomes = await batch

    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("c1", True), ("c2", True), ("c3", True)]
    assert ran == ["c1", "c2", "c3"]


@pytest.mark.promise("SCHED-05")
async def test_the_time_in_the_queue_begins_when_the_journal_has_answered():
    clock, slow, opened = FakeClock(), SlowStore(MemoryDatabase()), asyncio.Event()
    entered = asyncio.Event()

    @tool(timeout=600)
    async def note(name: str) -> str:
        entered.set()
        await opened.wait()
        return name

    async with fail_after(10), Runtime.open(slow, tools=[note], clock=clock, policy=ONE_AT_A_TIME) as runtime:
        batch = runtime.session("s").start_batch(CALLS)
        await slow.asked.wait()
        await clock.advance(4)
        slow.answer.set()
        await entered.wait()
        await clock.advance(4)
        waited_for = [batch.outcome_of(position) for position in range(3)]
        assert waited_for == [None, None, None], "it is four seconds since the answer"
        await clock.advance(1)
        opened.set()
        first, *others = await batch

    assert first.value == "c1"
    assert [(outcome.failure.code, outcome.may_have_run) for outcome in others] == [("queue_timeout", False)] * 2


@pytest.mark.promise("SCHED-05")
async def test_the_time_to_wait_for_another_process_begins_when_the_journal_has_told_of_it():
    clock, rows = FakeClock(), MemoryDatabase()
    entered = {name: asyncio.Event() for name in ("ours", "theirs")}
    opened = {name: asyncio.Event() for name in ("ours", "theirs")}
    asked, answer = asyncio.Event(), asyncio.Event()

    class SlowToHold(MemoryStore):
        async def hold(self, claims):
            if claims[0][0].call_id == "last":
                asked.set()
                await answer.wait()
            return await super().hold(claims)

    @tool(timeout=600)
    async def note(name: str) -> str:
        if name in opened:
            entered[name].set()
            await opened[name].wait()
        return name

    async def check(call: HookCall) -> None:
        """With a hook, no call stands in the order before the journal has answered."""

    def calls(name: str) -> list[ToolCall]:
        return [ToolCall(id=name, name="note", arguments={"name": name})]

    async with (
        fail_after(10),
        Runtime.open(MemoryStore(rows), tools=[note]) as other,
        Runtime.open(SlowToHold(rows), tools=[note], clock=clock, policy=ONE_AT_A_TIME, before=[check]) as runtime,
    ):
        ours = runtime.session("s").start_batch(calls("ours"))
        await entered["ours"].wait()
        theirs = other.session("s").start_batch(calls("theirs"))
        await until(lambda: waits_elsewhere(theirs))
        last = runtime.session("s").start_batch(calls("last"))
        await asked.wait()
        opened["ours"].set()
        await ours
        await entered["theirs"].wait()
        await clock.advance(6)
        answer.set()
        for _ in range(2):
            assert last.outcome_of(0) is None, "it waits since the answer only"
            await clock.advance(3)
        (waited,) = await last
        opened["theirs"].set()
        await theirs

    assert waited.failure is not None
    assert waited.failure.code == "queue_timeout"


@pytest.mark.promise("EFF-04", "SCHED-01")
@pytest.mark.parametrize("options", [{"readonly": True, "reads": "path"}, {}], ids=["may run again", "exclusive"])
async def test_a_call_that_waited_for_another_begins_when_the_outcome_of_that_one_is_written(options):
    asked, answer = asyncio.Event(), asyncio.Event()
    began = []

    class SlowToFinish(MemoryStore):
        async def finish_all(self, ended):
            if any(one.key.call_id == "first" for one in ended):
                asked.set()
                await answer.wait()
            return await super().finish_all(ended)

    @tool(writes="path")
    async def write(path: str) -> None:
        began.append("write")

    @tool(**options)
    async def follow(path: str) -> None:
        began.append("follow")

    calls = [ToolCall(id=id, name=name, arguments={"path": "a"}) for id, name in (("first", "write"), ("x", "follow"))]
    async with fail_after(10), Runtime.open(SlowToFinish(MemoryDatabase()), tools=[write, follow]) as runtime:
        batch = runtime.session("s").start_batch(calls)
        await asked.wait()
        # Another session is asked for later, and done meanwhile.
        await runtime.session("other").run_batch([ToolCall(id="y", name="follow", arguments={"path": "a"})])
        before = list(began)
        answer.set()
        outcomes = await batch

    assert before == ["write", "follow"]
    assert began == ["write", "follow", "follow"]
    assert all(outcome.ok for outcome in outcomes)


@pytest.mark.promise("EFF-04", "EFF-05")
async def test_an_outcome_is_written_before_the_start_of_the_call_that_waited_for_it():
    """Where the two come apart, and the process dies between them, the call that waited is known not to have begun."""
    written = []

    class Noting(MemoryStore):
        async def finish_all(self, ended):
            written.extend(("end", one.key.call_id) for one in ended)
            await super().finish_all(ended)

        async def start_all(self, starts):
            written.extend(("start", key.call_id) for key, _ in starts)
            await super().start_all(starts)

    @tool
    async def note(name: str) -> str:
        return name

    async with fail_after(10), Runtime.open(Noting(MemoryDatabase()), tools=[note]) as runtime:
        await runtime.session("s").run_batch(CALLS)

    # The start of the first is written with its intent.
    assert written == [("end", "c1"), ("start", "c2"), ("end", "c2"), ("start", "c3"), ("end", "c3")]
