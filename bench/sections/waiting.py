"""What it costs to wait: memory for each call that is pending, and whether one is resolved as fast among many.

The calls wait in a file, each with a deadline. Their keys are kept as the outside world would keep them, elsewhere:
they are not counted. Memory is what the system gave the process.
"""

import asyncio
import gc
import resource
import statistics
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from bench.disk import new_file
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target

MANY, FEW = 100_000, 100
RESOLVED = 50
LIMIT_KIB = 1.5
LIMIT_RATIO = 1.5


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Let calls wait in a fresh process."""
    try:
        found = run_probe("bench.sections.waiting", quick=quick)
    except ProbeError as error:
        lines = [Line("waiting", error=str(error))]
    else:
        limit = Target("value", LIMIT_KIB, " KiB", strict=True)
        ratio = found["resolving_many"] / found["resolving_few"]
        lines = [
            Line(f"{MANY:,} pending calls", found["bytes"] / 1024, "KiB/call", target=limit, detail=found),
            Line(f"resolving one of {FEW}", found["resolving_few"], "µs"),
            Line(f"resolving one of {MANY:,}", found["resolving_many"], "µs"),
            Line("… to one of few", ratio, "x", target=Target("value", LIMIT_RATIO, "x")),
        ]
    return Report("waiting", "calls that wait to be completed from outside, on a file", lines)


async def measure() -> dict[str, Any]:
    """Memory of the many, and the time to resolve some among few and among many."""
    from toolwright import Pending, Runtime, ToolCall, ToolContext, tool

    keys: list[str] = []

    @tool(parallel=True)
    async def book(ctx: ToolContext, number: int) -> Pending:
        keys.append(ctx.completion_key())
        return Pending(deadline=3600)

    with new_file() as file:
        async with Runtime.open(file, tools=[book], sync="normal") as runtime:

            async def wait(name: str, count: int) -> None:
                session = runtime.session(name)
                with session.subscribe(limit=10 * count) as events:
                    session.start_batch(
                        [ToolCall(id=f"{name}{n}", name="book", arguments={"number": n}) for n in range(count)]
                    )
                    async for event in events:
                        if event.kind == "call.waiting":
                            count -= 1
                            if count == 0:
                                return

            async def resolving() -> float:
                times = []
                for key in keys[:RESOLVED]:
                    start = perf_counter()
                    await runtime.resolve(key, "done")
                    times.append((perf_counter() - start) * 1e6)
                return statistics.median(times)

            await wait("few", FEW)
            few = await resolving()
            keys.clear()
            before = resident()
            await wait("many", MANY)
            held = sum(map(len, keys))
            grown = resident() - before - held
            return {"bytes": grown / MANY, "resolving_few": few, "resolving_many": await resolving()}


def resident() -> int:
    """Bytes that the system gave this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    effort_of(probe_parser(__doc__).parse_args())
    emit(asyncio.run(measure()))
