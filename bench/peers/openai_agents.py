"""Probe: the function tools of openai-agents, invoked as its runner invokes them."""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from agents import function_tool
from agents.tool_context import ToolContext

from bench.pairing import Subject
from bench.peers.contest import SubjectOf, compete
from bench.workload import FUNCTIONS, requests


class JsonCall(NamedTuple):
    """A call with its arguments as the model wrote them."""

    id: str
    name: str
    arguments: str


async def openai_agents() -> SubjectOf:
    """Gather `on_invoke_tool` over the calls of a batch, each with the context it needs."""
    tools = {name: function_tool(function) for name, function in FUNCTIONS.items()}

    async def run(calls: Sequence[JsonCall]) -> list[Any]:
        return await asyncio.gather(*[tools[call.name].on_invoke_tool(context(call), call.arguments) for call in calls])

    def context(call: JsonCall) -> ToolContext[None]:
        return ToolContext(context=None, tool_name=call.name, tool_call_id=call.id, tool_arguments=call.arguments)

    def succeeded(results: list[Any]) -> int:
        # A failed call gives a text for the model in place of the function's own value.
        return sum(isinstance(result, dict) for result in results)

    def subject(count: int) -> Subject[Sequence[JsonCall], list[Any]]:
        calls = [JsonCall(call_id, name, json.dumps(arguments)) for call_id, name, arguments in requests(count)]
        return Subject(calls=count, prepare=lambda: calls, run=run, count=succeeded)

    return subject


if __name__ == "__main__":
    compete(openai_agents)
