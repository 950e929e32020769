"""What path claims cost: 10,000 calls on 100 paths, half of them writes, beside the same without claims.

Twice: with tools that return at once, and with tools that give way to the loop, so that calls really meet on
a path and have to wait for each other.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bench.pairing import Effort, Pairing, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

LIMIT_RATIO = 3
CALLS = 10_000
PATHS = 100

Body = Callable[..., Awaitable[dict[str, Any]]]


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure both kinds of tools in a fresh process."""
    try:
        found = run_probe("bench.sections.claims", quick=quick)
    except ProbeError as error:
        lines = [Line("claims", error=str(error))]
    else:
        lines = [Line.paired(name, Pairing.from_json(each), target=LIMIT_RATIO) for name, each in found.items()]
    return Report("claims", f"{CALLS:,} calls that claim {PATHS} paths beside the same without claims", lines)


async def at_once(path: str, number: int) -> dict[str, Any]:
    """Touch a file and return."""
    return {"path": path, "number": number}


async def giving_way(path: str, number: int) -> dict[str, Any]:
    """Touch a file, after letting others run."""
    await asyncio.sleep(0)
    return {"path": path, "number": number}


async def measure(effort: Effort) -> dict[str, Any]:
    """One pairing per kind of tool: with claims, between samples without."""
    return {
        "tools that return at once": (await compare(at_once, effort)).to_json(),
        "tools that give way": (await compare(giving_way, effort)).to_json(),
    }


async def compare(body: Body, effort: Effort) -> Pairing:
    """The same calls of the same function, with and without claims."""
    from bench.contestant import open_contestant
    from toolwright import ToolCall, tool

    tools = [
        tool(name="read_free", id="read_free", parallel=True)(body),
        tool(name="write_free", id="write_free", parallel=True)(body),
        tool(name="read_claimed", id="read_claimed", reads="path")(body),
        tool(name="write_claimed", id="write_claimed", writes="path")(body),
    ]

    def calls_of(kind: str) -> Callable[[int, int], list[ToolCall]]:
        def make_calls(size: int, start: int) -> list[ToolCall]:
            return [
                ToolCall(
                    id=f"c{number}",
                    name=f"{'write' if number % 2 else 'read'}_{kind}",
                    arguments={"path": f"/data/{path}.txt", "number": number},
                )
                for number, path in enumerate(random.Random(0).choices(range(PATHS), k=size), start)
            ]

        return make_calls

    async with open_contestant(tools) as contestant:
        free = contestant.subject(CALLS, calls_of("free"))
        claimed = contestant.subject(CALLS, calls_of("claimed"))
        return await pair(free, claimed, effort)


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
