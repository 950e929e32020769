"""An agent of pydantic-ai with approvals and a crash, with its own tools ("before") or toolwright's ("after").

Run it twice in an empty folder, with the argument before or after: the first process dies, the second continues.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from toolwright import Runtime, tool
from toolwright.adapters.pydantic_ai import ToolwrightToolset

HISTORY, LEDGER, CRASHED = Path("history.json"), Path("ledger.txt"), Path("crashed")
OUTPUT, YES = [str, DeferredToolRequests], DeferredToolResults(approvals={"call_1": True, "call_2": True})


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


def answer(messages: Any, info: Any) -> ModelResponse:  # a model by script
    calls = [ToolCallPart("refund", {"order": 7}, "call_1"), ToolCallPart("mail", {"order": 7}, "call_2")]
    return ModelResponse([TextPart("Done.")] if len(messages) > 1 else calls)


async def converse(agent: Any) -> None:
    if not HISTORY.exists():
        HISTORY.write_bytes((await agent.run("Refund order 7.")).all_messages_json())
    saved = ModelMessagesTypeAdapter.validate_json(HISTORY.read_bytes())
    print((await agent.run(message_history=saved, deferred_tool_results=YES)).output, LEDGER.read_text())


async def main(after: bool) -> None:
    if not after:
        own = [Tool(each, requires_approval=True) for each in (refund, mail)]
        return await converse(Agent(FunctionModel(answer), tools=own, output_type=OUTPUT))
    tools = [tool(approval="required")(refund), tool(approval="required", idempotent=True)(mail)]
    async with Runtime.open("agent.db", tools=tools) as runtime:
        ours: Any = ToolwrightToolset(runtime.session("order 7"))
        await converse(Agent(FunctionModel(answer), toolsets=[ours], output_type=OUTPUT))


asyncio.run(main(sys.argv[1:] != ["before"]))
