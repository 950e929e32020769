"""What a call of an MCP tool costs beside the same call by the SDK alone: over stdio and over HTTP, one and many.

Both sides talk to servers of the same program, in the newest revision, in one process and one loop: every sample of
ours sits between two samples of the SDK's own client.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

MANY = 100
LIMIT = 1.15
SERVER = Path(__file__).resolve().parents[2] / "tests" / "mcp" / "client" / "plain_server.py"


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in a fresh process."""
    try:
        found = run_probe("bench.sections.mcp_client", quick=quick)
    except ProbeError as error:
        lines = [Line("mcp-client", error=str(error))]
    else:
        lines = [
            Line.paired(f"{count} over {transport}, to the SDK's own", Pairing.from_json(pairing), target=LIMIT)
            for transport, pairings in found.items()
            for count, pairing in pairings.items()
        ]
    return Report("mcp-client", "calls of MCP tools, beside the bare SDK", lines)


@contextmanager
def http_server(folder: str) -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, str(SERVER), folder, "--http", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # it ends with its input
        try:
            while process.poll() is None:
                with socket.socket() as trying:
                    if trying.connect_ex(("127.0.0.1", port)) == 0:
                        break
                sleep(0.05)
            else:
                raise RuntimeError(f"The server {SERVER.name} ended with {process.returncode}")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def numbers(count: int) -> list[int]:
    return list(range(count))


def calls(count: int) -> list[Any]:
    from toolwright import ToolCall

    return [ToolCall(name="plain__add", arguments={"a": number, "b": 1}) for number in range(count)]


async def measure(effort: Effort) -> dict[str, Any]:
    """The pairings of each transport."""
    from mcp import Client, StdioServerParameters

    from toolwright import App, Policy
    from toolwright.mcp import McpServer

    policy = Policy(max_concurrency=MANY, session_concurrency=MANY, runtime_concurrency=MANY)
    found: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        url = stack.enter_context(http_server(folder))
        command = [str(SERVER), folder]
        for transport in ("stdio", "HTTP"):
            target = StdioServerParameters(command=sys.executable, args=command) if transport == "stdio" else url
            ours = (
                McpServer.stdio("plain", sys.executable, command, trusted=True)
                if transport == "stdio"
                else McpServer.http("plain", url, trusted=True)
            )
            client = await stack.enter_async_context(Client(target, cache=None))
            await client.list_tools()
            runtime = await stack.enter_async_context(App(tools=[ours], policy=policy).open())
            session = runtime.session("bench")

            async def one_bare(given: list[int], client: Any = client) -> list[Any]:
                return await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in given))

            async def one_ours(calls: list[Any], session: Any = session) -> list[Any]:
                outcomes: list[Any] = await session.run_batch(calls)
                return outcomes

            found[transport] = {}
            for count in (1, MANY):
                bare: Subject[list[int], list[Any]] = Subject(
                    count, partial(numbers, count), one_bare, lambda results: sum(not each.is_error for each in results)
                )
                through: Subject[list[Any], list[Any]] = Subject(
                    count, partial(calls, count), one_ours, lambda outcomes: sum(each.ok for each in outcomes)
                )
                pairing = await pair(bare, through, effort)
                found[transport][str(count)] = pairing.to_json()
    return found


if __name__ == "__main__":
    options = probe_parser(__doc__).parse_args()
    emit(asyncio.run(measure(effort_of(options))))
