"""Clients that others wrote, asked for the same: run by the interpreter of an environment with mcp 1.x and smolagents.

    python old_client.py sdk|smolagents PYTHON SERVER...

It prints what the client got, as JSON.
"""

import asyncio
import json
import sys


async def by_sdk(command: str, arguments: list[str]) -> dict[str, object]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.types import ElicitResult

    async def approve(context: object, params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": True})

    progress: list[float] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    started = StdioServerParameters(command=command, args=arguments)
    async with (
        stdio_client(started) as (read, write),
        ClientSession(read, write, elicitation_callback=approve) as session,
    ):
        opened = await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        added = await session.call_tool("add", {"a": 1, "b": 2})
        launched = await session.call_tool("launch", {"rocket": "x"})
        await session.call_tool("count", {"to": 3}, progress_callback=note)
        refused = await session.call_tool("refuse", {})
        return {
            "revision": opened.protocolVersion,
            "tools": tools,
            "added": added.structuredContent,
            "launched": launched.content[0].text,
            "progress": progress,
            "refused": refused.isError,
        }


def by_smolagents(command: str, arguments: list[str]) -> dict[str, object]:
    from mcp import StdioServerParameters
    from smolagents import ToolCollection

    started = StdioServerParameters(command=command, args=arguments)
    with ToolCollection.from_mcp(started, trust_remote_code=True, structured_output=False) as collection:
        tools = {tool.name: tool for tool in collection.tools}
        return {"tools": sorted(tools), "charged": tools["charge"](order="o1")}


if __name__ == "__main__":
    kind, command, *arguments = sys.argv[1:]
    got = asyncio.run(by_sdk(command, arguments)) if kind == "sdk" else by_smolagents(command, arguments)
    print(json.dumps(got))
