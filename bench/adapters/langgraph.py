"""Probe: LangGraph with its own tool execution, beside the same graph or agent with the tools of a session.

In memory: a node beside `ToolNode`, and an agent of `create_agent` beside one with middleware. Durable: an agent with
LangGraph's SQLite checkpointer, where each call is a task whose result is stored before the answer is complete, beside
a graph whose node runs the same calls in a session with a store.
"""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["LANGSMITH_TRACING"] = "false"

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from bench.adapters.measure import TOOLS
from bench.disk import new_file
from bench.pairing import Effort, Subject, pair
from bench.probe import effort_of, emit, probe_parser
from bench.workload import FUNCTIONS, PARALLEL_CALLS, requests
from toolwright import Runtime
from toolwright.adapters.langchain import ToolwrightMiddleware, ToolwrightNode

SIZE = PARALLEL_CALLS
CALLS = [{"id": id, "name": name, "args": given, "type": "tool_call"} for id, name, given in requests(SIZE)]
THEIRS = [langchain_tool(function) for function in FUNCTIONS.values()]
State = dict[str, Any]


def answer() -> AIMessage:
    """The same calls in an answer of its own, so that none was seen before."""
    return AIMessage(content="", id=uuid.uuid4().hex, tool_calls=CALLS)


class OneAnswer(BaseChatModel):  # type: ignore[misc]
    """A chat model that calls all tools once, and then ends."""

    @property
    def _llm_type(self) -> str:
        return "one-answer"

    def bind_tools(self, tools: Any, **options: Any) -> "OneAnswer":
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **options: Any) -> ChatResult:
        message = AIMessage("done") if isinstance(messages[-1], ToolMessage) else answer()
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *given: Any, **options: Any) -> ChatResult:
        return self._generate(messages)


def subject(run: Callable[[State], Awaitable[State]], prepare: Callable[[], State]) -> Subject[State, State]:
    """The calls through one graph; the results that succeeded are counted."""

    def count(state: State) -> int:
        return sum(isinstance(each, ToolMessage) and each.status == "success" for each in state["messages"])

    return Subject(calls=SIZE, prepare=prepare, run=run, count=count)


def through_node(node: Any) -> Subject[State, State]:
    """A graph of one node."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return subject(graph.compile().ainvoke, lambda: {"messages": [answer()]})


def through_agent(saver: AsyncSqliteSaver | None = None, **parts: Any) -> Subject[State, State]:
    """An agent of `create_agent`; with a checkpointer, each run is a thread of its own."""
    agent: Any = create_agent(OneAnswer(), checkpointer=saver, **parts)

    async def run(state: State) -> State:
        if saver is None:
            found: State = await agent.ainvoke(state)
            return found
        thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
        found = await agent.ainvoke(state, thread, durability="sync")
        return found

    return subject(run, lambda: {"messages": [("user", "go")]})


async def measure(effort: Effort) -> dict[str, Any]:
    """Each pairing by its name: theirs is the base."""
    found = {}
    async with Runtime.open(tools=TOOLS) as runtime:
        node = through_node(ToolwrightNode(runtime.session("node")))
        found["node"] = (await pair(through_node(ToolNode(THEIRS)), node, effort)).to_json()
        agent = through_agent(middleware=[ToolwrightMiddleware(runtime.session("agent"))])
        found["middleware"] = (await pair(through_agent(tools=THEIRS), agent, effort)).to_json()
    with new_file() as checkpoints, new_file() as store:
        saving = AsyncSqliteSaver.from_conn_string(str(checkpoints))
        async with saving as saver, Runtime.open(store, tools=TOOLS, sync="full") as runtime:
            node = through_node(ToolwrightNode(runtime.session("s")))
            found["durable"] = (await pair(node, through_agent(saver, tools=THEIRS), effort)).to_json()
    return found


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
