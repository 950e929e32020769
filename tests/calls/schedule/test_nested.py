"""Tools that call tools: no deadlock with ancestors, no overlap their claims forbid, order among siblings."""

import asyncio
import contextvars
from typing import Any

import pytest

from tests.calls.schedule.stage import Stage, call, settle
from tests.support import fail_after
from toolwright import BatchFailed, Policy, Request, Rule, Runtime, Session, Tool, ToolCall, ToolContext, tool
from toolwright.testing import FakeClock, is_idle

ONE = Policy(max_concurrency=1, session_concurrency=1, runtime_concurrency=1)


class Cast:
    """Tools for plays: `orchestrate` and its kin run the nested calls they are given, the others just visit."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.outcomes: dict[str, Any] = {}
        self.session: Session | None = None

        async def run(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool) -> list[str]:
            if visit:
                await stage.visit(ctx.call_id)
            outcomes = await ctx.run_batch(calls) if calls else []
            for outcome in outcomes:
                self.outcomes[outcome.call_id] = outcome
            return [outcome.status for outcome in outcomes]

        @tool(parallel=True)
        async def orchestrate(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool = False) -> list[str]:
            return await run(ctx, calls, visit)

        @tool
        async def exclusively(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool = False) -> list[str]:
            return await run(ctx, calls, visit)

        @tool(writes="path")
        async def write_with(
            ctx: ToolContext, path: str, calls: list[dict[str, Any]], visit: bool = False
        ) -> list[str]:
            return await run(ctx, calls, visit)

        @tool(parallel=True, max_concurrency=1)
        async def narrow_x(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool = False) -> list[str]:
            return await run(ctx, calls, visit)

        @tool(parallel=True, max_concurrency=1)
        async def narrow_y(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool = False) -> list[str]:
            return await run(ctx, calls, visit)

        @tool(parallel=True, max_concurrency=2)
        async def pair(ctx: ToolContext, calls: list[dict[str, Any]], visit: bool = False) -> list[str]:
            return await run(ctx, calls, visit)

        @tool(writes="path")
        async def write(ctx: ToolContext, path: str) -> str:
            return await stage.visit(ctx.call_id)

        @tool(writes="paths")
        async def write_all(ctx: ToolContext, paths: list[str]) -> str:
            return await stage.visit(ctx.call_id)

        @tool(reads="path")
        async def read(ctx: ToolContext, path: str) -> str:
            return await stage.visit(ctx.call_id)

        @tool
        async def everything(ctx: ToolContext) -> str:
            return await stage.visit(ctx.call_id)

        @tool(parallel=True)
        async def look(ctx: ToolContext) -> str:
            return await stage.visit(ctx.call_id)

        self.tools: list[Tool] = [
            orchestrate,
            exclusively,
            write_with,
            narrow_x,
            narrow_y,
            pair,
            write,
            write_all,
            read,
            everything,
            look,
        ]


def nested(id: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call in the form in which it can be an argument of another."""
    return {"id": id, "name": name, "arguments": arguments}


def deadlocks(cast: Cast) -> list[str]:
    return sorted(
        id
        for id, outcome in cast.outcomes.items()
        if outcome.failure is not None and outcome.failure.code == "deadlock"
    )


# --- ancestors


@pytest.mark.promise("SCHED-06")
@pytest.mark.parametrize("policy", [Policy(), ONE], ids=["defaults", "limits of one"])
@pytest.mark.parametrize(
    "way", ["ctx.call", "ctx.run_batch", "session.call", "session.run_batch", "child task", "gather"]
)
async def test_a_nested_call_does_not_wait_for_its_ancestors(policy, way):
    reached: list[int] = []

    @tool
    async def descend(ctx: ToolContext, depth: int) -> str:
        reached.append(depth)
        if depth == 4:
            return "bottom"
        deeper = {"depth": depth + 1}
        if way == "ctx.call":
            outcome = await ctx.call("descend", **deeper)
        elif way == "ctx.run_batch":
            (outcome,) = await ctx.run_batch([ToolCall(name="descend", arguments=deeper)])
        elif way == "session.call":
            outcome = await session.call("descend", **deeper)
        elif way == "session.run_batch":
            (outcome,) = await session.run_batch([{"name": "descend", "arguments": deeper}])
        elif way == "child task":
            outcome = await asyncio.create_task(session.call("descend", **deeper))
        else:
            (outcome,) = await asyncio.gather(ctx.call("descend", **deeper))
        return outcome.value

    async with fail_after(5), Runtime.open(tools=[descend], policy=policy) as runtime:
        session = runtime.session("s")
        outcome = await session.call("descend", depth=0)
        assert is_idle(session)
    assert outcome.value == "bottom"
    assert reached == [0, 1, 2, 3, 4]


@pytest.mark.promise("SCHED-06", "SCHED-04")
async def test_recursion_passes_through_the_limit_of_a_tool():
    @tool(parallel=True, max_concurrency=1)
    async def even(ctx: ToolContext, n: int) -> bool:
        return n == 0 or (await ctx.call("odd", n=n - 1)).value

    @tool(parallel=True, max_concurrency=1)
    async def odd(ctx: ToolContext, n: int) -> bool:
        return n != 0 and (await ctx.call("even", n=n - 1)).value

    async with fail_after(5), Runtime.open(tools=[even, odd], policy=ONE) as runtime:
        session = runtime.session("s")
        assert (await session.call("even", n=10)).value is True
        assert (await session.call("even", n=7)).value is False


@pytest.mark.promise("SCHED-06")
async def test_nested_calls_at_limits_of_one_run_one_after_the_other():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools, policy=ONE) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("p", "exclusively", calls=[nested("a", "look"), nested("b", "look")]),
                call("next", "look"),
            ]
        )
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["b"]
        assert await stage.after("b") == ["next"]
        stage.open()
        await batch


# --- overlap


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_waits_for_a_running_call_that_it_conflicts_with():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("w", "write", path="a"),
                call("p", "orchestrate", calls=[nested("n", "write", path="a"), nested("m", "write", path="b")]),
            ]
        )
        assert await stage.settled() == ["m", "w"]
        assert await stage.after("w") == ["m", "n"]
        stage.open()
        await batch
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_later_call_waits_for_a_nested_call_that_it_conflicts_with():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("p", "orchestrate", calls=[nested("n", "write", path="a")])])
        assert await stage.settled() == ["n"]
        later = session.start_batch([call("w", "write", path="a"), call("x", "write", path="b")])
        assert await stage.settled() == ["n", "x"]
        assert await stage.after("n") == ["w", "x"]
        stage.open()
        await batch
        await later


@pytest.mark.promise("SCHED-06")
async def test_nested_calls_of_different_parents_do_not_overlap_when_they_conflict():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("p", "orchestrate", calls=[nested("a1", "write", path="a"), nested("b1", "write", path="b")]),
                call("q", "orchestrate", calls=[nested("a2", "write", path="a"), nested("b2", "read", path="b")]),
                call("r", "orchestrate", calls=[nested("a3", "read", path="a"), nested("b3", "read", path="b")]),
            ]
        )
        assert await stage.settled() == ["a1", "b1"]
        assert await stage.after("b1") == ["a1", "b2", "b3"]
        assert await stage.after("a1") == ["a2", "b2", "b3"]
        assert await stage.after("a2") == ["a3", "b2", "b3"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-06")
async def test_a_nested_exclusive_call_is_alone_but_for_its_ancestors():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("l", "look"), call("p", "orchestrate", calls=[nested("n", "everything")])])
        assert await stage.settled() == ["l"]
        assert await stage.after("l") == ["n"]
        later = session.start_batch([call("m", "look")])
        assert await stage.settled() == ["n"]
        assert await stage.after("n") == ["m"]
        stage.open()
        await batch
        await later


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_does_not_share_its_ancestors_claims_with_its_nephews():
    # p writes a and calls q, which calls n: n may touch a, and so may p's other children, but not at once.
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call(
                    "p",
                    "write_with",
                    path="a",
                    calls=[
                        nested("q", "orchestrate", calls=[nested("n", "write", path="a")]),
                        nested("o", "orchestrate", calls=[nested("m", "write", path="a")]),
                    ],
                ),
                call("w", "write", path="a"),
            ]
        )
        assert await stage.settled() == ["n"]
        assert await stage.after("n") == ["m"]
        assert await stage.after("m") == ["w"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-06")
async def test_siblings_of_a_nested_batch_keep_their_order():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call(
                    "p",
                    "exclusively",
                    calls=[
                        nested("r1", "read", path="a"),
                        nested("r2", "read", path="a"),
                        nested("w1", "write", path="a"),
                        nested("r3", "read", path="a"),
                        nested("w2", "write", path="a"),
                        nested("b", "write", path="b"),
                    ],
                )
            ]
        )
        assert await stage.settled() == ["b", "r1", "r2"]
        assert await stage.after("r1") == ["b", "r2"]
        assert await stage.after("r2") == ["b", "w1"]
        assert await stage.after("w1") == ["b", "r3"]
        assert await stage.after("r3") == ["b", "w2"]
        stage.open()
        (outcome,) = await batch
    assert outcome.value == ["success"] * 6


@pytest.mark.promise("SCHED-06")
async def test_nested_calls_made_one_by_one_in_child_tasks_keep_their_order_too():
    stage = Stage()

    @tool(writes="paths")
    async def write(ctx: ToolContext, paths: list[str], name: str) -> str:
        return await stage.visit(name)

    @tool
    async def fan_out(ctx: ToolContext) -> None:
        await asyncio.gather(
            ctx.call("write", paths=["a"], name="a"),
            ctx.call("write", paths=["a", "b"], name="ab"),
            ctx.call("write", paths=["b"], name="b"),
        )

    async with fail_after(5), Runtime.open(tools=[write, fan_out]) as runtime:
        batch = runtime.session("s").start_batch([call("p", "fan_out")])
        assert await stage.settled() == ["a"], "b waits for ab, which came before it"
        assert await stage.after("a") == ["ab"]
        assert await stage.after("ab") == ["b"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-06", "SCHED-05")
async def test_a_call_is_not_held_up_for_ever_by_the_nested_calls_of_another():
    # w needs a and b; the nested calls of p take them in turn, so that one of the two is always taken.
    stage = Stage()

    @tool(writes="paths")
    async def write(ctx: ToolContext, paths: list[str], name: str) -> str:
        return await stage.visit(name)

    @tool(parallel=True)
    async def busy(ctx: ToolContext) -> None:
        async def keep_taking(path: str) -> None:
            for n in range(10):
                await ctx.call("write", paths=[path], name=f"{path}{n}")

        await asyncio.gather(keep_taking("a"), keep_taking("b"))

    async with fail_after(5), Runtime.open(tools=[write, busy]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("p", "busy")])
        assert await stage.settled() == ["a0", "b0"]
        later = session.start_batch([call("w", "write", paths=["a", "b"], name="w")])
        turns = 0
        while "w" not in (inside := await stage.settled()):
            stage.let_go(min(inside, key=stage.entered.index))
            turns += 1
        assert turns <= 3
        stage.open()
        await batch
        await later


@pytest.mark.promise("SCHED-06")
async def test_a_call_that_waits_for_a_nested_one_holds_no_slot_meanwhile():
    stage = Stage()
    cast = Cast(stage)
    policy = Policy(session_concurrency=2)
    async with fail_after(5), Runtime.open(tools=cast.tools, policy=policy) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("p", "orchestrate", calls=[nested("n", "write", path="a")])])
        await stage.settled()
        later = session.start_batch([call("w", "write", path="a"), call("l", "look")])
        assert await stage.settled() == ["l", "n"]
        assert await stage.after("n", "l") == ["w"]
        stage.open()
        await batch
        await later


# --- cycles


@pytest.mark.promise("SCHED-06")
async def test_two_calls_that_want_what_the_other_holds_are_a_failure_and_not_a_hang():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("p", "write_with", path="a", calls=[nested("n", "write", path="b")], visit=True),
                call("q", "write_with", path="b", calls=[nested("m", "write", path="a")], visit=True),
            ]
        )
        assert await stage.settled() == ["p", "q"]
        assert await stage.after("p") == ["q"], "n waits for q, and that may still work out"
        assert await stage.after("q") == ["n"], "m is refused, so q ends and n goes on"
        stage.open()
        await batch
        assert is_idle(session)
    assert deadlocks(cast) == ["m"]
    failure = cast.outcomes["m"].failure
    assert (failure.category, failure.source) == ("unavailable", "runtime")
    assert "'p'" in failure.message
    assert cast.outcomes["m"].attempts == 0


@pytest.mark.promise("SCHED-06")
async def test_a_cycle_of_three_is_found():
    stage = Stage()
    cast = Cast(stage)
    ring = [("p", "a", "b"), ("q", "b", "c"), ("r", "c", "a")]
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call(id, "write_with", path=own, calls=[nested(f"{id}n", "write", path=other)], visit=True)
                for id, own, other in ring
            ]
        )
        assert await stage.settled() == ["p", "q", "r"]
        assert await stage.after("p") == ["q", "r"]
        assert await stage.after("q") == ["r"]
        assert await stage.after("r") == ["qn"]
        stage.open()
        await batch
    assert deadlocks(cast) == ["rn"]


@pytest.mark.promise("SCHED-06")
async def test_a_cycle_through_a_sibling_that_waits_in_line_is_found():
    # p's second child stands behind its first, which waits for q; q's child wants what p holds.
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call(
                    "p",
                    "write_with",
                    path="a",
                    calls=[nested("n1", "write_all", paths=["b", "c"]), nested("n2", "write", path="c")],
                    visit=True,
                ),
                call("q", "write_with", path="b", calls=[nested("m", "write", path="a")], visit=True),
            ]
        )
        await stage.settled()
        assert await stage.after("p") == ["q"]
        assert await stage.after("q") == ["n1"]
        stage.open()
        await batch
    assert deadlocks(cast) == ["m"]


@pytest.mark.promise("SCHED-06")
async def test_a_cycle_through_the_limits_of_tools_is_found():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("x", "narrow_x", calls=[nested("n", "narrow_y", calls=[])], visit=True),
                call("y", "narrow_y", calls=[nested("m", "narrow_x", calls=[])], visit=True),
            ]
        )
        await stage.settled()
        assert await stage.after("x") == ["y"]
        stage.let_go("y")
        await batch
        assert is_idle(session)
    assert deadlocks(cast) == ["m"]
    assert cast.outcomes["n"].status == "success"


@pytest.mark.promise("SCHED-06")
async def test_a_cycle_is_found_when_every_holder_of_a_limit_is_part_of_it():
    # n waits for one of the two slots that h1 and h2 hold, and both wait for p, which waits for n.
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("h1", "pair", calls=[nested("m1", "write", path="a")], visit=True),
                call("h2", "pair", calls=[nested("m2", "write", path="a")], visit=True),
                call("p", "write_with", path="a", calls=[nested("n", "pair", calls=[])], visit=True),
            ]
        )
        await stage.settled()
        assert await stage.after("p") == ["h1", "h2"]
        assert await stage.after("h1") == ["h2"], "m1 waits for p: the other slot may still come free"
        assert await stage.after("h2") == ["m1"], "m2 is refused, h2 ends, n runs, p ends, m1 runs"
        stage.open()
        await batch
        assert is_idle(session)
    assert deadlocks(cast) == ["m2"]


@pytest.mark.promise("SCHED-06")
async def test_a_limit_with_one_free_holder_is_waited_for_and_no_deadlock():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("h1", "pair", calls=[nested("m1", "write", path="a")], visit=True),
                call("h2", "pair", calls=[], visit=True),
                call("p", "write_with", path="a", calls=[nested("n", "pair", calls=[])], visit=True),
            ]
        )
        await stage.settled()
        await stage.after("p")
        assert await stage.after("h1") == ["h2"]
        assert await stage.after("h2") == ["m1"]
        stage.open()
        await batch
    assert deadlocks(cast) == []


@pytest.mark.promise("SCHED-06")
async def test_a_call_that_has_not_started_is_never_the_cause_of_a_deadlock():
    # w waits for the one slot of narrow_x and conflicts with n. When x ends, w must not take the slot and wait for n:
    # n waits for it too.
    stage = Stage()
    cast = Cast(stage)

    @tool(parallel=True, max_concurrency=1)
    async def narrow(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    narrow_write = narrow.with_definition(
        name="narrow_write",
        concurrency=cast.tools[2].definition.concurrency._replace(limit=1, writes=(), key="k"),
    )

    @tool(key="k")
    async def keyed(ctx: ToolContext) -> str:
        return "; ".join([outcome.status for outcome in await ctx.run_batch([nested("inner", "narrow")])])

    @tool(parallel=True)
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("keyed")).value

    async with fail_after(5), Runtime.open(tools=[narrow, narrow_write, keyed, outer]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("x", "narrow"), call("w", "narrow_write"), call("o", "outer")])
        assert await stage.settled() == ["x"]
        assert await stage.after("x") == ["inner"]
        assert await stage.after("inner") == ["w"]
        stage.open()
        _, _, outcome = await batch
        assert outcome.value == "success"
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_refused_call_never_runs_also_when_its_outcome_takes_a_moment():
    # A projector makes the end of the refused call take a turn of the loop; meanwhile what it waited for ends.
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools) as runtime:
        session = runtime.session("s", projector=lambda outcome: outcome.full_text())
        batch = session.start_batch(
            [
                call("w", "write", path="c"),
                call("p", "write_with", path="a", calls=[nested("n", "write", path="b")], visit=True),
                call("q", "write_with", path="b", calls=[nested("m", "write_all", paths=["c", "a"])], visit=True),
            ]
        )
        await stage.settled()
        await stage.after("p")
        stage.let_go("q", "w")
        assert await stage.settled() == ["n"]
        stage.open()
        await batch
        assert is_idle(session)
    assert deadlocks(cast) == ["m"]
    assert "m" not in stage.entered


@pytest.mark.promise("SCHED-06")
async def test_a_deadlock_is_found_however_many_calls_are_in_it():
    # p has a long line of children, each behind the one before it. To see that m would wait for itself through the
    # first of them, the whole line may have to be walked.
    stage = Stage()
    cast = Cast(stage)
    line = [nested("n0", "write_all", paths=["b", "c"])]
    line += [nested(f"n{number}", "write", path="c") for number in range(1, 3000)]
    async with fail_after(30), Runtime.open(tools=cast.tools, policy=Policy(on_loop="ignore")) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("q", "write_with", path="b", calls=[nested("m", "write", path="a")], visit=True),
                call("p", "write_with", path="a", calls=line),
            ]
        )
        await stage.settled()
        stage.open()
        await batch
    assert deadlocks(cast) == ["m"]
    assert len(stage.left) == 3001


@pytest.mark.promise("SCHED-06")
async def test_the_refusal_is_an_ordinary_failure_that_stops_a_batch_that_wants_to_be_stopped():
    stage = Stage()
    cast = Cast(stage)
    async with fail_after(5), Runtime.open(tools=cast.tools, policy=Policy(continue_on_failure=False)) as runtime:
        session = runtime.session("s")
        first = session.start_batch(
            [call("p", "write_with", path="a", calls=[nested("n", "write", path="b")], visit=True)]
        )
        second = session.start_batch(
            [
                call(
                    "q",
                    "write_with",
                    path="b",
                    calls=[
                        nested("m0", "write", path="d"),
                        nested("m1", "write", path="a"),
                        nested("m2", "write", path="a"),
                        nested("m3", "write", path="d"),
                    ],
                    visit=True,
                )
            ]
        )
        await stage.settled()
        await stage.after("p")
        stage.let_go("q")
        await settle()
        with pytest.raises(BatchFailed) as stopped:
            await second
        assert stopped.value.outcomes[0].status == "failure", "what came out of the nested batch ended the tool"
        stage.open()
        await first
        assert is_idle(session)
        assert {record.call_id: record.status for record in runtime.log if record.parent == "q"} == {
            "m0": "cancelled",
            "m1": "failure",
            "m2": "cancelled",
            "m3": "cancelled",
        }
    assert not {"m1", "m2", "m3"} & set(stage.entered)


# --- children that outlive their parent, and sessions within sessions


@pytest.mark.promise("SCHED-06")
async def test_a_nested_call_left_running_after_its_parent_keeps_its_own_claims():
    stage = Stage()
    tasks: list[asyncio.Task] = []
    cast = Cast(stage)

    @tool
    async def leave_behind(ctx: ToolContext) -> str:
        tasks.append(asyncio.create_task(ctx.call("write", path="a")))
        await asyncio.sleep(0)
        return "gone"

    async with fail_after(5), Runtime.open(tools=[*cast.tools, leave_behind]) as runtime:
        session = runtime.session("s")
        assert (await session.call("leave_behind")).value == "gone"
        (left,) = await stage.settled()
        batch = session.start_batch(
            [call("w", "write", path="a"), call("x", "write", path="b"), call("all", "everything")]
        )
        assert await stage.settled() == sorted([left, "x"])
        assert await stage.after("x") == [left]
        assert await stage.after(left) == ["w"]
        assert await stage.after("w") == ["all"]
        stage.open()
        await batch
        await tasks[0]
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_call_made_after_its_parent_ended_waits_like_any_other():
    stage = Stage()
    tasks: list[asyncio.Task] = []
    go = asyncio.Event()
    cast = Cast(stage)

    @tool
    async def leave_behind(ctx: ToolContext) -> None:
        async def late() -> Any:
            await go.wait()
            return await ctx.run_batch([nested("late", "write", path="a")])

        tasks.append(asyncio.create_task(late()))

    async with fail_after(5), Runtime.open(tools=[*cast.tools, leave_behind]) as runtime:
        session = runtime.session("s")
        await session.call("leave_behind")
        batch = session.start_batch([call("w1", "write", path="a"), call("w2", "write", path="a")])
        assert await stage.settled() == ["w1"]
        go.set()
        assert await stage.settled() == ["w1"]
        after = session.start_batch([call("w3", "write", path="a")])
        assert await stage.after("w1") == ["w2"]
        assert await stage.after("w2") == ["late"]
        assert await stage.after("late") == ["w3"]
        stage.open()
        await batch
        await after
        await tasks[0]
        assert is_idle(session)


@pytest.mark.promise("SCHED-06")
async def test_a_call_made_after_its_parent_ended_still_belongs_to_its_grandparent():
    stage = Stage()
    cast = Cast(stage)
    tasks: list[asyncio.Task] = []
    go = asyncio.Event()

    @tool(parallel=True)
    async def parent(ctx: ToolContext) -> None:
        async def late() -> Any:
            await go.wait()
            return await ctx.run_batch([nested("late", "write", path="a")])

        tasks.append(asyncio.create_task(late()))

    @tool
    async def grandparent(ctx: ToolContext) -> str:
        await ctx.call("parent")
        go.set()
        (outcome,) = await tasks[0]
        return outcome.status

    stage.open()
    async with fail_after(5), Runtime.open(tools=[*cast.tools, parent, grandparent]) as runtime:
        outcome = await runtime.session("s").call("grandparent")
    assert outcome.value == "success"


@pytest.mark.promise("SCHED-06", "SCHED-04")
async def test_a_call_made_after_its_parent_ended_needs_slots_of_its_own():
    stage = Stage()
    tasks: list[asyncio.Task] = []
    go = asyncio.Event()
    cast = Cast(stage)

    @tool(parallel=True)
    async def leave_behind(ctx: ToolContext) -> None:
        async def late() -> Any:
            await go.wait()
            return await ctx.run_batch([nested("late", "look")])

        tasks.append(asyncio.create_task(late()))

    policy = Policy(session_concurrency=1)
    async with fail_after(5), Runtime.open(tools=[*cast.tools, leave_behind], policy=policy) as runtime:
        session = runtime.session("s")
        await session.call("leave_behind")
        batch = session.start_batch([call("l", "look")])
        assert await stage.settled() == ["l"]
        go.set()
        assert await stage.settled() == ["l"]
        assert await stage.after("l") == ["late"]
        stage.open()
        await batch
        await tasks[0]


@pytest.mark.promise("SCHED-06")
async def test_a_parent_that_was_given_up_may_still_call_tools():
    # Its code runs on, its claims hold, and its nested calls are still its own.
    stage, clock = Stage(), FakeClock()
    cast = Cast(stage)
    statuses: list[str] = []

    @tool(timeout=1)
    async def stubborn(ctx: ToolContext) -> None:
        try:
            await stage.visit("stubborn")
        except asyncio.CancelledError:
            await stage.visit("undeterred")
        statuses.extend(outcome.status for outcome in await ctx.run_batch([nested("n", "everything")]))

    policy = Policy(grace=1, timeout=1000)
    async with fail_after(5), Runtime.open(tools=[*cast.tools, stubborn], policy=policy, clock=clock) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([call("p", "stubborn"), call("w", "write", path="a")])
        await clock.advance(2)
        assert await stage.settled() == ["undeterred"]
        assert await stage.after("undeterred") == ["n"], "it does not wait for its parent, and w waits for both"
        assert await stage.after("n") == ["w"]
        stage.open()
        outcomes = await batch
        assert is_idle(session)
    assert [outcome.status for outcome in outcomes] == ["failure", "success"]
    assert statuses == ["success"]


@pytest.mark.promise("SCHED-06", "SCHED-03")
async def test_a_call_into_another_session_takes_claims_there_and_not_here():
    stage = Stage()
    cast = Cast(stage)

    @tool(writes="path")
    async def write_there(ctx: ToolContext, path: str) -> str:
        (outcome,) = await other.run_batch([call("n", "write", path=path)])
        return outcome.status

    async with fail_after(5), Runtime.open(tools=[*cast.tools, write_there]) as runtime:
        here, other = runtime.session("here"), runtime.session("other")
        there = other.start_batch([call("t1", "write", path="a")])
        batch = here.start_batch([call("p", "write_there", path="a"), call("h", "write", path="a")])
        assert await stage.settled() == ["t1"]
        assert await stage.after("t1") == ["n"]
        later = other.start_batch([call("t2", "write", path="a")])
        assert await stage.settled() == ["n"]
        assert await stage.after("n") == ["h", "t2"]
        stage.open()
        for running in (there, batch, later):
            await running
        assert is_idle(here)
        assert is_idle(other)


@pytest.mark.promise("SCHED-06")
async def test_a_cycle_across_sessions_is_found():
    stage = Stage()
    outcomes: list[Any] = []

    @tool
    async def cross(ctx: ToolContext, to: str, name: str) -> str:
        await stage.visit(ctx.call_id)
        (outcome,) = await runtime.session(to).run_batch([call(name, "everything")])
        outcomes.append(outcome)
        return outcome.status

    @tool
    async def everything() -> None: ...

    async with fail_after(5), Runtime.open(tools=[cross, everything]) as runtime:
        batches = [
            runtime.session("one").start_batch([call("p", "cross", to="two", name="n")]),
            runtime.session("two").start_batch([call("q", "cross", to="one", name="m")]),
        ]
        assert await stage.settled() == ["p", "q"]
        assert await stage.after("p") == ["q"]
        stage.open()
        for batch in batches:
            await batch
    assert {outcome.call_id: outcome.status for outcome in outcomes} == {"m": "failure", "n": "success"}
    (refused,) = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    assert (refused.category, refused.code) == ("unavailable", "deadlock")


@pytest.mark.promise("SCHED-06")
async def test_the_way_back_into_a_session_does_not_wait_for_the_ancestor_there():
    @tool
    async def bounce(ctx: ToolContext, depth: int) -> str:
        if depth == 0:
            return ctx.session_id
        to = "two" if ctx.session_id == "one" else "one"
        return (await runtime.session(to).call("bounce", depth=depth - 1)).value

    async with fail_after(5), Runtime.open(tools=[bounce], policy=ONE) as runtime:
        # Both sessions and the runtime have one slot; the runtime's is held by the first call for all of them.
        assert (await runtime.session("one").call("bounce", depth=5)).value == "two"


@pytest.mark.promise("SCHED-06", "SCHED-04")
async def test_calls_from_another_session_count_against_the_limit_of_the_session_they_go_to():
    stage = Stage()
    cast = Cast(stage)

    @tool(parallel=True)
    async def cross(ctx: ToolContext) -> str:
        (outcome,) = await runtime.session("there").run_batch([call(f"{ctx.call_id}n", "look")])
        return outcome.status

    policy = Policy(session_concurrency=2)
    async with fail_after(5), Runtime.open(tools=[*cast.tools, cross], policy=policy) as runtime:
        runtime.session("here", policy=Policy())
        there = runtime.session("there").start_batch([call("t", "look")])
        batch = runtime.session("here").start_batch([call("p1", "cross"), call("p2", "cross")])
        assert await stage.settled() == ["p1n", "t"]
        assert await stage.after("t") == ["p1n", "p2n"]
        stage.open()
        await batch
        await there


@pytest.mark.promise("SCHED-06", "RUN-08")
async def test_a_nested_sync_tool_gets_a_thread_although_its_parents_hold_theirs():
    loop = asyncio.get_running_loop()

    @tool(parallel=True)
    def descend(ctx: ToolContext, depth: int) -> str:
        if depth == 0:
            return "bottom"
        nested_call = asyncio.run_coroutine_threadsafe(ctx.call("descend", depth=depth - 1), loop)
        return nested_call.result(5).value

    async with fail_after(20), Runtime.open(tools=[descend], policy=ONE.but(timeout=2, grace=0.01)) as runtime:
        outcome = await runtime.session("s").call("descend", depth=3)
    assert outcome.value == "bottom"


@pytest.mark.promise("SCHED-06")
async def test_a_call_does_not_see_the_context_of_the_call_it_waited_for():
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    @tool
    async def first() -> None:
        who.set("the first tool")
        await asyncio.sleep(0)

    @tool
    async def second() -> None:
        seen.append(who.get())

    async with fail_after(5), Runtime.open(tools=[first, second]) as runtime:
        who.set("the caller")
        await runtime.session("s").run_batch([call("a", "first"), call("b", "second")])
    assert seen == ["the caller"]


# --- what is known of them


@pytest.mark.promise("RUN-13", "SCHED-06")
async def test_parent_and_source_of_a_nested_call_are_recorded_and_seen_by_policy():
    stage = Stage()
    cast = Cast(stage)
    seen: dict[str, tuple[str, str | None]] = {}

    def note(request: Request) -> bool:
        seen[request.call_id] = (request.source, request.parent)
        return False

    in_context: dict[str, tuple[str, str | None]] = {}

    @tool(parallel=True)
    async def tell(ctx: ToolContext) -> None:
        in_context[ctx.call_id] = (ctx.source, ctx.parent_call_id)

    stage.open()
    policy = Policy(rules=[Rule("deny", when=note, name="never")])
    async with fail_after(5), Runtime.open(tools=[*cast.tools, tell], policy=policy) as runtime:
        session = runtime.session("s")
        with session.subscribe() as events:
            await session.run_batch(
                [
                    ToolCall(
                        id="p",
                        name="orchestrate",
                        source="user",
                        arguments={
                            "calls": [
                                nested("q", "orchestrate", calls=[nested("n", "tell")]),
                                nested("u", "no_such_tool"),
                            ]
                        },
                    )
                ]
            )
            published = []
            while (event := events.take()) is not None:
                published.append(event)
        records = {record.call_id: (record.source, record.parent) for record in runtime.log}
    expected = {"p": ("user", None), "q": ("tool", "p"), "n": ("tool", "q"), "u": ("tool", "p")}
    assert records == expected
    assert seen == {id: expected[id] for id in ("p", "q", "n")}
    assert in_context == {"n": ("tool", "q")}
    started = {event.call_id: (event.source, event.parent) for event in published if event.kind == "call.started"}
    assert started == expected
    assert sorted(event.call_id for event in published if event.kind == "call.finished") == ["n", "p", "q", "u"]


@pytest.mark.promise("RUN-13")
async def test_policy_can_refuse_by_parent_and_source():
    stage = Stage()
    cast = Cast(stage)
    stage.open()
    rules = [
        Rule("deny", "write", source="tool", name="no nested writes"),
        Rule("deny", "look", when=lambda request: request.parent == "p", name="not for p"),
    ]
    async with fail_after(5), Runtime.open(tools=cast.tools, policy=Policy(rules=rules)) as runtime:
        session = runtime.session("s")
        inner = [nested("w", "write", path="a"), nested("l", "look"), nested("e", "everything")]
        await session.run_batch([call("p", "orchestrate", calls=inner)])
        assert {id: (outcome.status, outcome.decided_by) for id, outcome in cast.outcomes.items()} == {
            "w": ("failure", "no nested writes"),
            "l": ("failure", "not for p"),
            "e": ("success", None),
        }
        assert (await session.call("write", path="a")).status == "success"
        assert (await session.call("look")).status == "success"


@pytest.mark.promise("RUN-13")
async def test_a_call_through_the_session_in_a_tools_child_task_has_the_tool_as_its_parent():
    seen: list[tuple[str, str | None]] = []

    @tool(parallel=True)
    async def child(ctx: ToolContext) -> None:
        seen.append((ctx.source, ctx.parent_call_id))

    async def further() -> None:
        await asyncio.create_task(session.call("child"))

    @tool
    async def parent() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.call("child"))
            tasks.create_task(further())

    async with fail_after(5), Runtime.open(tools=[child, parent]) as runtime:
        session = runtime.session("s")
        await session.run_batch([call("p", "parent")])
        await session.call("child")
    assert seen == [("tool", "p"), ("tool", "p"), ("host", None)]
