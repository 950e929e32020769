"""Probe: the server of the MCP SDK, called directly, with no client or transport between."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver import MCPServer

from bench.pairing import Subject
from bench.peers.contest import SubjectOf, compete
from bench.workload import FUNCTIONS, Request, requests


async def mcp() -> SubjectOf:
    """Gather `MCPServer.call_tool` over the calls of a batch."""
    logging.disable(logging.INFO)
    server = MCPServer("bench")
    for function in FUNCTIONS.values():
        server.tool()(function)

    async def run(calls: Sequence[Request]) -> list[Any]:
        return await asyncio.gather(*[server.call_tool(name, arguments) for _, name, arguments in calls])

    def subject(count: int) -> Subject[Sequence[Request], list[Any]]:
        calls = requests(count)
        return Subject(calls=count, prepare=lambda: calls, run=run, count=len)

    return subject


if __name__ == "__main__":
    compete(mcp)
