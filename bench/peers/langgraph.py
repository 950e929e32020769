"""Probe: LangGraph's ToolNode, run on its own, outside a graph."""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["LANGSMITH_TRACING"] = "false"

from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime

from bench.pairing import Subject
from bench.peers.contest import SubjectOf, compete
from bench.workload import FUNCTIONS, requests


async def langgraph() -> SubjectOf:
    """Give a batch to `ToolNode.ainvoke` as the tool calls of one message."""
    node = ToolNode([tool(function) for function in FUNCTIONS.values()])
    config: Any = {"configurable": {"__pregel_runtime": Runtime()}}

    async def run(message: AIMessage) -> list[Any]:
        state = await node.ainvoke({"messages": [message]}, config)
        messages: list[Any] = state["messages"]
        return messages

    def succeeded(messages: list[Any]) -> int:
        return sum(message.status == "success" for message in messages)

    def subject(count: int) -> Subject[AIMessage, list[Any]]:
        message = AIMessage(
            content="",
            tool_calls=[
                {"id": call_id, "name": name, "args": arguments, "type": "tool_call"}
                for call_id, name, arguments in requests(count)
            ],
        )
        return Subject(calls=count, prepare=lambda: message, run=run, count=succeeded)

    return subject


if __name__ == "__main__":
    compete(langgraph)
