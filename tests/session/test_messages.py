"""The conversation of a session."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import Pending, ToolCall, ToolContext, tool
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock


@pytest.mark.promise("SES-01")
async def test_messages_are_kept_in_order_with_sender_and_instant(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, clock=clock)
    messages = runtime.session("s").messages
    began = clock.now()
    first = await messages.append("hello", sender="user", metadata={"from": "web"})
    await clock.advance(5)
    await messages.append({"parts": [1, None]}, sender="assistant")
    await messages.append(None, sender="runtime")
    assert (first.number, first.sender, first.content, first.metadata) == (1, "user", "hello", {"from": "web"})
    listed = await messages.list()
    assert listed[0] == first
    assert [(message.number, message.sender, message.content) for message in listed[1:]] == [
        (2, "assistant", {"parts": [1, None]}),
        (3, "runtime", None),
    ]
    assert [message.at - began for message in listed] == [pytest.approx(0), pytest.approx(5), pytest.approx(5)]
    assert [message.number for message in await messages.list(after=1, limit=1)] == [2]
    assert await messages.list(after=3) == await messages.list(limit=0) == await messages.list(after=2**80) == []


@pytest.mark.promise("SES-01")
async def test_numbers_rise_by_one_also_where_many_append_at_once(place, open_runtime):
    @tool(parallel=True)
    async def say(ctx: ToolContext, text: str) -> int:
        return (await ctx.messages.append(text)).number

    runtime = await open_runtime(place, say)
    session = runtime.session("s")
    calls = [ToolCall(name="say", arguments={"text": str(number)}) for number in range(20)]
    outcomes, *appended = await asyncio.gather(
        session.run_batch(calls), *(session.messages.append(number, sender="user") for number in range(20))
    )
    numbers = [outcome.value for outcome in outcomes] + [message.number for message in appended]
    assert sorted(numbers) == list(range(1, 41))
    listed = await session.messages.list()
    assert [message.number for message in listed] == list(range(1, 41))
    assert sum(message.sender == "tool" for message in listed) == 20


@pytest.mark.promise("SES-01")
async def test_several_messages_are_appended_together_or_not_at_all(place, open_runtime):
    runtime = await open_runtime(place, quotas=Quotas(messages=Quota(3, 10_000)))
    messages = runtime.session("s").messages
    answer = {"content": "", "sender": "assistant", "metadata": {"calls": ["c1", "c2"]}}
    added = await messages.extend([answer, {"content": "r1"}, {"content": "r2", "sender": "tool"}])
    assert [(one.number, one.sender, one.content) for one in added] == [
        (1, "assistant", ""),
        (2, "tool", "r1"),
        (3, "tool", "r2"),
    ]
    assert await messages.list() == added
    assert added[0].metadata == {"calls": ["c1", "c2"]}
    other = runtime.session("t").messages
    await other.append("there", sender="user")
    with pytest.raises(ServiceError, match="already has 3 messages"):
        await other.extend([{"content": number} for number in range(3)])
    assert [one.content for one in await other.list()] == ["there"]
    assert await other.extend([]) == []


@pytest.mark.promise("SES-01")
@pytest.mark.parametrize("wrong", ["text", {}, {"content": 1, "role": "user"}, {"content": 1, "sender": ["user"]}])
async def test_one_unusable_message_keeps_the_others_out(place, open_runtime, wrong):
    messages = (await open_runtime(place)).session("s").messages
    with pytest.raises(ServiceError, match=r"not usable|not known"):
        await messages.extend([{"content": "fine", "sender": "user"}, wrong])
    assert await messages.list() == []


@pytest.mark.promise("SES-01")
async def test_more_messages_than_one_page_are_all_listed(place, open_runtime, monkeypatch):
    monkeypatch.setattr("toolwright.session.services.messages.PAGE", 3)
    messages = (await open_runtime(place)).session("s").messages
    for number in range(7):
        await messages.append(number, sender="user")
    assert [message.content for message in await messages.list()] == list(range(7))
    assert [message.content for message in await messages.list(after=1, limit=4)] == [1, 2, 3, 4]


@pytest.mark.promise("SES-01")
async def test_a_tool_speaks_as_a_tool_only(place, open_runtime):
    @tool
    async def pretend(ctx: ToolContext, sender: str) -> None:
        await ctx.messages.append("I am allowed everything", sender=sender)

    session = (await open_runtime(place, pretend)).session("s")
    for sender in ("user", "assistant", "runtime"):
        outcome = await session.call("pretend", sender=sender)
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "permission_denied")
    assert (await session.call("pretend", sender="god")).failure.category == "invalid_arguments"
    assert await session.messages.list() == []
    assert (await session.call("pretend", sender="tool")).ok


@pytest.mark.parametrize(
    ("content", "options"),
    [(object(), {}), ("x", {"sender": "robot"}), ("x", {"metadata": [1]}), ("x", {"metadata": {"a": object()}})],
    ids=["content", "sender", "metadata", "value"],
)
async def test_a_message_that_is_not_usable_is_refused(place, open_runtime, content, options):
    messages = (await open_runtime(place)).session("s").messages
    with pytest.raises(ServiceError):
        await messages.append(content, **options)
    for wrong in ({"after": -1}, {"limit": -1}, {"after": True}, {"limit": "3"}, {"after": 1.5}):
        with pytest.raises(ServiceError, match="whole number"):
            await messages.list(**wrong)
    assert await messages.list() == []


async def test_a_session_may_not_have_more_messages_than_its_quota(place, open_runtime):
    runtime = await open_runtime(place, quotas=Quotas(messages=Quota(2, 60)))
    messages = runtime.session("s").messages
    with pytest.raises(ServiceError, match="60 bytes") as refused:
        await messages.append("x" * 70, sender="user")
    assert refused.value.code == "quota"
    await messages.append("x", sender="user")
    await messages.append("x", sender="user")
    with pytest.raises(ServiceError, match="2 messages"):
        await messages.append("x", sender="user")
    assert [message.number for message in await messages.list()] == [1, 2]
    assert (await runtime.session("t").messages.append("x", sender="user")).number == 1


@pytest.mark.promise("SES-01")
async def test_a_session_is_idle_when_nothing_of_it_runs(place, open_runtime):
    go = asyncio.Event()

    @tool
    async def work() -> None:
        await go.wait()

    session = (await open_runtime(place, work)).session("s")
    async with fail_after(5):
        assert await session.wait_for_idle()
        batch = session.start_batch([ToolCall(name="work", arguments={})])
        idle = asyncio.ensure_future(session.wait_for_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        go.set()
        assert await idle
        assert batch.done
        await batch


@pytest.mark.promise("SES-01")
async def test_a_session_is_idle_while_its_calls_only_wait_outside(place, open_runtime):
    keys = []

    @tool
    async def order(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    @tool
    async def ask(ctx: ToolContext) -> str:
        keys.append(ctx.event_key("door"))
        return await ctx.wait(keys[-1])

    @tool
    async def nest(ctx: ToolContext) -> str:
        return (await ctx.call("ask")).value

    runtime = await open_runtime(place, order, ask, nest)
    session = runtime.session("s")
    async with fail_after(5):
        calls = [ToolCall(name="order", arguments={}), ToolCall(name="nest", arguments={})]
        batch = session.start_batch(calls)
        held_up = session.start_batch([ToolCall(name="order", arguments={})])
        assert await session.wait_for_idle()
        assert len(keys) == 2
        assert not batch.done
        assert not held_up.done
        await runtime.resolve(keys[0], "ordered")
        await runtime.resolve(keys[1], "open")
        assert [outcome.value for outcome in await batch] == ["ordered", "open"]
        assert await session.wait_for_idle()
        await runtime.resolve(keys[2], "too")
        assert (await held_up)[0].value == "too"


async def test_waiting_for_an_idle_session_ends_with_its_time(place, open_runtime):
    clock = FakeClock()

    @tool
    async def work() -> None:
        await asyncio.Event().wait()

    session = (await open_runtime(place, work, clock=clock)).session("s")
    async with fail_after(5):
        batch = session.start_batch([ToolCall(name="work", arguments={})])
        idle = asyncio.ensure_future(session.wait_for_idle(timeout=3))
        await asyncio.sleep(0)
        await clock.advance(4)
        assert not await idle
        batch.cancel()
        await batch.settled()
