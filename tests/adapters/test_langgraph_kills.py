"""Agents and graphs of LangGraph whose process is killed: the next one continues from LangGraph's SQLite checkpoint."""

from collections import Counter
from typing import Any

import pytest

from toolwright.testing import CrashKit

PRELOADED = (
    "langchain.agents",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.graph",
    "langgraph.prebuilt",
    "tests.adapters.langgraph_models",
    "toolwright.adapters.langgraph_calls",
    "toolwright.app",
)

PROGRAM = """
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command
from tests.adapters.langgraph_models import Scripted, asks
from toolwright.adapters.langchain import ToolwrightMiddleware, ToolwrightNode

@tool(readonly=True)
async def look(key: str) -> str:
    return f"seen {key}"

@tool(key="key")
async def pay(key: str) -> str:
    note(f"pay {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

@tool(approval="required", on_crash=crash_policy)
async def order(key: str) -> str:
    note(f"order {key}")
    crash_point(f"ordered {key}")
    await asyncio.sleep(0)
    return f"ordered {key}"

def answer(*calls):
    # The same ids in each answer, as some servers give them.
    return asks(*((f"c{place}", name, {"key": key}) for place, (name, key) in enumerate(calls)))

ANSWERS = [
    answer(("look", "a"), ("pay", "b"), ("pay", "c")),
    answer(("order", "d"), ("pay", "e"), ("order", "f")),
    answer(("pay", "g")),
]
TOOLS = [look, pay, order]
CONFIG = {"configurable": {"thread_id": "t"}}

def made(session, saver):
    model = Scripted(answers=ANSWERS)
    if face == "middleware":
        return create_agent(model, middleware=[ToolwrightMiddleware(session)], checkpointer=saver)
    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}
    graph = StateGraph(MessagesState)
    graph.add_node("agent", ask)
    graph.add_node("tools", ToolwrightNode(session))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)

def decided(interrupts):
    if face == "middleware":
        return Command(resume={each.id: {"type": "approve"} for each in interrupts})
    (only,) = interrupts
    return Command(resume={"decisions": [{"type": "approve"}] * len(only.value["action_requests"])})

def results(values):
    found, number = {}, 0
    for message in values["messages"]:
        if message.type == "ai":
            number += 1
        elif isinstance(message, ToolMessage):
            found[f"{number} {message.tool_call_id}"] = message.content
    return found

async def main():
    async with AsyncSqliteSaver.from_conn_string("graph.db") as saver, Runtime.open(store, tools=TOOLS) as runtime:
        agent = made(runtime.session("s"), saver)
        state = await agent.aget_state(CONFIG)
        given = None if state.values else {"messages": [("user", "go")]}
        if state.interrupts:
            given = decided(state.interrupts)
        elif state.values and not state.next:
            say(["results", results(state.values)])
            return
        while True:
            values = await agent.ainvoke(given, CONFIG, durability="sync")
            say(["results", results(values)])
            interrupts = values.get("__interrupt__")
            if interrupts:
                say(["asked", len(interrupts)])
                if stops:
                    return
                given = decided(interrupts)
            elif (await agent.aget_state(CONFIG)).next:
                given = None
            else:
                return
"""
CALLS = {
    "1 c0": "look a",
    "1 c1": "pay b",
    "1 c2": "pay c",
    "2 c0": "order d",
    "2 c1": "pay e",
    "2 c2": "order f",
    "3 c0": "pay g",
}
DONE = {"look": "seen", "pay": "paid", "order": "ordered"}
KILLS = 34
FACES = pytest.mark.parametrize("face", ["middleware", "node"])


def told(said: list[Any]) -> dict[str, str]:
    """The results that a program had, which somebody may have acted on."""
    found: dict[str, str] = {}
    for word, what in said:
        if word == "results":
            found |= what
    return found


def require_continued(kit: CrashKit, acknowledged: dict[str, str], face: str) -> None:
    """The next process ends the conversation: no effect twice, and no result that was told is another one now."""
    results = told(kit.run(PROGRAM, crash_policy="fail", face=face, stops=False).said)
    assert sorted(results) == sorted(CALLS)
    assert {id: results[id] for id in acknowledged} == acknowledged
    effects = Counter(kit.ledger)
    for id, text in results.items():
        name, key = CALLS[id].split()
        if name == "look":
            continue
        assert effects[CALLS[id]] <= 1
        if text == f"{DONE[name]} {key}":
            assert effects[CALLS[id]] == 1
        else:
            assert "interrupted" in text or "cut off" in text, text


@FACES
@pytest.mark.promise("ADP-02", "ADP-05")
def test_an_agent_that_is_killed_at_any_point_continues_with_no_effect_twice(crashes, tmp_path, zygote, face):
    given: dict[str, Any] = {"crash_policy": "fail", "face": face, "stops": False}
    # How many commits there are depends on which of them happen together.
    points = [each for each in crashes.points(PROGRAM, **given) if not each[0].endswith("a commit")]
    assert Counter(crashes.ledger) == Counter(name for name in CALLS.values() if not name.startswith("look"))
    chosen = [points[number * len(points) // KILLS] for number in range(KILLS)]
    assert len(set(chosen)) == KILLS
    for number, (point, nth) in enumerate(chosen):
        (folder := tmp_path / str(number)).mkdir()
        with CrashKit(folder, zygote=zygote) as kit:
            killed = kit.kill_at(point, PROGRAM, nth=nth, **given)
            require_continued(kit, told(killed.said), face)


@FACES
@pytest.mark.promise("ADP-05")
def test_the_answer_to_an_interrupt_does_not_let_a_call_run_again_after_a_crash(crashes, face):
    """To run a call again that may have had its effect is another decision than to run it."""
    given: dict[str, Any] = {"crash_policy": "ask", "face": face}
    crashes.kill_at("ordered d", PROGRAM, stops=False, **given)
    assert crashes.ledger.count("order d") == 1
    # The next process answers the interrupt that it finds, which is that of before the crash: it is asked again.
    ended = crashes.run(PROGRAM, stops=True, **given)
    assert ended.said[-1][0] == "asked"
    assert crashes.ledger.count("order d") == 1
    results = told(crashes.run(PROGRAM, stops=False, **given).said)
    assert results["2 c0"] == "ordered d"
    assert crashes.ledger.count("order d") == 2
