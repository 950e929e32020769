"""Turns: the loop of model calls and batches, budgets, the queue, waiting, steering, cancelling and following."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support import fail_after
from toolwright import Budget, Pending, Runtime, ToolCall, ToolContext, ToolwrightError, TurnError, tool
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock, FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelError, ToolResults, Usage, UserMessage


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


@pytest.mark.promise("TURN-01", "TURN-05")
async def test_a_turn_calls_tools_until_the_model_answers(place, open_runtime):
    model = ScriptedModel([[call("1", "add", a=1, b=2), call("2", "add", a=3, b=4)], "It is 3 and 7."])
    runtime = await open_runtime(place, add, model=model, instructions="Be brief.")
    outcome = await runtime.session("s").ask("What are 1 + 2 and 3 + 4?")
    assert (outcome.status, outcome.text, outcome.ok) == ("answered", "It is 3 and 7.", True)
    assert [(each.call_id, each.value) for each in outcome.calls] == [("1", 3), ("2", 7)]
    assert outcome.model_calls == 2
    first, second = model.requests
    assert first.instructions == "Be brief."
    assert [each.name for each in first.tools] == ["add"]
    assert first.messages == (UserMessage("What are 1 + 2 and 3 + 4?"),)
    _, asked, results = second.messages
    assert [each.id for each in asked.calls] == ["1", "2"]
    assert isinstance(results, ToolResults)
    assert [each.text for each in results.outcomes] == ["3", "7"]


@pytest.mark.promise("TURN-05")
async def test_usage_is_counted_by_model_and_in_sum(open_runtime):
    answers = [
        ModelAnswer(calls=(call("1", "add", a=1, b=2),), usage=Usage(10, 2), model="one:a"),
        ModelAnswer(text="3", usage=Usage(20, 3, cache_read=5), model="two:b"),
    ]
    runtime = await open_runtime(add, model=ScriptedModel(answers))
    outcome = await runtime.session("s").ask("?")
    assert outcome.usage == Usage(30, 5, cache_read=5)
    assert outcome.usage_by_model == {"one:a": Usage(10, 2), "two:b": Usage(20, 3, cache_read=5)}
    assert outcome.to_json()["usage"]["input"] == 30


@pytest.mark.promise("TURN-01")
@pytest.mark.parametrize(
    ("budget", "limit", "ran"),
    [
        (None, "model_calls", 10),
        (Budget(model_calls=2), "model_calls", 2),
        (Budget(tool_calls=3), "tool_calls", 3),
        (Budget(tokens=25), "tokens", 3),
        (Budget(model_calls=0), "model_calls", 0),
        (Budget(tool_calls=0), "tool_calls", 0),
    ],
)
async def test_a_budget_that_is_used_up_ends_the_turn_and_is_named(place, open_runtime, budget, limit, ran):
    def endless(request: Any) -> ModelAnswer:
        return ModelAnswer(calls=(call("c", "add", a=1, b=request.number),), usage=Usage(6, 4))

    runtime = await open_runtime(place, add, model=FunctionModel(endless))
    session = runtime.session("s")
    outcome = await session.ask("?", budget=budget)
    assert (outcome.status, outcome.limit) == ("out_of_budget", limit)
    assert sum(each.ok for each in outcome.calls) == ran
    # The history is whole: the next turn continues it.
    assert (await session.ask("And now?", model=ScriptedModel(["Fine."] * 9))).text == "Fine."


@pytest.mark.promise("TURN-01")
@pytest.mark.parametrize("name", ["cost", "seconds"])
@pytest.mark.parametrize("wrong", [-1, "5", True, float("nan"), float("inf"), 10**400], ids=lambda each: f"{each!r:.9}")
def test_a_budget_that_no_store_can_keep_is_refused_when_it_is_made(name, wrong):
    with pytest.raises(ToolwrightError, match=f"Budget {name}=.* is not usable; use a number from 0, or None"):
        Budget(**{name: wrong})


@pytest.mark.promise("TURN-01", "TURN-07")
async def test_a_follower_sees_the_end_of_calls_that_the_budget_does_not_let_run(place, open_runtime):
    asked = [[call("1", "add", a=1, b=1)], [call("2", "add", a=1, b=2), call("3", "add", a=1, b=3)]]
    runtime = await open_runtime(place, add, model=ScriptedModel(asked))
    turn = await runtime.session("s").start_turn("?", budget=Budget(tool_calls=2))
    async with fail_after(5):
        events = [event async for event in turn.follow()]
    ended = [event.data for event in events if event.kind == "call.finished"]
    assert [(data["call_id"], data["status"]) for data in ended] == [
        ("1", "success"),
        ("2", "failure"),
        ("3", "failure"),
    ]
    assert [event.kind for event in events][-3:] == ["call.finished", "call.finished", "turn.ended"]


@pytest.mark.promise("TURN-01")
async def test_a_budget_that_is_met_exactly_is_not_exceeded(open_runtime):
    runtime = await open_runtime(add, model=ScriptedModel([[call("1", "add", a=1, b=1)], "Two."]))
    outcome = await runtime.session("s").ask("?", budget=Budget(model_calls=2, tool_calls=1))
    assert outcome.status == "answered"


@pytest.mark.promise("TURN-01")
async def test_time_is_a_budget_that_stops_the_model_and_the_tools(open_runtime):
    clock, begun = FakeClock(), asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    runtime = await open_runtime(add, model=FunctionModel(silent), clock=clock)
    turn = await runtime.session("s").start_turn("?", budget=Budget(seconds=5))
    async with fail_after(5):
        await begun.wait()
        await clock.advance(5)
        outcome = await turn
    assert (outcome.status, outcome.limit) == ("out_of_budget", "seconds")


@pytest.mark.promise("TURN-01")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("", "empty_answer"),
        ("   \n", "empty_answer"),
        ([], "empty_answer"),
        (ModelAnswer(text="I will not.", stop="refusal"), "refused"),
        (ModelAnswer(text="It is th", stop="length"), "truncated"),
        (ModelAnswer(stop="context"), "context_overflow"),
        (ModelAnswer(calls=tuple(call(str(n), "add") for n in range(200)), stop="calls"), "bad_answer"),
        (ModelAnswer(text="x" * 5_000_000), "bad_answer"),
    ],
)
async def test_an_answer_that_is_none_fails_the_turn_with_a_code(place, open_runtime, answer, code):
    runtime = await open_runtime(place, add, model=ScriptedModel([answer]))
    session = runtime.session("s")
    outcome = await session.ask("?")
    assert (outcome.status, outcome.code) == ("failed", code)
    assert outcome.reason
    assert (await session.ask("Again.", model=ScriptedModel(["Yes."] * 9))).text == "Yes."


@pytest.mark.promise("TURN-01")
async def test_unknown_tools_and_calls_of_a_cut_answer_are_results_that_the_model_reads(open_runtime):
    ran = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    cut = ToolCall(id="2", name="note", arguments={"text": "hal"}, cut_off="length")
    model = ScriptedModel([[call("1", "nothing")], ModelAnswer(calls=(cut,), stop="length"), "Sorry."])
    runtime = await open_runtime(note, model=model)
    outcome = await runtime.session("s").ask("?")
    assert (outcome.status, ran) == ("answered", [])
    assert [each.status for each in outcome.calls] == ["failure", "failure"]


@pytest.mark.promise("TURN-01")
async def test_thirty_calls_of_one_answer_are_one_batch_with_its_claims(open_runtime):
    running, most = 0, 0

    @tool(writes="path")
    async def write(path: str) -> int:
        """Write."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return most

    calls = [call(str(n), "write", path="/same") for n in range(30)]
    runtime = await open_runtime(write, model=ScriptedModel([calls, "Done."]))
    outcome = await runtime.session("s").ask("?")
    assert (outcome.status, len(outcome.calls), most) == ("answered", 30, 1)


@pytest.mark.promise("TURN-01")
async def test_missing_and_repeated_call_ids_get_ids_of_their_own(open_runtime):
    calls = [ToolCall(name="add", arguments={"a": n, "b": 0}, id=id) for n, id in enumerate(["x", "x", None])]
    model = ScriptedModel([ModelAnswer(calls=tuple(calls), native={"format": "f", "items": []}), "Done."])
    runtime = await open_runtime(add, model=model)
    outcome = await runtime.session("s").ask("?")
    assert [each.value for each in outcome.calls] == [0, 1, 2]
    assert len({each.call_id for each in outcome.calls}) == 3
    assert model.requests[1].messages[1].native is None


@pytest.mark.promise("TURN-01")
async def test_a_call_id_that_the_conversation_has_already_is_changed(open_runtime):
    calls = [call("same", "add", a=1, b=1)]
    model = ScriptedModel([calls, calls, "Done.", calls, "Done."])
    runtime = await open_runtime(add, model=model)
    session = runtime.session("s")
    first, second = await session.ask("?"), await session.ask("?")
    ids = [each.call_id for each in (*first.calls, *second.calls)]
    assert ids == ["same", "same_2", "same_3"]


@pytest.mark.promise("TURN-02")
async def test_a_fault_of_the_model_is_retried_with_backoff_and_then_fails_the_turn(open_runtime):
    clock, asked = FakeClock(), []

    async def busy(request: Any) -> str:
        asked.append(clock.monotonic())
        if len(asked) < 3:
            raise ModelError("Busy.", "rate_limited", retry=True, after=7.0 if len(asked) == 2 else None)
        return "At last."

    runtime = await open_runtime(model=FunctionModel(busy), clock=clock)
    turn = await runtime.session("s").start_turn("?")
    async with fail_after(5):
        while (await turn.info()).ended_at is None:
            await clock.advance(0.25)
    assert (await turn).text == "At last."
    assert 0.25 <= asked[1] - asked[0] <= 1.0
    assert 6.999 <= asked[2] - asked[1] <= 7.5


@pytest.mark.promise("TURN-02")
async def test_an_error_that_is_no_fault_of_the_moment_is_not_retried(open_runtime, caplog):
    asked = 0

    async def broken(request: Any) -> str:
        nonlocal asked
        asked += 1
        raise RuntimeError("the key sk-123 is wrong")

    runtime = await open_runtime(model=FunctionModel(broken))
    outcome = await runtime.session("s").ask("?")
    assert (outcome.status, outcome.code, asked) == ("failed", "model_failed", 1)
    assert "sk-123" not in str(outcome.to_json())


@pytest.mark.promise("TURN-06")
async def test_the_history_is_the_sessions_and_goes_on_in_the_next_turn(place, open_runtime):
    model = ScriptedModel([[call("1", "add", a=1, b=1)], "Two.", "As I said: two."])
    runtime = await open_runtime(place, add, model=model)
    session = runtime.session("s")
    await session.ask("1 + 1?")
    await session.messages.append("A note of the host.", sender="user")
    await session.ask("What was it?")
    senders = [message.sender for message in await session.messages.list()]
    assert senders == ["user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    texts = [each.text for each in model.requests[-1].messages if isinstance(each, UserMessage | ModelAnswer)]
    assert texts == ["1 + 1?", "", "Two.", "A note of the host.", "What was it?"]


class Place(BaseModel):
    city: str
    people: int


@pytest.mark.promise("TURN-05")
async def test_an_answer_in_a_form_is_validated_and_asked_for_again_with_the_error(place, open_runtime):
    model = ScriptedModel(
        ["Bonn", '```json\n{"city": "Bonn", "people": "many"}\n```', '{"city": "Bonn", "people": 330}']
    )
    runtime = await open_runtime(place, model=model)
    outcome = await runtime.session("s").ask("Where?", answer=Place)
    assert outcome.value == Place(city="Bonn", people=330)
    assert outcome.model_calls == 3
    assert "people" in model.requests[2].messages[-1].text
    schema = model.requests[0].answer_schema
    assert schema is not None
    assert schema["properties"].keys() == {"city", "people"}
    short = await runtime.session("t").ask("Where?", answer=Place, budget=Budget(model_calls=1))
    assert (short.status, short.limit, short.value) == ("out_of_budget", "model_calls", None)


@pytest.mark.promise("TURN-02")
async def test_the_choice_of_tools_and_the_length_of_answers_reach_the_model(place, open_runtime):
    model = ScriptedModel([[call("1", "add", a=1, b=1)], "Two."])
    runtime = await open_runtime(place, add, model=model)
    session = runtime.session("s")
    outcome = await session.ask("?", tool_choice="add", parallel=False, max_tokens=50)
    assert outcome.parts == ("Two.",)
    told = [(request.tool_choice, request.parallel, request.max_tokens) for request in model.requests]
    assert told == [("add", False, 50), ("auto", False, 50)]
    for wrong in ({"tool_choice": "nothing"}, {"parallel": 1}, {"max_tokens": 0}):
        with pytest.raises(TurnError, match="not usable"):
            await session.ask("?", **wrong)


@pytest.mark.promise("TURN-03")
async def test_messages_that_come_meanwhile_are_queued_in_their_order(place, open_runtime):
    begun, go, order = asyncio.Event(), asyncio.Event(), []

    async def slow(request: Any) -> str:
        begun.set()
        order.append(request.messages[-1].text)
        await go.wait()
        return f"Re: {request.messages[-1].text}"

    runtime = await open_runtime(place, model=FunctionModel(slow))
    session = runtime.session("s")
    turns = [await session.start_turn(text) for text in ("one", "two", "three")]
    async with fail_after(5):
        await begun.wait()
        assert [info.state for info in await session.turns()] == ["queued", "queued", "running"]
        go.set()
        outcomes = [await turn for turn in turns]
        assert await session.wait_for_idle()
    assert order == ["one", "two", "three"]
    assert [outcome.text for outcome in outcomes] == ["Re: one", "Re: two", "Re: three"]


@pytest.mark.promise("TURN-03")
async def test_a_turn_of_the_same_id_is_the_same_turn(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel(["Once.", "Twice."]))
    session = runtime.session("s")
    first = await session.ask("?", id="t")
    assert (await session.ask("?", id="t")).text == first.text == "Once."
    with pytest.raises(TurnError, match="another turn"):
        await session.ask("Something else?", id="t")
    assert len(await session.turns()) == 1


@pytest.mark.promise("TURN-08")
async def test_a_call_that_waits_suspends_its_turn_which_goes_on_after_the_decision(place, open_runtime):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    runtime = await open_runtime(place, wipe, model=ScriptedModel([[call("w", "wipe", path="/x")], "Gone."]))
    session = runtime.session("s")
    async with fail_after(5):
        outcome = await session.ask("Wipe /x.")
        assert outcome.status == "waiting"
        assert [(wait.call_id, wait.tool, wait.what) for wait in outcome.waits] == [("w", "wipe", "approval")]
        assert await session.wait_for_idle()
        assert not [task for task in asyncio.all_tasks() if "SessionTurns" in repr(task.get_coro())]
        queued = await session.ask("And then?", model=ScriptedModel(["Then?"] * 9))
        assert (queued.status, [wait.call_id for wait in queued.waits]) == ("waiting", ["w"])
        (approval,) = await runtime.approvals("s")
        await runtime.approve(approval.key)
        turn = await session.turn(outcome.turn_id)
        ended = await turn
        assert (ended.status, ended.text, [each.value for each in ended.calls]) == ("answered", "Gone.", ["wiped /x"])
        assert (await (await session.turn(queued.turn_id))).text == "Then?"


@pytest.mark.promise("TURN-08")
@pytest.mark.parametrize("where", ["session", "child session"])
async def test_a_call_that_waits_inside_of_another_suspends_its_turn(place, open_runtime, where):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    @tool
    async def clean(ctx: ToolContext) -> list:
        """Clean."""
        if where == "session":
            calls = [ToolCall(name="wipe", arguments={"path": path}) for path in ("/x", "/y")]
            return [each.value for each in await ctx.run_batch(calls)]
        return [(await ctx.open_child("c").call("wipe", path="/x")).value]

    runtime = await open_runtime(place, wipe, clean, model=ScriptedModel([[call("c", "clean")], "Clean."]))
    session = runtime.session("s")
    async with fail_after(5):
        outcome = await session.ask("Clean up.")
        assert outcome.status == "waiting"
        assert {(wait.tool, wait.what) for wait in outcome.waits} == {("wipe", "approval")}
        for approval in await runtime.approvals():
            await runtime.approve(approval.key)
        ended = await (await session.turn(outcome.turn_id)).wait()
    assert ended is not None
    assert ended.text == "Clean."
    assert ended.calls[0].value == (["wiped /x", "wiped /y"] if where == "session" else ["wiped /x"])


@pytest.mark.promise("TURN-08")
async def test_a_turn_that_waits_goes_on_in_the_next_process(file, open_runtime):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        return f"wiped {path}"

    answers: list[Any] = [[call("w", "wipe", path="/x")], "Gone."]
    first = await Runtime.open(file, tools=[wipe], model=ScriptedModel(answers))
    outcome = await first.session("s").ask("Wipe /x.")
    assert outcome.status == "waiting"
    await first.close()
    second = await open_runtime(file, wipe, model=ScriptedModel(answers))
    async with fail_after(5):
        await second.recover()
        session = second.session("s")
        await session.wait_for_idle()
        (approval,) = await second.approvals("s")
        await second.approve(approval.key)
        ended = await (await session.turn(outcome.turn_id))
    assert (ended.text, [each.value for each in ended.calls]) == ("Gone.", ["wiped /x"])


@pytest.mark.promise("TURN-11")
async def test_a_running_turn_is_steered_at_its_next_model_call_or_the_next_turn(place, open_runtime):
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(readonly=True)
    async def think() -> str:
        """Think."""
        begun.set()
        await go.wait()
        return "thought"

    model = ScriptedModel([[call("t", "think")], "In French, then.", "Next."])
    runtime = await open_runtime(place, think, model=model)
    session = runtime.session("s")
    turn = await session.start_turn("Think.")
    async with fail_after(5):
        await begun.wait()
        await turn.steer("Answer in French.")
        await turn.steer("What else?", when="next_turn")
        go.set()
        assert (await turn).text == "In French, then."
        await session.wait_for_idle()
    assert model.requests[1].messages[-1] == UserMessage("Answer in French.")
    assert [info.message for info in await session.turns()] == ["What else?", "Think."]
    with pytest.raises(TurnError, match="has ended"):
        await turn.steer("Too late.")


@pytest.mark.promise("TURN-05")
async def test_a_turn_is_cancelled_in_its_model_call_in_its_tools_and_in_the_queue(place, open_runtime):
    begun, tool_begun = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        tool_begun.set()
        await asyncio.Event().wait()

    async def model(request: Any) -> Any:
        if request.messages[-1].text == "model":
            begun.set()
            await asyncio.Event().wait()
        return [call("h", "hang")]

    runtime = await open_runtime(place, hang, model=FunctionModel(model))
    session = runtime.session("s")
    async with fail_after(5):
        first, second, third = [await session.start_turn(text) for text in ("model", "tool", "queue")]
        await begun.wait()
        assert await third.cancel("not needed")
        assert (await third).status == "cancelled"
        assert await first.cancel("enough")
        outcome = await first
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")
        await tool_begun.wait()
        await second.cancel("stop")
        outcome = await second
        assert (outcome.status, [each.status for each in outcome.calls]) == ("cancelled", ["cancelled"])
        assert not await first.cancel()
    senders = [message.sender for message in await session.messages.list()]
    assert senders == ["user", "user", "assistant", "tool"]


@pytest.mark.promise("TURN-07")
async def test_a_turn_is_followed_in_order_and_from_any_event_on(place, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        await ctx.progress(1, total=2)
        return "worked"

    runtime = await open_runtime(place, work, model=ScriptedModel([[call("w", "work")], "All is done now."]))
    turn = await runtime.session("s").start_turn("Work.")
    async with fail_after(5):
        events = [event async for event in turn.follow()]
        kinds = [event.kind for event in events]
        assert kinds[0] == "turn.started"
        assert kinds[-1] == "turn.ended"
        assert kinds.index("call.progress") < kinds.index("call.finished") < kinds.index("text")
        assert "".join(event.text for event in events if event.kind == "text") == "All is done now."
        numbers = [event.number for event in events]
        assert numbers == sorted(set(numbers))
        rest = [event.number async for event in turn.follow(after=numbers[3])]
        assert rest == numbers[4:]
        later = await runtime.turn(turn.id)
        assert [event.number async for event in later.follow()] == numbers


@pytest.mark.promise("TURN-07")
async def test_another_process_follows_and_cancels_a_turn(file, open_runtime):
    begun = asyncio.Event()

    async def slow(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    here = await open_runtime(file, model=FunctionModel(slow))
    there = await open_runtime(file, model=ScriptedModel([]))
    turn = await here.session("s").start_turn("Go.")
    async with fail_after(10):
        await begun.wait()
        far = await there.turn(turn.id)
        assert await far.cancel("from elsewhere")
        assert (await turn).reason == "from elsewhere"
        assert [event.kind async for event in far.follow()][-1] == "turn.ended"
        assert (await far).status == "cancelled"


async def test_what_cannot_be_asked_is_refused_with_the_reason(open_runtime):
    runtime = await open_runtime()
    session = runtime.session("s")
    for message, options, told in [
        ("Hi", {}, "no model"),
        ("", {"model": ScriptedModel(["x"])}, "not usable"),
        (5, {"model": ScriptedModel(["x"])}, "not usable"),
        ("Hi", {"model": 5}, "not usable"),
        ("Hi", {"model": ScriptedModel(["x"]), "budget": 5}, "use Budget"),
        ("Hi", {"model": ScriptedModel(["x"]), "budget": Budget(cost=1)}, "no price"),
    ]:
        with pytest.raises(TurnError, match=told):
            await session.ask(message, **options)
    assert await session.turns() == []


@pytest.mark.promise("TURN-03")
async def test_a_tool_cannot_ask_its_own_session(open_runtime, caplog):
    @tool
    async def ask_again(ctx: ToolContext) -> str:
        """Ask again."""
        return (await runtime.session(ctx.session_id).ask("And you?")).text

    runtime = await open_runtime(ask_again, model=ScriptedModel([[call("a", "ask_again")], "Done."]))
    async with fail_after(5):
        outcome = await runtime.session("s").ask("?")
    assert (outcome.status, outcome.calls[0].status) == ("answered", "failure")
    assert "cannot ask its own session" in caplog.text


@pytest.mark.promise("TURN-05")
async def test_cancelling_a_session_cancels_its_turn(place, open_runtime):
    begun = asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    runtime = await open_runtime(place, model=FunctionModel(silent))
    session = runtime.session("s")
    turn = await session.start_turn("?")
    async with fail_after(5):
        await begun.wait()
        session.cancel("enough of this")
        outcome = await turn
    assert (outcome.status, outcome.reason) == ("cancelled", "enough of this")


@pytest.mark.promise("TURN-05")
async def test_cancelling_the_caller_of_ask_cancels_the_turn(place, open_runtime):
    begun = asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    runtime = await open_runtime(place, model=FunctionModel(silent))
    session = runtime.session("s")
    asking = asyncio.ensure_future(session.ask("?"))
    async with fail_after(5):
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await session.wait_for_idle()
    assert [info.state for info in await session.turns()] == ["cancelled"]


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("ticks", range(1, 6))
@pytest.mark.parametrize("used", [False, True])  # where other services are used, memory waits for a thread, too
async def test_a_turn_whose_caller_was_cancelled_while_it_was_queued_is_never_run(place, open_runtime, ticks, used):
    begun, go_on = asyncio.Event(), asyncio.Event()
    read: list[str] = []

    async def model(request: Any) -> str:
        read.append(request.messages[-1].text)
        begun.set()
        await go_on.wait()
        return "Done."

    runtime = await open_runtime(place, model=FunctionModel(model))
    session = runtime.session("s")

    async def give_up(message: str) -> None:
        asking = asyncio.ensure_future(session.ask(message))
        for _ in range(ticks):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    async with fail_after(10):
        if used:
            await session.kv.set("a", 1)
        await give_up("Given up at once.")
        assert await session.wait_for_idle()
        read.clear()
        first = await session.start_turn("Answered.")
        await begun.wait()
        await give_up("Given up behind another.")
        go_on.set()
        assert (await first).text == "Done."
        assert (await session.ask("Asked last.")).text == "Done."
    assert read == ["Answered.", "Asked last."]
    states = [(info.message, info.state) for info in await session.turns()]
    assert states == [
        ("Asked last.", "answered"),
        ("Given up behind another.", "cancelled"),
        ("Answered.", "answered"),
        ("Given up at once.", "cancelled"),
    ]
    said = [message.content for message in await session.messages.list() if message.sender == "user"]
    assert said in (["Given up at once.", "Answered.", "Asked last."], ["Answered.", "Asked last."])


@pytest.mark.promise("TURN-03", "TURN-05")
@pytest.mark.parametrize("used", [False, True])
async def test_questions_at_once_are_each_asked_of_their_own_model(place, open_runtime, used):
    runtime = await open_runtime(place, model=FunctionModel(lambda request: "the app's", name="app"))
    session = runtime.session("s")

    async def ask(model: str | None) -> str:
        own = None if model is None else FunctionModel(lambda request: model, name=model)
        return (await session.ask("Which?", model=own)).text

    async with fail_after(10):
        if used:
            await session.kv.set("a", 1)
        for _ in range(3):
            told = await asyncio.gather(ask("first"), ask(None), ask("third"), ask(None))
            assert list(told) == ["first", "the app's", "third", "the app's"]


@pytest.mark.promise("TURN-03")
async def test_a_message_without_room_fails_its_question_alone(place, open_runtime):
    quotas = Quotas(messages=Quota(100, 10_000))
    runtime = await open_runtime(place, model=FunctionModel(lambda request: "Done."), quotas=quotas)
    session = runtime.session("s")
    async with fail_after(10):
        await session.kv.set("a", 1)
        await session.ask("One.")
        long = asyncio.ensure_future(session.ask("x" * 20_000))
        short = asyncio.ensure_future(session.ask("Two."))
        with pytest.raises(ServiceError) as refused:
            await long
        assert refused.value.code == "quota"
        assert (await short).text == "Done."


@pytest.mark.promise("TURN-05")
@pytest.mark.parametrize("ticks", range(1, 6))
async def test_a_turn_begins_though_the_request_to_start_it_was_cancelled(place, open_runtime, ticks):
    runtime = await open_runtime(place, model=FunctionModel(lambda request: "Done."))
    session = runtime.session("s")
    starting = asyncio.ensure_future(session.start_turn("Go.", id="t1"))
    async with fail_after(10):
        for _ in range(ticks):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert await session.wait_for_idle()
        assert [(info.id, info.state) for info in await session.turns()] == [("t1", "answered")]


@pytest.mark.promise("TURN-03")
async def test_a_turn_that_the_end_of_the_program_cut_off_continues_in_the_next_one(file, open_runtime):
    begun = asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    first = await Runtime.open(file, model=FunctionModel(silent))
    turn = await first.session("s").start_turn("Go on.")
    async with fail_after(5):
        await begun.wait()
        await first.close()
        second = await open_runtime(file, model=FunctionModel(lambda request: "Here I am."))
        assert [info.state for info in await second.turns()] == ["running"]
        await second.recover()
        assert await second.session("s").wait_for_idle()
        assert (await (await second.turn(turn.id))).text == "Here I am."


async def test_a_turn_whose_model_is_not_here_stays_for_a_process_that_has_it(file, open_runtime, caplog):
    first = await Runtime.open(file)
    begun = asyncio.Event()

    async def silent(request: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    turn = await first.session("s").start_turn("?", model=FunctionModel(silent, name="special"))
    async with fail_after(5):
        await begun.wait()
        await first.close()
        other = await open_runtime(file, model=ScriptedModel(["Wrong."]))
        await other.recover()
        await other.session("s").wait_for_idle()
        assert [info.state for info in await other.turns()] == ["running"]
        await other.close()
        right = await open_runtime(file, model=FunctionModel(lambda request: "Right.", name="special"))
        await right.recover()
        assert (await (await right.turn(turn.id))).text == "Right."


@pytest.mark.promise("TURN-08")
async def test_a_wait_that_is_over_before_its_turn_is_suspended_does_not_stop_the_turn(place, open_runtime):
    @tool
    async def order(ctx: ToolContext) -> Pending:
        """Wait for somebody outside."""
        ctx.completion_key()
        return Pending()

    runtime = await open_runtime(place, order, model=ScriptedModel([[call("o", "order")], "Nobody came."]))
    session = runtime.session("s")

    async def cancel_at_once(events: Any) -> None:
        async for event in events:
            if event.kind == "call.waiting":
                await session.cancel_waits("nobody is there")

    with runtime.subscribe() as events:
        cancelling = asyncio.ensure_future(cancel_at_once(events))
        async with fail_after(5):
            turn = await session.start_turn("Order.")
            outcome = await turn.wait()
        cancelling.cancel()
    assert outcome is not None
    assert (outcome.text, [each.status for each in outcome.calls]) == ("Nobody came.", ["cancelled"])


@pytest.mark.promise("TURN-07")
async def test_a_turn_that_continues_in_another_process_is_followed_there_from_its_first_event(file, open_runtime):
    @tool(approval="required")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    answers: list[Any] = [[call("w", "wipe")], "Gone."]
    first = await Runtime.open(file, tools=[wipe], model=ScriptedModel(answers))
    outcome = await first.session("s").ask("Wipe.")
    await first.close()
    second = await open_runtime(file, wipe, model=ScriptedModel(answers))
    async with fail_after(10):
        (turn,) = await second.recover_turns()
        assert turn.id == outcome.turn_id
        kinds = []
        async for event in turn.follow():
            kinds.append(event.kind)
            if event.kind == "turn.waiting" and "turn.continued" in kinds:
                (approval,) = await second.approvals("s")
                await second.approve(approval.key)
    assert kinds[0] == "turn.started"
    assert kinds.count("turn.continued") == 2
    assert kinds[-1] == "turn.ended"


@pytest.mark.promise("TURN-03")
async def test_turns_whose_process_is_gone_are_cut_off_and_are_continued_in_their_order(file, open_runtime):
    begun = asyncio.Event()

    async def model(request: Any) -> str:
        if request.messages[-1].text == "one" and not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return f"Re: {request.messages[-1].text}"

    first = await Runtime.open(file, model=FunctionModel(model))
    for text in ("one", "two"):
        await first.session("s").start_turn(text)
    async with fail_after(10):
        await begun.wait()
        assert [info.cut_off for info in await first.turns()] == [False, False]
        await first.close()
        second = await open_runtime(file, model=FunctionModel(model))
        assert [(info.state, info.cut_off) for info in await second.turns()] == [("queued", False), ("running", True)]
        continued = await second.recover_turns("s")
        assert [(await turn).text for turn in continued] == ["Re: one", "Re: two"]
        assert await second.recover_turns() == []
    assert [info.cut_off for info in await second.turns()] == [False, False]


@pytest.mark.promise("TURN-07")
async def test_the_events_of_calls_are_there_for_a_follower_that_comes_late(place, open_runtime):
    runtime = await open_runtime(place, add, model=ScriptedModel([[call("1", "add", a=1, b=2)], "3."]))
    turn = await runtime.session("s").start_turn("1 + 2?")
    async with fail_after(5):
        await turn
        events = {event.kind: event async for event in turn.follow()}
    assert events["call.started"].data["arguments"] == {"a": 1, "b": 2}
    assert events["call.finished"].data["text"] == "3"


@pytest.mark.promise("TURN-08", "TURN-07", "WAIT-08")
async def test_a_question_suspends_its_turn_and_a_follower_sees_the_call_end_after_the_answer(place, open_runtime):
    @tool
    async def fit(ctx: ToolContext) -> str:
        """Ask for a size."""
        return await ctx.ask("size", "Which size?", {"type": "string"})

    runtime = await open_runtime(place, fit, model=ScriptedModel([[call("1", "fit")], "It is M."]))
    session = runtime.session("s")
    async with fail_after(10):
        outcome = await session.ask("Which size do I have?")
        assert outcome.status == "waiting"
        assert [(wait.call_id, wait.tool, wait.what) for wait in outcome.waits] == [("1", "fit", "question")]
        turn = await runtime.turn(outcome.turn_id)
        kinds = []
        async for event in turn.follow():
            kinds.append(event.kind)
            if event.kind == "turn.waiting":
                (question,) = await session.questions()
                await session.answer(question.key, "M")
        assert (await turn.wait()).text == "It is M."
    assert kinds.count("call.finished") == 1
    assert kinds.index("turn.waiting") < kinds.index("call.finished") < kinds.index("turn.ended")


@pytest.mark.promise("TURN-07")
async def test_the_end_of_a_call_that_waited_is_among_the_events_once_also_where_it_comes_at_once(place, open_runtime):
    @tool
    async def fit(ctx: ToolContext) -> str:
        """Ask for a size."""
        return await ctx.ask("size", "Which size?", {"type": "string"})

    runtime = await open_runtime(place, fit, model=ScriptedModel([[call("1", "fit")], "It is M."]))
    session = runtime.session("s")
    async with fail_after(10):
        turn = await session.start_turn("Which size do I have?")
        kinds = []
        async for event in turn.follow():
            kinds.append(event.kind)
            if event.kind == "call.waiting":  # before its turn is suspended
                (question,) = await session.questions()
                await session.answer(question.key, "M")
    assert kinds.count("call.finished") == 1
