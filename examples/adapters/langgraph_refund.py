"""A graph of LangGraph with approvals and a crash, with its own tool node ("before") or toolwright's ("after").

Run it twice in an empty folder, with the argument before or after: the first process dies, the second continues.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from toolwright import Runtime, tool
from toolwright.adapters.langchain import ToolwrightNode

LEDGER, CRASHED = Path("ledger.txt"), Path("crashed")
THREAD: Any = {"configurable": {"thread_id": "order 7"}}


async def refund(order: int) -> str:
    """Pay an order back."""
    LEDGER.write_text((LEDGER.read_text() if LEDGER.exists() else "") + f"refunded {order}\n")
    return "refunded"


async def mail(order: int) -> str:
    """Tell the customer."""
    if not CRASHED.exists():
        CRASHED.touch()
        signal.raise_signal(signal.SIGKILL)
    return "sent"


def answer(state: Any) -> Any:  # a model by script
    calls: Any = [{"id": f"call_{name}", "name": name, "args": {"order": 7}} for name in ("refund", "mail")]
    return {"messages": AIMessage("Done.") if len(state["messages"]) > 1 else AIMessage("", tool_calls=calls)}


async def main(after: bool) -> None:
    tools = [tool(approval="required")(refund), tool(approval="required", idempotent=True)(mail)]
    async with Runtime.open("agent.db", tools=tools) as runtime, AsyncSqliteSaver.from_conn_string("graph.db") as saver:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("model", answer)
        graph.add_node("tools", ToolwrightNode(runtime.session("order 7")) if after else ToolNode([refund, mail]))
        graph.add_edge(START, "model").add_edge("tools", "model").add_conditional_edges("model", tools_condition)
        agent = graph.compile(saver, interrupt_before=None if after else ["tools"])
        if not (await agent.aget_state(THREAD)).values:
            await agent.ainvoke({"messages": [("user", "Refund order 7.")]}, THREAD, durability="sync")
        yes: Any = Command(resume={"decisions": [{"type": "approve"}] * 2}) if after else None  # a person says yes
        state = await agent.ainvoke(yes, THREAD, durability="sync")
        print(state["messages"][-1].content, LEDGER.read_text())


asyncio.run(main(sys.argv[1:] != ["before"]))
