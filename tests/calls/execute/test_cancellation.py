"""Stopping a batch, from whichever side."""

import asyncio

import pytest

from tests.calls.execute.watching import ended, finished, of_call, record, take_all
from tests.support import fail_after
from toolwright import Failure, Policy, RetryPolicy, Runtime, RuntimeClosed, ToolCall, ToolContext, ToolError, tool

WAYS = ["batch.cancel", "session.cancel", "runtime.close", "task.cancel"]


class Stopping:
    """Stops a batch in one of the four ways, and waits until it is over."""

    def __init__(self, way, clock, runtime, calls, **changes):
        self._way = way
        self._clock = clock
        self._runtime = runtime
        self._session = runtime.session("s")
        if way == "task.cancel":
            self._task = asyncio.create_task(self._session.run_batch(calls, **changes))
        else:
            self._batch = self._session.start_batch(calls, **changes)

    def begin(self):
        if self._way == "batch.cancel":
            self._batch.cancel()
        elif self._way == "session.cancel":
            self._session.cancel()
        elif self._way == "runtime.close":
            self._task = asyncio.create_task(self._runtime.close())
        else:
            self._task.cancel()

    async def end(self):
        if self._way != "task.cancel":
            await ended(self._batch)
        if self._way == "task.cancel":
            assert self._task.cancelled()
        elif self._way == "runtime.close":
            assert self._task.done()
            await self._task

    def over(self):
        return self._task.done() if self._way == "task.cancel" else self._batch.done


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_stops_what_runs_and_never_starts_the_rest(way, clock, open_runtime):
    ran = []

    @tool(timeout=10)
    async def work(name: str) -> str:
        ran.append(name)
        await clock.sleep(5)
        return name

    runtime = await open_runtime(work)
    events = runtime.subscribe()
    calls = [ToolCall(id=name, name="work", arguments={"name": name}) for name in ("c1", "c2", "c3")]
    stopping = Stopping(way, clock, runtime, calls)
    await clock.advance(6)  # the first is done, the second runs, the third waits
    stopping.begin()
    await clock.advance(0)
    assert stopping.over()
    await stopping.end()
    assert ran == ["c1", "c2"]
    first, second, third = (record(runtime, call_id).outcome for call_id in ("c1", "c2", "c3"))
    assert (first.status, first.value) == ("success", "c1")
    assert (second.status, second.may_have_run, second.attempts) == ("cancelled", True, 1)
    assert (third.status, third.may_have_run, third.attempts) == ("cancelled", False, 0)
    assert "it may have had an effect" in second.text
    assert "it did not run" in third.text
    assert record(runtime, "c3").started_at is None
    taken = take_all(events)
    assert [of_call(taken, call_id) for call_id in ("c1", "c2", "c3")] == [["call.started", "call.finished"]] * 3
    await clock.advance(60)
    assert ran == ["c1", "c2"]


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_result_inside_the_grace_wins(way, clock, open_runtime):
    @tool
    async def tidy() -> str:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(0.049)
        return "half of it"

    runtime = await open_runtime(tidy)
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="tidy")])
    await clock.advance(1)
    stopping.begin()
    await clock.advance(0.048)
    assert not stopping.over()
    await clock.advance(0.001)
    await stopping.end()
    assert (record(runtime, "c1").status, record(runtime, "c1").outcome.value) == ("success", "half of it")


@pytest.mark.promise("CANCEL-01", "CANCEL-02")
@pytest.mark.parametrize("way", ["batch.cancel", "session.cancel", "task.cancel"])
async def test_a_tool_that_does_not_stop_is_given_up_after_the_grace(way, clock, open_runtime, finale):
    @tool
    async def stubborn() -> str:
        while not finale.is_set():
            try:
                await finale.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    @tool
    async def after() -> str:
        return "ran"

    runtime = await open_runtime(stubborn, after)
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="stubborn")])
    await clock.advance(1)
    stopping.begin()
    await clock.advance(0.049)
    assert not stopping.over()
    await clock.advance(0.001)
    assert stopping.over()
    await stopping.end()
    outcome = record(runtime, "c1").outcome
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)
    following = runtime.session("s").start_batch([ToolCall(name="after")])
    await clock.advance(5)
    assert not following.done  # the code still runs, so the claim holds
    finale.set()
    await clock.advance(0)
    assert (await ended(following))[0].value == "ran"
    assert record(runtime, "c1").outcome is outcome


@pytest.mark.promise("CANCEL-01", "CANCEL-02")
async def test_a_thread_that_does_not_stop_is_given_up_after_the_grace(clock, open_runtime, gate):
    seen = []

    @tool
    def stuck(ctx: ToolContext) -> str:
        gate.stop_here()
        seen.append(ctx.cancelled)
        return "too late"

    @tool
    def after() -> str:
        return "ran"

    runtime = await open_runtime(stuck, after)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="stuck")])
    async with fail_after(5):
        await gate.reached.wait()
        batch.cancel("no longer needed")
        await clock.advance(0.049)
        assert not batch.done
        await clock.advance(0.001)
        (outcome,) = await ended(batch)
        following = session.start_batch([ToolCall(name="after")])
        await clock.advance(5)
        assert not following.done
        gate.open()
        assert (await finished(following))[0].value == "ran"
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "no longer needed", True)
    assert seen == [True]


@pytest.mark.promise("CANCEL-01")
async def test_a_result_of_a_thread_inside_the_grace_wins(clock, open_runtime, gate):
    @tool
    def work() -> str:
        gate.stop_here()
        return "done"

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    async with fail_after(5):
        await gate.reached.wait()
        batch.cancel()
        gate.open()
        (outcome,) = await finished(batch)
    assert (outcome.status, outcome.value) == ("success", "done")


@pytest.mark.promise("CANCEL-01")
async def test_a_batch_cancelled_before_its_first_step_runs_nothing(clock, open_runtime):
    ran = []

    @tool(parallel=True)
    async def work() -> None:
        ran.append("async")

    @tool(parallel=True)
    def sync_work() -> None:
        ran.append("thread")

    runtime = await open_runtime(work, sync_work)
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch(
        [ToolCall(id="c1", name="work"), ToolCall(id="c2", name="sync_work"), ToolCall(id="c3", name="nobody")]
    )
    batch.cancel("changed my mind")
    await clock.advance(0)
    outcomes = await ended(batch)
    await clock.advance(60)
    assert ran == []
    assert [outcome.status for outcome in outcomes[:2]] == ["cancelled", "cancelled"]
    assert [outcome.may_have_run for outcome in outcomes] == [False, False, False]
    assert [outcome.attempts for outcome in outcomes] == [0, 0, 0]
    assert [record(runtime, call_id).attempts for call_id in ("c1", "c2", "c3")] == [0, 0, 0]
    assert "it did not run" in outcomes[0].text
    taken = take_all(events)
    for call_id in ("c1", "c2", "c3"):
        assert of_call(taken, call_id) == ["call.started", "call.finished"]


@pytest.mark.promise("CANCEL-01")
async def test_cancelling_twice_is_cancelling_once(clock, open_runtime):
    cancellations = []

    @tool
    async def tidy() -> str:
        while True:
            try:
                await clock.sleep(3600)
            except asyncio.CancelledError:
                cancellations.append(clock.monotonic())
                await clock.sleep(0.04)
                return "half of it"

    runtime = await open_runtime(tidy)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="tidy"), ToolCall(id="c2", name="tidy")])
    await clock.advance(1)
    batch.cancel("first")
    await clock.advance(0.02)
    batch.cancel("second")
    session.cancel("third")
    await clock.advance(0.02)
    first, second = await ended(batch)
    assert cancellations == [1.0]
    assert first.value == "half of it"
    assert (second.status, second.reason) == ("cancelled", "first")
    batch.cancel("fourth")
    assert (await ended(batch)) == [first, second]


@pytest.mark.promise("CANCEL-01")
async def test_cancelling_a_finished_batch_changes_nothing(clock, open_runtime):
    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work")])
    await clock.advance(0)
    (outcome,) = await ended(batch)
    batch.cancel()
    assert (await ended(batch)) == [outcome]
    assert outcome.value == "done"


@pytest.mark.promise("CANCEL-01", "RETRY-01")
async def test_a_call_cancelled_between_two_attempts_may_have_run(clock, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=10, jitter=0))
    async def flaky() -> None:
        attempts.append(clock.monotonic())
        raise ToolError("busy", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="flaky")])
    await clock.advance(4)
    batch.cancel("no longer needed")
    await clock.advance(0)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.reason, outcome.attempts) == ("cancelled", "no longer needed", 1)
    assert outcome.may_have_run
    await clock.advance(60)
    assert attempts == [0.0]


@pytest.mark.promise("CANCEL-01", "RETRY-01")
@pytest.mark.parametrize("raised", [True, False])
async def test_a_failure_inside_the_grace_is_not_tried_again(raised, clock, open_runtime):
    attempts = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0))
    async def flaky() -> Failure:
        attempts.append(clock.monotonic())
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            if raised:
                raise ToolError("interrupted", retry=True) from None
        return Failure(message="interrupted", retry=True)

    runtime = await open_runtime(flaky)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="flaky")])
    await clock.advance(4)
    batch.cancel()
    await clock.advance(60)
    (outcome,) = await ended(batch)
    assert attempts == [0.0]
    # It says that another attempt may do better, so it is no result: the call was stopped before that attempt.
    assert (outcome.status, outcome.attempts) == ("cancelled", 1)


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_while_a_hook_before_the_tool_runs_does_not_wait_for_the_hook(
    way, clock, open_runtime, finale
):
    ran, asked = [], []

    async def ask_someone(call):
        asked.append(call.call_id)
        await finale.wait()

    @tool(parallel=True)
    async def work() -> None:
        ran.append("work")

    runtime = await open_runtime(work, before=[ask_someone])
    events = runtime.subscribe()
    calls = [ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work"), ToolCall(id="c3", name="nobody")]
    stopping = Stopping(way, clock, runtime, calls)
    await clock.advance(1)
    stopping.begin()
    await clock.advance(0.05)
    await stopping.end()
    assert (asked, ran) == (["c1", "c2"], [])
    for call_id in ("c1", "c2"):
        outcome = record(runtime, call_id).outcome
        assert (outcome.status, outcome.may_have_run, outcome.attempts) == ("cancelled", False, 0)
    assert record(runtime, "c3").status in ("failure", "cancelled")
    taken = take_all(events)
    assert [of_call(taken, call_id) for call_id in ("c1", "c2", "c3")] == [["call.started", "call.finished"]] * 3


@pytest.mark.promise("CANCEL-01")
async def test_a_hook_before_the_tool_that_ends_after_the_cancellation_starts_nothing(clock, open_runtime):
    ran = []

    async def think(call):
        await clock.sleep(0.03)

    @tool
    async def work() -> None:
        ran.append("work")

    runtime = await open_runtime(work, before=[think])
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    await clock.advance(0.01)
    batch.cancel()
    await clock.advance(1)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.may_have_run, ran) == ("cancelled", False, [])


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_a_result_stands_when_its_batch_is_cancelled_while_a_hook_after_it_runs(way, clock, open_runtime):
    async def note(call, outcome):
        await clock.sleep(0.03)

    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work, after=[note])
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="work")])
    await clock.advance(0.01)
    stopping.begin()
    await clock.advance(0.02)
    await stopping.end()
    assert (record(runtime, "c1").status, record(runtime, "c1").outcome.value) == ("success", "done")


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_does_not_wait_for_a_hook_after_the_tool_that_hangs(way, clock, open_runtime, finale):
    async def hang(call, outcome):
        await finale.wait()

    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work, after=[hang])
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="work")])
    await clock.advance(1)
    stopping.begin()
    await clock.advance(0.05)
    await stopping.end()
    outcome = record(runtime, "c1").outcome
    # The tool did run to its end; whatever the call is called now, it must not say that it did not.
    assert outcome.status == "success" or outcome.may_have_run


@pytest.mark.promise("CANCEL-01")
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_does_not_wait_for_a_hook_after_a_call_that_never_ran(way, clock, open_runtime, finale):
    async def hang(call, outcome):
        await finale.wait()

    @tool
    async def fails() -> None:
        raise ToolError("no")

    runtime = await open_runtime(fails, after=[hang])
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="fails"), ToolCall(id="c2", name="nobody")])
    await clock.advance(1)
    stopping.begin()
    await clock.advance(0.05)
    await stopping.end()
    assert record(runtime, "c2").category == "not_found"


@pytest.mark.promise("CANCEL-01", "TIME-01")
@pytest.mark.parametrize("way", WAYS)
async def test_cancelling_does_not_wait_for_a_hook_after_a_call_that_was_given_up(way, clock, open_runtime, finale):
    async def hang(call, outcome):
        await finale.wait()

    @tool(timeout=10)
    async def stubborn() -> None:
        while not finale.is_set():
            try:
                await finale.wait()
            except asyncio.CancelledError:
                continue

    runtime = await open_runtime(stubborn, after=[hang])
    stopping = Stopping(way, clock, runtime, [ToolCall(id="c1", name="stubborn")])
    await clock.advance(10.05)
    stopping.begin()
    await clock.advance(0.05)
    assert record(runtime, "c1").status in ("failure", "cancelled")
    assert record(runtime, "c1").outcome.failure is not None or record(runtime, "c1").outcome.may_have_run
    if way != "runtime.close":  # which gives the code itself a last chance
        await stopping.end()


@pytest.mark.promise("CANCEL-01")
async def test_a_call_that_is_cancelled_while_it_waits_lets_nobody_overtake(clock, open_runtime):
    order = []

    @tool
    async def work(name: str) -> None:
        order.append(f"{name} in")
        await clock.sleep(10)
        order.append(f"{name} out")

    runtime = await open_runtime(work)
    session = runtime.session("s")
    first, second, third = (
        session.start_batch([ToolCall(id=name, name="work", arguments={"name": name})]) for name in "abc"
    )
    await clock.advance(1)
    second.cancel()
    await clock.advance(1)
    assert (await ended(second))[0].status == "cancelled"
    assert order == ["a in"]
    await clock.advance(20)
    assert [batch.done for batch in (first, third)] == [True, True]
    assert order == ["a in", "a out", "c in", "c out"]


@pytest.mark.promise("CANCEL-01")
async def test_cancelling_a_batch_leaves_the_sessions_others_alone(clock, open_runtime):
    @tool(parallel=True)
    async def work() -> str:
        await clock.sleep(5)
        return "done"

    runtime = await open_runtime(work)
    session = runtime.session("s")
    first, second = session.start_batch([ToolCall(name="work")]), session.start_batch([ToolCall(name="work")])
    other = runtime.session("other").start_batch([ToolCall(name="work")])
    await clock.advance(1)
    first.cancel()
    await clock.advance(4)
    assert [(await ended(batch))[0].status for batch in (first, second, other)] == ["cancelled", "success", "success"]
    second, other = (
        session.start_batch([ToolCall(name="work")]),
        runtime.session("other").start_batch([ToolCall(name="work")]),
    )
    await clock.advance(1)
    session.cancel()
    await clock.advance(4)
    assert [(await ended(batch))[0].status for batch in (second, other)] == ["cancelled", "success"]


@pytest.mark.promise("CANCEL-01")
async def test_cancelling_reaches_the_tools_that_a_tool_called(clock, open_runtime):
    reached = []

    @tool
    async def inner() -> None:
        try:
            await clock.sleep(3600)
        finally:
            reached.append("inner")

    @tool
    async def outer(ctx: ToolContext) -> None:
        await ctx.run_batch([ToolCall(id="n1", name="inner"), ToolCall(id="n2", name="inner")])

    runtime = await open_runtime(inner, outer)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="outer")])
    await clock.advance(1)
    batch.cancel()
    await clock.advance(0)
    assert [outcome.status for outcome in await ended(batch)] == ["cancelled"]
    assert reached == ["inner"]
    assert [record(runtime, call_id).outcome.may_have_run for call_id in ("n1", "n2")] == [True, False]


@pytest.mark.promise("CANCEL-01")
async def test_a_task_that_is_cancelled_waits_until_its_calls_have_stopped(clock, open_runtime):
    tidied = []

    @tool
    async def tidy() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await clock.sleep(0.03)
            tidied.append(clock.monotonic())

    runtime = await open_runtime(tidy)
    task = asyncio.create_task(runtime.session("s").run_batch([ToolCall(id="c1", name="tidy")]))
    await clock.advance(1)
    task.cancel()
    await clock.advance(0.02)
    assert not task.done()
    await clock.advance(0.01)
    assert task.cancelled()
    assert tidied == [1.03]
    assert record(runtime, "c1").status == "cancelled"


@pytest.mark.promise("CANCEL-01", "CANCEL-02")
async def test_a_task_that_is_cancelled_twice_leaves_at_once_and_its_calls_still_end(clock, open_runtime):
    @tool
    async def tidy() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await clock.sleep(0.03)

    runtime = await open_runtime(tidy)
    events = runtime.subscribe()
    task = asyncio.create_task(runtime.session("s").run_batch([ToolCall(id="c1", name="tidy")]))
    await clock.advance(1)
    task.cancel()
    await clock.advance(0.01)
    assert not task.done()
    task.cancel()
    await clock.advance(0)
    assert task.cancelled()
    await clock.advance(0.02)
    assert record(runtime, "c1").status == "cancelled"
    assert of_call(take_all(events), "c1") == ["call.started", "call.finished"]


@pytest.mark.promise("CANCEL-01")
async def test_a_task_cancelled_before_it_ran_starts_no_call(clock, open_runtime):
    ran = []

    @tool
    async def work() -> None:
        ran.append("work")

    runtime = await open_runtime(work)
    task = asyncio.create_task(runtime.session("s").run_batch([ToolCall(name="work")]))
    task.cancel()
    await clock.advance(1)
    assert task.cancelled()
    assert (ran, len(runtime.log)) == ([], 0)


@pytest.mark.promise("CANCEL-01")
async def test_two_may_wait_for_one_batch_and_the_first_to_be_cancelled_stops_it_for_both(clock, open_runtime):
    @tool
    async def work() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    one, other = asyncio.create_task(batch.wait()), asyncio.create_task(batch.wait())
    await clock.advance(1)
    one.cancel()
    await clock.advance(0)
    assert one.cancelled()
    assert [outcome.status for outcome in await other] == ["cancelled"]


@pytest.mark.promise("CANCEL-01")
async def test_a_tool_may_cancel_its_own_session(clock, open_runtime):
    @tool
    async def stop_all() -> str:
        runtime.session("s").cancel("the tool said so")
        await clock.sleep(3600)
        return "never"

    runtime = await open_runtime(stop_all)
    batch = runtime.session("s").start_batch([ToolCall(name="stop_all"), ToolCall(name="stop_all")])
    await clock.advance(0)
    outcomes = await ended(batch)
    assert [(outcome.reason, outcome.may_have_run) for outcome in outcomes] == [
        ("the tool said so", True),
        ("the tool said so", False),
    ]


@pytest.mark.promise("CANCEL-01", "TIME-01")
async def test_a_timeout_during_the_grace_of_a_cancellation_changes_nothing(clock, open_runtime):
    @tool(timeout=10)
    async def slow_to_stop() -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(0.04)
            raise

    runtime = await open_runtime(slow_to_stop)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="slow_to_stop")])
    await clock.advance(9.98)
    batch.cancel()
    await clock.advance(0.04)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("CANCEL-01", "TIME-01")
async def test_a_cancellation_during_the_grace_of_a_timeout_leaves_it_a_timeout(clock, open_runtime):
    seen = []

    @tool(timeout=10)
    async def slow_to_stop() -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            seen.append(clock.monotonic())
            await clock.sleep(0.04)
            seen.append(clock.monotonic())
            raise

    runtime = await open_runtime(slow_to_stop)
    batch = runtime.session("s").start_batch([ToolCall(name="slow_to_stop"), ToolCall(name="slow_to_stop")])
    await clock.advance(10.02)
    batch.cancel()
    await clock.advance(0.02)
    first, second = await ended(batch)
    assert first.failure.code == "timeout"
    assert (second.status, second.may_have_run) == ("cancelled", False)
    assert seen == [10.0, 10.04]  # the grace was not cut short


@pytest.mark.promise("CANCEL-01")
async def test_a_program_that_stops_cancels_its_calls(clock, open_runtime):
    tasks = []

    @tool
    async def work() -> None:
        tasks.append(asyncio.current_task())
        await clock.sleep(3600)

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    await clock.advance(1)
    tasks[0].cancel()  # as the end of `asyncio.run` does to every task
    await clock.advance(0)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.may_have_run) == ("cancelled", True)


@pytest.mark.promise("CANCEL-01", "CANCEL-02")
async def test_closing_a_runtime_stops_every_session_within_one_grace(clock, open_runtime):
    cancelled_at = {}

    @tool(parallel=True)
    async def slow_to_stop(name: str) -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            cancelled_at[name] = clock.monotonic()
            await clock.sleep(0.04)
            raise

    runtime = await open_runtime(slow_to_stop)
    batches = [
        runtime.session(name).start_batch([ToolCall(name="slow_to_stop", arguments={"name": name})]) for name in "abc"
    ]
    await clock.advance(1)
    closing = asyncio.create_task(runtime.close())
    await clock.advance(0.04)
    assert cancelled_at == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert closing.done()
    assert [(await ended(batch))[0].status for batch in batches] == ["cancelled"] * 3


@pytest.mark.promise("CANCEL-02")
async def test_a_closed_runtime_takes_no_more_work(clock, open_runtime):
    @tool
    async def work() -> None: ...

    runtime = await open_runtime(work)
    session = runtime.session("s")
    await runtime.close()
    await runtime.close()
    with pytest.raises(RuntimeClosed):
        runtime.session("s")
    with pytest.raises(RuntimeClosed):
        session.start_batch([ToolCall(name="work")])


@pytest.mark.promise("CANCEL-02")
async def test_whoever_closes_a_runtime_second_waits_for_its_end_too(clock, open_runtime):
    @tool
    async def slow_to_stop() -> None:
        try:
            await clock.sleep(3600)
        finally:
            await clock.sleep(0.03)

    runtime = await open_runtime(slow_to_stop)
    runtime.session("s").start_batch([ToolCall(name="slow_to_stop")])
    await clock.advance(1)
    closing = [asyncio.create_task(runtime.close()) for _ in range(2)]
    await clock.advance(0.02)
    assert [task.done() for task in closing] == [False, False]
    await clock.advance(0.01)
    assert [task.done() for task in closing] == [True, True]


@pytest.mark.promise("CANCEL-02")
async def test_a_close_that_is_interrupted_still_ends_threads_and_tasks(clock, open_runtime, gate):
    @tool(parallel=True)
    def stuck() -> None:
        gate.stop_here()

    @tool(parallel=True)
    async def waits() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(stuck, waits)
    watcher = runtime.subscribe()
    runtime.session("s").start_batch([ToolCall(name="stuck"), ToolCall(name="waits")])
    async with fail_after(5):
        await gate.reached.wait()
        closing = asyncio.create_task(runtime.close())
        await clock.advance(0.01)
        closing.cancel()
        await clock.advance(0.04)
        await asyncio.wait([closing])
        gate.open()
        async for _ in watcher:  # ends only when the runtime is closed
            pass
        await runtime.close()
    assert closing.cancelled()


@pytest.mark.promise("CANCEL-02")
async def test_closing_ends_the_code_of_calls_that_were_given_up(clock, open_runtime):
    @tool(timeout=10)
    async def slow_to_stop() -> None:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(3600)

    runtime = await open_runtime(slow_to_stop)
    batch = runtime.session("s").start_batch([ToolCall(name="slow_to_stop")])
    await clock.advance(10.05)
    assert (await ended(batch))[0].failure.code == "timeout"
    async with fail_after(5):
        await runtime.close()
    # The suite looks for the task.


@pytest.mark.promise("CANCEL-01", "TIME-01")
async def test_a_call_that_waits_too_long_for_its_turn_lets_nobody_overtake(clock, open_runtime):
    order = []

    @tool
    async def work(name: str) -> None:
        order.append(name)
        await clock.sleep(20)

    runtime = await open_runtime(work, policy=Policy(queue_timeout=None))
    session = runtime.session("s")

    def start(name, **changes):
        return session.start_batch([ToolCall(id=name, name="work", arguments={"name": name})], **changes)

    first, second, third = start("a"), start("b", queue_timeout=5), start("c")
    await clock.advance(6)
    (outcome,) = await ended(second)
    assert (outcome.failure.code, outcome.attempts) == ("queue_timeout", 0)
    assert order == ["a"]
    await clock.advance(40)
    assert [batch.done for batch in (first, third)] == [True, True]
    assert order == ["a", "c"]


@pytest.mark.promise("CANCEL-01")
async def test_a_tool_that_cancels_its_own_task_is_told_so():
    @tool
    async def quits() -> str:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)
        return "not reached"

    async with Runtime.open(tools=[quits]) as runtime:
        outcome = await runtime.session("s").call("quits")
    assert (outcome.status, outcome.reason) == ("cancelled", "the tool cancelled its own task")
