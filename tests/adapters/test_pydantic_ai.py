"""Pydantic AI: a session as a toolset of an agent, and its tools as ours. The models are scripted."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from tests.support import fail_after
from toolwright import (
    Image,
    Pending,
    Policy,
    Runtime,
    RuntimeClosed,
    Session,
    Success,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from toolwright.adapters.pydantic_ai import RecordedModel, ToolwrightToolset, tools_from

PNG = b"\x89PNG\r\n\x1a\n not a real picture"


def call(id: str, tool_name: str, /, **arguments: object) -> ToolCallPart:
    return ToolCallPart(tool_name, arguments, id)


def scripted(*answers: list[ToolCallPart], finish_reason: Any = None) -> FunctionModel:
    """Answers with these calls, one list after the other, and then with "done"."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(isinstance(each, ModelResponse) for each in messages)
        if number < len(answers):
            return ModelResponse(parts=list(answers[number]), finish_reason=finish_reason)
        return ModelResponse(parts=[TextPart("done")])

    return FunctionModel(answer)


def agent_of(session: Session, model: FunctionModel) -> tuple[Agent[None, Any], ToolwrightToolset[None]]:
    toolset = ToolwrightToolset[None](session)
    return Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests]), toolset


def returns(messages: list[ModelMessage]) -> dict[str, Any]:
    """The result of each call in a history, by its id."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}


class Till:
    """Tools with an effect, one of which needs an approval."""

    def __init__(self) -> None:
        self.paid: list[str] = []

        @tool(approval="required")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return f"paid {to}"

        @tool(readonly=True)
        async def look(at: str) -> dict[str, str]:
            return {"seen": at}

        self.tools = (pay, look)


@pytest.mark.promise("ADP-01")
async def test_an_agent_has_the_tools_of_a_session(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    model = TestModel(call_tools=["look"])
    async with fail_after(10):
        agent = Agent(model, toolsets=[ToolwrightToolset(runtime.session("s"))])
        result = await agent.run("look around")
    defined = {each.name: each for each in model.last_model_request_parameters.function_tools}
    assert sorted(defined) == ["look", "pay"]
    assert defined["pay"].description == "Pay somebody."
    assert defined["pay"].parameters_json_schema["required"] == ["to"]
    (returned,) = returns(result.all_messages()).values()
    assert returned.content == {"seen": "a"}


@pytest.mark.promise("ADP-05")
async def test_the_calls_of_an_answer_are_one_batch_in_the_order_of_the_model(place, open_runtime):
    order: list[str] = []

    @tool(key="name")
    async def write(name: str, text: str) -> str:
        order.append(text)
        await asyncio.sleep(0)
        return text

    runtime = await open_runtime(place, write)
    session = runtime.session("s")
    events = session.subscribe()
    calls = [call(f"c{number}", "write", name="same", text=str(number)) for number in range(20)]
    agent, _ = agent_of(session, scripted(calls))
    async with fail_after(10):
        await agent.run("write")
        events.close()
        batches = [event async for event in events if event.kind == "batch.started"]
    assert order == [str(number) for number in range(20)]
    assert [[each[0] for each in batch.calls] for batch in batches] == [[f"c{number}" for number in range(20)]]


@pytest.mark.promise("ADP-05")
async def test_a_history_that_is_run_again_gets_the_recorded_outcomes(file, open_runtime):
    paid: list[str] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    model = scripted([call("c1", "pay", to="ann")], [call("c1", "pay", to="bob")])
    async with fail_after(10):
        first = await open_runtime(file, pay)
        agent, _ = agent_of(first.session("s"), model)
        history = (await agent.run("pay")).all_messages_json()
        await first.close()
        # In another process, with the history up to the first answer: the rest happens again, and nothing is paid.
        second = await open_runtime(file, pay)
        agent, _ = agent_of(second.session("s"), model)
        messages = ModelMessagesTypeAdapter.validate_json(history)[:2]
        result = await agent.run(message_history=messages)
    assert paid == ["ann", "bob"], "ids that a model gives again belong to another answer"
    assert [part.content for part in returns(result.all_messages()).values()] == ["paid bob"]
    assert result.output == "done"


async def test_another_conversation_does_not_get_the_outcomes_of_the_first(place, open_runtime):
    looked: list[str] = []

    @tool(readonly=True)
    async def look() -> int:
        looked.append("")
        return len(looked)

    runtime = await open_runtime(place, look)
    agent, _ = agent_of(runtime.session("s"), scripted([call("c1", "look")]))
    async with fail_after(10):
        contents = [returns((await agent.run("look")).all_messages())["c1"].content for _ in range(2)]
        kept = [
            returns((await agent.run("look", conversation_id="mine")).all_messages())["c1"].content for _ in range(2)
        ]
    assert contents == [1, 2]
    assert kept == [3, 3]


async def test_a_host_may_give_the_scope(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    session = runtime.session("s")
    toolset = ToolwrightToolset[str](session, scope=lambda ctx: f"turn {ctx.deps}")
    agent = Agent(scripted([call("c1", "pay", to="ann")]), toolsets=[toolset], deps_type=str)
    async with fail_after(10):
        await agent.run("pay", deps="7", output_type=[str, DeferredToolRequests])
        (asked,) = await session.approvals()
        assert asked.scope == "turn 7"


@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_that_starts_again_gets_the_recorded_answers_of_its_model(streamed, file, open_runtime):
    paid: list[str] = []
    asked: list[int] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        if len(messages) > 3:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[call(f"call_{uuid4().hex}", "pay", to=str(len(messages)))])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        for part in answer(messages, info).parts:
            if isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall("pay", part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            else:
                yield "done"

    async def run(name: str) -> Any:
        runtime = await open_runtime(file, pay)
        session = runtime.session("s")
        model = RecordedModel(FunctionModel(answer, stream_function=stream), session, name)
        agent = Agent(model, toolsets=[ToolwrightToolset[None](session)])
        if streamed:
            async with agent.run_stream("pay", conversation_id=name) as result:
                output = await result.get_output()
                messages = result.all_messages()
        else:
            ended = await agent.run("pay", conversation_id=name)
            output, messages = ended.output, ended.all_messages()
        if name == "message 2":
            await model.forget()
            assert [each.key for each in await session.kv.list("pydantic_ai/")] != []
        await runtime.close()
        return output, {id: part.content for id, part in returns(messages).items()}

    async with fail_after(20):
        first, again = await run("message 1"), await run("message 1")
        assert (paid, len(asked)) == (["1", "3"], 3), "nothing is asked or paid again"
        assert first == again == ("done", first[1])
        assert len(first[1]) == 2
        await run("message 2")
        assert (paid, len(asked)) == (["1", "3"] * 2, 6), "another run asks"


# --- approvals


@pytest.mark.promise("ADP-05")
async def test_an_approval_is_a_deferred_call_that_another_process_resumes_from_json(file, open_runtime):
    till = Till()
    model = scripted([call("c1", "pay", to="ann"), call("c2", "look", at="till"), call("c3", "pay", to="bob")])
    async with fail_after(10):
        first = await open_runtime(file, *till.tools)
        agent, _ = agent_of(first.session("s"), model)
        asked = await agent.run("pay")
        assert isinstance(asked.output, DeferredToolRequests)
        assert [part.tool_call_id for part in asked.output.approvals] == ["c1", "c3"]
        assert asked.output.metadata["c1"]["rule"] == "approval"
        assert till.paid == []
        history = asked.all_messages_json()
        await first.close()

        second = await open_runtime(file, *till.tools)
        agent, toolset = agent_of(second.session("s"), model)
        results = await toolset.settle(
            DeferredToolResults(approvals={"c1": True, "c3": ToolDenied("not to bob")}, metadata=asked.output.metadata)
        )
        result = await agent.run(
            message_history=ModelMessagesTypeAdapter.validate_json(history), deferred_tool_results=results
        )
        assert await second.approvals() == []
        decisions = {each.call_id: each.decision for each in await second.decisions()}
    assert result.output == "done"
    assert till.paid == ["ann"]
    assert decisions["c1"].by == decisions["c3"].by == "pydantic-ai"
    assert (decisions["c3"].verdict, decisions["c3"].reason) == ("denied", "not to bob")
    found = returns(result.all_messages())
    assert {id: (part.content, part.outcome) for id, part in found.items()} == {
        "c1": ("paid ann", "success"),
        "c2": ({"seen": "till"}, "success"),
        "c3": ("not to bob", "denied"),
    }


@pytest.mark.promise("ADP-05")
async def test_a_denial_reaches_the_session_without_settle(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    agent, _ = agent_of(runtime.session("s"), scripted([call("c1", "pay", to="ann")]))
    async with fail_after(10):
        asked = await agent.run("pay")
        await agent.run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"c1": ToolDenied("no")}),
        )
        assert await runtime.approvals() == []
        await runtime.session("s").wait_for_idle()
        assert runtime.session("s").batches == ()
    assert till.paid == []


@pytest.mark.promise("ADP-05")
async def test_the_session_decides_and_the_agent_continues(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    calls = [call("c1", "pay", to="ann"), call("c2", "pay", to="bob"), call("c3", "pay", to="eve")]
    agent, toolset = agent_of(runtime.session("s"), scripted(calls))
    async with fail_after(10):
        asked = await agent.run("pay")
        keys = {each.call_id: each.key for each in await runtime.approvals()}
        await runtime.approve(keys["c1"])
        await runtime.deny(keys["c2"], reason="not today")
        # Nobody decided about the third: it is asked about again, and not approved by being continued.
        again = await agent.run(
            message_history=asked.all_messages(), deferred_tool_results=await toolset.decided(asked.output)
        )
        assert [part.tool_call_id for part in again.output.approvals] == ["c3"]
        assert till.paid == ["ann"]
        await runtime.approve(keys["c3"], arguments={"to": "dan"})
        result = await agent.run(
            message_history=again.all_messages(), deferred_tool_results=await toolset.decided(again.output)
        )
    found = returns(result.all_messages())
    assert found["c1"].content == "paid ann"
    assert (found["c2"].outcome, "not today" in found["c2"].content) == ("failed", True)
    assert "A person changed the arguments" in found["c3"].content
    assert till.paid == ["ann", "dan"]


@pytest.mark.promise("ADP-05")
async def test_a_call_that_is_approved_with_other_arguments_keeps_its_identity(file, open_runtime):
    till = Till()
    model = scripted([call("c1", "pay", to="ann")])
    results = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"to": "bob"})})
    async with fail_after(10):
        runtime = await open_runtime(file, *till.tools)
        agent, _ = agent_of(runtime.session("s"), model)
        asked = await agent.run("pay")
        for _ in range(2):  # the second time as after a crash that lost the result
            result = await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
            assert "paid bob" in returns(result.all_messages())["c1"].content
    assert till.paid == ["bob"]


async def test_a_call_that_waits_for_its_result_is_deferred_and_completed_by_either_side(place, open_runtime):
    @tool
    async def order(what: str, ctx: ToolContext) -> Pending:
        ctx.completion_key()
        return Pending()

    runtime = await open_runtime(place, order, policy=Policy())
    session = runtime.session("s")
    calls = [call(f"c{number}", "order", what=str(number)) for number in range(3)]
    agent, toolset = agent_of(session, scripted(calls))
    async with fail_after(10):
        asked = await agent.run("order")
        assert [part.tool_call_id for part in asked.output.calls] == ["c0", "c1", "c2"]
        about = asked.output.metadata
        assert [about[id]["waits_for"] for id in ("c0", "c1", "c2")] == ["completion"] * 3
        await runtime.resolve(about["c0"]["key"], "tea")
        again = await agent.run(
            message_history=asked.all_messages(), deferred_tool_results=await toolset.decided(asked.output)
        )
        assert [part.tool_call_id for part in again.output.calls] == ["c1", "c2"]
        results = await toolset.settle(DeferredToolResults(calls={"c1": "coffee", "c2": ToolFailed("sold out")}))
        result = await agent.run(message_history=again.all_messages(), deferred_tool_results=results)
        (second,) = await session.run_batch([ToolCall("order", {"what": "1"}, "c1")], scope=scope_of(asked))
        await session.wait_for_idle()
        session.cancel()
    assert second.value == "coffee"
    found = {id: (part.content, part.outcome) for id, part in returns(result.all_messages()).items()}
    assert found == {"c0": ("tea", "success"), "c1": ("coffee", "success"), "c2": ("sold out", "failed")}


async def test_a_question_of_a_tool_is_a_deferred_call_and_its_result_is_the_answer_for_the_tool(place, open_runtime):
    @tool(readonly=True)
    async def choose(ctx: ToolContext) -> str:
        return f"chose {await ctx.ask('size', 'Which size?', {'enum': ['s', 'l']})}"

    runtime = await open_runtime(place, choose)
    agent, toolset = agent_of(runtime.session("s"), scripted([call("c1", "choose"), call("c2", "choose")]))
    async with fail_after(10):
        asked = await agent.run("choose")
        assert [asked.output.metadata[id]["waits_for"] for id in ("c1", "c2")] == ["question", "question"]
        assert asked.output.metadata["c1"]["message"] == "Which size?"
        questions = await runtime.questions()
        await runtime.answer(questions[1].key, "l")
        results = await toolset.settle(DeferredToolResults(calls={"c1": "s"}))
        results.update(await toolset.decided(DeferredToolRequests(calls=[call("c2", "choose")])))
        result = await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
        await runtime.session("s").wait_for_idle()
        assert await runtime.questions() == []
    assert {id: part.content for id, part in returns(result.all_messages()).items()} == {
        "c1": "chose s",
        "c2": "chose l",
    }


def scope_of(result: Any) -> str:
    return f"{result.all_messages()[-1].conversation_id}.0"


# --- outcomes in Pydantic AI's words


@pytest.mark.promise("ADP-05")
async def test_failures_are_retries_and_failed_returns(place, open_runtime):
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def find(path: str) -> str:
        raise ToolError(f"no file {path}", category="not_found")

    @tool
    async def crash() -> str:
        raise RuntimeError("a secret detail")

    runtime = await open_runtime(place, add, find, crash, policy=Policy(read_only=False))
    calls = [
        call("c1", "add", a="one", b="two"),
        call("c2", "find", path="/x"),
        call("c3", "crash"),
        call("c4", "add", a=1, b=2),
    ]
    agent, _ = agent_of(runtime.session("s"), scripted(calls))
    async with fail_after(10):
        found = returns((await agent.run("go")).all_messages())
    assert {id: part.outcome for id, part in found.items()} == {
        "c1": "retried",
        "c2": "failed",
        "c3": "failed",
        "c4": "success",
    }
    assert "$.a" in found["c1"].model_response_str()
    assert "$.b" in found["c1"].model_response_str(), "every problem at once"
    assert found["c2"].content == "no file /x"
    assert "a secret detail" not in found["c3"].content
    assert found["c4"].content == 3


async def test_calls_of_an_answer_that_was_cut_off_are_not_run(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    agent, _ = agent_of(runtime.session("s"), scripted([call("c1", "look", at="/da")], finish_reason="length"))
    async with fail_after(10):
        found = returns((await agent.run("go")).all_messages())
    assert found["c1"].outcome != "success"
    assert "length" in found["c1"].model_response_str()


@pytest.mark.promise("ADP-05")
async def test_images_go_to_the_model(place, open_runtime):
    @tool(readonly=True)
    async def photo() -> Success:
        return Success("a cat", images=[Image.from_bytes(PNG), Image.from_bytes(b"<svg/>", "image/svg+xml")])

    @tool(readonly=True)
    async def kept(ctx: ToolContext) -> Success:
        return Success("a dog", images=[await ctx.attachments.put(PNG, name="dog.png", media_type="image/png")])

    runtime = await open_runtime(place, photo, kept)
    agent, _ = agent_of(runtime.session("s"), scripted([call("c1", "photo"), call("c2", "kept")]))
    async with fail_after(10):
        messages = (await agent.run("go")).all_messages()
    shown = [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
    ]
    assert returns(messages)["c1"].content == "a cat"
    assert [each.data for content in shown for each in content if isinstance(each, BinaryContent)] == [PNG, PNG]
    assert any("image/svg+xml" in each for content in shown for each in content if isinstance(each, str))


@pytest.mark.promise("ADP-05")
async def test_cancelling_the_run_reaches_the_tools(place, open_runtime):
    began, stopped = asyncio.Event(), []

    @tool(key="name", timeout=60)
    async def wait(name: str) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(name)

    runtime = await open_runtime(place, wait)
    agent, _ = agent_of(runtime.session("s"), scripted([call("c1", "wait", name="a"), call("c2", "wait", name="a")]))
    async with fail_after(10):
        running = asyncio.create_task(agent.run("wait"))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert stopped == ["a"], "the second never ran, and the first has stopped when the run is over"
        assert runtime.session("s").batches == ()


async def test_a_tool_keeps_its_name_and_place_behind_the_wrappers_of_pydantic_ai(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    toolset = ToolwrightToolset[None](runtime.session("s")).prefixed("till")
    agent = Agent(scripted([call("c1", "till_look", at="x")]), toolsets=[toolset])
    async with fail_after(10):
        assert returns((await agent.run("go")).all_messages())["c1"].content == {"seen": "x"}


# --- the way back


@pytest.mark.promise("ADP-01")
async def test_tools_of_pydantic_ai_are_ours(place, open_runtime):
    toolset = FunctionToolset[str]()

    class Point(BaseModel):
        x: int

    @toolset.tool
    def greet(ctx: RunContext[str], name: str, at: Point) -> str:
        """Greet somebody."""
        return f"{ctx.deps} {name} at {at.x}"

    @toolset.tool
    def again(ctx: RunContext[str]) -> str:
        raise ModelRetry("try a number")

    @toolset.tool
    def fail(ctx: RunContext[str]) -> str:
        raise ToolFailed("there is none")

    @toolset.tool
    def later(ctx: RunContext[str]) -> str:
        raise CallDeferred

    @toolset.tool
    def show(ctx: RunContext[str]) -> ToolReturn:
        return ToolReturn({"a": 1}, content=[BinaryContent(PNG, media_type="image/png")])

    @toolset.tool(requires_approval=True)
    def pay(ctx: RunContext[str]) -> str:
        return f"paid {ctx.tool_call_approved}"

    runtime = await open_runtime(place, *await tools_from(toolset, "Hello", timeout=5))
    session = runtime.session("s")
    names = ["greet", "greet", "again", "fail", "show", "later", "pay"]
    given: list[Any] = [{"name": "Ann", "at": {"x": 3}}, {"name": "Ann", "at": {"x": "?"}}, {}, {}, {}, {}, {}]
    async with fail_after(10):
        batch = session.start_batch([ToolCall(name, args) for name, args in zip(names, given, strict=True)])
        greeted, misfit, retried, failed, shown, waiting, asked = await batch.quiet()
        (approval,) = await session.approvals()
        await session.approve(approval.key)
        (completion,) = [each for each in await session.waits() if each.kind == "completion"]
        await session.resolve(completion.key, "at last")
        *_, waited, paid = await batch
    assert greeted.value == "Hello Ann at 3"
    assert misfit.failure.category == "invalid_arguments"
    assert (retried.failure.category, retried.failure.message) == ("invalid_arguments", "try a number")
    assert failed.failure.message == "there is none"
    assert (shown.value, len(shown.images)) == ({"a": 1}, 1)
    assert (waiting.status, waited.value) == ("pending", "at last")
    assert (asked.status, paid.value) == ("pending", "paid True")


async def test_functions_and_tools_of_pydantic_ai_are_ours_too(place, open_runtime):
    def double(x: int) -> int:
        return 2 * x

    async def half(ctx: RunContext[None], x: int) -> float:
        return x / 2

    runtime = await open_runtime(place, *await tools_from([double, PydanticTool(half)], readonly=True))
    async with fail_after(10):
        outcomes = await runtime.session("s").run_batch([ToolCall("double", {"x": 4}), ToolCall("half", {"x": 4})])
    assert [each.value for each in outcomes] == [8, 2.0]
    assert runtime.tools.get("half").definition.hints.readonly


# --- without async


@pytest.mark.promise("ADP-01")
def test_an_agent_without_async_has_a_session_of_a_blocking_runtime():
    paid = []

    @tool(readonly=True)
    def read(at: str) -> str:  # in a thread, so that it ends while the loop of the run waits
        return at

    @tool(approval="required")
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    with Runtime.open_blocking(tools=[read, pay]) as runtime:
        session = runtime.session("s")
        toolset = ToolwrightToolset[None](session)
        model = scripted([call("c1", "read", at="a"), call("c2", "pay", to="ann"), call("c3", "pay", to="bob")])
        recorded = RecordedModel(model, session, "run 1")
        agent = Agent(recorded, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        # As agent.run_sync does, which leaves its loop open.
        asked = asyncio.run(asyncio.wait_for(agent.run("pay"), 60))
        assert isinstance(asked.output, DeferredToolRequests)
        results = asyncio.run(toolset.settle(DeferredToolResults(approvals={"c2": True, "c3": ToolDenied("no")})))
        assert [each.call_id for each in session.approvals()] == ["c2"]
        again = agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
        done = asyncio.run(asyncio.wait_for(again, 60))
        assert done.output == "done"
        assert len(session.kv.list("pydantic_ai/")) == 2
        asyncio.run(recorded.forget())
        assert session.kv.list("pydantic_ai/") == []
    assert paid == ["ann"]


async def test_a_session_whose_loop_does_not_run_is_told():
    runtime = None

    async def make() -> Session:
        nonlocal runtime
        runtime = await Runtime.open(tools=[])
        return runtime.session("s")

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            toolset = ToolwrightToolset[None](loop.run_until_complete(make()))
            with pytest.raises(RuntimeClosed, match="does not run"):
                asyncio.run(asyncio.wait_for(Agent(scripted(), toolsets=[toolset]).run("go"), 60))
            loop.run_until_complete(runtime.close())
        finally:
            loop.close()

    async with fail_after(20):
        await asyncio.to_thread(run)
