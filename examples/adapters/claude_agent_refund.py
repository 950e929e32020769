"""An agent of the Claude Agent SDK with approvals and a crash, with its own tools ("before") or toolwright's ("after").

Run it twice in an empty folder, with the argument before or after: the first process dies, the second continues.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import claude_agent_sdk as claude
from scripted_claude import ScriptedClaude  # type: ignore[import-not-found]  # the file beside this one

from toolwright import Runtime, tool
from toolwright.adapters.claude_agent import can_use_tool, sdk_server

LEDGER, CRASHED = Path("ledger.txt"), Path("crashed")
USES = ("toolu_1", "refund", {"order": 7}), ("toolu_2", "mail", {"order": 7})


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


def own(function: Any) -> Any:
    async def run(args: Any) -> Any:
        return {"content": [{"type": "text", "text": await function(**args)}]}

    return claude.tool(function.__name__, function.__doc__, {"order": int})(run)


async def approve(*asked: Any) -> Any:
    return claude.PermissionResultAllow()  # a person says yes


async def main(after: bool) -> None:
    tools = [tool(approval="required")(refund), tool(approval="required", idempotent=True)(mail)]
    async with Runtime.open("agent.db", tools=tools) as runtime:
        session = runtime.session("order 7")
        theirs = approve, claude.create_sdk_mcp_server("own", tools=[own(refund), own(mail)])
        ask, server = (can_use_tool(session, approve), sdk_server(session)) if after else theirs
        options = claude.ClaudeAgentOptions(can_use_tool=ask, mcp_servers={"toolwright": server})
        async with claude.ClaudeSDKClient(options, ScriptedClaude(*USES)) as client:
            await client.query("Refund order 7.")
            print([getattr(each, "result", None) async for each in client.receive_response()][-1], LEDGER.read_text())


asyncio.run(main(sys.argv[1:] != ["before"]))
