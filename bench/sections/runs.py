"""What background runs cost: to start one, to claim one among very many, and to keep a thousand of them running.

Starting is held against one durable call. The thousand run in one worker on a clock that the benchmark moves, each
with progress every tenth of a second; one more prints far more than anybody could read.
"""

import asyncio
import statistics
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from bench.disk import new_file
from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.waiting import resident

LIMIT_START = 3
LIMIT_CLAIM = 2
LIMIT_KIB = 100
LIMIT_COMMITS = 20
FEW, MANY = 100, 100_000
CLAIMED = 10
RUNS = 1_000
SECONDS = 3
CHUNKS = 100_000


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure all of it in a fresh process."""
    try:
        found = run_probe("bench.sections.runs", quick=quick)
    except ProbeError as error:
        return Report("runs", "background runs", [Line("runs", error=str(error))])
    start, claim = (Pairing.from_json(found[name]) for name in ("start", "claim"))
    kib, commits = found["bytes"] / 1024, found["commits"]
    lines = [
        Line.paired("starting a run beside a durable call", start, target=LIMIT_START, unit="µs"),
        Line.paired(f"claiming {CLAIMED} of {MANY:,} beside {FEW}", claim, target=LIMIT_CLAIM, unit="µs"),
        Line(f"{RUNS:,} at once", kib, "KiB/run", target=Target("value", LIMIT_KIB, " KiB", strict=True)),
        Line("… that completed", found["completed"], "runs", target=Target("value", RUNS, at_least=True)),
        Line(
            f"a run that prints {CHUNKS:,} times a second", commits, "commits/s", target=Target("value", LIMIT_COMMITS)
        ),
    ]
    return Report("runs", "background runs, on a file", lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """One figure per question."""
    return {
        "start": (await starting(effort)).to_json(),
        "claim": (await claiming(effort)).to_json(),
        **await running(),
    }


async def starting(effort: Effort) -> Pairing:
    """Start a run, beside a call of the same tool."""
    from toolwright import Policy, Runtime, ToolCall, tool

    @tool(parallel=True, readonly=True, supports_background=True)
    async def echo(message: str) -> str:
        return message

    policy = Policy(on_background_limit="queue")
    with new_file() as file:
        async with Runtime.open(file, tools=[echo], policy=policy, worker=False) as runtime:
            session, numbers = runtime.session("s"), iter(range(10**9))

            async def call(_: None) -> int:
                call = ToolCall(id=f"c{next(numbers)}", name="echo", arguments={"message": "x"})
                return sum(outcome.ok for outcome in await session.run_batch([call]))

            async def spawn(_: None) -> int:
                return int((await session.spawn("echo", {"message": "x"})).status == "queued")

            durable = replace(effort, variant_seconds=0.05, baseline_seconds=0.05)
            return await pair(Subject(1, lambda: None, call, int), Subject(1, lambda: None, spawn, int), durable)


async def claiming(effort: Effort) -> Pairing:
    """Claim some of many, beside some of few; the quickest of a few claims, for they are short."""
    from toolwright.stores.contracts.background_run import Options, Registration
    from toolwright.stores.contracts.run_store import Limits
    from toolwright.stores.sqlite.store import SqliteStore

    limits = Limits(queue=True)
    with new_file() as few, new_file() as many:
        stores = {FEW: SqliteStore(few, sync="normal"), MANY: SqliteStore(many, sync="normal")}
        try:
            for count, store in stores.items():
                for start in range(0, count, 1_000):
                    await store.services.runs.register(
                        [
                            Registration(
                                id=f"p{number}",
                                session=f"s{number // limits.per_session}",
                                tool="echo",
                                arguments=b"{}",
                                title="echo",
                                options=Options(),
                                at=float(number),
                            )
                            for number in range(start, min(count, start + 1_000))
                        ],
                        limits,
                        None,
                    )

            async def time(count: int) -> float:
                runs = stores[count].services.runs
                times = []
                for _ in range(5):
                    started = perf_counter()
                    claimed = await runs.claim("w", ["echo"], 1.0, 2.0, CLAIMED)
                    times.append(perf_counter() - started)
                    assert len(claimed) == CLAIMED
                    await runs.hand_back("w", [(each.run.id, each.run.token) for each in claimed], 1.0)
                return min(times) * 1e6

            return Pairing.of([(await time(FEW), await time(MANY), await time(FEW)) for _ in range(effort.pairs)])
        finally:
            for store in stores.values():
                await store.close()


async def running() -> dict[str, Any]:
    """A thousand runs for some seconds, and one that never stops printing."""
    from toolwright import Policy, Runtime, ToolContext, tool
    from toolwright.testing import FakeClock

    clock = FakeClock()

    @tool(parallel=True, supports_background=True)
    async def watch(ctx: ToolContext) -> int:
        for tenth in range(10 * SECONDS):
            await ctx.progress(tenth, total=10 * SECONDS)
            await clock.sleep(0.1)
        return 1

    @tool(parallel=True, supports_background=True)
    async def flood(ctx: ToolContext) -> int:
        for _ in range(100 * SECONDS):
            for number in range(CHUNKS // 100):
                await ctx.output("stdout", f"line {number}\n")
            await clock.sleep(0.01)
        return 1

    policy = Policy(background_per_session=RUNS + 1, background_per_worker=RUNS + 1)
    with new_file() as file:
        async with Runtime.open(
            file, tools=[watch, flood], policy=policy, clock=clock, sync="normal", worker=True
        ) as runtime:
            session = runtime.session("s")

            async def pass_time(seconds: float, step: float) -> None:
                for _ in range(round(seconds / step)):
                    await clock.advance(step)
                    for _ in range(3):  # what was written before is written when this comes back
                        await session.kv.set("tick", 1)

            before = resident()
            runs = [await session.spawn("watch") for _ in range(RUNS)]
            await pass_time(1, 0.1)
            grown = resident() - before
            await pass_time(SECONDS + 3, 0.1)
            waits = [asyncio.ensure_future(run.wait(10)) for run in runs]
            await pass_time(1, 0.1)
            completed = sum(outcome.ok for outcome in await asyncio.gather(*waits))

            run = await session.spawn("flood")
            commits: list[int] = []
            await pass_time(0.5, 0.05)
            for _ in range(SECONDS - 1):
                began = runtime._parts.storage.store.commits  # type: ignore[union-attr]
                for _ in range(100):
                    await clock.advance(0.01)
                    await asyncio.sleep(0)
                await session.runs()
                commits.append(runtime._parts.storage.store.commits - began)  # type: ignore[union-attr]
            await run.cancel()
            return {"bytes": grown / RUNS, "completed": completed, "commits": statistics.median(commits)}


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
