"""How many calls run at once: per batch, session, runtime and tool."""

from typing import Any

import pytest

from tests.calls.schedule.stage import Stage, call
from tests.support import fail_after
from toolwright import Policy, PolicyError, Runtime, ToolContext, ToolDefinitionError, overridden, renamed, tool
from toolwright.testing import is_idle

WIDE = Policy(max_concurrency=100, session_concurrency=100, runtime_concurrency=100)


async def peak(
    policy: Policy, *, sessions: int = 1, batches: int = 1, calls: int = 1, tool_limit: int | None = None
) -> int:
    """The most calls that are inside at once; every one must get its turn."""
    stage = Stage()
    limit: dict[str, Any] = {} if tool_limit is None else {"max_concurrency": tool_limit}

    @tool(parallel=True, **limit)
    async def look(ctx: ToolContext, batch: int) -> str:
        return await stage.visit(f"{ctx.session_id} {batch} {ctx.call_id}")

    async with fail_after(10), Runtime.open(tools=[look], policy=policy) as runtime:
        started = [
            runtime.session(f"s{session}").start_batch(
                [call(f"{batch}.{n}", "look", batch=batch) for n in range(calls)]
            )
            for session in range(sessions)
            for batch in range(batches)
        ]
        inside = await stage.settled()
        total = len(inside)
        while inside:
            inside = await stage.after(inside[0])
            assert len(inside) <= total
        assert all(batch.done for batch in started)
        assert len(stage.left) == sessions * batches * calls
        assert all(is_idle(runtime.session(f"s{n}")) for n in range(sessions))
    assert stage.peak == total, "as many as may run do run, from the start"
    return stage.peak


@pytest.mark.promise("SCHED-04")
async def test_a_batch_runs_at_most_its_limit_at_once():
    assert await peak(WIDE.but(max_concurrency=3), calls=10) == 3
    assert await peak(WIDE.but(max_concurrency=3), batches=2, calls=10) == 6
    assert await peak(WIDE.but(max_concurrency=1), calls=5) == 1


@pytest.mark.promise("SCHED-04")
async def test_a_session_runs_at_most_its_limit_at_once():
    assert await peak(WIDE.but(session_concurrency=3), batches=2, calls=5) == 3
    assert await peak(WIDE.but(session_concurrency=3), sessions=2, batches=2, calls=5) == 6


@pytest.mark.promise("SCHED-04")
async def test_a_runtime_runs_at_most_its_limit_at_once():
    assert await peak(WIDE.but(runtime_concurrency=3), sessions=4, batches=2, calls=3) == 3
    assert await peak(WIDE.but(runtime_concurrency=1), sessions=3, calls=3) == 1


@pytest.mark.promise("SCHED-04")
async def test_a_tool_runs_at_most_its_limit_at_once_in_all_sessions_together():
    assert await peak(WIDE, calls=10, tool_limit=2) == 2
    assert await peak(WIDE, sessions=3, batches=2, calls=4, tool_limit=2) == 2


@pytest.mark.promise("SCHED-04")
async def test_the_lowest_limit_decides():
    tight = Policy(max_concurrency=2, session_concurrency=3, runtime_concurrency=4)
    assert await peak(tight, calls=9) == 2
    assert await peak(tight, batches=3, calls=9) == 3
    assert await peak(tight, sessions=3, batches=3, calls=9) == 4
    assert await peak(tight, sessions=3, batches=3, calls=9, tool_limit=1) == 1


@pytest.mark.promise("SCHED-04")
async def test_the_defaults_are_eight_sixteen_and_sixty_four():
    assert await peak(Policy(), calls=20) == 8
    assert await peak(Policy(), batches=4, calls=10) == 16
    assert await peak(Policy(), sessions=6, batches=3, calls=8) == 64


@pytest.mark.promise("SCHED-04")
async def test_a_batch_may_have_a_limit_of_its_own():
    stage = Stage()

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[look]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call(f"c{n}", "look") for n in range(4)], max_concurrency=2)
        assert await stage.settled() == ["c0", "c1"]
        assert await stage.after("c1") == ["c0", "c2"]
        stage.open()
        await batch
        with pytest.raises(PolicyError, match="max_concurrency"):
            session.start_batch([call("c", "look")], max_concurrency=0)


@pytest.mark.promise("SCHED-04")
@pytest.mark.parametrize("wrong", [0, -1, 1.5, "8", True, None])
def test_a_limit_below_one_is_refused_when_it_is_set(wrong):
    for name in ("max_concurrency", "session_concurrency", "runtime_concurrency"):
        with pytest.raises(PolicyError, match=f"{name}.*at least 1"):
            Policy(**{name: wrong})
        with pytest.raises(PolicyError, match=f"{name}.*at least 1"):
            Policy().but(**{name: wrong})
    if wrong is not None:
        with pytest.raises(ToolDefinitionError, match=r"'look'.*max_concurrency.*at least 1"):

            @tool(parallel=True, max_concurrency=wrong)
            async def look() -> None: ...


@pytest.mark.promise("SCHED-04")
async def test_a_slot_that_one_call_cannot_use_goes_to_the_next_that_can():
    stage = Stage()

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def wide(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[narrow, wide], policy=WIDE.but(session_concurrency=2)) as runtime:
        batch = runtime.session("s").start_batch(
            [call("n1", "narrow"), call("n2", "narrow"), call("w1", "wide"), call("n3", "narrow"), call("w2", "wide")]
        )
        assert await stage.settled() == ["n1", "w1"]
        assert await stage.after("w1") == ["n1", "w2"]
        assert await stage.after("w2") == ["n1"]
        assert await stage.after("n1") == ["n2"]
        assert await stage.after("n2") == ["n3"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-04")
async def test_a_call_that_waits_for_claims_holds_no_slot():
    stage = Stage()

    @tool(key="k")
    async def keyed(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[keyed, look], policy=WIDE.but(session_concurrency=2)) as runtime:
        batch = runtime.session("s").start_batch(
            [call("k1", "keyed"), call("k2", "keyed"), call("k3", "keyed"), call("l1", "look"), call("l2", "look")]
        )
        assert await stage.settled() == ["k1", "l1"]
        assert await stage.after("k1") == ["k2", "l1"], "the longest waiting is next"
        stage.open()
        await batch


@pytest.mark.promise("SCHED-04")
async def test_the_limit_of_a_tool_is_one_limit_however_many_names_it_has():
    stage = Stage()

    @tool(parallel=True, max_concurrency=1)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[look]) as runtime:
        runtime.tools.register(look.with_definition(name="watch"))
        batch = runtime.session("s").start_batch(
            [call("a", "look"), call("b", "watch"), call("c", "look"), call("d", "watch")]
        )
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["b"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-04")
async def test_views_of_a_tool_with_different_limits_each_keep_theirs():
    stage = Stage()

    @tool(parallel=True, max_concurrency=3)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[look]) as runtime:
        concurrency = look.definition.concurrency._replace(limit=1)
        view = renamed(overridden(runtime.tools, {"look": {"concurrency": concurrency}}), {"look": "look_alone"})
        session = runtime.session("s")
        session.tools.push(view.snapshot().values())
        calls = [call(f"{name} {n}", name) for n in range(4) for name in ("look", "look_alone")]
        batch = session.start_batch(calls)
        inside = await stage.settled()
        assert sum(name.startswith("look_alone") for name in inside) <= 1
        assert sum(name.startswith("look ") for name in inside) <= 3
        stage.open()
        await batch


@pytest.mark.promise("SCHED-04")
async def test_the_limit_of_a_tool_holds_in_all_sessions_also_where_some_see_it_with_another():
    stage = Stage()

    @tool(parallel=True, max_concurrency=2)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(f"{ctx.session_id} {ctx.call_id}")

    alone = look.with_definition(concurrency=look.definition.concurrency._replace(limit=1))
    async with fail_after(5), Runtime.open(tools=[look]) as runtime:
        batches = []
        for number in range(3):
            plain, narrow = runtime.session(f"plain{number}"), runtime.session(f"narrow{number}")
            narrow.tools.push([alone])
            batches += [session.start_batch([call("a", "look"), call("b", "look")]) for session in (plain, narrow)]
        inside = await stage.settled()
        stage.open()
        for batch in batches:
            await batch
    assert sum(name.startswith("plain") for name in inside) == 2
    assert sum(name.startswith("narrow") for name in inside) == 1


@pytest.mark.promise("SCHED-04", "RUN-08")
async def test_threads_are_bounded_like_everything_else():
    import threading

    at_once = 0
    most = 0
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=5)

    @tool(parallel=True)
    def work() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        both.wait()
        with lock:
            at_once -= 1

    async with fail_after(10), Runtime.open(tools=[work], policy=Policy(max_concurrency=2)) as runtime:
        outcomes = await runtime.session("s").run_batch([call(f"c{n}", "work") for n in range(6)])
    assert [outcome.status for outcome in outcomes] == ["success"] * 6
    assert most == 2
