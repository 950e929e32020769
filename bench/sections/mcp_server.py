"""What serving costs: a call by an MCP client beside the SDK's low-level server with the same function, and the memory
of open tasks.

Both servers are asked by the SDK's client in the same process, at both revisions. Each part is measured in a process of
its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.waiting import resident

LIMIT_RATIO = 1.3
LIMIT_TASK_KIB = 50
TASKS = 500
CALLS = 10
MODES = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure each part in a fresh process; one that fails takes no other with it."""
    lines: list[Line] = []
    for part, to_lines in PARTS.items():
        try:
            lines += to_lines(run_probe("bench.sections.mcp_server", part, quick=quick))
        except ProbeError as error:
            lines.append(Line(part, error=str(error)))
    return Report("mcp-server", "calls by the SDK's client, beside the SDK's low-level server, in memory", lines)


def time_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    for revision in MODES:
        yield Line.paired(f"a call at {revision}", Pairing.from_json(found[revision]), target=LIMIT_RATIO)


def task_lines(found: Mapping[str, float]) -> Iterator[Line]:
    target = Target("value", LIMIT_TASK_KIB, " KiB/task", strict=True)
    yield Line(f"{TASKS} open tasks with progress", found["kib"], "KiB/task", target=target)


async def times(effort: Effort) -> dict[str, Any]:
    """A call of our server beside one of the SDK's."""
    # Here, so that the sections load where neither library is.
    import mcp_types as types
    from mcp import Client
    from mcp.server.lowlevel.server import Server

    from toolwright import App, tool
    from toolwright.mcp import server
    from toolwright.wire.mcp import write_tools

    @tool(readonly=True)
    async def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"total": a + b}

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": write_tools([add])})

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        total = given["a"] + given["b"]
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f'{{"total":{total}}}')], structured_content={"total": total}
        )

    def subject(client: Client) -> Subject[None, list[Any]]:
        async def run(_: None) -> list[Any]:
            return [await client.call_tool("add", {"a": 1, "b": number}) for number in range(CALLS)]

        def count(results: list[Any]) -> int:
            return sum(result.structured_content == {"total": 1 + n} for n, result in enumerate(results))

        return Subject(CALLS, lambda: None, run, count)

    found: dict[str, Any] = {}
    for revision, mode in MODES.items():
        async with AsyncExitStack() as stack:
            theirs = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)
            baseline = await stack.enter_async_context(Client(theirs, mode=mode))
            ours = await stack.enter_async_context(Client(server(App(tools=[add])), mode=mode))
            found[revision] = (await pair(subject(baseline), subject(ours), effort)).to_json()
    return found


async def tasks() -> dict[str, float]:
    """The memory of open tasks, each of which has reported its progress."""
    import mcp_types as types
    from mcp import Client

    from toolwright import App, Policy, ToolContext, tool
    from toolwright.mcp import server
    from toolwright.mcp.server_request import TASKS as EXTENSION

    begun = asyncio.Queue[str]()

    @tool(supports_background=True, readonly=True)
    async def work(ctx: ToolContext, name: str) -> str:
        """Report progress, and work on."""
        for step in range(10):
            await ctx.progress(step, 100, label=f"step {step} of {name}")
        begun.put_nowait(name)
        await asyncio.Event().wait()
        return name

    envelope = {
        types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
        types.CLIENT_CAPABILITIES_META_KEY: {"extensions": {EXTENSION: {}}},
    }
    many = 2 * TASKS
    policy = Policy(background_per_session=many, background_per_worker=many, runtime_concurrency=many)
    async with Client(server(App(tools=[work], policy=policy)), mode="2026-07-28") as client:

        async def start(first: int, count: int) -> list[str]:
            started = []
            for number in range(first, first + count):
                params = {"name": "work", "arguments": {"name": f"part {number}"}, "_meta": envelope}
                started.append((await client.session._dispatcher.send_raw_request("tools/call", params))["taskId"])
                await begun.get()
            return started

        await start(0, 20)
        before = resident()
        for task in await start(20, TASKS):
            params = {"taskId": task, "_meta": envelope}
            state = await client.session._dispatcher.send_raw_request("tasks/get", params)
            assert state["status"] == "working", state
        return {"kib": (resident() - before) / TASKS / 1024}


PARTS: dict[str, Callable[[Any], Iterator[Line]]] = {"times": time_lines, "tasks": task_lines}


def main() -> None:
    """Measure one part, and print it."""
    parser = probe_parser(__doc__)
    parser.add_argument("part", choices=[*PARTS])
    given = parser.parse_args()
    effort = effort_of(given)
    parts: dict[str, Callable[[], Awaitable[Any]]] = {"times": lambda: times(effort), "tasks": tasks}

    async def measure() -> None:
        emit(await parts[given.part]())

    asyncio.run(measure())


if __name__ == "__main__":
    main()
