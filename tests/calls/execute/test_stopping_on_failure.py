"""What one failure does to its siblings."""

import asyncio
from typing import Any

import pytest

from tests.calls.execute.watching import ended, of_call, record, take_all
from tests.support import fail_after
from toolwright import BatchFailed, Policy, Rule, ToolCall, ToolContext, ToolError, tool


@pytest.mark.promise("RUN-06")
async def test_a_failure_is_an_outcome_like_any_other(clock, open_runtime):
    @tool
    async def work(name: str) -> str:
        if name == "b":
            raise ToolError("no")
        return name

    runtime = await open_runtime(work)
    calls = [ToolCall(name="work", arguments={"name": name}) for name in "abc"]
    batch = runtime.session("s").start_batch(calls)
    await clock.advance(0)
    assert [outcome.status for outcome in await ended(batch)] == ["success", "failure", "success"]


@pytest.mark.promise("RUN-06")
async def test_the_first_failure_stops_the_batch_which_raises_once_with_all_outcomes(clock, open_runtime):
    stopped = []

    @tool(parallel=True)
    async def quick() -> str:
        return "done"

    @tool(parallel=True)
    async def runs() -> None:
        try:
            await clock.sleep(3600)
        finally:
            stopped.append(clock.monotonic())

    @tool(parallel=True)
    async def fails() -> None:
        await clock.sleep(5)
        raise ToolError("out of paper", code="paper")

    @tool
    async def waits() -> None:
        stopped.append("never to be run")

    runtime = await open_runtime(quick, runs, fails, waits, policy=Policy(continue_on_failure=False))
    events = runtime.subscribe()
    calls = [ToolCall(id=name, name=name) for name in ("quick", "runs", "fails", "waits")]
    batch = runtime.session("s").start_batch(calls)
    await clock.advance(4.9)
    assert not batch.done
    await clock.advance(0.1)
    assert batch.done
    with pytest.raises(BatchFailed, match="'fails'") as caught:
        await batch
    outcomes: list[Any] = caught.value.outcomes
    assert [outcome.call_id for outcome in outcomes] == ["quick", "runs", "fails", "waits"]
    assert [outcome.status for outcome in outcomes] == ["success", "cancelled", "failure", "cancelled"]
    assert [outcome.may_have_run for outcome in outcomes] == [False, True, True, False]
    assert outcomes[2].failure.code == "paper"
    assert "'fails'" in outcomes[1].reason
    assert stopped == [5.0]
    for outcome in outcomes:
        assert record(runtime, outcome.call_id).outcome is outcome
    taken = take_all(events)
    for call in calls:
        assert of_call(taken, call.id) == ["call.started", "call.finished"]


@pytest.mark.promise("RUN-06")
async def test_the_outcomes_wait_for_the_grace_of_those_still_running(clock, open_runtime):
    @tool(parallel=True)
    async def tidy() -> str:
        try:
            await clock.sleep(3600)
        except asyncio.CancelledError:
            await clock.sleep(0.03)
        return "half of it"

    @tool(parallel=True)
    async def fails() -> None:
        raise ToolError("no")

    runtime = await open_runtime(tidy, fails)
    batch = runtime.session("s").start_batch([ToolCall(name="tidy"), ToolCall(name="fails")], continue_on_failure=False)
    await clock.advance(0.02)
    assert not batch.done
    await clock.advance(0.01)
    with pytest.raises(BatchFailed) as caught:
        await ended(batch)
    assert [outcome.status for outcome in caught.value.outcomes] == ["success", "failure"]


@pytest.mark.promise("RUN-06")
@pytest.mark.parametrize("kind", ["unknown", "invalid", "refused", "timeout", "hook"])
async def test_every_kind_of_failure_stops_the_batch(kind, clock, open_runtime):
    ran = []

    @tool(timeout=5)
    async def work(seconds: float) -> None:
        ran.append(seconds)
        await clock.sleep(seconds)

    async def veto(call):
        if kind == "hook" and call.call_id == "c1":
            raise RuntimeError("the hook is broken")

    calls = {
        "unknown": ToolCall(id="c1", name="nobody"),
        "invalid": ToolCall(id="c1", name="work", arguments={"seconds": "soon"}),
        "refused": ToolCall(id="c1", name="work", arguments={"seconds": 99}),
        "timeout": ToolCall(id="c1", name="work", arguments={"seconds": 99}),
        "hook": ToolCall(id="c1", name="work", arguments={"seconds": 99}),
    }
    rules = [Rule("deny", "work", when=lambda request: request.call_id == "c1")] if kind == "refused" else []
    policy = Policy(continue_on_failure=False, rules=rules)
    runtime = await open_runtime(work, policy=policy, before=[veto] if kind == "hook" else [])
    batch = runtime.session("s").start_batch([calls[kind], ToolCall(id="c2", name="work", arguments={"seconds": 1})])
    await clock.advance(60)
    with pytest.raises(BatchFailed) as caught:
        await ended(batch)
    first, second = caught.value.outcomes
    assert (first.status, second.status, second.may_have_run) == ("failure", "cancelled", False)
    assert ran == ([99.0] if kind == "timeout" else [])
    assert record(runtime, "c2").status == "cancelled"


@pytest.mark.promise("RUN-06")
async def test_a_failure_found_before_anything_runs_stops_what_stands_before_it_too(clock, open_runtime):
    ran = []

    @tool
    async def work() -> None:
        ran.append("work")

    runtime = await open_runtime(work)
    batch = runtime.session("s").start_batch(
        [ToolCall(name="work"), ToolCall(name="nobody")], continue_on_failure=False
    )
    await clock.advance(1)
    with pytest.raises(BatchFailed) as caught:
        await ended(batch)
    assert [outcome.status for outcome in caught.value.outcomes] == ["cancelled", "failure"]
    assert not caught.value.outcomes[0].may_have_run
    assert ran == []


@pytest.mark.promise("RUN-06")
async def test_a_cancelled_call_is_no_failure(clock, open_runtime):
    @tool
    async def work() -> None:
        await clock.sleep(3600)

    runtime = await open_runtime(work, policy=Policy(continue_on_failure=False))
    batch = runtime.session("s").start_batch([ToolCall(name="work"), ToolCall(name="work")])
    await clock.advance(1)
    batch.cancel()
    await clock.advance(0)
    assert [outcome.status for outcome in await ended(batch)] == ["cancelled", "cancelled"]


@pytest.mark.promise("RUN-06")
async def test_a_stopped_batch_raises_at_everyone_who_waits_and_at_whoever_asks_later(clock, open_runtime):
    @tool
    async def fails() -> None:
        raise ToolError("no")

    runtime = await open_runtime(fails, policy=Policy(continue_on_failure=False))
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(name="fails")])
    waiting = [asyncio.create_task(batch.wait()) for _ in range(2)]
    await clock.advance(0)
    for task in waiting:
        with pytest.raises(BatchFailed):
            await task
    with pytest.raises(BatchFailed):
        await batch
    async with fail_after(5):
        with pytest.raises(BatchFailed):
            await session.run_batch([ToolCall(name="fails")])


@pytest.mark.promise("RUN-06")
async def test_the_next_batch_of_a_session_is_not_stopped(clock, open_runtime):
    @tool
    async def work(fail: bool) -> str:
        if fail:
            raise ToolError("no")
        return "done"

    runtime = await open_runtime(work, policy=Policy(continue_on_failure=False))
    session = runtime.session("s")
    first = session.start_batch([ToolCall(name="work", arguments={"fail": True})] * 2)
    second = session.start_batch([ToolCall(name="work", arguments={"fail": False})] * 2)
    await clock.advance(0)
    with pytest.raises(BatchFailed):
        await ended(first)
    assert [outcome.value for outcome in await ended(second)] == ["done", "done"]


@pytest.mark.promise("RUN-06")
async def test_a_stopped_batch_inside_a_tool_is_an_error_of_that_tool(clock, open_runtime):
    @tool
    async def fails() -> None:
        raise ToolError("no")

    @tool
    async def outer(ctx: ToolContext) -> list[str]:
        try:
            await ctx.run_batch([ToolCall(name="fails"), ToolCall(name="fails")])
        except BatchFailed as stopped:
            return [outcome.status for outcome in stopped.outcomes]
        return ["not stopped"]

    runtime = await open_runtime(fails, outer, policy=Policy(continue_on_failure=False))
    batch = runtime.session("s").start_batch([ToolCall(name="outer")])
    await clock.advance(0)
    assert (await ended(batch))[0].value == ["failure", "cancelled"]
