"""Running out of time."""

import asyncio
import contextlib
import threading

import pytest

from tests.calls.execute.watching import ended, finished, of_call, record, take_all
from tests.support import fail_after
from toolwright import Policy, RetryPolicy, ToolCall, ToolContext, ToolError, tool


@pytest.mark.promise("TIME-01")
async def test_an_async_tool_is_stopped_when_its_time_is_up(clock, open_runtime):
    stopped_at = []

    @tool(timeout=10)
    async def slow() -> str:
        try:
            await clock.sleep(3600)
        finally:
            stopped_at.append(clock.monotonic())
        return "done"

    runtime = await open_runtime(slow)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="slow")])
    await clock.advance(9.999)
    assert not batch.done
    await clock.advance(0.001)
    assert batch.done
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.attempts) == ("failure", 1)
    assert (outcome.failure.category, outcome.failure.code, outcome.failure.source) == ("timeout", "timeout", "runtime")
    assert "'slow'" in outcome.failure.message
    assert "10 s" in outcome.failure.message
    assert stopped_at == [10.0]
    assert record(runtime, "c1").run_time == 10.0


@pytest.mark.promise("TIME-01")
async def test_a_tool_that_says_nothing_has_thirty_seconds(clock, open_runtime):
    @tool(parallel=True)
    async def silent() -> None:
        await clock.sleep(3600)

    @tool(parallel=True, timeout=40)
    async def patient() -> str:
        await clock.sleep(35)
        return "in time"

    runtime = await open_runtime(silent, patient)
    batch = runtime.session("s").start_batch([ToolCall(name="silent"), ToolCall(name="patient")])
    await clock.advance(29.9)
    assert runtime.log.query(tool="silent", status="running")
    await clock.advance(0.1)
    assert runtime.log.query(tool="silent", status="failure", category="timeout")
    await clock.advance(5)
    first, second = await ended(batch)
    assert "30 s" in first.failure.message
    assert second.value == "in time"


@pytest.mark.promise("TIME-01")
async def test_the_policy_of_a_session_or_batch_sets_the_time_of_tools_that_say_nothing(clock, open_runtime):
    @tool
    async def silent() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(silent, policy=Policy(timeout=7))
    batch = runtime.session("s").start_batch([ToolCall(name="silent")])
    await clock.advance(7)
    assert (await ended(batch))[0].failure.category == "timeout"
    batch = runtime.session("s").start_batch([ToolCall(name="silent")], timeout=2)
    await clock.advance(2)
    assert (await ended(batch))[0].failure.category == "timeout"


@pytest.mark.promise("TIME-01")
async def test_waiting_for_a_slot_costs_no_time(clock, open_runtime):
    @tool(parallel=True, timeout=10)
    async def work() -> float:
        await clock.sleep(8)
        return float(clock.monotonic())

    runtime = await open_runtime(work, policy=Policy(max_concurrency=1))
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work")])
    await clock.advance(16)
    assert [outcome.value for outcome in await ended(batch)] == [8.0, 16.0]
    assert (record(runtime, "c2").queue_time, record(runtime, "c2").run_time) == (8.0, 8.0)


@pytest.mark.promise("TIME-01")
async def test_waiting_for_a_claim_costs_no_time(clock, open_runtime):
    @tool(timeout=10)
    async def work() -> float:
        await clock.sleep(8)
        return float(clock.monotonic())

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(name="work")] * 3)
    await clock.advance(24)
    assert [outcome.value for outcome in await ended(batch)] == [8.0, 16.0, 24.0]


@pytest.mark.promise("TIME-01")
async def test_a_call_that_waited_has_its_whole_time_and_not_more(clock, open_runtime):
    @tool(timeout=10)
    async def work(seconds: float) -> None:
        await clock.sleep(seconds)

    runtime = await open_runtime(work)
    calls = [
        ToolCall(id="c1", name="work", arguments={"seconds": 8}),
        ToolCall(id="c2", name="work", arguments={"seconds": 99}),
    ]
    batch = runtime.session("s").start_batch(calls)
    await clock.advance(17.9)
    assert not batch.done
    await clock.advance(0.1)
    assert [outcome.status for outcome in await ended(batch)] == ["success", "failure"]


@pytest.mark.promise("TIME-01")
async def test_a_tool_has_a_grace_of_fifty_milliseconds_to_end_by_itself(clock, open_runtime):
    @tool(timeout=10)
    async def tidy() -> str:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(0.049)
            return "half of it"
        return "all of it"

    runtime = await open_runtime(tidy)
    batch = runtime.session("s").start_batch([ToolCall(name="tidy")])
    await clock.advance(10.049)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.value) == ("success", "half of it")


@pytest.mark.promise("TIME-01")
async def test_an_error_during_the_grace_is_still_the_timeout(clock, open_runtime):
    @tool(timeout=10)
    async def breaks() -> None:
        try:
            await clock.sleep(3600)
        finally:
            raise OSError("the connection was cut")

    runtime = await open_runtime(breaks)
    batch = runtime.session("s").start_batch([ToolCall(name="breaks")])
    await clock.advance(10)
    assert (await ended(batch))[0].failure.code == "timeout"


@pytest.mark.promise("TIME-01")
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_hook_after_a_tool_that_ran_out_of_time_may_take_longer_than_the_grace(clock, open_runtime, swallows):
    seen = []

    @tool
    async def slow() -> str:
        with contextlib.suppress(asyncio.CancelledError) if swallows else contextlib.nullcontext():
            await clock.sleep(3600)
        return "enough"

    async def hook(call, outcome) -> None:
        await clock.sleep(1)
        seen.append(outcome.status)

    runtime = await open_runtime(slow, after=[hook])
    batch = runtime.session("s").start_batch([ToolCall(name="slow")])
    await clock.advance(30.9)
    assert not batch.done
    await clock.advance(0.1)
    (outcome,) = await ended(batch)
    if swallows:
        assert (outcome.status, outcome.value) == ("success", "enough")
    else:
        assert (outcome.status, outcome.failure.code) == ("failure", "timeout")
    assert seen == [outcome.status]


@pytest.mark.promise("TIME-01")
async def test_the_grace_is_the_policys(clock, open_runtime):
    @tool(timeout=10)
    async def tidy() -> str:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(2)
        return "half of it"

    runtime = await open_runtime(tidy, policy=Policy(grace=3))
    batch = runtime.session("s").start_batch([ToolCall(name="tidy")])
    await clock.advance(12)
    assert (await ended(batch))[0].value == "half of it"


@pytest.mark.promise("TIME-01", "CANCEL-02")
async def test_a_tool_that_swallows_its_cancellation_is_given_up_and_keeps_its_claims(clock, open_runtime, finale):
    @tool(key="door", timeout=10)
    async def stubborn() -> str:
        while not finale.is_set():
            try:
                await finale.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    @tool(key="door")
    async def same_door() -> float:
        return float(clock.monotonic())

    @tool(key="window")
    async def other_door() -> float:
        return float(clock.monotonic())

    runtime = await open_runtime(stubborn, same_door, other_door, policy=Policy(max_concurrency=1))
    events = runtime.subscribe()
    session = runtime.session("s")
    batch = session.start_batch(
        [
            ToolCall(id="c1", name="stubborn"),
            ToolCall(id="c2", name="same_door"),
            ToolCall(id="c3", name="other_door"),
        ]
    )
    await clock.advance(10.049)
    assert record(runtime, "c1").status == "running"
    await clock.advance(0.001)
    assert record(runtime, "c1").category == "timeout"
    assert record(runtime, "c3").outcome.value == 10.05  # its slot is free
    assert record(runtime, "c2").status == "running"  # its claim is not
    await clock.advance(10)
    assert record(runtime, "c2").started_at is None
    finale.set()
    await clock.advance(0)
    first, second, third = await ended(batch)
    assert (first.status, first.failure.code) == ("failure", "timeout")
    assert (second.value, third.value) == (20.05, 10.05)
    # What came too late is no second outcome.
    assert of_call(take_all(events), "c1") == ["call.started", "call.finished"]
    assert record(runtime, "c1").outcome is first


@pytest.mark.promise("TIME-01", "CANCEL-02")
async def test_a_thread_that_cannot_be_stopped_keeps_its_claims_while_the_batch_returns_on_time(
    clock, open_runtime, gate
):
    @tool(key="door", timeout=10)
    def stuck() -> str:
        gate.stop_here()
        return "too late"

    @tool(key="door")
    def same_door() -> str:
        return "open"

    runtime = await open_runtime(stuck, same_door)
    events = runtime.subscribe()
    session = runtime.session("s")
    first = session.start_batch([ToolCall(id="c1", name="stuck")])
    second = session.start_batch([ToolCall(id="c2", name="same_door")])
    async with fail_after(5):
        await gate.reached.wait()
        await clock.advance(10.049)
        assert not first.done
        await clock.advance(0.001)
        assert first.done
        (outcome,) = await ended(first)
        assert (outcome.failure.category, outcome.attempts) == ("timeout", 1)
        await clock.advance(5)
        assert record(runtime, "c2").started_at is None
        gate.open()
        (outcome,) = await finished(second)
    assert outcome.value == "open"
    assert record(runtime, "c2").queue_time == 15.05
    assert of_call(take_all(events), "c1") == ["call.started", "call.finished"]


@pytest.mark.promise("TIME-01")
async def test_the_slot_of_a_thread_that_cannot_be_stopped_is_free(clock, open_runtime, gate):
    @tool(parallel=True, timeout=10)
    def stuck() -> None:
        gate.stop_here()

    @tool(parallel=True)
    def quick() -> str:
        return "ran"

    # One thread in all: without the slot and another thread the second call would wait for ever.
    policy = Policy(max_concurrency=1, session_concurrency=1, runtime_concurrency=1)
    runtime = await open_runtime(stuck, quick, policy=policy)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="stuck"), ToolCall(id="c2", name="quick")])
    async with fail_after(5):
        await gate.reached.wait()
        await clock.advance(10.05)
        first, second = await finished(batch)
    assert (first.failure.category, second.value) == ("timeout", "ran")
    assert record(runtime, "c2").queue_time == 10.05


@pytest.mark.promise("TIME-01")
async def test_a_thread_sees_in_its_context_that_its_time_is_up(clock, open_runtime, gate):
    @tool(timeout=10)
    def watchful(ctx: ToolContext) -> list[bool]:
        before = ctx.cancelled
        gate.reached_from_thread()
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.001)
        return [before, ctx.cancelled]

    runtime = await open_runtime(watchful)
    batch = runtime.session("s").start_batch([ToolCall(name="watchful")])
    async with fail_after(5):
        await gate.reached.wait()
        await clock.advance(10)
        (outcome,) = await finished(batch)
    assert outcome.value == [False, True]  # a result inside the grace counts


@pytest.mark.promise("TIME-01")
async def test_a_tool_that_runs_out_of_time_stops_the_tools_it_called(clock, open_runtime):
    @tool
    async def inner() -> None:
        await clock.sleep(3600)

    @tool(timeout=10)
    async def outer(ctx: ToolContext) -> None:
        await ctx.call("inner")

    runtime = await open_runtime(inner, outer)
    batch = runtime.session("s").start_batch([ToolCall(name="outer")])
    await clock.advance(10)
    assert (await ended(batch))[0].failure.category == "timeout"
    (nested,) = runtime.log.query(tool="inner")
    assert (nested.status, nested.outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("TIME-01")
async def test_a_timeout_ends_its_own_call_only(clock, open_runtime):
    @tool(parallel=True, timeout=5)
    async def short() -> None:
        await clock.sleep(3600)

    @tool(parallel=True)
    async def long() -> str:
        await clock.sleep(6)
        return "done"

    runtime = await open_runtime(short, long)
    batch = runtime.session("s").start_batch([ToolCall(name="short"), ToolCall(name="long")])
    await clock.advance(6)
    assert [outcome.status for outcome in await ended(batch)] == ["failure", "success"]


@pytest.mark.promise("TIME-01")
async def test_each_call_has_a_deadline_of_its_own_however_close(clock, open_runtime):
    @tool(parallel=True, timeout=10)
    async def slow() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(slow)
    session = runtime.session("s")
    first = session.start_batch([ToolCall(name="slow")])
    await clock.advance(0.005)
    second = session.start_batch([ToolCall(name="slow")])
    await clock.advance(9.995)
    assert (first.done, second.done) == (True, False)
    await clock.advance(0.004)
    assert not second.done
    await clock.advance(0.001)
    assert second.done


@pytest.mark.promise("TIME-01", "RETRY-01")
async def test_the_second_attempt_of_one_call_does_not_put_off_the_deadline_of_another(clock, open_runtime):
    @tool(parallel=True, idempotent=True, timeout=10, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0))
    async def flaky(ctx: ToolContext) -> None:
        await clock.sleep(5 if ctx.attempt == 1 else 3600)
        raise ToolError("again", retry=True)

    @tool(parallel=True, timeout=10)
    async def slow() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(flaky, slow)
    session = runtime.session("s")
    first = session.start_batch([ToolCall(name="flaky")])
    await clock.advance(1)
    second = session.start_batch([ToolCall(name="slow")])
    await clock.advance(10)
    assert (first.done, second.done) == (False, True)
    await clock.advance(4)
    assert (await ended(first))[0].failure.code == "timeout"


@pytest.mark.promise("TIME-01")
async def test_a_finished_call_leaves_no_deadline_that_could_hit_the_next(clock, open_runtime):
    @tool(timeout=10)
    async def work(seconds: float) -> str:
        await clock.sleep(seconds)
        return "done"

    runtime = await open_runtime(work)
    session = runtime.session("s")
    for _ in range(3):
        batch = session.start_batch([ToolCall(name="work", arguments={"seconds": 6})])
        await clock.advance(6)
        assert (await ended(batch))[0].value == "done"


@pytest.mark.promise("TIME-01", "SCHED-01", "RETRY-01")
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_step_on_a_thread_keeps_the_claims_of_its_call_until_the_thread_ends(clock, open_runtime, gate, how):
    @tool(idempotent=True, timeout=10, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0, on=(TimeoutError,)))
    async def work(ctx: ToolContext) -> None:
        await ctx.step("write", gate.stop_here)

    @tool
    async def after() -> str:
        return "ran"

    runtime = await open_runtime(work, after)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="work")])
    async with fail_after(20):
        await gate.reached.wait()
        if how == "timeout":
            await clock.advance(10)
        else:
            batch.cancel()
        assert not batch.done
        await clock.advance(0.05)
        (outcome,) = await ended(batch)
        assert outcome.status == "cancelled" if how == "cancelled" else outcome.failure.code == "timeout"
        assert (outcome.attempts, gate.inside) == (1, 1)  # no attempt begins beside the thread
        following = session.start_batch([ToolCall(name="after")])
        await clock.advance(5)
        assert not following.done
        gate.open()
        assert (await finished(following))[0].value == "ran"


@pytest.mark.promise("TIME-01", "EFF-06", "RETRY-01")
async def test_a_step_that_ends_in_the_grace_of_its_call_is_not_done_again(clock, open_runtime, gate):
    ran = []

    def write() -> str:
        ran.append("write")
        gate.stop_here()
        return "written"

    @tool(idempotent=True, timeout=10, retry=RetryPolicy(attempts=2, base_delay=0, jitter=0, on=(TimeoutError,)))
    async def work(ctx: ToolContext) -> tuple[int, str]:
        return ctx.attempt, await ctx.step("write", write)

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work")])
    async with fail_after(20):
        await gate.reached.wait()
        await clock.advance(10)
        gate.open()
        (outcome,) = await finished(batch)
    assert (outcome.value, ran) == ([2, "written"], ["write"])


@pytest.mark.promise("TIME-01", "EFF-06")
async def test_time_that_a_tool_gives_to_a_step_on_a_thread_ends_when_the_thread_does(clock, open_runtime, gate):
    inside = []

    @tool
    async def work(ctx: ToolContext) -> str:
        step = asyncio.ensure_future(ctx.step("write", gate.stop_here))
        await gate.reached.wait()
        step.cancel()
        asyncio.get_running_loop().call_soon(gate.open)
        with contextlib.suppress(asyncio.CancelledError):
            await step
        inside.append(gate.inside)
        return "stopped" if step.cancelled() else "done"

    runtime = await open_runtime(work)
    async with fail_after(20):
        (outcome,) = await runtime.session("s").run_batch([ToolCall(name="work")])
    assert (outcome.value, inside) == ("stopped", [0])
