"""Spans of turns and of requests to models."""

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.support import fail_after
from toolwright import App, Runtime, ToolCall, ToolContext, tool
from toolwright.telemetry.content import LONGEST
from toolwright.testing import FakeClock, FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelError, Usage

pytestmark = pytest.mark.promise("OBS-01")


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(approval="required")
async def pay() -> str:
    """Pay."""
    return "paid"


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


ANSWERS: list[Any] = [
    ModelAnswer(calls=(call("1", "add", a=1, b=2),), stop="calls", usage=Usage(100, 10), model="test:small", id="r1"),
    ModelAnswer(text="It is 3.", usage=Usage(200, 20, cache_read=50), model="test:small", id="r2"),
]


async def test_a_turn_is_a_span_with_its_model_calls_and_tool_calls_below_it(place, open_runtime, traced):
    model = ScriptedModel(ANSWERS, name="small")
    runtime = await open_runtime(place, add, model=model, telemetry=traced.telemetry(agent="adder"))
    with traced.tracer.start_as_current_span("request"):
        outcome = await runtime.session("s").ask("1 + 2?")
    names = [span.name for span in traced.spans]
    assert names == ["chat small", "execute_tool add", "chat small", "invoke_agent adder", "request"]
    above = [traced.above(span) for span in traced.spans]
    assert above == ["invoke_agent adder"] * 3 + ["request", None]
    assert len({span.context.trace_id for span in traced.spans}) == 1
    agent = traced.one("invoke_agent adder")
    assert dict(agent.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "adder",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "small",
        "gen_ai.conversation.id": "s",
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 50,
        "toolwright.turn.id": outcome.turn_id,
        "toolwright.status": "answered",
        "toolwright.turn.model_calls": 2,
    }
    first, second = traced.named("chat small")
    assert first.kind is SpanKind.CLIENT
    assert dict(second.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "small",
        "gen_ai.conversation.id": "s",
        "gen_ai.response.model": "small",
        "gen_ai.response.id": "r2",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 50,
        "toolwright.turn.id": outcome.turn_id,
    }


async def test_a_turn_has_durations_and_tokens_as_metrics(open_runtime, traced):
    model = ScriptedModel(ANSWERS, name="small")
    runtime = await open_runtime(add, model=model, telemetry=traced.telemetry())
    await runtime.session("s").ask("1 + 2?")
    found = traced.metrics()
    assert [point.count for point in found["gen_ai.client.operation.duration"]] == [2]
    assert [point.count for point in found["gen_ai.invoke_agent.duration"]] == [1]
    assert [point.count for point in found["gen_ai.execute_tool.duration"]] == [1]
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in found["gen_ai.client.token.usage"]}
    assert tokens == {"input": 300, "output": 30}
    assert found["gen_ai.client.operation.duration"][0].explicit_bounds[0] == 0.01


async def test_each_turn_is_below_the_program_that_asked_for_it(place, open_runtime, traced):
    async def slow(request: Any) -> str:
        started.set()
        await go.wait()
        return "Yes."

    started, go = asyncio.Event(), asyncio.Event()
    runtime = await open_runtime(place, model=FunctionModel(slow), telemetry=traced.telemetry())
    session = runtime.session("s")
    async with fail_after(20):
        with traced.tracer.start_as_current_span("first"):
            first = await session.start_turn("one?")
        await started.wait()
        with traced.tracer.start_as_current_span("second"):
            second = await session.start_turn("two?")
        third = await session.start_turn("three?")
        go.set()
        for turn in (first, second, third):
            assert (await turn).ok
    agents = {span.attributes["toolwright.turn.id"]: span for span in traced.named("invoke_agent")}
    assert [traced.above(agents[turn.id]) for turn in (first, second, third)] == ["first", "second", None]


async def test_a_sub_agent_is_below_the_call_that_runs_it(place, open_runtime, traced):
    child = App(tools=[add], model=ScriptedModel([[call("1", "add", a=1, b=2)], "Three."], name="child"))
    parent = ScriptedModel([[call("1", "adder", message="1 + 2?")], "It is 3."], name="parent")
    runtime = await open_runtime(place, child.as_tool("adder"), model=parent, telemetry=traced.telemetry())
    assert (await runtime.session("s").ask("?")).ok
    assert traced.above(traced.one("execute_tool add")) == "invoke_agent adder"
    assert traced.above(traced.one("invoke_agent adder")) == "execute_tool adder"
    assert traced.above(traced.one("execute_tool adder")) == "invoke_agent"
    assert {traced.above(span) for span in traced.named("chat child")} == {"invoke_agent adder"}
    assert traced.one("invoke_agent").parent is None


async def test_the_retries_of_a_model_are_events_of_one_span(open_runtime, traced):
    def flaky(request: Any) -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ModelError("busy, says hunter2", "overloaded", retry=True)
        return "Yes."

    calls: list[int] = []
    clock = FakeClock()
    model = FunctionModel(flaky)
    runtime = await open_runtime(model=model, telemetry=traced.telemetry(), clock=clock)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("?")
        for _ in range(2):
            await clock.advance(60)
        assert (await turn).ok
    chat = traced.one(f"chat {model.name}")
    assert [event.name for event in chat.events] == ["toolwright.retrying"] * 2
    assert [event.attributes["toolwright.code"] for event in chat.events] == ["overloaded"] * 2
    assert "hunter2" not in chat.to_json()
    assert chat.status.status_code is StatusCode.UNSET


async def test_a_model_that_fails_is_an_error_of_its_request_and_of_the_turn(place, open_runtime, traced):
    def fails(request: Any) -> str:
        raise ModelError("no, says hunter2", "unauthorised")

    runtime = await open_runtime(place, model=FunctionModel(fails), telemetry=traced.telemetry())
    assert (await runtime.session("s").ask("?")).code == "unauthorised"
    for span in traced.spans:
        assert (span.attributes["error.type"], span.status.status_code) == ("unauthorised", StatusCode.ERROR)
        assert "hunter2" not in span.to_json()
    assert len(traced.spans) == 2
    (point,) = traced.metrics()["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == "unauthorised"


async def test_a_turn_that_waits_ends_its_span_and_continues_in_another_that_is_linked(place, open_runtime, traced):
    model = ScriptedModel([[call("1", "pay")], "Paid."])
    runtime = await open_runtime(place, pay, model=model, telemetry=traced.telemetry())
    async with fail_after(20):
        with traced.tracer.start_as_current_span("request"):
            turn = await runtime.session("s").start_turn("Pay.")
            assert (await turn).status == "waiting"
        (request,) = await runtime.approvals()
        await runtime.approve(request.key)
        outcome = await turn.wait(20)
    assert outcome is not None
    assert outcome.ok
    first, second = traced.named("invoke_agent")
    assert (first.attributes["toolwright.status"], second.attributes["toolwright.status"]) == ("waiting", "answered")
    (link,) = second.links
    assert (link.context.span_id, link.attributes["toolwright.link"]) == (first.context.span_id, "continued")
    assert [traced.above(span) for span in (first, second)] == ["request", "request"]


async def test_a_model_that_a_tool_asks_is_below_its_call(place, open_runtime, traced):
    @tool
    async def think(ctx: ToolContext) -> str:
        """Ask the model."""
        return await ctx.complete("thought", [{"role": "user", "content": "Well?"}])

    model = FunctionModel(lambda request: "Hm.")
    runtime = await open_runtime(place, think, model=model, telemetry=traced.telemetry(content=True))
    assert (await runtime.session("s").call("think")).ok
    chat = traced.one(f"chat {model.name}")
    assert traced.above(chat) == "execute_tool think"
    assert "Well?" in chat.attributes["gen_ai.input.messages"]
    assert "Hm." in chat.attributes["gen_ai.output.messages"]


async def test_messages_are_recorded_only_when_wanted_and_without_secrets(place, traced):
    for content in (False, True):
        traced.exporter.clear()
        model = ScriptedModel([[call("1", "add", a=1, b=2)], "The key sk-4711-abcdefgh is 3."], name="m")
        app = App(tools=[add], model=model, instructions="Be brief.", telemetry=traced.telemetry(content=content))
        async with app.open(":memory:") as runtime:
            session = runtime.session("s")
            await session.secrets.set("api_key", "sk-4711-abcdefgh")
            await session.ask("Use sk-4711-abcdefgh, and be quick.")
        told = "".join(span.to_json() for span in traced.spans)
        assert "sk-4711" not in told
        assert ("be quick" in told) is content
        last = traced.named("chat m")[-1]
        if content:
            assert last.attributes["gen_ai.input.messages"] == (
                '[{"role":"user","parts":[{"type":"text","content":"Use [secret:api_key], and be quick."}]},'
                '{"role":"assistant","parts":[{"type":"tool_call","id":"1","name":"add","arguments":{"a":1,"b":2}}],'
                '"finish_reason":"tool_call"},'
                '{"role":"tool","parts":[{"type":"tool_call_response","id":"1","response":"3"}]}]'
            )
            assert last.attributes["gen_ai.system_instructions"] == '[{"type":"text","content":"Be brief."}]'
        else:
            assert not {name for name in last.attributes if "messages" in name or "instructions" in name}


@pytest.mark.promise("OBS-01", "SES-03")
@pytest.mark.parametrize("cut", [4, 12, 20, 28])
async def test_no_part_of_a_secret_is_left_where_a_long_message_is_cut(traced, cut):
    secret = "sk-4711-abcdefghijklmnopqrstuvwxyz"
    long = f"{'x' * (LONGEST - cut)}{secret}, and be quick. {'y' * 2 * LONGEST}"
    model = ScriptedModel([[call("1", "look", at=long)], long], name="m")

    @tool(readonly=True)
    async def look(at: str) -> str:
        """Look."""
        return at

    app = App(tools=[look], model=model, instructions=long, telemetry=traced.telemetry(content=True))
    async with app.open(":memory:") as runtime:
        session = runtime.session("s")
        await session.secrets.set("api_key", secret)
        assert (await session.ask(long)).ok
    told = "".join(span.to_json() for span in traced.spans)
    assert secret[:4] not in told
    assert "[sec" in told
    assert "more characters]" in told


async def test_a_turn_is_answered_also_where_the_tracer_breaks(place, caplog):
    from toolwright.telemetry import Telemetry

    class Broken:
        def get_tracer(self, *given: Any, **options: Any) -> Any:
            return self

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name}")

    broken: Any = Broken()
    app = App(
        tools=[add],
        model=ScriptedModel([[call("1", "add", a=1, b=2)], "3"]),
        telemetry=Telemetry(tracer_provider=broken),
    )
    async with app.open(place) as runtime:
        assert (await runtime.session("s").ask("?")).text == "3"
    assert {record.action for record in caplog.records} == {"telemetry.failed"}


async def test_a_blocking_program_is_traced_in_the_span_where_it_asks(traced):
    def program() -> None:
        with (
            Runtime.open_blocking(tools=[add], telemetry=traced.telemetry()) as runtime,
            traced.tracer.start_as_current_span("program"),
        ):
            assert runtime.session("s").call("add", a=1, b=2).value == 3

    await asyncio.to_thread(program)
    assert traced.above(traced.one("execute_tool add")) == "program"
