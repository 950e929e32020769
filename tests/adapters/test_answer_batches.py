"""Calls that a framework hands over one by one: those of one answer are one batch."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import KeyRefused, Pending, Policy, RuntimeClosed, ToolCall, ToolContext, tool
from toolwright.adapters.answer_batches import AnswerBatches


def call(id: str, tool_name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=tool_name, arguments=arguments)


@pytest.mark.promise("ADP-05")
async def test_calls_of_one_answer_are_one_batch_in_the_order_of_the_model(place, open_runtime):
    ran: list[str] = []

    @tool(key="word")
    async def write(word: str) -> str:
        ran.append(word)
        await asyncio.sleep(0)
        ran.append(f"{word} written")
        return word

    runtime = await open_runtime(place, write)
    session = runtime.session("s")
    answers, events = AnswerBatches(session), session.subscribe()
    async with fail_after(5):
        # Handed over in another order than the model's.
        outcomes = await asyncio.gather(
            answers.run(call("c3", "write", word="a"), "1", 2),
            answers.run(call("c1", "write", word="a"), "1", 0),
            answers.run(call("c2", "write", word="b"), "1", 1),
        )
        async for event in events:
            if event.kind == "batch.started":
                started = event
            elif event.kind == "batch.finished":
                break
    assert [each[0] for each in started.calls] == ["c1", "c2", "c3"]
    assert [outcome.call_id for outcome in outcomes] == ["c3", "c1", "c2"]
    # The first and the last conflict, and keep the order of the model.
    assert ran.index("a written") < ran.index("a", ran.index("a") + 1)


@pytest.mark.promise("ADP-05")
async def test_one_cancelled_call_stops_alone(place, open_runtime):
    began, stopped = asyncio.Event(), []

    @tool(key="name", timeout=60)
    async def wait(name: str) -> str:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(name)
            raise
        return name

    @tool(readonly=True)
    async def look() -> str:
        await began.wait()
        return "seen"

    runtime = await open_runtime(place, wait, look)
    session = runtime.session("s")
    answers = AnswerBatches(session)
    async with fail_after(5):
        waiting = asyncio.create_task(answers.run(call("c1", "wait", name="x"), "1", 0))
        behind = asyncio.create_task(answers.run(call("c2", "wait", name="x"), "1", 1))
        outcome = await answers.run(call("c3", "look"), "1", 2)
        assert outcome.value == "seen"
        behind.cancel()
        with pytest.raises(asyncio.CancelledError):
            await behind
        assert stopped == []
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert stopped == ["x"]
        await session.wait_for_idle()
        assert session.batches == ()


async def test_a_call_cancelled_before_its_batch_starts_never_runs(place, open_runtime):
    ran = []

    @tool
    async def pay(key: str) -> str:
        ran.append(key)
        return key

    runtime = await open_runtime(place, pay)
    answers = AnswerBatches(runtime.session("s"))
    async with fail_after(5):
        tasks = [asyncio.create_task(answers.run(call(key, "pay", key=key), "1")) for key in ("a", "b", "c")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first.value, type(cancelled), last.value) == ("a", asyncio.CancelledError, "c")
    assert ran == ["a", "c"]


async def test_a_call_cancelled_while_the_journal_admits_its_batch_never_runs(file, open_runtime):
    ran = []

    @tool
    async def pay(key: str) -> str:
        ran.append(key)
        return key

    runtime = await open_runtime(file, pay)
    answers = AnswerBatches(runtime.session("s"))
    async with fail_after(5):
        tasks = [asyncio.create_task(answers.run(call(key, "pay", key=key), "1")) for key in ("a", "b", "c")]
        await asyncio.sleep(0)  # the tasks hand over their calls
        await asyncio.sleep(0)  # their batch starts
        assert len(runtime.session("s").batches) == 1
        tasks[1].cancel()
        first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first.value, type(cancelled), last.value) == ("a", asyncio.CancelledError, "c")
    assert ran == ["a", "c"]


@pytest.mark.promise("ADP-05")
async def test_a_call_that_waits_for_a_person_is_pending_and_is_settled_from_outside(place, open_runtime):
    ran = []

    @tool(approval="required")
    async def pay(key: str) -> str:
        ran.append(key)
        return f"paid {key}"

    @tool(readonly=True)
    async def look() -> str:
        return "seen"

    runtime = await open_runtime(place, pay, look)
    session = runtime.session("s")
    answers = AnswerBatches(session)
    calls = [call("c1", "pay", key="a"), call("c2", "pay", key="b"), call("c3", "look")]
    async with fail_after(5):
        outcomes = await asyncio.gather(*(answers.run(each, "1", place) for place, each in enumerate(calls)))
        assert [each.status for each in outcomes] == ["pending", "pending", "success"]
        first, second = await answers.approval("1", "c1"), await answers.approval("1", "c2")
        assert first is not None
        assert second is not None
        assert [each.kind for each in await answers.waits("1", "c1")] == ["approval"]
        assert await answers.approval("2", "c1") is None
        assert await answers.approve(first, arguments={"key": "z"}, by="ann")
        assert await answers.deny(second, reason="too much")
        again = await asyncio.gather(*(answers.run(each, "1", place) for place, each in enumerate(calls)))
        assert not await answers.approve(first)
    assert [each.value for each in again] == ["paid z", None, "seen"]
    assert "too much" in again[1].text
    assert ran == ["z"]


async def test_a_pending_call_is_completed_by_the_key_of_its_session_only(place, open_runtime):
    @tool
    async def order(ctx: ToolContext) -> Pending:
        ctx.completion_key()
        return Pending()

    runtime = await open_runtime(place, order)
    session, other = runtime.session("s"), runtime.session("other")
    answers = AnswerBatches(session)
    async with fail_after(5):
        outcome = await answers.run(call("c1", "order"), "1")
        assert outcome.status == "pending"
        (wait,) = await answers.waits("1", "c1")
        assert wait.kind == "completion"
        with pytest.raises(KeyRefused, match="not one of session 'other'"):
            await other.resolve(wait.key, 7)
        assert (await session.resolve(wait.key, 7)).first
        assert (await answers.run(call("c1", "order"), "1")).value == 7


async def test_a_call_that_waits_behind_a_pending_one_is_pending(place, open_runtime):
    @tool(key="name")
    async def order(name: str, ctx: ToolContext) -> str:
        return str(await ctx.wait(ctx.event_key("paid")))

    runtime = await open_runtime(place, order)
    session = runtime.session("s")
    answers = AnswerBatches(session)
    calls = [call("c1", "order", name="x"), call("c2", "order", name="x")]
    async with fail_after(5):
        outcomes = await asyncio.gather(*(answers.run(each, "1", place) for place, each in enumerate(calls)))
        assert [each.status for each in outcomes] == ["pending", "pending"]
        assert [each.name for each in await answers.waits("1", "c1")] == ["paid"]
        assert await answers.waits("1", "c2") == []
        session.cancel()


async def test_the_calls_of_an_answer_fail_one_by_one_under_any_policy(place, open_runtime):
    @tool
    async def pay(key: str) -> str:
        if key == "a":
            raise ValueError("no money")
        return key

    runtime = await open_runtime(place, pay, policy=Policy(continue_on_failure=False))
    answers = AnswerBatches(runtime.session("s"))
    async with fail_after(5):
        first, second = await answers.run_all([call("c1", "pay", key="a"), call("c2", "pay", key="b")], "1")
    assert (first.status, second.value) == ("failure", "b")


async def test_a_closed_runtime_is_told_to_every_call(open_runtime):
    @tool
    async def look() -> str:
        return "seen"

    runtime = await open_runtime(look)
    answers = AnswerBatches(runtime.session("s"))
    await runtime.close()
    async with fail_after(5):
        raised = await asyncio.gather(
            answers.run(call("c1", "look"), "1"), answers.run(call("c2", "look"), "1"), return_exceptions=True
        )
    assert [type(each) for each in raised] == [RuntimeClosed, RuntimeClosed]


@pytest.mark.promise("ADP-05")
async def test_a_call_that_is_run_again_while_it_waits_is_pending_again(place, open_runtime):
    running, go = asyncio.Event(), asyncio.Event()

    @tool
    async def order(ctx: ToolContext) -> str:
        running.set()
        await go.wait()
        return str(await ctx.wait(ctx.event_key("paid")))

    @tool
    async def nest(ctx: ToolContext) -> str:
        (outcome,) = await ctx.run_batch([ToolCall("order", {})])
        return outcome.text

    runtime = await open_runtime(place, order, nest)
    session = runtime.session("s")
    answers = AnswerBatches(session)
    async with fail_after(5):
        for name in ("order", "nest"):
            running.clear()
            go.clear()
            first = asyncio.create_task(answers.run(call("c1", name), name))
            await running.wait()
            # It runs still, and begins to wait when the second shares it already.
            second = asyncio.create_task(answers.run(call("c1", name), name))
            await asyncio.sleep(0)  # it is handed over
            await asyncio.sleep(0)  # its batch starts
            assert len(session.batches) == (2 if name == "order" else 3)
            go.set()
            assert [(await each).status for each in (first, second)] == ["pending", "pending"]
            assert (await answers.run(call("c1", name), name)).status == "pending"
            session.cancel()
            await session.wait_for_idle()
