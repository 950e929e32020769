"""Several processes on one store."""

import asyncio
import contextlib
import itertools
import os
import signal

import pytest

from tests.support import fail_after, until
from toolwright import Policy, Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.errors import StoreError

HOLD = """
@tool
async def hold() -> str:
    note("held")
    say("inside")
    await hear()
    return "held by another"

async def main():
    async with Runtime.open(store, tools=[hold]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="hold")])
        say("done")
"""
CALL = ToolCall(id="c1", name="hold")


@pytest.mark.promise("EFF-12", "EFF-11")
async def test_a_call_that_runs_in_another_process_is_waited_for_and_shared(crashes):
    @tool
    async def hold() -> str:
        raise AssertionError("It must not run twice.")

    other = crashes.start(HOLD)
    assert other.hear() == "inside"
    async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as runtime:
        assert await runtime.recover() == []
        batch = runtime.session("s").start_batch([CALL])
        assert not batch.done
        other.tell("go")
        (outcome,) = await batch
    assert other.wait().said == ["done"]

    assert (outcome.value, outcome.replayed) == ("held by another", True)
    assert crashes.ledger == ["held"]


@pytest.mark.promise("EFF-12")
async def test_a_process_that_is_only_stopped_is_not_taken_for_dead(crashes):
    @tool
    async def hold() -> str:
        raise AssertionError("It must not run twice.")

    other = crashes.start(HOLD)
    assert other.hear() == "inside"
    os.kill(other.pid, signal.SIGSTOP)
    async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as runtime:
        assert await runtime.recover() == []
        os.kill(other.pid, signal.SIGCONT)
        other.tell("go")
        (outcome,) = await runtime.session("s").run_batch([CALL])
    other.wait()

    assert outcome.value == "held by another"


@pytest.mark.promise("EFF-12", "EFF-05")
async def test_a_call_is_taken_over_when_the_process_that_runs_it_dies(crashes):
    @tool
    async def hold() -> str:
        raise AssertionError("It must not run twice.")

    other = crashes.start(HOLD)
    assert other.hear() == "inside"
    async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as runtime:
        batch = runtime.session("s").start_batch([CALL])
        other.kill()
        (outcome,) = await batch

    assert outcome.failure is not None
    assert outcome.failure.category == "interrupted"


@pytest.mark.promise("EFF-12")
async def test_a_batch_that_waits_for_another_process_holds_nothing_and_can_be_cancelled(crashes):
    @tool(parallel=True)  # else each call would wait for the one of the other process
    async def hold() -> str:
        return "ran here"

    other = crashes.start(HOLD.replace("@tool", "@tool(parallel=True)"))
    assert other.hear() == "inside"
    mine = ToolCall(id="mine", name="hold")
    async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as waiting:
        batch = waiting.session("s").start_batch([mine, CALL])
        async with Runtime.open(crashes.store, tools=[hold]) as third:
            (outcome,) = await third.session("s").run_batch([mine])
        batch.cancel()
        statuses = [one.status for one in await batch]
    other.kill()

    assert outcome.value == "ran here"
    assert statuses == ["cancelled", "cancelled"]


@pytest.mark.promise("EFF-12")
async def test_a_former_owner_may_not_write_any_more(crashes):
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        entered.set()
        await leave.wait()
        return "too late"

    async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as former:
        batch = former.session("s").start_batch([CALL])
        await entered.wait()
        (crashes.folder / "agent.db-owner-1").unlink()  # what no program should do
        async with Runtime.open(crashes.store, tools=[hold]) as other:
            (taken,) = await other.session("s").run_batch([CALL])
        leave.set()
        with pytest.raises(StoreError, match="'c1' was taken over"):
            await batch

    assert taken.failure is not None
    assert taken.failure.category == "interrupted"


PAY = """
@tool
async def pay() -> str:
    note("paid by another")
    say("inside")
    await hear()

async def main():
    async with Runtime.open(store, tools=[pay]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="pay")])
"""


@pytest.mark.promise("EFF-12", "EFF-05")
@pytest.mark.parametrize("end", ["its turn comes", "it is cancelled"])
async def test_a_former_owner_that_gets_its_call_again_knows_that_another_ran_it(crashes, end):
    """The former owner has the call in its queue, as it began it; the other started it and died."""
    entered, leave = asyncio.Event(), asyncio.Event()
    ran_again: list[str] = []

    @tool
    async def hold() -> str:
        entered.set()
        await leave.wait()
        return "held"

    @tool
    async def pay() -> str:
        ran_again.append("paid again")
        return "paid again"

    pays = ToolCall(id="c1", name="pay")
    async with fail_after(10), Runtime.open(crashes.store, tools=[hold, pay]) as former:
        session = former.session("s")
        queued = session.start_batch([ToolCall(id="c0", name="hold"), pays])
        await entered.wait()
        (crashes.folder / "agent.db-owner-1").unlink()  # what no program should do
        other = crashes.start(PAY)
        assert other.hear() == "inside"
        other.kill()
        again = session.start_batch([pays])
        await until(lambda: queued.done or any(call.shares for call in again.calls))
        if end == "it is cancelled":
            queued.cancel("enough")
        leave.set()
        with pytest.raises(StoreError, match="'c1' was taken over"):
            await queued
        (outcome,) = await again

    assert (crashes.ledger, ran_again) == (["paid by another"], [])
    assert outcome.failure is not None
    assert outcome.failure.category == "interrupted"


@pytest.mark.promise("EFF-12", "EFF-06")
@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_a_step_that_ends_after_its_execution_changes_nothing_for_the_next_one(crashes, end):
    """The first execution is given up while its step runs; the second finds the step cut off; then the step ends."""
    entered = [asyncio.Event() for _ in range(4)]
    leave, left, saw = asyncio.Event(), asyncio.Event(), []

    async def stubborn() -> str:
        entered[0].set()
        while not leave.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await leave.wait()
        if end == "raises":
            raise ToolError("refused", code="refused")
        return "paid"

    @tool(idempotent=True, parallel=True)
    async def pay(ctx: ToolContext) -> str:
        run = next(runs)
        if run == 1:  # in the other runtime
            entered[1].set()
            await asyncio.Event().wait()
        try:
            await ctx.step("card", stubborn, on_crash="fail")
        except ToolError as error:
            saw.append(error.failure.code)
        finally:
            if run == 0:
                left.set()
        entered[run].set()
        if run == 2:
            await asyncio.Event().wait()
        return "done"

    runs = itertools.count()
    call, policy = ToolCall(id="c1", name="pay"), Policy(grace=0.01)
    async with fail_after(10), contextlib.AsyncExitStack() as at_end:
        former = await at_end.enter_async_context(Runtime.open(crashes.store, tools=[pay], policy=policy))
        at_end.callback(leave.set)
        first = former.session("s").start_batch([call])
        await entered[0].wait()
        (crashes.folder / "agent.db-owner-1").unlink()  # what no program should do
        async with Runtime.open(crashes.store, tools=[pay], policy=policy) as other:
            other.session("s").start_batch([call])
            await entered[1].wait()
        former.session("s").start_batch([call])
        with pytest.raises(StoreError, match="'c1' was taken over"):
            await first
        await entered[2].wait()
        leave.set()
        await left.wait()
        await former.close()
        async with Runtime.open(crashes.store, tools=[pay], policy=policy) as heir:
            await heir.session("s").run_batch([call])

    assert saw == ["interrupted", "interrupted"]


@pytest.mark.promise("EFF-12", "EFF-05")
async def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_calls(crashes):
    @tool
    async def hold() -> str:
        return "never"

    program = crashes.start("""
import signal

@tool
async def hold() -> str:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    say(pid)
    await asyncio.Event().wait()

async def main():
    async with Runtime.open(store, tools=[hold]) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="hold")])
""")
    child = program.hear()
    program.kill()
    try:
        async with fail_after(10), Runtime.open(crashes.store, tools=[hold]) as runtime:
            (recovered,) = await runtime.recover()
    finally:
        os.kill(child, signal.SIGKILL)

    assert recovered.action == "interrupted"


@pytest.mark.promise("EFF-12", "EFF-07")
def test_a_store_that_was_open_before_a_fork_is_refused_in_the_child(crashes):
    program = crashes.start("""
from toolwright.stores.sqlite.store import SqliteStore

opened = SqliteStore(store)
pid = os.fork()
if pid == 0:
    try:
        asyncio.run(opened.journal.unfinished())
    except StoreError as error:
        say(str(error))
    os._exit(0)
os.waitpid(pid, 0)

async def main():
    say(await opened.journal.unfinished())
    await opened.close()
""")
    in_child, in_parent = program.wait().said

    assert "open it again in each process after a fork" in in_child
    assert in_parent == []


@pytest.mark.promise("EFF-12")
async def test_many_processes_may_make_one_store_at_once_and_share_its_calls(crashes):
    source = """
@tool(readonly=True)
async def read(n: int) -> int:
    note(str(n))
    return n

async def main():
    await hear()
    async with Runtime.open(store, tools=[read]) as runtime:
        calls = [ToolCall(id=f"c{n}", name="read", arguments={"n": n}) for n in range(50)]
        for start in range(0, 50, 10):
            outcomes = await runtime.session("s").run_batch(calls[start:start + 10])
            say([outcome.value for outcome in outcomes])
"""
    programs = [crashes.start(source) for _ in range(8)]
    for program in programs:
        program.tell("go")
    for program in programs:
        assert program.wait().said == [list(range(start, start + 10)) for start in range(0, 50, 10)]

    assert sorted(crashes.ledger, key=int) == [str(n) for n in range(50)]
