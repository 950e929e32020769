"""Providers that a session is connected to, and calls that need one."""

import asyncio

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after, until
from toolwright import ConnectionRequired, Policy, ToolCall, ToolContext, tool
from toolwright.errors import PolicyError, ServiceError
from toolwright.testing import FakeClock

STAR = ToolCall(id="c1", name="star", arguments={"repo": "r"})


def make_star(ran):
    """A tool that needs a connection, and does something before and after it has it."""

    @tool(parallel=True)
    async def star(ctx: ToolContext, repo: str) -> str | ConnectionRequired:
        await ctx.step("before", lambda: ran.append("before"))
        await ctx.messages.append(f"starring {repo}")
        connection = await ctx.connections.get("github")
        if connection is None:
            ran.append("asked")
            return ConnectionRequired("github")
        ran.append("starred")
        return f"{connection.detail} starred {repo}"

    return star


@pytest.mark.promise("SES-07")
async def test_a_session_knows_what_it_is_connected_to(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, clock=clock)
    session = runtime.session("s")
    github = await session.connect("github", detail={"login": "ada"})
    await clock.advance(5)
    slack = await session.connect("slack")
    assert await session.connections() == [github, slack]
    assert (github.detail, slack.connected_at - github.connected_at) == ({"login": "ada"}, pytest.approx(5))
    assert (await session.connect("github", detail="eve")).detail == "eve"
    assert [connection.detail for connection in await session.connections()] == ["eve", None]
    assert await runtime.session("t").connections() == []
    assert not await runtime.session("t").disconnect("github")
    assert (await session.disconnect("github"), await session.disconnect("github")) == (True, False)
    assert [connection.provider for connection in await session.connections()] == ["slack"]


async def test_a_connection_that_is_not_usable_is_refused(place, open_runtime, monkeypatch):
    session = (await open_runtime(place)).session("s")
    for provider, detail in (("", None), ("a\n", None), (3, None), ("x", object()), ("x", "y" * 70_000)):
        with pytest.raises(ServiceError):
            await session.connect(provider, detail=detail)
    monkeypatch.setattr("toolwright.session.session.MOST", 1)
    await session.connect("a")
    await session.connect("a")
    with pytest.raises(ServiceError, match="1 connections"):
        await session.connect("b")
    with pytest.raises(PolicyError, match="on_connection"):
        Policy(on_connection="maybe")


@pytest.mark.promise("SES-07")
async def test_a_call_that_lacks_a_connection_says_which_and_is_retried_once_there_is_one(place, open_runtime):
    ran: list[str] = []
    runtime = await open_runtime(place, make_star(ran))
    session = runtime.session("s")
    (outcome,) = await session.run_batch([STAR])
    assert (outcome.status, outcome.provider, outcome.replayed) == ("connection_required", "github", False)
    await runtime.session("t").connect("github")
    await session.connect("slack")
    (outcome,) = await session.run_batch([STAR])
    assert (outcome.status, outcome.replayed) == ("connection_required", True)
    await session.connect("github", detail="ada")
    for replayed in (False, True):
        (outcome,) = await session.run_batch([STAR])
        assert (outcome.value, outcome.replayed) == ("ada starred r", replayed)
    # What was done before the connection was asked for is not done again.
    assert ran == ["before", "asked", "starred"]
    assert [message.content for message in await session.messages.list()] == ["starring r"]


@pytest.mark.promise("SES-07")
async def test_the_outcome_of_a_restarted_program_is_retried_too(file, open_runtime):
    ran: list[str] = []
    first = await open_runtime(file, make_star(ran))
    await first.session("s").run_batch([STAR])
    await first.close()
    second = await open_runtime(file, make_star(ran))
    assert (await second.session("s").run_batch([STAR]))[0].replayed
    await second.session("s").connect("github", detail="ada")
    await second.close()
    third = await open_runtime(file, make_star(ran))
    assert (await third.session("s").run_batch([STAR]))[0].value == "ada starred r"
    assert ran == ["before", "asked", "starred"]


@pytest.mark.promise("SES-07")
async def test_two_batches_that_retry_a_call_share_one_run(place, open_runtime):
    go = asyncio.Event()
    ran: list[str] = []

    @tool(parallel=True)
    async def star(ctx: ToolContext, repo: str) -> str | ConnectionRequired:
        if await ctx.connections.get("github") is None:
            return ConnectionRequired("github")
        ran.append(repo)
        await go.wait()
        return "starred"

    session = (await open_runtime(place, star)).session("s")
    await session.run_batch([STAR])
    await session.connect("github")
    async with fail_after(5):
        first = session.start_batch([STAR])
        second = session.start_batch([STAR])
        await until(lambda: any(call.shares for batch in (first, second) for call in batch.calls))
        go.set()
        outcomes = [(await first)[0], (await second)[0]]
    assert sorted((outcome.value, outcome.replayed) for outcome in outcomes) == [("starred", False), ("starred", True)]
    assert ran == ["r"]


@pytest.mark.promise("SES-07")
async def test_a_retry_that_is_stopped_before_it_runs_changes_nothing(place, open_runtime):
    ran: list[str] = []
    busy, go = asyncio.Event(), asyncio.Event()

    @tool
    async def block() -> None:
        busy.set()
        await go.wait()

    session = (await open_runtime(place, make_star(ran), block)).session("s")
    await session.run_batch([STAR])
    await session.connect("github", detail="ada")
    async with fail_after(5):
        other = session.start_batch([ToolCall(name="block", arguments={})])
        await busy.wait()
        held_up = session.start_batch([STAR])
        await until(lambda: any(call.ticket is not None and call.ticket.state == "blocked" for call in held_up.calls))
        held_up.cancel()
        await held_up.settled()
        go.set()
        await other
    await session.disconnect("github")
    (outcome,) = await session.run_batch([STAR])
    assert (outcome.status, outcome.replayed) == ("connection_required", True)
    await session.connect("github", detail="ada")
    assert (await session.run_batch([STAR]))[0].value == "ada starred r"
    assert ran == ["before", "asked", "starred"]


@pytest.mark.promise("SES-07")
async def test_a_call_whose_nested_call_lacks_a_connection_is_retried_with_it(place, open_runtime):
    ran: list[str] = []

    @tool
    async def outer(ctx: ToolContext) -> object:
        (outcome,) = await ctx.run_batch([STAR])
        return outcome

    session = (await open_runtime(place, make_star(ran), outer)).session("s")
    call = ToolCall(id="o1", name="outer", arguments={})
    (outcome,) = await session.run_batch([call])
    assert (outcome.status, outcome.provider) == ("connection_required", "github")
    await session.connect("github", detail="ada")
    assert (await session.run_batch([call]))[0].value == "ada starred r"
    assert ran == ["before", "asked", "starred"]


@pytest.mark.promise("SES-07")
async def test_a_call_may_wait_for_its_connection_without_a_slot(place, open_runtime):
    ran: list[str] = []

    @tool(parallel=True)
    async def other() -> str:
        return "done"

    policy = Policy(on_connection="wait", max_concurrency=1, session_concurrency=1, runtime_concurrency=1)
    runtime = await open_runtime(place, make_star(ran), other, policy=policy)
    session, events = runtime.session("s"), runtime.subscribe()
    async with fail_after(5):
        batch = session.start_batch([STAR, ToolCall(name="other", arguments={})])
        event = await waiting(events)
        assert (event.what, event.name) == ("connection", "github")
        assert await session.wait_for_idle()
        assert (await session.call("other")).value == "done"
        await session.connect("slack")
        await runtime.session("t").connect("github")
        assert not batch.done
        await session.connect("github", detail="ada")
        outcomes = await batch
    assert [outcome.value for outcome in outcomes] == ["ada starred r", "done"]
    assert ran == ["before", "asked", "starred"]


@pytest.mark.promise("SES-07")
async def test_a_tool_that_a_connection_does_not_serve_waits_for_another(place, open_runtime):
    clock = FakeClock()
    ran: list[str] = []

    @tool
    async def star(ctx: ToolContext) -> str | ConnectionRequired:
        connection = await ctx.connections.get("github")
        ran.append("" if connection is None else connection.detail)
        return "starred" if ran[-1] == "good" else ConnectionRequired("github")

    runtime = await open_runtime(place, star, clock=clock, policy=Policy(on_connection="wait"))
    session, events = runtime.session("s"), runtime.subscribe()
    await session.connect("github", detail="old")
    async with fail_after(5):
        batch = session.start_batch([ToolCall(name="star", arguments={})])
        await waiting(events)
        assert ran == ["old", "old"]
        await clock.advance(1)
        await session.connect("github", detail="bad")
        await waiting(events)
        await clock.advance(1)
        await session.connect("github", detail="good")
        assert (await batch)[0].value == "starred"
    assert ran == ["old", "old", "bad", "good"]


@pytest.mark.parametrize("how", ["expired", "cancelled"])
async def test_a_wait_for_a_connection_ends_with_its_time_or_by_hand(place, open_runtime, how):
    clock = FakeClock()
    ran: list[str] = []
    policy = Policy(on_connection="wait", approval_timeout=60)
    runtime = await open_runtime(place, make_star(ran), clock=clock, policy=policy)
    session, events = runtime.session("s"), runtime.subscribe()
    async with fail_after(5):
        batch = session.start_batch([STAR])
        await waiting(events)
        if how == "expired":
            await clock.advance(61)
            (outcome,) = await batch
            assert (outcome.status, outcome.provider) == ("connection_required", "github")
            await session.connect("github", detail="ada")
            assert (await session.run_batch([STAR]))[0].value == "ada starred r"
        else:
            assert await session.cancel_waits("no") == 1
            (outcome,) = await batch
            assert outcome.failure.code == "wait_cancelled"
    assert ran[:2] == ["before", "asked"]


async def test_a_call_that_waits_for_a_connection_can_be_cancelled(place, open_runtime):
    ran: list[str] = []
    runtime = await open_runtime(place, make_star(ran), policy=Policy(on_connection="wait"))
    session, events = runtime.session("s"), runtime.subscribe()
    async with fail_after(5):
        batch = session.start_batch([STAR])
        await waiting(events)
        batch.cancel("enough")
        (outcome,) = await batch
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "enough", True)
    await session.connect("github")
    assert await session.wait_for_idle()


@pytest.mark.promise("SES-07")
async def test_a_call_that_waits_when_its_program_ends_goes_on_waiting_in_the_next(file, open_runtime):
    ran: list[str] = []
    options = {"policy": Policy(on_connection="wait")}
    first = await open_runtime(file, make_star(ran), **options)
    events = first.subscribe()
    async with fail_after(10):
        batch = first.session("s").start_batch([STAR])
        await waiting(events)
        await first.close()
        await batch.settled()
        second = await open_runtime(file, make_star(ran), **options)
        (recovered,) = await second.recover()
        assert (recovered.action, recovered.outcome.status) == ("waiting", "pending")
        third = await open_runtime(file)
        await third.session("s").connect("github", detail="ada")
        assert (await second.session("s").run_batch([STAR]))[0].value == "ada starred r"
    assert ran == ["before", "asked", "starred"]
