"""Whether a call stays as cheap, in time and in memory, when ten thousand of them come in one batch."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from bench import memory
from bench.memory import Gauge, Runner, growth_per_call
from bench.pairing import AnySubject, Effort, Pairing, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.workload import bare_gather

LIMIT_RATIO = 1.2
LIMIT_KIB = 4
SMALL_BATCH = 100
LARGE_BATCH = 10_000


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Compare a call of a large batch with one of a small batch, and divide memory by calls."""
    lines = [*time_lines(quick), *memory_lines(quick)]
    return Report("scaling", f"one batch of {LARGE_BATCH:,} calls beside batches of {SMALL_BATCH}", lines)


def time_lines(quick: bool) -> Iterator[Line]:
    """Time per call, with the bare gather's own growth for context."""
    try:
        found = run_probe("bench.sections.scaling", quick=quick)
    except ProbeError as error:
        yield Line("time", error=str(error))
        return
    yield Line.paired("toolwright, time", Pairing.from_json(found["toolwright"]), target=LIMIT_RATIO)
    yield Line.paired("bare gather, time", Pairing.from_json(found["gather"]))


def memory_lines(quick: bool) -> Iterator[Line]:
    """Memory per call beyond arguments and results; `bench.memory` says how."""
    for runner in get_args(Runner):
        for gauge in get_args(Gauge):
            name = f"{runner.replace('gather', 'bare gather')}, {gauge} memory"
            target = Target("value", LIMIT_KIB, " KiB", strict=True) if runner == "toolwright" else None
            repeats = 1 if quick or gauge == "traced" else 3
            detail = {"samples": repeats, "calls": [memory.SMALL_BATCH, memory.LARGE_BATCH]}
            try:
                grown = growth_per_call(runner, gauge, repeats)
            except ProbeError as error:
                yield Line(name, error=str(error))
                continue
            for moment, size in grown.items():
                yield Line(f"{name}, {moment}", size / 1024, "KiB/call", target=target, detail=detail)


async def measure(effort: Effort) -> dict[str, Any]:
    """Large batches between small ones, for toolwright and for a bare gather."""
    from bench.contestant import open_contestant

    # As long as the large batch between them, to see the same weather.
    effort = replace(effort, baseline_seconds=0.1)

    async def compare(small: AnySubject, large: AnySubject) -> dict[str, Any]:
        return (await pair(small, large, effort)).to_json()

    async with open_contestant() as contestant:
        ours = await compare(contestant.subject(SMALL_BATCH), contestant.subject(LARGE_BATCH))
    return {"toolwright": ours, "gather": await compare(bare_gather(SMALL_BATCH), bare_gather(LARGE_BATCH))}


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
