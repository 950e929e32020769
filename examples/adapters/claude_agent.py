"""The same Claude agent before and after: a payment that a person approves, and a crash right after it.

    python claude_agent.py before FOLDER    # run it twice: the first run is killed, the second continues
    python claude_agent.py after FOLDER

A script stands in for Claude Code: it makes the tool use without a result again, with its id.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow, create_sdk_mcp_server
from claude_agent_sdk import tool as claude_tool
from scripted_claude import ScriptedClaude  # type: ignore[import-not-found]  # the file beside this one

from toolwright import Runtime, tool
from toolwright.adapters.claude_agent import can_use_tool, sdk_server

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
PAID = FOLDER / "paid.txt"


async def pay(to: str, amount: int) -> str:
    """Pay an amount to someone."""
    first = not PAID.exists()
    with PAID.open("a") as file:
        file.write(f"{amount} to {to}\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)  # the machine loses power, just now
    return "paid"


@claude_tool("pay", "Pay an amount to someone.", {"to": str, "amount": int})
async def claude_pay(args: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": await pay(**args)}]}


async def approve(*asked: Any) -> PermissionResultAllow:
    return PermissionResultAllow()  # a person says yes


async def main() -> None:
    async with Runtime.open(FOLDER / "agent.db", tools=[tool(pay, approval="required")]) as runtime:
        session, script = runtime.session("s"), ScriptedClaude(("toolu_1", "pay", {"to": "Ada", "amount": 10}))
        server = sdk_server(session) if MODE == "after" else create_sdk_mcp_server("toolwright", tools=[claude_pay])
        ask = can_use_tool(session, approve) if MODE == "after" else approve
        options = ClaudeAgentOptions(mcp_servers={"toolwright": server}, can_use_tool=ask)
        async with ClaudeSDKClient(options, script) as client:
            await client.query("Pay Ada 10.")
            _ = [message async for message in client.receive_response()]
        print(f"{script.results[0]}\npaid {PAID.read_text().count('Ada')} x")


asyncio.run(main())
