"""OpenAI Agents SDK: the tools of a session as function tools, and its function tools as ours. Models are scripted."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    ToolOutputImage,
    ToolOutputText,
    Usage,
    WebSearchTool,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext as AgentToolContext

from tests.support import fail_after
from toolwright import Image, Policy, Rule, Runtime, Session, Success, ToolCall, ToolContext, ToolDefinitionError, tool
from toolwright.adapters.openai_agents import RecordedModel, function_tools, settle, tools_from

PNG = b"\x89PNG\r\n\x1a\n not a real picture"
QUIET = RunConfig(tracing_disabled=True)


def call(id: str, tool_name: str, /, **arguments: object) -> Any:
    return function_call(tool_name, arguments, call_id=id)


def agent_of(session: Session, *answers: list[Any], scope: Any = None) -> Agent[Any]:
    model = ScriptedModel([*answers, [assistant_message("done")]])
    return Agent("clerk", model=model, tools=list(function_tools(session, scope=scope)))


def outputs(result: Any) -> dict[str, Any]:
    """The output of each call in a history, by its id."""
    items = result.to_input_list()
    return {each["call_id"]: each["output"] for each in items if each.get("type") == "function_call_output"}


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
        async def look(at: str, closely: bool = False) -> dict[str, str]:
            return {"seen": at}

        self.tools = (pay, look)


@pytest.mark.promise("ADP-05")
async def test_the_same_id_in_runs_with_different_inputs_is_not_the_same_call(place, open_runtime):
    """A server that gives each first call the id call_0, and a session of several messages."""
    paid: list[str] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to} for the {len(paid)}. time"

    runtime = await open_runtime(place, pay)
    session, history = runtime.session("s"), []
    for number, to in enumerate(["ann", "ann", "bob"], 1):
        agent = agent_of(session, [call("call_0", "pay", to=to)])
        result = await Runner.run(agent, [*history, {"role": "user", "content": "Again."}], run_config=QUIET)
        history = result.to_input_list()
        assert outputs(result)["call_0"] == f"paid {to} for the {number}. time"
    # The same input is the same run, as one that is started again after a crash.
    given = history[: -len(result.new_items)]
    again = agent_of(session, [call("call_0", "pay", to="bob")])
    assert outputs(await Runner.run(again, given, run_config=QUIET))["call_0"] == "paid bob for the 3. time"
    assert paid == ["ann", "ann", "bob"]


@pytest.mark.promise("ADP-05")
async def test_a_state_that_was_stored_with_its_history_has_the_same_calls(file, open_runtime):
    """Storing a state changes the form of the messages in it."""
    till = Till()
    runtime = await open_runtime(file, *till.tools)
    session = runtime.session("s")
    history: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
        {"role": "assistant", "content": "Good day."},
        {"role": "user", "content": "Pay Ann."},
    ]
    agent = agent_of(session, [call("call_0", "pay", to="ann")])
    asked = await Runner.run(agent, history, run_config=QUIET)
    [item] = asked.interruptions
    state = await RunState.from_string(agent, asked.to_state().to_string())
    [request] = await runtime.approvals()
    await runtime.approve(request.key)
    await settle(session, state)
    done = await Runner.run(agent, state, run_config=QUIET)
    assert (item.call_id, outputs(done)["call_0"], till.paid) == ("call_0", "paid ann", ["ann"])
    assert await runtime.approvals() == []


@pytest.mark.promise("ADP-03")
async def test_an_agent_has_the_tools_of_a_session(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    agent = agent_of(runtime.session("s"), [call("c1", "look", at="till")])
    async with fail_after(10):
        result = await Runner.run(agent, "look", run_config=QUIET)
    look, pay = agent.tools
    assert (look.name, pay.name, pay.description) == ("look", "pay", "Pay somebody.")
    assert look.params_json_schema["required"] == ["at"], "an optional field stays optional"
    assert (look.needs_approval, callable(pay.needs_approval)) == (False, True)
    assert result.final_output == "done"
    assert outputs(result) == {"c1": '{"seen":"till"}'}


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
    async with fail_after(10):
        await Runner.run(agent_of(session, calls), "write", run_config=QUIET)
        events.close()
        batches = [event async for event in events if event.kind == "batch.started"]
    assert order == [str(number) for number in range(20)]
    assert [[each[0] for each in batch.calls] for batch in batches] == [[f"c{number}" for number in range(20)]]


@pytest.mark.promise("ADP-05")
async def test_calls_that_are_made_again_get_the_recorded_outcomes(file, open_runtime):
    paid: list[str] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    answers = [[call("c1", "pay", to="ann"), call("c2", "pay", to="bob")]]
    async with fail_after(10):
        for _ in range(2):
            runtime = await open_runtime(file, pay)
            result = await Runner.run(agent_of(runtime.session("s"), *answers), "pay", run_config=QUIET)
            assert outputs(result) == {"c1": "paid ann", "c2": "paid bob"}
            await runtime.close()
    assert paid == ["ann", "bob"]


async def test_a_host_gives_the_scope_where_a_server_repeats_ids_in_each_run(place, open_runtime):
    paid: list[str] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    runtime = await open_runtime(place, pay)
    session = runtime.session("s")
    async with fail_after(10):
        for run, to in enumerate(("ann", "bob")):
            agent = agent_of(session, [call("c1", "pay", to=to)], scope=lambda context: f"run {context.context}")
            assert outputs(await Runner.run(agent, "pay", context=run, run_config=QUIET)) == {"c1": f"paid {to}"}
    assert paid == ["ann", "bob"]


class Forgetful(Model):
    """A model that gives other call ids each time it is asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    def answer(self, input: Any) -> list[Any]:
        self.asked += 1
        number = 0 if isinstance(input, str) else sum(each.get("type") == "function_call" for each in input)
        if number == len(self.answers):
            return [assistant_message("done")]
        return [call(f"call_{uuid4().hex}", "pay", to=self.answers[number])]

    async def get_response(self, system_instructions: Any, input: Any, *given: Any, **options: Any) -> ModelResponse:
        return ModelResponse(output=self.answer(input), usage=Usage(requests=1, input_tokens=7), response_id=None)

    async def stream_response(self, system_instructions: Any, input: Any, *given: Any, **options: Any) -> Any:
        scripted = ScriptedModel([self.answer(input)])
        async for event in scripted.stream_response(system_instructions, input, *given, **options):
            yield event


@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_that_starts_again_gets_the_recorded_answers_of_its_model(streamed, file, open_runtime):
    paid: list[str] = []

    @tool
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    model = Forgetful("ann", "bob")

    async def run(name: str) -> Any:
        runtime = await open_runtime(file, pay)
        session = runtime.session("s")
        recorded = RecordedModel(model, session, name)
        agent = Agent("clerk", model=recorded, tools=list(function_tools(session)))
        if streamed:
            result: Any = Runner.run_streamed(agent, "pay", run_config=QUIET)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "pay", run_config=QUIET)
        await runtime.close()
        return result

    async with fail_after(20):
        first, again = await run("message 1"), await run("message 1")
        assert (paid, model.asked) == (["ann", "bob"], 3), "nothing is asked or paid again"
        assert outputs(again) == outputs(first)
        assert again.final_output == "done"
        await run("message 2")
        assert (paid, model.asked) == (["ann", "bob"] * 2, 6), "another run asks"


async def test_the_recorded_answers_of_a_finished_run_can_be_forgotten(place, open_runtime):
    @tool
    async def pay(to: str) -> str:
        return f"paid {to}"

    runtime = await open_runtime(place, pay)
    session = runtime.session("s")
    model = RecordedModel(Forgetful("ann"), session, "one")
    async with fail_after(10):
        await Runner.run(Agent("clerk", model=model, tools=list(function_tools(session))), "pay", run_config=QUIET)
        assert len(await session.kv.list("openai_agents/")) == 2
        await model.forget()
        assert await session.kv.list("openai_agents/") == []


# --- approvals


@pytest.mark.promise("ADP-05")
async def test_an_approval_interrupts_the_run_and_another_process_resumes_it_from_json(file, open_runtime):
    till = Till()
    answer = [call("c1", "pay", to="ann"), call("c2", "look", at="till"), call("c3", "pay", to="bob")]
    async with fail_after(10):
        first = await open_runtime(file, *till.tools)
        result = await Runner.run(agent_of(first.session("s"), answer), "pay", run_config=QUIET)
        assert [each.call_id for each in result.interruptions] == ["c1", "c3"]
        assert [each.call_id for each in await first.approvals()] == ["c1", "c3"], "they are in the inbox, too"
        assert till.paid == []
        text = result.to_state().to_string()
        await first.close()

        second = await open_runtime(file, *till.tools)
        session = second.session("s")
        agent = agent_of(session)
        state = await RunState.from_string(agent, text)
        ann, bob = state.get_interruptions()
        state.approve(ann)
        state.reject(bob, rejection_message="not to bob")
        await settle(session, state)
        result = await Runner.run(agent, state, run_config=QUIET)
        assert await second.approvals() == []
        decisions = {each.call_id: each.decision for each in await second.decisions()}
    assert result.final_output == "done"
    assert till.paid == ["ann"]
    assert outputs(result) == {"c1": "paid ann", "c2": '{"seen":"till"}', "c3": "not to bob"}
    assert decisions["c1"].by == decisions["c3"].by == "openai-agents"
    assert (decisions["c3"].verdict, decisions["c3"].reason) == ("denied", "not to bob")


@pytest.mark.promise("ADP-05")
async def test_the_session_decides_and_the_run_continues(place, open_runtime):
    till = Till()
    runtime = await open_runtime(place, *till.tools)
    session = runtime.session("s")
    calls = [call("c1", "pay", to="ann"), call("c2", "pay", to="bob"), call("c3", "pay", to="eve")]
    agent = agent_of(session, calls)
    async with fail_after(10):
        result = await Runner.run(agent, "pay", run_config=QUIET)
        keys = {each.call_id: each.key for each in await runtime.approvals()}
        await runtime.approve(keys["c1"], arguments={"to": "dan"})
        await runtime.deny(keys["c2"], reason="not today")
        state = result.to_state()
        await settle(session, state)
        result = await Runner.run(agent, state, run_config=QUIET)
        # Nobody decided about the third.
        assert [each.call_id for each in result.interruptions] == ["c3"]
        assert till.paid == ["dan"]
        await runtime.approve(keys["c3"])
        state = result.to_state()
        await settle(session, state)
        result = await Runner.run(agent, state, run_config=QUIET)
    assert till.paid == ["dan", "eve"]
    found = outputs(result)
    assert "A person changed the arguments" in found["c1"]
    assert "not today" in found["c2"]
    assert found["c3"] == "paid eve"


async def test_settling_approves_nothing_that_the_session_does_not_know(open_runtime):
    """A runtime in memory that was restarted has forgotten the request: it is asked about again."""
    till = Till()
    async with fail_after(10):
        first = await open_runtime(*till.tools)
        result = await Runner.run(agent_of(first.session("s"), [call("c1", "pay", to="ann")]), "pay", run_config=QUIET)
        second = await open_runtime(*till.tools)
        session = second.session("s")
        agent = agent_of(session)
        state = await RunState.from_string(agent, result.to_state().to_string())
        await settle(session, state)
        again = await Runner.run(agent, state, run_config=QUIET)
        assert [each.call_id for each in again.interruptions] == ["c1"]
        assert [each.call_id for each in await second.approvals()] == ["c1"]
    assert till.paid == []


async def test_a_rule_that_looks_at_the_arguments_asks_about_some_calls_only(place, open_runtime):
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> int:
        paid.append(amount)
        return amount

    policy = Policy(rules=[Rule("ask", "pay", when=lambda request: request.arguments["amount"] > 10)])
    runtime = await open_runtime(place, pay, policy=policy)
    agent = agent_of(runtime.session("s"), [call("c1", "pay", amount=5), call("c2", "pay", amount=50)])
    async with fail_after(10):
        result = await Runner.run(agent, "pay", run_config=QUIET)
        assert [each.call_id for each in result.interruptions] == ["c2"]
        assert paid == [5]
        state = result.to_state()
        state.approve(result.interruptions[0])
        await Runner.run(agent, state, run_config=QUIET)
    assert paid == [5, 50]


async def test_a_call_that_waits_for_something_else_makes_the_run_wait(place, open_runtime):
    waiting = asyncio.Event()
    keys = []

    @tool
    async def order(ctx: ToolContext) -> str:
        keys.append(ctx.event_key("paid"))
        waiting.set()
        return str(await ctx.wait(keys[0]))

    runtime = await open_runtime(place, order)
    agent = agent_of(runtime.session("s"), [call("c1", "order")])
    async with fail_after(10):
        running = asyncio.create_task(Runner.run(agent, "order", run_config=QUIET))
        await waiting.wait()
        await runtime.resolve(keys[0], "tea")
        assert outputs(await running) == {"c1": "tea"}


# --- outcomes in the SDK's words


@pytest.mark.promise("ADP-05")
async def test_failures_are_text_that_the_model_reads(place, open_runtime):
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def crash() -> str:
        raise RuntimeError("a secret detail")

    runtime = await open_runtime(place, add, crash)
    broken = function_call("add", "{not json", call_id="c3")
    calls = [call("c1", "add", a="one", b="two"), call("c2", "crash"), broken, call("c4", "add", a=1, b=2)]
    cut: Any = function_call("add", {"a": 1, "b": 2}, call_id="c5")
    cut = cut.model_copy(update={"status": "incomplete"})
    async with fail_after(10):
        found = outputs(await Runner.run(agent_of(runtime.session("s"), [*calls, cut]), "go", run_config=QUIET))
    assert "$.a" in found["c1"]
    assert "$.b" in found["c1"], "every problem at once"
    assert found["c2"].startswith('{"error":')
    assert "a secret detail" not in found["c2"]
    assert "JSON" in found["c3"]
    assert found["c4"] == "3"
    assert "incomplete" in found["c5"]


@pytest.mark.promise("ADP-05")
async def test_images_go_to_the_model(place, open_runtime):
    @tool(readonly=True)
    async def photo() -> Success:
        return Success("a cat", images=[Image.from_bytes(PNG), Image.from_bytes(b"<svg/>", "image/svg+xml")])

    @tool(readonly=True)
    async def kept(ctx: ToolContext) -> Success:
        return Success("a dog", images=[await ctx.attachments.put(PNG, name="dog.png", media_type="image/png")])

    runtime = await open_runtime(place, photo, kept)
    agent = agent_of(runtime.session("s"), [call("c1", "photo"), call("c2", "kept")])
    async with fail_after(10):
        found = outputs(await Runner.run(agent, "go", run_config=QUIET))
    text, shown, refused = found["c1"]
    assert text["text"] == "a cat"
    assert shown["image_url"].startswith("data:image/png;base64,")
    assert "image/svg+xml" in refused["text"]
    assert found["c2"][1]["image_url"] == shown["image_url"]


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
    session = runtime.session("s")
    agent = agent_of(session, [call("c1", "wait", name="a"), call("c2", "wait", name="a")])
    async with fail_after(10):
        running = asyncio.create_task(Runner.run(agent, "wait", run_config=QUIET))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await session.wait_for_idle()
        assert stopped == ["a"], "the second never ran"
        assert session.batches == ()


# --- the way back


@pytest.mark.promise("ADP-03")
async def test_function_tools_of_the_sdk_are_ours(place, open_runtime):
    @function_tool
    def greet(context: AgentToolContext[str], name: str, loudly: bool = False) -> str:
        """Greet somebody."""
        return f"{context.context} {name}{'!' if loudly else ''} ({context.tool_call_id})"

    @function_tool
    def fail() -> str:
        raise ValueError("no luck")

    @function_tool(failure_error_function=None)
    def crash() -> str:
        raise ValueError("a secret detail")

    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    @function_tool
    def show() -> list[Any]:
        from toolwright.wire.images import to_url

        return [ToolOutputText(text="a cat"), ToolOutputImage(image_url=to_url(Image.from_bytes(PNG)))]

    runtime = await open_runtime(place, *tools_from([greet, fail, crash, pay, show], "Hello"))
    session = runtime.session("s")
    calls = [
        ToolCall("greet", {"name": "Ann", "loudly": True}, "c1"),
        ToolCall("greet", {}, "c2"),
        ToolCall("fail", {}, "c3"),
        ToolCall("crash", {}, "c4"),
        ToolCall("show", {}, "c5"),
        ToolCall("pay", {}, "c6"),
    ]
    async with fail_after(10):
        batch = session.start_batch(calls)
        greeted, misfit, failed, crashed, shown, asked = await batch.quiet()
        (approval,) = await session.approvals()
        await session.approve(approval.key)
        *_, paid = await batch
    assert greeted.value == "Hello Ann! (c1)"
    assert misfit.failure.category == "invalid_arguments"
    assert failed.value.startswith("An error occurred"), "the SDK makes a text of it"
    assert "a secret detail" not in crashed.text
    assert (shown.value, [each.media_type for each in shown.images]) == ("a cat", ["image/png"])
    assert (asked.status, paid.value) == ("pending", "paid")
    with pytest.raises(ToolDefinitionError, match="not a function tool"):
        tools_from([WebSearchTool()])  # type: ignore[list-item]


@pytest.mark.promise("ADP-03")
def test_an_agent_without_async_has_a_session_of_a_blocking_runtime():
    till = Till()

    @tool(readonly=True)
    def read(at: str) -> str:  # in a thread, so that it ends while the loop of the run waits
        return at

    with Runtime.open_blocking(tools=[*till.tools, read]) as runtime:
        session = runtime.session("s")
        answers = [call("c1", "read", at="a"), call("c2", "read", at="b"), call("c3", "pay", to="ann")]
        model = ScriptedModel([answers, [assistant_message("done")]])
        recorded = RecordedModel(model, session, "run 1")
        agent = Agent("clerk", model=recorded, tools=list(function_tools(session)))

        def run(given: Any) -> Any:
            # The runner has no bound of its own, and a lost wake-up would be a wait without an end.
            return asyncio.run(asyncio.wait_for(Runner.run(agent, given, run_config=QUIET), 60))

        state = run("pay").to_state()
        (asked,) = session.approvals()
        session.approve(asked.key)
        asyncio.run(settle(session, state))
        assert outputs(run(state)) == {"c1": "a", "c2": "b", "c3": "paid ann"}
        assert len(session.kv.list("openai_agents/")) == 2
        asyncio.run(recorded.forget())
        assert session.kv.list("openai_agents/") == []
    assert till.paid == ["ann"]


async def test_a_run_in_another_thread_uses_the_session_on_its_own_loop(open_runtime):
    runtime = await open_runtime(*Till().tools)
    agent = agent_of(runtime.session("s"), [call("c1", "look", at="till")])
    async with fail_after(20):
        result = await asyncio.to_thread(lambda: asyncio.run(Runner.run(agent, "look", run_config=QUIET)))
    assert outputs(result) == {"c1": '{"seen":"till"}'}
