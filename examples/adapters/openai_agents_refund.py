"""An agent of the OpenAI Agents SDK with approvals and a crash: its own tools ("before") or toolwright's ("after").

Run it twice in an empty folder, with the argument before or after: the first process dies, the second continues.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from toolwright import Runtime, tool
from toolwright.adapters.openai_agents import function_tools, settle

STATE, LEDGER = Path("state.json"), Path("ledger.txt")
CALLS = [function_call("refund", {"order": 7}, call_id="call_1"), function_call("mail", {"order": 7}, call_id="call_2")]


async def refund(order: int) -> str:
    """Pay an order back."""
    LEDGER.write_text((LEDGER.read_text() if LEDGER.exists() else "") + f"refunded {order}\n")
    return "refunded"


async def mail(order: int) -> str:
    """Tell the customer. The first process dies here."""
    if not (crashed := Path("crashed")).exists():
        crashed.touch()
        signal.raise_signal(signal.SIGKILL)
    return "sent"


async def converse(tools: Any, session: Any = None) -> None:
    set_tracing_disabled(True)
    answers = ([] if STATE.exists() else [CALLS]) + [[assistant_message("Done.")]]  # a model by script
    agent = Agent("clerk", model=ScriptedModel(answers), tools=tools)
    if not STATE.exists():
        STATE.write_text((await Runner.run(agent, "Refund order 7.")).to_state().to_string())
    state = await RunState.from_string(agent, STATE.read_text())
    for each in state.get_interruptions():  # a person says yes
        state.approve(each)
    if session is not None:
        await settle(session, state)
    print((await Runner.run(agent, state)).final_output, LEDGER.read_text())


async def main(after: bool) -> None:
    if not after:
        return await converse([function_tool(each, needs_approval=True) for each in (refund, mail)])
    tools = [tool(approval="required")(refund), tool(approval="required", idempotent=True)(mail)]
    async with Runtime.open("agent.db", tools=tools) as runtime:
        session = runtime.session("order 7")
        await converse(function_tools(session), session)


asyncio.run(main(sys.argv[1:] != ["before"]))
