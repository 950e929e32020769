"""A session as middleware of LangChain's `create_agent`, and as a node of a graph in place of ToolNode."""

import asyncio
import base64
import threading
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command

from tests.adapters.langgraph_models import Scripted, asks
from tests.support import fail_after, in_memory, until
from toolwright import Image, Pending, Runtime, ToolContext, ToolError, ToolwrightError, tool
from toolwright.adapters import langgraph_calls
from toolwright.adapters.langchain import ToolwrightMiddleware, ToolwrightNode
from toolwright.runtime import used_sessions
from toolwright.session.core import SessionCore

THREAD: Any = {"configurable": {"thread_id": "t"}}
PIXEL = base64.b64encode(b"\x89PNG pixels").decode()


def agent_of(session: Any, *answers: Any, **options: Any) -> Any:
    """An agent of `create_agent` whose model gives these answers."""
    middleware = [*options.pop("outside", ()), ToolwrightMiddleware(session)]
    model = options.pop("model", None) or Scripted(answers=list(answers))
    return create_agent(model, middleware=middleware, checkpointer=InMemorySaver(), **options)


def graph_of(session: Any, *answers: Any, **options: Any) -> Any:
    """A graph whose model gives these answers, with a node of the session."""
    node = ToolwrightNode(session)
    model = Scripted(answers=list(answers))

    async def ask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def ask_blocking(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("agent", ask_blocking if options.get("blocking") else ask)
    graph.add_node("tools", node)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=InMemorySaver())


BOTH = pytest.mark.parametrize("made", [agent_of, graph_of], ids=["middleware", "node"])
HELLO = {"messages": [("user", "hello")]}


async def said(agent: Any, given: Any = HELLO) -> dict[str, Any]:
    """The state after a run that is bounded in time."""
    async with fail_after(20):
        state: dict[str, Any] = await agent.ainvoke(given, THREAD)
    return state


def results(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def in_order(interrupts: Any) -> list[Any]:
    """By their arguments: LangGraph lists them as their tasks end, in no order."""
    return sorted(interrupts, key=lambda each: str(each.value.get("args")))


def decided(made: Any, state: dict[str, Any], *decisions: Any) -> Any:
    """The command that answers the interrupts of a state, in the form of each face."""
    interrupts = in_order(state["__interrupt__"])
    if made is graph_of:
        (only,) = interrupts
        assert len(only.value["action_requests"]) == len(decisions)
        return Command(resume={"decisions": list(decisions)})
    assert len(interrupts) == len(decisions)
    return Command(resume={each.id: decision for each, decision in zip(interrupts, decisions, strict=True)})


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    return a + b


# --- calls


@BOTH
@pytest.mark.promise("ADP-02", "ADP-05")
async def test_calls_of_one_answer_are_one_batch_in_the_order_of_the_model(place, open_runtime, made):
    ran: list[str] = []

    @tool(key="word")
    async def write(word: str, text: str) -> str:
        ran.append(text)
        await asyncio.sleep(0)
        ran.append(f"{text} written")
        return text

    runtime = await open_runtime(place, write)
    session = runtime.session("s")
    events = session.subscribe()
    answer = asks(*((f"c{n}", "write", {"word": "ab"[n % 2], "text": str(n)}) for n in range(20)))
    state = await said(made(session, answer))
    started = [event async for event in until_finished(events) if event.kind == "batch.started"]
    assert [[id for id, _ in event.calls] for event in started] == [[f"c{n}" for n in range(20)]]
    assert [message.content for message in results(state)] == [str(n) for n in range(20)]
    assert [text for text in ran if text.isdigit() and int(text) % 2] == [str(n) for n in range(1, 20, 2)]
    assert state["messages"][-1].content == "done"


async def until_finished(events: Any) -> Any:
    async with fail_after(5):
        async for event in events:
            yield event
            if event.kind == "batch.finished":
                return


@BOTH
@pytest.mark.promise("ADP-05")
async def test_failures_are_results_with_the_status_error_and_the_outcome_as_artifact(open_runtime, made):
    @tool
    async def fail() -> str:
        raise ToolError("The printer is out of paper", code="no_paper")

    runtime = await open_runtime(fail, add)
    answer = asks(("1", "fail", {}), ("2", "add", {"a": "x"}), ("3", "ad", {}), ("4", "add", {"a": 1, "b": 2}))
    found = results(await said(made(runtime.session("s"), answer)))
    assert [message.status for message in found] == ["error", "error", "error", "success"]
    assert "out of paper" in found[0].text
    assert found[0].artifact["failure"]["code"] == "no_paper"
    assert found[1].artifact["failure"]["category"] == "invalid_arguments"
    assert "'add'" in found[2].text
    assert (found[3].text, found[3].artifact["value"]) == ("3", 3)


@pytest.mark.promise("ADP-05")
async def test_a_call_whose_arguments_are_not_json_has_its_result_from_the_node(open_runtime):
    runtime = await open_runtime(add)
    broken = {"id": "1", "name": "add", "args": '{"a": 1', "error": "cut", "type": "invalid_tool_call"}
    node = ToolwrightNode(runtime.session("s"))
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    message = AIMessage(content="", invalid_tool_calls=[broken])
    state = await graph.compile().ainvoke({"messages": [message]})
    (found,) = results(state)
    assert found.status == "error"
    assert found.artifact["failure"]["category"] == "invalid_arguments"


@BOTH
@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize("reason", [{"finish_reason": "length"}, {"stop_reason": "max_tokens"}])
async def test_a_call_of_an_answer_that_was_cut_off_is_not_run(open_runtime, made, reason):
    ran = []

    @tool
    async def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    runtime = await open_runtime(delete)
    answer = asks(("1", "delete", {"path": "/da"}), response_metadata=reason)
    (found,) = results(await said(made(runtime.session("s"), answer)))
    assert found.status == "error"
    assert ran == []


@BOTH
@pytest.mark.promise("ADP-05")
async def test_two_calls_with_one_id_do_not_get_the_result_of_each_other(open_runtime, made):
    runtime = await open_runtime(add)
    answer = asks(("1", "add", {"a": 1, "b": 2}), ("1", "add", {"a": 3, "b": 4}))
    found = results(await said(made(runtime.session("s"), answer)))
    assert [message.status for message in found] == ["success", "error"]
    assert found[0].content == "3"


@BOTH
@pytest.mark.promise("ADP-05")
async def test_images_are_blocks_that_a_model_sees(place, open_runtime, made):
    @tool(readonly=True)
    async def look() -> Image:
        return Image(PIXEL)

    runtime = await open_runtime(place, look)
    (found,) = results(await said(made(runtime.session("s"), asks(("1", "look", {})))))
    assert {"type": "image", "base64": PIXEL, "mime_type": "image/png"} in found.content
    assert found.content_blocks[-1]["type"] == "image"
    assert PIXEL not in str(found.artifact)


@BOTH
@pytest.mark.promise("ADP-05")
async def test_cancelling_the_agent_cancels_its_tools(place, open_runtime, made):
    began, stopped = asyncio.Event(), []

    @tool
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    runtime = await open_runtime(place, work)
    task = asyncio.create_task(said(made(runtime.session("s"), asks(("1", "work", {})))))
    async with fail_after(10):
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await runtime.session("s").wait_for_idle()
    assert stopped == [True]


@BOTH
@pytest.mark.promise("ADP-05")
async def test_cancelling_an_agent_that_was_resumed_cancels_the_call_that_waited(place, open_runtime, made):
    began, stopped = asyncio.Event(), []

    @tool(approval="required")
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    runtime = await open_runtime(place, work)
    agent = made(runtime.session("s"), asks(("1", "work", {})))
    state = await said(agent)
    task = asyncio.create_task(said(agent, decided(made, state, {"type": "approve"})))
    async with fail_after(10):
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await runtime.session("s").wait_for_idle()
    assert stopped == [True]


@pytest.mark.promise("ADP-02")
async def test_tools_of_the_agent_itself_stay_with_it(open_runtime):
    @langchain_tool
    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    runtime = await open_runtime(add)
    model = Scripted(answers=[asks(("1", "shout", {"text": "ho"}), ("2", "add", {"a": 1, "b": 2}))])
    agent = agent_of(runtime.session("s"), model=model, tools=[shout])
    assert [message.content for message in results(await said(agent))] == ["HO", "3"]
    assert sorted(model.offered) == ["add", "shout"]


@pytest.mark.promise("ADP-05")
async def test_a_call_that_another_middleware_holds_back_is_not_run_with_its_neighbours(open_runtime):
    ran = []

    @tool
    async def write(text: str) -> str:
        ran.append(text)
        return text

    class Refuses(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            if request.tool_call["args"]["text"] == "bad":
                return ToolMessage("refused", tool_call_id=request.tool_call["id"])
            return await handler(request)

    runtime = await open_runtime(write)
    answer = asks(*((f"c{n}", "write", {"text": text}) for n, text in enumerate(["a", "bad", "b"])))
    state = await said(agent_of(runtime.session("s"), answer, outside=[Refuses()]))
    assert ran == ["a", "b"]
    assert [message.content for message in results(state)] == ["a", "refused", "b"]


@pytest.mark.promise("ADP-02")
async def test_the_model_is_offered_the_tools_that_the_session_has_now(open_runtime):
    runtime = await open_runtime(add)
    session = runtime.session("s")
    model = Scripted(answers=[])
    agent = agent_of(session, model=model)
    await said(agent)
    assert model.offered == ["add"]

    @tool(readonly=True)
    async def subtract(a: int, b: int) -> int:
        return a - b

    session.tools.push([subtract])
    model.answers = ["one", asks(("1", "subtract", {"a": 3, "b": 1}))]
    state = await said(agent)
    assert sorted(model.offered) == ["add", "subtract"]
    assert results(state)[0].content == "2"


@pytest.mark.promise("ADP-02")
async def test_with_a_runtime_each_thread_has_the_session_of_its_id(open_runtime):
    runtime = await open_runtime(add)
    agent = agent_of(runtime, asks(("1", "add", {"a": 1, "b": 2})))
    async with fail_after(10):
        for name in ("one", "two"):
            await agent.ainvoke(HELLO, {"configurable": {"thread_id": name}})
    assert sorted(record.session for record in runtime.log) == ["one", "two"]

    alone: Any = create_agent(Scripted(answers=[]), middleware=[ToolwrightMiddleware(runtime)])
    with pytest.raises(ToolwrightError, match="thread_id"):
        await alone.ainvoke(HELLO)


@pytest.mark.promise("ADP-02")
async def test_with_a_runtime_the_sessions_of_all_threads_do_not_stay_in_memory(open_runtime, file, monkeypatch):
    for module, name in ((used_sessions, "MOST_SESSIONS"), (langgraph_calls, "MOST_THREADS")):
        monkeypatch.setattr(module, name, 3)
    runtime = await open_runtime(file, add)
    agent, before = agent_of(runtime, asks(("1", "add", {"a": 1, "b": 2}))), in_memory(SessionCore)
    async with fail_after(30):
        for number in range(20):
            await agent.ainvoke(HELLO, {"configurable": {"thread_id": f"t{number}"}})
        await until(lambda: in_memory(SessionCore) - before < 10)
    assert len({record.session for record in runtime.log}) == 20


@pytest.mark.promise("ADP-05")
async def test_a_fork_from_an_earlier_checkpoint_repeats_no_effect(place, open_runtime):
    ran = []

    @tool
    async def pay(to: str) -> str:
        ran.append(to)
        return f"paid {to}"

    runtime = await open_runtime(place, pay)
    agent = agent_of(runtime.session("s"), asks(("1", "pay", {"to": "x"})))
    await said(agent)
    async with fail_after(10):
        before = [each async for each in agent.aget_state_history(THREAD) if each.next == ("tools",)][-1]
        state = await agent.ainvoke(None, before.config)
    assert [message.content for message in results(state)] == ["paid x"]
    assert results(state)[0].artifact["replayed"]
    assert ran == ["x"]


# --- calls that wait


@tool(approval="required")
async def pay(to: str) -> str:
    return f"paid {to}"


@BOTH
@pytest.mark.promise("ADP-05")
async def test_approvals_are_interrupts_with_the_answers_of_human_in_the_loop(place, open_runtime, made):
    runtime = await open_runtime(place, add, pay)
    names = {"1": "x", "2": "y", "3": "z"}
    answer = asks(("0", "add", {"a": 1, "b": 2}), *((id, "pay", {"to": to}) for id, to in names.items()))
    agent = made(runtime.session("s"), answer)
    state = await said(agent)
    asked = [each.value for each in in_order(state["__interrupt__"])]
    actions = asked[0]["action_requests"] if made is graph_of else asked
    assert [(each["name"], each["args"]) for each in actions] == [("pay", {"to": to}) for to in "xyz"]
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "w"}}}
    reject = {"type": "reject", "message": "too much"}
    state = await said(agent, decided(made, state, {"type": "approve"}, edit, reject))
    found = results(state)
    assert "__interrupt__" not in state
    assert [message.status for message in found] == ["success", "success", "success", "error"]
    assert found[1].content == "paid x"
    assert "paid w" in found[2].text
    assert "A person changed the arguments" in found[2].text
    assert "too much" in found[3].text
    assert await runtime.approvals() == []
    assert await runtime.session("s").kv.list("toolwright:langgraph/") == []


@BOTH
@pytest.mark.promise("ADP-05")
async def test_an_approval_may_be_decided_in_the_inbox_as_well(place, open_runtime, made):
    runtime = await open_runtime(place, pay)
    agent = made(runtime.session("s"), asks(("1", "pay", {"to": "x"})))
    assert "__interrupt__" in await said(agent)
    (open_one,) = await runtime.approvals()
    await runtime.approve(open_one.key, by="ada")
    state = await said(agent, None)
    (found,) = results(state)
    assert (found.content, found.artifact["decision"]["by"]) == ("paid x", "ada")
    assert state["messages"][-1].content == "done"
    assert await runtime.session("s").kv.list("toolwright:langgraph/") == []


@pytest.mark.promise("ADP-05")
async def test_decisions_keep_their_calls_when_one_was_decided_in_the_inbox_meanwhile(place, open_runtime):
    runtime = await open_runtime(place, pay)
    answer = asks(("1", "pay", {"to": "x"}), ("2", "pay", {"to": "y"}))
    agent = graph_of(runtime.session("s"), answer)
    state = await said(agent)
    first = next(each for each in await runtime.approvals() if each.call_id == "1")
    await runtime.deny(first.key, reason="in the inbox")
    state = await said(agent, decided(graph_of, state, {"type": "reject"}, {"type": "approve"}))
    found = results(state)
    assert "in the inbox" in found[0].text
    assert found[1].content == "paid y"


@BOTH
@pytest.mark.promise("ADP-05")
async def test_an_answer_that_decides_nothing_is_asked_for_again(open_runtime, made):
    runtime = await open_runtime(pay)
    agent = made(runtime.session("s"), asks(("1", "pay", {"to": "x"})))
    state = await said(agent)
    wrong = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": 5}}}
    state = await said(agent, decided(made, state, wrong))
    assert "stays open" in state["__interrupt__"][0].value["problems"][0]
    state = await said(agent, decided(made, state, "yes"))
    assert "decides nothing" in state["__interrupt__"][0].value["problems"][0]
    answer = decided(made, state, {"type": "approve"})
    if made is agent_of:  # the form of several decisions is good for one
        answer = Command(resume={"decisions": [{"type": "approve"}]})
    state = await said(agent, answer)
    assert results(state)[0].content == "paid x"


def asking(ran: list[str]) -> Any:
    """A tool whose call with the text "a" keeps its claims while it asks a person, so that others are behind it."""

    @tool
    async def send(text: str, ctx: ToolContext) -> str:
        if text == "a":
            await ctx.ask("sure", "Are you sure?", {"type": "boolean"})
        ran.append(text)
        return f"sent {text}"

    return send


@BOTH
@pytest.mark.promise("ADP-05")
async def test_calls_behind_one_that_waits_continue_with_its_answer(place, open_runtime, made):
    ran: list[str] = []
    runtime = await open_runtime(place, asking(ran))
    answer = asks(*((f"c{n}", "send", {"text": text}) for n, text in enumerate("abc")))
    agent = made(runtime.session("s"), answer)
    state = await said(agent)
    assert ran == []
    assert len(state["__interrupt__"]) == 1
    state = await said(agent, None)  # nobody answered, and it asks the same
    assert ran == []
    # One answer is enough: the others are told about nothing, and continue behind it.
    state = await said(agent, decided(made, state, {"type": "respond", "message": True}))
    assert "__interrupt__" not in state
    assert [message.content for message in results(state)] == ["sent a", "sent b", "sent c"]
    assert ran == ["a", "b", "c"]
    assert state["messages"][-1].content == "done"


@BOTH
@pytest.mark.promise("ADP-05")
async def test_a_result_that_comes_from_outside_is_an_interrupt_too(place, open_runtime, made):
    @tool
    async def order(ctx: ToolContext) -> Pending:
        ctx.completion_key()
        return Pending()

    runtime = await open_runtime(place, order)
    agent = made(runtime.session("s"), asks(("1", "order", {})))
    state = await said(agent)
    state = await said(agent, decided(made, state, {"type": "respond", "message": "It came."}))
    assert results(state)[0].content == "It came."


@BOTH
@pytest.mark.promise("ADP-05")
async def test_a_question_of_a_tool_is_an_interrupt_whose_answer_fits_its_schema(place, open_runtime, made):
    @tool
    async def book(ctx: ToolContext) -> str:
        return f"a table for {await ctx.ask('guests', 'How many guests?', {'type': 'integer'})}"

    runtime = await open_runtime(place, book)
    agent = made(runtime.session("s"), asks(("1", "book", {})))
    state = await said(agent)
    asked = state["__interrupt__"][0].value
    assert (asked["action_requests"][0] if made is graph_of else asked)["description"] == "How many guests?"
    state = await said(agent, decided(made, state, {"type": "respond", "message": "four"}))
    assert "stays open" in state["__interrupt__"][0].value["problems"][0]
    state = await said(agent, decided(made, state, {"type": "respond", "message": 4}))
    assert results(state)[0].content == "a table for 4"


@BOTH
@pytest.mark.promise("ADP-05")
async def test_a_call_behind_another_conversation_of_the_session_does_not_hang_the_graph(place, open_runtime, made):
    ran: list[str] = []
    runtime = await open_runtime(place, asking(ran))
    session = runtime.session("s")
    other = session.start_batch([{"id": "o", "name": "send", "arguments": {"text": "a"}}])
    async with fail_after(10):
        await other.quiet()
        agent = made(session, asks(("1", "send", {"text": "b"})))
        assert len((await said(agent))["__interrupt__"]) == 1
        (question,) = await session.questions()
        await session.answer(question.key, True)
        await other
        state = await said(agent, None)
    assert results(state)[0].content == "sent b"
    assert ran == ["a", "b"]


# --- without a loop


@pytest.mark.parametrize("made", [agent_of, graph_of], ids=["middleware", "node"])
@pytest.mark.promise("ADP-02", "ADP-05")
def test_invoke_works_with_a_blocking_session(made, file):
    ran = []

    @tool(approval="required")
    def pay(to: str) -> str:
        ran.append(to)
        return f"paid {to}"

    with Runtime.open_blocking(file, tools=[add, pay]) as runtime:
        answer = asks(*((f"a{n}", "add", {"a": n, "b": 1}) for n in range(12)), ("p", "pay", {"to": "x"}))
        agent = made(runtime.session("s"), answer, **({"blocking": True} if made is graph_of else {}))
        state = agent.invoke(HELLO, THREAD)
        assert len(state["__interrupt__"]) == 1
        state = agent.invoke(decided(made, state, {"type": "approve"}), THREAD)
        assert [message.content for message in results(state)] == [*map(str, range(1, 13)), "paid x"]
        assert ran == ["x"]


@pytest.mark.promise("ADP-02")
async def test_invoke_from_a_thread_and_ainvoke_from_another_loop_reach_the_loop_of_the_session(open_runtime):
    runtime = await open_runtime(add)
    async with fail_after(20):
        agent = agent_of(runtime.session("s"), asks(("1", "add", {"a": 1, "b": 2})))
        state = await asyncio.to_thread(agent.invoke, HELLO, THREAD)
        assert results(state)[0].content == "3"
        elsewhere = agent_of(runtime.session("t"), asks(("1", "add", {"a": 1, "b": 2})))
        state = await asyncio.to_thread(lambda: asyncio.run(elsewhere.ainvoke(HELLO, THREAD)))
        assert results(state)[0].content == "3"


@pytest.mark.promise("ADP-02")
async def test_invoke_on_the_loop_of_the_session_says_what_to_use(open_runtime):
    runtime = await open_runtime(add)
    agent = agent_of(runtime.session("s"), asks(("1", "add", {"a": 1, "b": 2})))
    with pytest.raises(ToolwrightError, match="ainvoke"):
        agent.invoke(HELLO, THREAD)


@pytest.mark.promise("ADP-02")
def test_a_closed_runtime_is_said_in_any_thread(file):
    with Runtime.open_blocking(file, tools=[add]) as runtime:
        agent = agent_of(runtime.session("s"), asks(("1", "add", {"a": 1, "b": 2})))
    with pytest.raises(ToolwrightError, match="closed"):
        agent.invoke(HELLO, THREAD)
    assert threading.current_thread() is threading.main_thread()
