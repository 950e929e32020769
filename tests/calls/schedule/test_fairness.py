"""Whose turn it is: nobody waits for ever behind later calls, and who waits too long is told so."""

import pytest

from tests.calls.schedule.stage import Stage, call
from tests.support import fail_after
from toolwright import Batch, Policy, Runtime, Session, ToolContext, tool
from toolwright.testing import FakeClock, is_idle, left_over

ONE = Policy(max_concurrency=1, session_concurrency=1, runtime_concurrency=1)


@pytest.mark.promise("SCHED-05")
async def test_slots_go_to_the_longest_waiting_first_also_across_sessions():
    stage = Stage()

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(max_concurrency=9, session_concurrency=9, runtime_concurrency=1)
    async with fail_after(5), Runtime.open(tools=[everything, look], policy=policy) as runtime:
        one, two = runtime.session("one"), runtime.session("two")
        batches = [
            one.start_batch([call("1", "everything"), call("2", "everything")]),
            two.start_batch([call("3", "look"), call("4", "everything"), call("5", "look")]),
            one.start_batch([call("6", "look"), call("7", "everything")]),
            two.start_batch([call("8", "look")]),
        ]
        inside = await stage.settled()
        while inside:
            assert len(inside) == 1
            inside = await stage.after(*inside)
        assert all(batch.done for batch in batches)
    assert stage.entered == list("12345678")


@pytest.mark.promise("SCHED-05")
async def test_a_stream_of_later_calls_from_other_sessions_does_not_hold_a_call_up():
    stage = Stage()

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(runtime_concurrency=2)
    async with fail_after(5), Runtime.open(tools=[look], policy=policy) as runtime:
        busy, patient = runtime.session("busy"), runtime.session("patient")
        batches = [busy.start_batch([call(f"busy{n}", "look") for n in range(2)])]
        batches.append(patient.start_batch([call("patient", "look")]))
        for n in range(2, 40):
            batches.append(busy.start_batch([call(f"busy{n}", "look")]))
        await stage.settled()
        assert await stage.after("busy0") == ["busy1", "patient"]
        stage.open()
        for batch in batches:
            await batch


@pytest.mark.promise("SCHED-05")
async def test_a_writer_is_not_held_up_by_a_stream_of_readers():
    stage = Stage()

    @tool(reads="path")
    async def read(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="path")
    async def write(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[read, write]) as runtime:
        session = runtime.session("s")
        batches = [session.start_batch([call("r0", "read", path="a"), call("w", "write", path="a")])]
        for n in range(1, 20):
            batches.append(session.start_batch([call(f"r{n}", "read", path="a")]))
        assert await stage.settled() == ["r0"]
        assert await stage.after("r0") == ["w"]
        stage.open()
        for batch in batches:
            await batch


@pytest.mark.promise("SCHED-05")
async def test_a_call_freed_late_keeps_its_place_in_the_queue_for_slots():
    stage = Stage()

    @tool(key="k")
    async def keyed(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[keyed, look], policy=Policy(max_concurrency=1)) as runtime:
        batch = runtime.session("s").start_batch(
            [call("1", "keyed"), call("2", "keyed"), call("3", "look"), call("4", "keyed"), call("5", "look")]
        )
        inside = await stage.settled()
        while inside:
            inside = await stage.after(*inside)
        await batch
    assert stage.entered == list("12345")


async def until_a_slot_is_kept(stage: Stage, one: Session, two: Session) -> list[Batch]:
    """Let later calls pass the one named "patient", until a slot is kept for it: then only one of the two runs."""
    later = [
        one.start_batch([call(f"n{n}", "narrow") for n in range(1, 300)]),
        two.start_batch([call(f"w{n}", "wide") for n in range(1, 300)]),
    ]
    inside = await stage.settled()
    while len(inside) > 1:
        assert "patient" not in stage.entered
        inside = await stage.after(min(inside, key=stage.entered.index))
    return later


async def one_after_the_other(stage: Stage) -> None:
    """Let the longest inside go, over and over, so that no two slots are ever free at once."""
    inside = await stage.settled()
    while inside:
        inside = await stage.after(min(inside, key=stage.entered.index))


@pytest.mark.promise("SCHED-05")
async def test_a_call_that_needs_two_slots_is_not_passed_over_for_ever():
    # Whenever narrow has a free slot, the session of "patient" has none, and the other way round.
    stage = Stage()

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def wide(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(max_concurrency=9, session_concurrency=1, runtime_concurrency=9, timeout=1000)
    async with fail_after(20), Runtime.open(tools=[narrow, wide], policy=policy) as runtime:
        one, two = runtime.session("one"), runtime.session("two")
        batches = [
            one.start_batch([call("n0", "narrow")]),
            two.start_batch([call("w0", "wide"), call("patient", "narrow")]),
            one.start_batch([call(f"n{n}", "narrow") for n in range(1, 300)]),
            two.start_batch([call(f"w{n}", "wide") for n in range(1, 300)]),
        ]
        await one_after_the_other(stage)
        assert all(batch.done for batch in batches)
        assert is_idle(runtime)
    assert len(stage.entered) == 601
    assert stage.entered.index("patient") < 300, "half of those that came later are still behind it"


@pytest.mark.promise("SCHED-05", "SCHED-06")
async def test_slots_kept_for_a_patient_call_do_not_stop_nested_calls():
    # As above, and then the call that holds the session's slot makes a nested call of the narrow tool.
    stage = Stage()

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def wide(ctx: ToolContext) -> str:
        await stage.visit(ctx.call_id)
        (outcome,) = await ctx.run_batch([call(f"{ctx.call_id} nested", "narrow")])
        return outcome.status

    policy = Policy(max_concurrency=9, session_concurrency=1, runtime_concurrency=9, timeout=1000)
    async with fail_after(20), Runtime.open(tools=[narrow, wide], policy=policy) as runtime:
        one, two = runtime.session("one"), runtime.session("two")
        batches = [
            one.start_batch([call("n0", "narrow")]),
            two.start_batch([call("w0", "wide"), call("patient", "narrow")]),
            one.start_batch([call(f"n{n}", "narrow") for n in range(1, 300)]),
            two.start_batch([call(f"w{n}", "wide") for n in range(1, 300)]),
        ]
        await one_after_the_other(stage)
        statuses = {outcome.value for batch in batches for outcome in await batch if outcome.tool == "wide"}
        assert statuses == {"success"}, "none was refused"
        assert is_idle(runtime)
    assert len(stage.entered) == 901


@pytest.mark.promise("SCHED-05")
async def test_a_patient_call_that_is_cancelled_gives_back_what_was_kept_for_it():
    stage = Stage()

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def wide(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(max_concurrency=9, session_concurrency=1, runtime_concurrency=9, timeout=1000)
    async with fail_after(20), Runtime.open(tools=[narrow, wide], policy=policy) as runtime:
        one, two = runtime.session("one"), runtime.session("two")
        others = [one.start_batch([call("n0", "narrow")]), two.start_batch([call("w0", "wide")])]
        patient = two.start_batch([call("patient", "narrow")])
        others += await until_a_slot_is_kept(stage, one, two)
        patient.cancel()
        assert len(await stage.settled()) == 2
        await one_after_the_other(stage)
        for batch in others:
            assert {outcome.status for outcome in await batch} == {"success"}
    assert "patient" not in stage.entered


@pytest.mark.promise("SCHED-04", "CANCEL-01")
async def test_a_call_that_is_cancelled_while_it_waits_to_continue_leaves_its_place_to_the_next():
    stage, clock = Stage(), FakeClock()

    @tool(parallel=True)
    async def work(ctx: ToolContext) -> str:
        if ctx.call_id == "sleeper":
            await ctx.sleep("night", 60)
        return await stage.visit(ctx.call_id)

    policy = Policy(session_concurrency=1, timeout=1000)
    async with fail_after(20), Runtime.open(tools=[work], policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        sleeper = session.start_batch([call("sleeper", "work")])
        await stage.settled()
        others = [session.start_batch([call(id, "work")]) for id in ("a", "b")]
        assert await stage.settled() == ["a"]
        await clock.advance(61)
        assert await stage.settled() == ["a"], "the sleeper is awake, and waits for the slot"
        sleeper.cancel()
        (outcome,) = await sleeper
        assert await stage.after("a") == ["b"]
        stage.let_go("b")
        for batch in others:
            await batch
        assert is_idle(runtime)
    assert outcome.status == "cancelled"
    assert stage.entered == ["a", "b"]


@pytest.mark.promise("SCHED-05", "CANCEL-01")
async def test_a_patient_call_that_is_cancelled_while_it_waits_to_continue_gives_back_what_was_kept_for_it():
    stage, clock = Stage(), FakeClock()

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        if ctx.call_id == "patient":
            await ctx.sleep("night", 60)
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def wide(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(max_concurrency=9, session_concurrency=1, runtime_concurrency=9, timeout=1000)
    async with fail_after(20), Runtime.open(tools=[narrow, wide], policy=policy, clock=clock) as runtime:
        one, two = runtime.session("one"), runtime.session("two")
        patient = two.start_batch([call("patient", "narrow")])
        await stage.settled()
        others = [one.start_batch([call("n0", "narrow")]), two.start_batch([call("w0", "wide")])]
        assert await stage.settled() == ["n0", "w0"]
        await clock.advance(61)
        others += await until_a_slot_is_kept(stage, one, two)
        patient.cancel()
        assert len(await stage.settled()) == 2
        await one_after_the_other(stage)
        for batch in others:
            assert {outcome.status for outcome in await batch} == {"success"}
        assert is_idle(runtime)
    assert "patient" not in stage.entered


@pytest.mark.promise("SCHED-05")
async def test_a_call_that_waited_too_long_for_its_turn_fails_and_says_that_it_never_ran():
    stage, clock = Stage(), FakeClock()

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = Policy(queue_timeout=5, timeout=100)
    async with fail_after(5), Runtime.open(tools=[everything], policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("a", "everything"), call("b", "everything")])
        await clock.advance(3)
        later = session.start_batch([call("c", "everything")])
        await clock.advance(1.9)
        assert await stage.settled() == ["a"]
        assert not later.done
        await clock.advance(0.1)
        assert not batch.done, "a call that runs is not in the queue"
        stage.let_go("a")
        first, second = await batch
        assert await stage.settled() == ["c"], "those behind go on"
        stage.open()
        (third,) = await later
        records = {record.call_id: record for record in runtime.log}
        assert is_idle(session)
    assert first.status == third.status == "success"
    assert second.status == "failure"
    assert second.failure is not None
    assert (second.failure.category, second.failure.code) == ("timeout", "queue_timeout")
    assert "never ran" in second.failure.message
    assert second.attempts == 0
    assert "b" not in stage.entered
    assert (records["b"].started_at, records["b"].queue_time) == (None, 5.0)


@pytest.mark.promise("SCHED-05")
async def test_a_queue_timeout_holds_for_slots_too_and_frees_the_place():
    stage, clock = Stage(), FakeClock()

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    policy = ONE.but(queue_timeout=5, timeout=100)
    async with fail_after(5), Runtime.open(tools=[look], policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("a", "look"), call("b", "look")])
        await clock.advance(4)
        later = session.start_batch([call("c", "look")])
        await clock.advance(1)
        assert await stage.after("a") == ["c"]
        stage.open()
        first, second = await batch
        assert second.failure is not None
        assert second.failure.code == "queue_timeout"
        assert [first.status, (await later)[0].status] == ["success", "success"]


@pytest.mark.promise("SCHED-05")
async def test_those_behind_a_call_that_waited_too_long_still_wait_for_those_before_it():
    stage, clock = Stage(), FakeClock()

    @tool(writes="path")
    async def write(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[write], policy=Policy(timeout=100), clock=clock) as runtime:
        session = runtime.session("s")
        batches = [
            session.start_batch([call("a", "write", path="x")]),
            session.start_batch([call("b", "write", path="x")], queue_timeout=1),
            session.start_batch([call("c", "write", path="x")]),
        ]
        await clock.advance(1)
        assert batches[1].done
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["c"]
        stage.open()
        for batch in batches:
            await batch


@pytest.mark.promise("SCHED-05")
async def test_a_call_that_had_its_turn_in_time_leaves_no_deadline_behind():
    @tool(parallel=True)
    async def look() -> None: ...

    policy = ONE.but(queue_timeout=3600)
    async with fail_after(5), Runtime.open(tools=[look], policy=policy) as runtime:
        await runtime.session("s").run_batch([call(f"c{n}", "look") for n in range(10)])
        assert left_over(runtime) == {}
