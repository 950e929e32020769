"""Starts MCP servers quickly: a process that has imported everything, and forks one for each line on stdin.

A line is the folder of the store. The server prints its pid and its address, then each effect of its tools, and serves
over HTTP until it is killed.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from toolwright import App, Policy, ToolContext, mcp, tool
from toolwright.mcp.serve import serve_http
from toolwright.mcp.server_sessions import open_served


def tell(what: object) -> None:
    """Print a line, whole also where several threads print."""
    os.write(1, json.dumps(what).encode() + b"\n")


def effect(line: str) -> None:
    """Have an effect that survives a kill, and tell the test of it."""
    with Path("effects.txt").open("a") as file:
        file.write(f"{line}\n")
    tell(line)


@tool
async def pay(order: str) -> str:
    """Pay an order, once."""
    await asyncio.sleep(0)
    effect(order)
    await asyncio.sleep(0.002)
    return f"paid {order}"


@tool(supports_background=True, on_crash="rerun")
async def build(ctx: ToolContext, name: str) -> str:
    """Build something in steps, each at most once."""
    for number in range(4):
        await ctx.step(f"step {number}", effect, f"{name} step {number}", on_crash="fail")
        await ctx.progress(number + 1, 4)
    return f"built {name}"


async def serve(folder: str) -> None:
    """Serve the tools over the store of a folder."""
    runtime = await open_served(
        App(tools=[pay, build], policy=Policy(on_background_limit="queue")), Path(folder) / "mcp.db"
    )

    def started(url: str) -> None:
        tell([os.getpid(), url])

    await serve_http(mcp.server(runtime), "127.0.0.1:0", started)


def main() -> None:
    """Fork a server for each line."""
    for line in sys.stdin:
        if os.fork() == 0:
            os.chdir(line.strip())
            try:
                asyncio.run(serve(line.strip()))
            finally:
                os._exit(1)


if __name__ == "__main__":
    main()
