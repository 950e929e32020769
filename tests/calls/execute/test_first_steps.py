"""What happens while calls take their first step, which may be before anybody waits for them."""

import asyncio

import pytest

from tests.calls.execute.watching import ended, of_call, record, take_all
from tests.support import fail_after
from toolwright import BatchFailed, Policy, ToolCall, ToolContext, ToolError, tool

# A batch that is started and one that is run at once do not take the same way to the first step of a tool.
WAYS = ["start_batch", "run_batch"]


def begin(way, session, calls, **changes):
    """A task that runs the calls."""
    if way == "start_batch":
        return asyncio.create_task(session.start_batch(calls, **changes).wait())
    return asyncio.create_task(session.run_batch(calls, **changes))


@pytest.mark.promise("RUN-06", "CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_failure_in_a_first_step_cancels_siblings_properly(way, order, clock, open_runtime):
    seen = []

    @tool(parallel=True)
    async def tidy() -> str:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await clock.sleep(0.03)
            seen.append("tidied")
        return "half of it"

    @tool(parallel=True)
    async def fails() -> None:
        raise ToolError("no")

    runtime = await open_runtime(tidy, fails)
    names = ["tidy", "fails"] if order == "before" else ["fails", "tidy"]
    calls = [ToolCall(id=name, name=name) for name in names]
    task = begin(way, runtime.session("s"), calls, continue_on_failure=False)
    await clock.advance(0.03)
    assert task.done()
    with pytest.raises(BatchFailed):
        await task
    outcome = record(runtime, "tidy").outcome
    if seen:  # it had begun, so it has its grace
        assert (outcome.status, outcome.value, seen) == ("success", "half of it", ["cancelled", "tidied"])
    else:
        assert (outcome.status, outcome.may_have_run) == ("cancelled", False)


@pytest.mark.promise("RUN-06", "CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_failure_in_a_first_step_reaches_threads_and_what_waits_for_one(way, clock, open_runtime, gate):
    @tool(parallel=True)
    def stuck(ctx: ToolContext) -> str:
        gate.stop_here()
        return "too late"

    @tool(parallel=True)
    async def fails() -> None:
        raise ToolError("no")

    runtime = await open_runtime(stuck, fails)
    calls = [ToolCall(id="c1", name="stuck"), ToolCall(id="c2", name="fails")]
    task = begin(way, runtime.session("s"), calls, continue_on_failure=False)
    async with fail_after(5):
        await clock.advance(0.05)
        assert task.done()
        with pytest.raises(BatchFailed) as caught:
            await task
    first, second = caught.value.outcomes
    assert (first.status, second.status) == ("cancelled", "failure")
    if not first.may_have_run:
        assert not gate.reached.is_set()


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("waits_before", [0, 1])
async def test_a_tool_that_cancels_its_own_session_is_cancelled_itself(way, waits_before, clock, open_runtime):
    seen: list[str] = []

    @tool
    async def stop_all() -> str:
        for _ in range(waits_before):
            await asyncio.sleep(0)
        runtime.session("s").cancel("the tool said so")
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    runtime = await open_runtime(stop_all)
    events = runtime.subscribe()
    calls = [ToolCall(id="c1", name="stop_all"), ToolCall(id="c2", name="stop_all")]
    task = begin(way, runtime.session("s"), calls)
    await clock.advance(0)
    assert task.done()
    first, second = await task
    assert seen == ["cancelled"]
    assert (first.status, first.reason, first.may_have_run) == ("cancelled", "the tool said so", True)
    assert (second.status, second.may_have_run) == ("cancelled", False)
    taken = take_all(events)
    assert [of_call(taken, call_id) for call_id in ("c1", "c2")] == [["call.started", "call.finished"]] * 2


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_that_cancels_its_session_and_returns_has_its_result(way, clock, open_runtime):
    ran = []

    @tool(parallel=True)
    async def stop_all(number: int) -> str:
        ran.append(number)
        runtime.session("s").cancel("the tool said so")
        return "done"

    runtime = await open_runtime(stop_all)
    calls = [ToolCall(name="stop_all", arguments={"number": number}) for number in range(3)]
    task = begin(way, runtime.session("s"), calls)
    await clock.advance(0)
    assert task.done()
    outcomes = await task
    assert [outcome.status for outcome in outcomes] == ["success", "cancelled", "cancelled"]
    assert ran == [0]


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_that_cancels_its_own_task_in_its_first_step_fails_alone(way, clock, open_runtime):
    seen = []

    @tool(parallel=True)
    async def gives_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await clock.sleep(1)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @tool(parallel=True)
    async def sibling() -> str:
        await clock.sleep(1)
        return "done"

    runtime = await open_runtime(gives_up, sibling)
    task = begin(way, runtime.session("s"), [ToolCall(name="gives_up"), ToolCall(name="sibling")])
    await clock.advance(1)
    assert task.done()
    first, second = await task
    assert seen == ["cancelled"]
    assert first.status in ("failure", "cancelled")
    assert second.value == "done"


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turns", range(5))
async def test_a_caller_cancelled_after_any_number_of_turns_gets_every_call_ended(way, turns, clock, open_runtime):
    begun, stopped = [], []

    @tool(parallel=True)
    async def work(name: str) -> None:
        begun.append(name)
        try:
            await clock.sleep(3600)
        finally:
            stopped.append(name)

    runtime = await open_runtime(work)
    calls = [ToolCall(id=name, name="work", arguments={"name": name}) for name in "ab"]
    task = begin(way, runtime.session("s"), calls)
    if way == "start_batch":
        await asyncio.sleep(0)  # A task that never began to wait for the batch has no say in it.
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await clock.advance(0)
    assert task.cancelled()
    assert begun == stopped
    if len(runtime.log):
        for name in "ab":
            outcome = record(runtime, name).outcome
            assert (outcome.status, outcome.may_have_run) == ("cancelled", name in begun)


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_cancelled_right_after_its_first_step_sees_it_and_has_its_grace(way, clock, open_runtime):
    seen = []

    @tool(parallel=True)
    async def tidy() -> str:
        seen.append("begun")
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await clock.sleep(0.03)
        return "half of it"

    runtime = await open_runtime(tidy)
    session = runtime.session("s")
    task = begin(way, session, [ToolCall(id="c1", name="tidy")])
    asyncio.get_running_loop().call_soon(session.cancel)  # comes right after the first step of the task
    await clock.advance(0.03)
    assert task.done()
    (outcome,) = await task
    if seen:
        assert seen == ["begun", "cancelled"]
        assert (outcome.status, outcome.value) == ("success", "half of it")
    else:
        assert (outcome.status, outcome.may_have_run) == ("cancelled", False)


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("who", ["the session", "the tool itself", "its caller"])
async def test_a_call_cancelled_at_its_first_step_that_does_not_stop_is_given_up(way, who, clock, open_runtime, finale):
    @tool(parallel=True)
    async def stubborn() -> None:
        if who == "the tool itself":
            session.cancel()
        while not finale.is_set():
            try:
                await finale.wait()
            except asyncio.CancelledError:
                continue

    runtime = await open_runtime(stubborn)
    session = runtime.session("s")
    task = begin(way, session, [ToolCall(id="c1", name="stubborn")])
    if who == "the session":
        asyncio.get_running_loop().call_soon(session.cancel)
    elif who == "its caller":
        asyncio.get_running_loop().call_soon(task.cancel)
    await clock.advance(0.05)
    assert task.done()
    outcome = record(runtime, "c1").outcome
    assert outcome.status == "cancelled"


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_call_cancelled_before_its_thread_or_process_began_does_not_run(
    isolation, clock, open_runtime, tmp_path
):
    @tool(isolation=isolation)
    def leaves_a_trace() -> None:
        (tmp_path / "trace").write_text("here")

    runtime = await open_runtime(leaves_a_trace)
    session = runtime.session("s")
    task = begin("run_batch", session, [ToolCall(id="c1", name="leaves_a_trace")])
    asyncio.get_running_loop().call_soon(session.cancel)
    await clock.advance(0.05)
    assert task.done()
    (outcome,) = await task
    assert (outcome.status, outcome.may_have_run) == ("cancelled", False)
    await runtime.close()
    assert not (tmp_path / "trace").exists()


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("with_hooks", [True, False])
async def test_a_batch_cancelled_after_any_number_of_turns_gets_every_call_ended(
    turns, with_hooks, clock, open_runtime
):
    begun, stopped = [], []

    async def hook(call, *outcome):
        await asyncio.sleep(0)

    @tool(parallel=True)
    async def work(name: str) -> None:
        begun.append(name)
        try:
            await clock.sleep(3600)
        finally:
            stopped.append(name)

    hooks = {"before": [hook], "after": [hook]} if with_hooks else {}
    runtime = await open_runtime(work, **hooks)
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch(
        [ToolCall(id=name, name="work", arguments={"name": name}) for name in "ab"]
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    batch.cancel()
    await clock.advance(0.05)
    outcomes = await ended(batch)
    assert begun == stopped
    assert [(outcome.status, outcome.may_have_run) for outcome in outcomes] == [
        ("cancelled", name in begun) for name in "ab"
    ]
    taken = take_all(events)
    assert [of_call(taken, name) for name in "ab"] == [["call.started", "call.finished"]] * 2


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("turns", range(6))
async def test_a_batch_cancelled_while_a_tool_prepares_gets_every_call_ended(turns, clock, open_runtime, finale):
    ran = []

    async def prepare(arguments, call):
        await finale.wait()

    @tool(prepare=prepare)
    async def work() -> None:
        ran.append("work")

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work")])
    for _ in range(turns):
        await asyncio.sleep(0)
    batch.cancel()
    await clock.advance(0.05)
    assert [(outcome.status, outcome.may_have_run) for outcome in await ended(batch)] == [("cancelled", False)] * 2
    assert ran == []


@pytest.mark.promise("SCHED-06")
@pytest.mark.parametrize("depth", [10, 300])
async def test_tools_may_call_tools_to_any_sensible_depth(depth, clock, open_runtime):
    @tool(parallel=True)
    async def descend(ctx: ToolContext, left: int) -> int:
        if left == 0:
            return 0
        outcome = await ctx.call("descend", left=left - 1)
        return 1 + int(outcome.value)

    runtime = await open_runtime(descend, policy=Policy(on_loop="ignore"))
    task = begin("run_batch", runtime.session("s"), [ToolCall(name="descend", arguments={"left": depth})])
    await clock.advance(0)
    assert task.done()
    (outcome,) = await task
    assert (outcome.status, outcome.value) == ("success", depth)


@pytest.mark.promise("TIME-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_timeout_counts_from_the_first_step(way, clock, open_runtime):
    @tool(timeout=10)
    async def work() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(work)
    await clock.advance(5)
    task = begin(way, runtime.session("s"), [ToolCall(id="c1", name="work")])
    await clock.advance(9.999)
    assert not task.done()
    await clock.advance(0.001)
    assert task.done()
    assert (await task)[0].failure.code == "timeout"


@pytest.mark.promise("RUN-08")
@pytest.mark.parametrize("way", WAYS)
async def test_the_current_task_is_the_same_at_every_step_of_a_call_and_not_the_callers(way, clock, open_runtime):
    seen = []

    @tool(parallel=True)
    async def work() -> None:
        seen.append(asyncio.current_task())
        await clock.sleep(1)
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    runtime = await open_runtime(work)
    task = begin(way, runtime.session("s"), [ToolCall(name="work")])
    await clock.advance(1)
    await task
    assert seen[0] is not None
    assert seen == [seen[0]] * 3
    assert seen[0] is not task


@pytest.mark.promise("RUN-08")
async def test_batches_that_never_wait_leave_the_loop_its_turns(open_runtime):
    @tool(readonly=True)
    async def quick(number: int) -> int:
        return number

    runtime = await open_runtime(quick)
    session, turns, seen = runtime.session("s"), 0, []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    for number in range(320):
        await session.run_batch([ToolCall(name="quick", arguments={"number": number})])
        seen.append(turns)
    beside.cancel()
    assert seen[-1] >= 320 // 64
    assert all(later > earlier for earlier, later in zip(seen, seen[64:], strict=False))


@pytest.mark.promise("RUN-08")
async def test_a_large_batch_that_never_waits_leaves_the_loop_its_turn(open_runtime):
    @tool(readonly=True)
    async def quick(number: int) -> int:
        return number

    runtime = await open_runtime(quick)
    told: list[str] = []
    for number in range(3):
        asyncio.get_running_loop().call_soon(told.append, f"after {number}")
        await runtime.session("s").run_batch([{"name": "quick", "arguments": {"number": n}} for n in range(100)])
        told.append(f"batch {number}")

    assert told == ["after 0", "batch 0", "after 1", "batch 1", "after 2", "batch 2"]
