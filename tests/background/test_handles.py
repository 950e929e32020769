"""Handles: start, await, cancel, signal, list, follow, and the grants they need."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.support import fail_after
from toolwright import Pending, Policy, Runtime, ToolCall, ToolContext, tool
from toolwright.errors import RunError, RuntimeClosed, ServiceError, ToolwrightError


@tool(supports_background=True)
async def echo(text: str = "hi") -> str:
    return text


@tool(supports_background=True)
async def endless() -> None:
    await asyncio.Event().wait()


@pytest.mark.promise("PROC-03", "PROC-09")
async def test_a_run_is_awaited_by_as_many_as_like(stage: Stage, place: str | Path):
    session = (await stage.open(place, echo)).session("s")
    run = await session.spawn("echo", {"text": "a"})
    other = await session.run(run.id)
    outcomes = await stage.until(asyncio.gather(run.wait(), run.wait(), other.wait()))
    assert [outcome.value for outcome in outcomes] == ["a", "a", "a"]
    assert outcomes[0].call_id == run.id
    assert (run.status, other.status) == ("completed", "completed")
    assert (await run.wait(timeout=0)).value == "a"


@pytest.mark.promise("PROC-03", "PROC-09")
async def test_who_awaits_too_long_is_told_and_the_run_goes_on(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work() -> str:
        await go.wait()
        return "done"

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    with pytest.raises(TimeoutError, match="is not finished after 5 s"):
        await stage.until(run.wait(timeout=5))
    assert run.status == "running"
    go.set()
    assert (await stage.until(run.wait(timeout=5))).value == "done"


@pytest.mark.promise("PROC-09")
async def test_a_run_that_waits_for_a_worker_is_cancelled_at_once(stage: Stage, place: str | Path):
    session = (await stage.open(place, echo, worker=False)).session("s")
    run = await session.spawn("echo", signal_on_completion=True)
    assert await run.cancel("not needed")
    assert run.status == "cancelled"
    outcome = await run.wait()
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "not needed", False)
    assert not await run.cancel()
    types = [event.type async for event in run.follow()]
    assert types == ["queued", "cancel_asked", "cancelled"]
    (message,) = await session.messages.list()
    assert "Background run cancelled." in message.content


@pytest.mark.promise("PROC-09")
async def test_a_run_that_runs_is_cancelled_with_its_grace(stage: Stage, place: str | Path):
    cleaned = []

    @tool(supports_background=True)
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "running")
    assert await run.cancel("enough")
    outcome = await stage.until(run.wait())
    assert (outcome.status, outcome.reason, run.status) == ("cancelled", "enough", "cancelled")
    assert cleaned == [True]
    assert not await run.cancel("again")
    assert (await run.wait()).reason == "enough"


@pytest.mark.promise("PROC-09")
async def test_a_run_is_cancelled_from_another_runtime_on_the_same_file(stage: Stage, file: Path):
    session = (await stage.open(file, endless)).session("s")
    run = await session.spawn("endless")
    await stage.status(run, "running")
    elsewhere = await (await stage.open(file, endless, worker=False)).session("s").run(run.id)
    assert await elsewhere.cancel("from afar")
    outcomes = await stage.until(asyncio.gather(run.wait(), elsewhere.wait()))
    assert [outcome.reason for outcome in outcomes] == ["from afar"] * 2


@pytest.mark.promise("PROC-09")
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_tool_that_never_returns_is_left_behind(stage: Stage, place: str | Path, how: str):
    going, at_last = asyncio.Event(), asyncio.Event()

    @tool(supports_background=True)
    async def stubborn() -> str:
        going.set()
        while not at_last.is_set():
            with suppress(asyncio.CancelledError):
                await at_last.wait()
        return "too late"

    session = (await stage.open(place, stubborn)).session("s")
    run = await session.spawn("stubborn", timeout=10 if how == "timeout" else None, signal_on_completion=True)
    await stage.until(going.wait())
    if how == "cancel":
        await run.cancel()
    outcome = await stage.until(run.wait())
    if how == "cancel":
        assert (outcome.status, run.status) == ("cancelled", "cancelled")
    else:
        assert outcome.failure is not None
        assert (outcome.failure.category, run.status) == ("timeout", "failed")
        assert "did not finish within 10 s" in outcome.text
    assert outcome.may_have_run
    assert len(await session.messages.list()) == 1
    at_last.set()
    await stage.pass_time(2)
    again = await run.wait()
    assert (again.status, again.failure, again.reason) == (outcome.status, outcome.failure, outcome.reason)


@pytest.mark.promise("PROC-03")
async def test_signals_sent_before_it_begins_while_it_runs_and_none_after(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> list[Any]:
        got = []
        while (payload := await ctx.receive("go")) != "stop":
            got.append(payload)
        return got

    policy = Policy(background_per_session=1, on_background_limit="queue")
    session = (await stage.open(place, work, endless, policy=policy)).session("s")
    before = await session.spawn("endless")
    run = await session.spawn("work")
    assert [await run.signal("go", number) for number in (1, 2)] == [1, 2]
    await run.signal("other", "not this")
    await stage.status(before, "running")
    assert (await run.refresh()).status == "queued"
    await before.cancel()
    await stage.status(run, "waiting")
    assert await run.signal("go", 3) == 3
    await run.signal("go", "stop")
    assert (await stage.until(run.wait())).value == [1, 2, 3]
    with pytest.raises(RunError, match="it is finished") as caught:
        await run.signal("go", 4)
    assert caught.value.code == "over"


@pytest.mark.promise("PROC-03")
async def test_a_run_that_was_cancelled_before_it_began_takes_no_signals(stage: Stage, place: str | Path):
    session = (await stage.open(place, echo, worker=False)).session("s")
    run = await session.spawn("echo")
    await run.cancel()
    with pytest.raises(RunError, match="finished"):
        await run.signal("go")


@pytest.mark.promise("PROC-03")
async def test_signals_at_full_speed_arrive_in_order_and_none_is_lost(stage: Stage, place: str | Path):
    most = 300

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> list[Any]:
        return [await ctx.receive("go") for _ in range(3 * most)]

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")

    async def send(sender: int) -> None:
        for number in range(most):
            await run.signal("go", [sender, number])

    outcome = await stage.until(asyncio.gather(run.wait(), *(send(sender) for sender in range(3))), most=3_000)
    got = outcome[0].value
    assert len(got) == 3 * most
    for sender in range(3):
        assert [number for who, number in got if who == sender] == list(range(most))


@pytest.mark.promise("PROC-03")
async def test_a_run_is_followed_live_from_another_runtime(stage: Stage, file: Path):
    seen: list[Any] = []
    step = asyncio.Event()

    @tool(supports_background=True, events={"count": int})
    async def work(ctx: ToolContext) -> None:
        for number in range(3):
            await ctx.emit("count", number)
            await step.wait()
            step.clear()

    session = (await stage.open(file, work)).session("s")
    there = (await stage.open(file, work, worker=False)).session("s")
    run = await session.spawn("work")

    async def follow() -> None:
        async for event in (await there.run(run.id)).follow():
            seen.append(event)

    async def saw(number: int) -> bool:
        return any(event.type == "count" and event.payload == number for event in seen)

    following = asyncio.ensure_future(follow())
    for number in range(3):
        await stage.until_so(partial(saw, number))
        assert not await saw(number + 1)
        step.set()
    await stage.until(following)
    assert seen[-1].type == "completed"
    assert seen == [event async for event in run.follow()]


@pytest.mark.promise("PROC-03")
async def test_a_session_that_was_revoked_takes_no_signals_for_its_runs(stage: Stage, file: Path):
    session = (await stage.open(file, echo, worker=False)).session("s")
    run = await session.spawn("echo")
    await session.revoke()
    with pytest.raises(RunError, match="revoked"):
        await run.signal("go")


@pytest.mark.promise("PROC-03")
async def test_signals_from_another_runtime_arrive(stage: Stage, file: Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> list[Any]:
        return [await ctx.receive("go") for _ in range(50)]

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    there = await (await stage.open(file, work, worker=False)).session("s").run(run.id)
    for number in range(50):
        await there.signal("go", number)
    assert (await stage.until(there.wait())).value == list(range(50))


@pytest.mark.promise("PROC-03")
@pytest.mark.parametrize("bad", [("", 1), (5, 1), ("go", object), ("go", "\ud800")], ids=repr)
async def test_a_signal_that_cannot_be_kept_is_refused(stage: Stage, bad: tuple[Any, Any]):
    session = (await stage.open(":memory:", echo, worker=False)).session("s")
    run = await session.spawn("echo")
    with pytest.raises(ServiceError, match="signal"):
        await run.signal(*bad)


@pytest.mark.promise("PROC-03", "PROC-09")
async def test_the_runs_of_a_session_are_listed_newest_first(stage: Stage, place: str | Path):
    runtime = await stage.open(place, echo, endless)
    session = runtime.session("s")
    first = await session.spawn("echo")
    await stage.until(first.wait())
    second = await session.spawn("endless")
    await runtime.session("t").spawn("endless")
    assert [run.id for run in await session.runs()] == [second.id, first.id]
    assert [run.id for run in await session.runs(active=True)] == [second.id]


@pytest.mark.promise("PROC-03")
async def test_another_session_needs_a_grant(stage: Stage, place: str | Path):
    runtime = await stage.open(place, endless)
    run = await runtime.session("s").spawn("endless")
    other = runtime.session("t")
    with pytest.raises(RunError) as unknown:
        await other.run("bg_ghost")
    with pytest.raises(RunError) as foreign:
        await other.run(run.id)
    assert str(foreign.value).replace(run.id, "bg_ghost") == str(unknown.value)
    await run.grant("t")
    granted = await other.run(run.id)
    assert await other.runs() == []
    assert await granted.cancel("by its friend")
    assert (await stage.until(granted.wait())).reason == "by its friend"
    with pytest.raises(RunError):
        await runtime.session("u").run(run.id)


@pytest.mark.promise("PROC-03", "SES-06")
async def test_a_session_does_with_a_granted_run_what_it_was_granted_and_no_more(stage: Stage, place: str | Path):
    @tool(supports_background=True)
    async def release(ctx: ToolContext) -> None:
        await ctx.runs.track("deploy", id="below")
        await asyncio.Event().wait()

    runtime = await stage.open(place, release)
    run, other = await runtime.session("s").spawn("release"), runtime.session("t")

    async def begun() -> bool:
        return bool(await run.children())

    await stage.until_so(begun)
    await run.grant("t")
    theirs = await other.run(run.id)
    (below,) = await theirs.children()
    for attempt in (theirs.grant("u"), theirs.resume(), below.grant("u"), below.report(status="x"), below.finish(1)):
        with pytest.raises(RunError, match="belongs to another session") as refused:
            await attempt
        assert refused.value.code == "not_own"
    assert await below.cancel("enough")


@pytest.mark.promise("PROC-03")
async def test_a_tool_needs_the_same_grant(stage: Stage, place: str | Path):
    @tool
    async def stop(ctx: ToolContext, id: str) -> bool:
        return await (await ctx.runs.get(id)).cancel("by a tool")

    runtime = await stage.open(place, endless, stop)
    run = await runtime.session("s").spawn("endless")
    other = runtime.session("t")
    refused = await other.call("stop", id=run.id)
    assert refused.failure is not None
    assert refused.failure.category == "not_found"
    await run.grant("t")
    assert (await other.call("stop", id=run.id)).value is True
    assert (await stage.until(run.wait())).reason == "by a tool"


@pytest.mark.promise("PROC-01")
async def test_a_run_that_waits_says_so_and_says_when_it_goes_on(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.receive("go")
        await go.wait()
        return "done"

    session = (await stage.open(place, work)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "waiting")
    assert run.record.status_text == "Waiting for signal go"
    await run.signal("go")
    await stage.status(run, "running")
    assert run.record.status_text == "Running"
    go.set()
    await stage.until(run.wait())
    told = [(event.type, event.payload) async for event in run.follow() if event.type in ("waiting", "resumed")]
    assert told == [("waiting", {"what": "signal", "name": "go"}), ("resumed", {})]


@pytest.mark.promise("PROC-01")
async def test_a_run_that_needs_an_approval_waits_for_it_and_goes_on(stage: Stage, place: str | Path):
    @tool(supports_background=True, approval="required")
    async def work() -> str:
        return "done"

    runtime = await stage.open(place, work, policy=Policy(on_ask="wait"))
    run = await runtime.session("s").spawn("work")
    await stage.status(run, "waiting")
    (asked,) = await runtime.approvals()
    assert asked.call_id == run.id
    await runtime.approve(asked.key)
    assert (await stage.until(run.wait())).value == "done"


@pytest.mark.promise("PROC-01")
async def test_a_run_that_is_denied_fails_visibly(stage: Stage, place: str | Path):
    @tool(supports_background=True, approval="required")
    async def work() -> str:
        return "done"

    runtime = await stage.open(place, work, policy=Policy(on_ask="wait"))
    run = await runtime.session("s").spawn("work")
    await stage.status(run, "waiting")
    (asked,) = await runtime.approvals()
    await runtime.deny(asked.key, reason="not today")
    outcome = await stage.until(run.wait())
    assert "not today" in outcome.text
    assert run.status == "failed"


@pytest.mark.promise("PROC-01")
async def test_a_run_that_is_completed_from_outside_waits_until_then(stage: Stage, place: str | Path):
    keys: list[str] = []

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    runtime = await stage.open(place, work)
    run = await runtime.session("s").spawn("work")
    await stage.status(run, "waiting")
    await runtime.resolve(keys[0], {"done": 1})
    assert (await stage.until(run.wait())).value == {"done": 1}


@pytest.mark.promise("PROC-09")
async def test_whoever_awaits_or_follows_when_the_runtime_closes_is_told(stage: Stage, place: str | Path):
    runtime = await stage.open(place, endless)
    run = await runtime.session("s").spawn("endless")
    await stage.status(run, "running")

    async def follow() -> None:
        async for _ in run.follow():
            pass

    waiting = [asyncio.ensure_future(run.wait()), asyncio.ensure_future(follow())]
    await stage.settle()
    await stage.close(runtime)
    async with fail_after(5):
        for task in waiting:
            with pytest.raises(RuntimeClosed):
                await task
    with pytest.raises(RuntimeClosed):
        await runtime.session("s").runs()


@pytest.mark.promise("PROC-09")
async def test_a_session_that_is_cancelled_or_awaited_leaves_its_runs_alone(stage: Stage, place: str | Path):
    go = asyncio.Event()

    @tool
    async def inner() -> str:
        await go.wait()
        return "inner"

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> Any:
        return (await ctx.call("inner")).value

    session = (await stage.open(place, work, inner)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(0.5, 0.25)
    assert await session.wait_for_idle(timeout=0)
    session.cancel()
    go.set()
    assert (await stage.until(run.wait())).value == "inner"


@pytest.mark.promise("PROC-09")
async def test_a_run_holds_no_slot_of_its_session(stage: Stage, place: str | Path):
    @tool
    async def quick() -> str:
        return "quick"

    policy = Policy(session_concurrency=1)
    session = (await stage.open(place, endless, quick, policy=policy)).session("s")
    runs = [await session.spawn("endless") for _ in range(3)]
    for run in runs:
        await stage.status(run, "running")
    assert (await session.call("quick")).value == "quick"


@pytest.mark.promise("PROC-04")
async def test_who_only_looks_after_runs_does_not_begin_to_work(stage: Stage, file: Path):
    started = (await stage.open(file, echo, worker=False)).session("s")
    first, second = await started.spawn("echo"), await started.spawn("echo")
    session = (await stage.open(file, echo)).session("s")
    assert await (await session.run(first.id)).cancel()
    await session.runs()
    await stage.pass_time(5)
    assert (await second.refresh()).status == "queued"


@pytest.mark.promise("PROC-04")
async def test_a_session_that_only_a_worker_opened_may_still_be_given_its_policy(stage: Stage, file: Path):
    inside: list[str] = []
    most = 0

    @tool(parallel=True)
    async def work(ctx: ToolContext) -> None:
        nonlocal most
        inside.append(ctx.call_id)
        most = max(most, len(inside))
        for _ in range(10):
            await asyncio.sleep(0)
        inside.remove(ctx.call_id)

    await (await stage.open(file, endless, worker=False)).session("s").spawn("endless", id="mine")
    runtime = await stage.open(file, endless, work, worker=True)

    async def begun() -> bool:
        (run,) = await stage.opened[0].session("s").runs()
        return run.status == "running"

    await stage.until_so(begun)
    session = runtime.session("s", policy=Policy(background_per_session=1, session_concurrency=2))
    with pytest.raises(RunError, match="Maximum 1"):
        await session.spawn("endless")
    outcomes = await stage.until(session.run_batch([ToolCall(name="work") for _ in range(6)]))
    assert ([outcome.ok for outcome in outcomes], most) == ([True] * 6, 2)
    with pytest.raises(ToolwrightError, match="open already"):
        runtime.session("s", policy=Policy())


@pytest.mark.promise("PROC-03")
def test_a_blocking_runtime_has_the_same_handles(tmp_path: Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext, text: str = "x") -> str:
        await ctx.output("stdout", text)
        return text + str(await ctx.receive("go"))

    with Runtime.open_blocking(tmp_path / "agent.db", tools=[work], sync="normal") as runtime:
        session = runtime.session("s")
        run = session.spawn("work", {"text": "a"})
        run.signal("go", "b")
        assert run.wait(timeout=60).value == "ab"
        assert run.status == "completed"
        types = [event.type for event in run.follow()]
        assert (types[0], types[-1]) == ("queued", "completed")
        (listed,) = session.runs()
        assert listed.log() == "[stdout] a"
        assert session.run(run.id).record.title == "Background work"
        held = session.spawn("work", {"text": "c"})
        assert held.cancel("enough")
        assert held.wait(timeout=60).status == "cancelled"
        assert held.children() == []
        following = iter(session.spawn("work", {"text": "d"}).follow())
        assert next(following).type == "queued"


@pytest.mark.promise("PROC-03", "CANCEL-01")
@pytest.mark.parametrize("cancel", [True, False])
async def test_cancelling_the_task_that_awaits_a_run_cancels_the_run_if_asked_to(
    stage: Stage, place: str | Path, cancel: bool
):
    session = (await stage.open(place, endless)).session("s")
    run = await session.spawn("endless")
    await stage.status(run, "running")
    waiting = asyncio.ensure_future(run.wait(cancel=cancel))
    await stage.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.until(waiting)
    assert (await run.refresh()).status == ("cancelled" if cancel else "running")


@pytest.mark.promise("PROC-05", "AUTH-01")
async def test_any_tool_runs_in_the_background_where_the_policy_says_so(stage: Stage, place: str | Path):
    @tool
    async def plain(text: str = "hi") -> str:
        return text

    refusing = (await stage.open(":memory:", plain)).session("s")
    with pytest.raises(RunError, match="does not support background execution: plain"):
        await refusing.spawn("plain")
    session = (await stage.open(place, plain, policy=Policy(background_tools="all"))).session("s")
    run = await session.spawn("plain", {"text": "a"})
    assert (await stage.until(run.wait())).value == "a"
    await session.on("topic", "plain")
    assert (await session.schedule("plain", {}, cron="0 3 * * *")).state == "active"
    with pytest.raises(ToolwrightError, match="background_tools is 'some'"):
        Policy(background_tools="some")
