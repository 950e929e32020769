"""Synchronous tools on threads, and what every call sees of its surroundings."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tests.calls.execute.gates import ThreadGate
from tests.calls.execute.watching import ended, finished, of_call, take_all
from tests.support import fail_after
from toolwright import Policy, ToolCall, ToolContext, tool

user: ContextVar[str] = ContextVar("user", default="nobody")


@pytest.mark.promise("RUN-08")
async def test_a_sync_tool_runs_off_the_loop_which_goes_on(open_runtime, gate):
    threads = []

    @tool
    def blocks() -> str:
        threads.append(threading.current_thread())
        gate.stop_here()
        return "done"

    runtime = await open_runtime(blocks)
    batch = runtime.session("s").start_batch([ToolCall(name="blocks")])
    async with fail_after(5):
        await gate.reached.wait()
        turns = 0
        while turns < 1000:  # the loop turns while the tool holds its thread
            await asyncio.sleep(0)
            turns += 1
        assert not batch.done
        gate.open()
    assert (await finished(batch))[0].value == "done"
    assert threads[0] is not threading.main_thread()


@pytest.mark.promise("RUN-08")
async def test_no_more_threads_run_than_the_runtime_allows(open_runtime, gate):
    threads = set()

    @tool(parallel=True)
    def blocks() -> None:
        threads.add(threading.current_thread())
        gate.stop_here()

    policy = Policy(max_concurrency=50, session_concurrency=50, runtime_concurrency=3)
    runtime = await open_runtime(blocks, policy=policy)
    batches = [runtime.session(name).start_batch([ToolCall(name="blocks")] * 5) for name in "ab"]
    async with fail_after(5):
        await gate.reached.wait()
        await gate.holds(3)
        gate.open()
        for batch in batches:
            assert [outcome.status for outcome in await finished(batch)] == ["success"] * 5
    assert gate.most_inside == 3
    assert len(threads) == 3


@pytest.mark.promise("RUN-08")
async def test_sync_tools_overlap(open_runtime):
    meeting = threading.Barrier(4)

    @tool(parallel=True)
    def meets() -> str:
        meeting.wait(60)  # breaks unless all four are here
        return "met"

    runtime = await open_runtime(meets)
    outcomes = await finished(runtime.session("s").start_batch([ToolCall(name="meets")] * 4))
    assert [outcome.value for outcome in outcomes] == ["met"] * 4


@pytest.mark.promise("RUN-08")
async def test_a_call_never_waits_for_a_busy_thread_while_another_may_be_started(open_runtime):
    # Many rounds, for this is about the moment at which a thread takes up its next call.
    @tool(parallel=True)
    def meets(number: int) -> None:
        meetings[number].wait(60)

    rounds = 200
    meetings = [threading.Barrier(2) for _ in range(rounds)]
    runtime = await open_runtime(meets, policy=Policy(on_loop="ignore"))
    session = runtime.session("s")
    for number in range(rounds):
        calls = [ToolCall(name="meets", arguments={"number": number})] * 2
        outcomes = await finished(session.start_batch(calls))
        assert [outcome.status for outcome in outcomes] == ["success", "success"]


@pytest.mark.promise("RUN-08")
async def test_threads_are_used_again(open_runtime):
    @tool
    def where() -> int:
        return threading.get_ident()

    runtime = await open_runtime(where, policy=Policy(on_loop="ignore"))
    outcomes = await finished(runtime.session("s").start_batch([ToolCall(name="where")] * 50))
    assert len({outcome.value for outcome in outcomes}) == 1


@pytest.mark.promise("RUN-08")
async def test_context_variables_reach_the_thread_and_what_it_sets_stays_there(open_runtime):
    @tool
    def whose() -> str:
        found = user.get()
        user.set("the thread")
        return found

    runtime = await open_runtime(whose)
    user.set("ada")
    outcomes = await finished(runtime.session("s").start_batch([ToolCall(name="whose"), ToolCall(name="whose")]))
    assert [outcome.value for outcome in outcomes] == ["ada", "ada"]
    assert user.get() == "ada"


@pytest.mark.promise("RUN-08")
@pytest.mark.parametrize("kind", ["async", "async that waits", "thread"])
async def test_a_call_sees_the_context_of_its_own_batch_whoever_it_had_to_wait_for(kind, clock, open_runtime):
    if kind == "async":

        @tool(name="whose")
        async def whose() -> str:
            found = user.get()
            user.set("an earlier call")
            return found

    elif kind == "async that waits":

        @tool(name="whose")
        async def whose() -> str:
            await clock.sleep(0.01)
            found = user.get()
            user.set("an earlier call")
            await clock.sleep(0.01)
            return found

    else:

        @tool(name="whose")
        def whose() -> str:
            found = user.get()
            user.set("an earlier call")
            return found

    runtime = await open_runtime(whose)
    session = runtime.session("s")

    async def work_for(name):
        user.set(name)
        return session.start_batch([ToolCall(name="whose"), ToolCall(name="whose")])

    ada = await asyncio.create_task(work_for("ada"))
    bob = await asyncio.create_task(work_for("bob"))  # waits for ada's
    await clock.advance(1)
    values = [[outcome.value for outcome in await finished(batch)] for batch in (ada, bob)]
    assert values == [["ada", "ada"], ["bob", "bob"]]
    assert user.get() == "nobody"


@pytest.mark.promise("RUN-08")
async def test_a_call_that_waited_for_a_slot_of_another_session_sees_its_own_context(clock, open_runtime):
    @tool(parallel=True)
    async def whose() -> str:
        found = user.get()
        user.set("an earlier call")
        await clock.sleep(1)
        return found

    runtime = await open_runtime(whose, policy=Policy(runtime_concurrency=1))

    async def work_for(name):
        user.set(name)
        return runtime.session(name).start_batch([ToolCall(name="whose")] * 2)

    batches = [await asyncio.create_task(work_for(name)) for name in ("ada", "bob")]
    await clock.advance(10)
    values = [[outcome.value for outcome in await ended(batch)] for batch in batches]
    assert values == [["ada", "ada"], ["bob", "bob"]]


@pytest.mark.promise("RUN-08")
async def test_hooks_and_prepare_steps_see_the_context_of_their_batch(clock, open_runtime):
    seen = []

    async def before(call):
        seen.append(("before", user.get()))

    async def after(call, outcome):
        seen.append(("after", user.get()))

    async def prepare(arguments, call):
        seen.append(("prepare", user.get()))

    @tool(prepare=prepare)
    async def work() -> None:
        seen.append(("tool", user.get()))

    runtime = await open_runtime(work, before=[before], after=[after])
    user.set("ada")
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    await clock.advance(0)
    await ended(batch)
    assert seen == [("before", "ada"), ("prepare", "ada"), ("tool", "ada"), ("after", "ada")]


@pytest.mark.promise("RUN-08", "RUN-10")
async def test_progress_from_a_thread_lies_between_start_and_finish_in_order(open_runtime):
    @tool
    def reports(ctx: ToolContext) -> str:
        for number in range(100):
            ctx.progress(number, total=100, label=f"step {number}")
        ctx.output("stdout", "a line\n")
        return "done"

    asyncio.get_running_loop().set_debug(True)  # what a thread does to the loop in the wrong way raises
    runtime = await open_runtime(reports)
    taken = []

    async def watch() -> None:
        async for event in events:
            taken.append(event)

    events = runtime.subscribe()
    watching = asyncio.create_task(watch())
    (outcome,) = await finished(runtime.session("s").start_batch([ToolCall(id="c1", name="reports")]))
    assert outcome.value == "done"
    events.close()
    await watching
    assert of_call(taken, "c1") == [
        "call.started",
        *["call.progress"] * 100,
        "call.output",
        "call.finished",
    ]
    progress = [(event.current, event.label) for event in taken if event.kind == "call.progress"]
    assert progress == [(number, f"step {number}") for number in range(100)]


@pytest.mark.promise("RUN-10")
async def test_what_a_thread_reports_after_its_call_was_given_up_is_not_heard(clock, open_runtime, gate):
    @tool(timeout=10)
    def stuck(ctx: ToolContext) -> None:
        ctx.progress(1)
        gate.stop_here()
        ctx.progress(2)
        ctx.output("stdout", "late")

    runtime = await open_runtime(stuck)
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="stuck")])
    async with fail_after(5):
        await gate.reached.wait()
        await clock.advance(10.05)
        await ended(batch)
        gate.open()
        await gate.passed.wait()
        await runtime.close()
    assert of_call(take_all(events), "c1") == ["call.started", "call.progress", "call.finished"]


@pytest.mark.promise("RUN-08", "SCHED-06")
async def test_nested_calls_find_a_thread_even_when_their_siblings_and_ancestors_hold_them_all(
    clock, open_runtime, gate
):
    @tool(parallel=True, timeout=10)
    def blocks() -> str:
        gate.stop_here()
        return "done"

    @tool(parallel=True, timeout=10)
    def quick() -> str:
        return "done"

    @tool(parallel=True, timeout=600)
    async def outer(ctx: ToolContext) -> list[str]:
        outcomes = await ctx.run_batch(
            [ToolCall(id="n1", name="blocks"), ToolCall(id="n2", name="quick"), ToolCall(id="n3", name="quick")]
        )
        return [outcome.status for outcome in outcomes]

    runtime = await open_runtime(blocks, quick, outer, policy=Policy(runtime_concurrency=1))
    events = runtime.subscribe()
    batch = runtime.session("s").start_batch([ToolCall(name="outer")])
    async with fail_after(5):
        await gate.reached.wait()
        finished_calls: set[str] = set()
        while len(finished_calls) < 2:
            event = await anext(events)
            if event.kind == "call.finished":
                finished_calls.add(event.call_id)
        assert finished_calls == {"n2", "n3"}
        gate.open()
        (outcome,) = await finished(batch)
    assert outcome.value == ["success"] * 3


@pytest.mark.promise("CANCEL-02", "RUN-08")
async def test_threads_end_with_the_runtime_and_stuck_ones_once_they_come_back(clock, open_runtime):
    gates = [ThreadGate() for _ in range(3)]
    threads = []

    @tool(parallel=True, timeout=10)
    def stuck(number: int) -> None:
        threads.append(threading.current_thread())
        gates[number].stop_here()

    @tool(parallel=True)
    def quick() -> None:
        threads.append(threading.current_thread())

    runtime = await open_runtime(stuck, quick)
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(name="stuck", arguments={"number": number}) for number in range(3)])
    try:
        async with fail_after(5):
            for gate in gates:
                await gate.reached.wait()
            await clock.advance(10.05)
            assert [outcome.failure.code for outcome in await ended(batch)] == ["timeout"] * 3
            await finished(session.start_batch([ToolCall(name="quick")] * 8))
            await runtime.close()
    finally:
        for gate in gates:
            gate.open()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.promise("RUN-08")
async def test_a_sync_tool_that_returns_an_awaitable_is_awaited(clock, open_runtime):
    async def later() -> str:
        await clock.sleep(0)
        return "done"

    @tool
    def wraps():
        """Hand over to another function, as decorators do."""
        return later()

    runtime = await open_runtime(wraps)
    (outcome,) = await finished(runtime.session("s").start_batch([ToolCall(name="wraps")]))
    assert outcome.value == "done"


@pytest.mark.promise("RUN-08", "TIME-01")
async def test_a_timeout_stops_what_a_sync_tool_left_to_be_awaited(clock, open_runtime):
    stopped: list[float] = []

    async def later() -> None:
        started.set()
        try:
            await clock.sleep(3600)
        finally:
            stopped.append(clock.monotonic())

    @tool(timeout=10)
    def wraps():
        """Hand over to another function, as decorators do."""
        return later()

    started = asyncio.Event()
    runtime = await open_runtime(wraps)
    batch = runtime.session("s").start_batch([ToolCall(name="wraps")])
    async with fail_after(5):
        await started.wait()
    await clock.advance(10)
    assert stopped == [10.0]
    assert (await ended(batch))[0].failure.code == "timeout"


@pytest.mark.promise("RUN-08")
async def test_every_async_call_has_a_task_of_its_own(clock, open_runtime):
    tasks = []

    @tool(parallel=True)
    async def work(number: int) -> None:
        tasks.append(asyncio.current_task())
        await clock.sleep(number % 3)
        assert asyncio.current_task() is tasks[number]

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch([ToolCall(name="work", arguments={"number": n}) for n in range(8)])
    await clock.advance(5)
    assert [outcome.status for outcome in await ended(batch)] == ["success"] * 8
    waiting = [task for number, task in enumerate(tasks) if number % 3]
    assert len(set(waiting)) == len(waiting)


@pytest.mark.promise("RUN-08", "TIME-01")
async def test_timeouts_and_task_groups_of_the_tools_own_work_inside_a_call(clock, open_runtime):
    @tool(parallel=True)
    async def limits_itself() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        except TimeoutError:
            return "out of my own time"
        return "in time"

    @tool(parallel=True)
    async def limits_itself_at_once() -> str:
        try:
            async with asyncio.timeout(-1):
                await asyncio.sleep(60)
        except TimeoutError:
            await clock.sleep(1)
            return "out of my own time"
        return "in time"

    @tool(parallel=True)
    async def groups() -> str:
        async def fails() -> None:
            raise LookupError

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(clock.sleep(3600))
                group.create_task(fails())
        except* LookupError:
            await clock.sleep(1)
        return "grouped"

    runtime = await open_runtime(limits_itself, limits_itself_at_once, groups)
    names = ["limits_itself", "limits_itself_at_once", "groups", "limits_itself"]
    batch = runtime.session("s").start_batch([ToolCall(name=name) for name in names])
    await asyncio.sleep(0)
    async with fail_after(5):
        while not batch.done:
            await clock.advance(1)
    assert [outcome.value for outcome in await ended(batch)] == [
        "out of my own time",
        "out of my own time",
        "grouped",
        "out of my own time",
    ]


@pytest.mark.promise("RUN-08")
async def test_many_calls_that_end_at_once_leave_the_loop_its_turns(clock, open_runtime):
    @tool(parallel=True)
    async def quick(number: int) -> int:
        return number

    runtime = await open_runtime(quick, policy=Policy(on_loop="ignore"))
    turns = 0
    batch = runtime.session("s").start_batch(
        [ToolCall(name="quick", arguments={"number": number}) for number in range(5000)]
    )
    while not batch.done:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
    assert [outcome.value for outcome in await ended(batch)] == list(range(5000))
