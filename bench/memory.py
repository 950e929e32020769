"""Probe: the memory one batch takes at its peak, and what of it stays while the outcomes are held.

The calls are made before the gauge is set, so their arguments are in no figure. Then the batch runs, its
events are taken, and its outcomes are kept. The results are subtracted at the least they can take: the length
of their JSON.

There are two gauges, each in a process of its own because one disturbs the other. `traced` is what Python's
allocator handed out: exact, but blind to memory that compiled libraries take for themselves. `resident` is
what the system gave the process: it sees everything, in whole pages and with the allocator's reserves.

A batch also has fixed costs. `growth_per_call` therefore measures two sizes and divides the difference.
"""

import asyncio
import gc
import json
import os
import resource
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from bench.pairing import AnySubject
from bench.probe import emit, probe_parser, run_probe
from bench.workload import bare_gather

Gauge = Literal["traced", "resident"]
Runner = Literal["toolwright", "gather"]

SMALL_BATCH = 1_000
LARGE_BATCH = 11_000
WARM_UP = 100


class Memory(NamedTuple):
    """Bytes at the peak and now."""

    peak: int
    now: int


def growth_per_call(runner: Runner, gauge: Gauge, repeats: int = 1) -> dict[str, float]:
    """Bytes that one more call adds to a batch's peak and to what it retains; the median of `repeats`."""

    def measure(size: int) -> Memory:
        return Memory(**run_probe("bench.memory", runner, gauge, str(size)))

    growths = []
    for _ in range(repeats):
        small, large = measure(SMALL_BATCH), measure(LARGE_BATCH)
        growths.append(
            [(after - before) / (LARGE_BATCH - SMALL_BATCH) for before, after in zip(small, large, strict=True)]
        )
    peaks, retained = zip(*growths, strict=True)
    return {"peak": statistics.median(peaks), "retained": statistics.median(retained)}


async def measure_batch(warm_up: AnySubject, subject: AnySubject, gauge: Gauge) -> Memory:
    """What one batch adds to the memory of this process, its results not counted."""
    await warm_up.run(warm_up.prepare())
    await warm_up.settle()
    prepared = subject.prepare()
    gc.collect()
    read = _set_gauge(gauge)
    before = read()
    outcomes = await subject.run(prepared)
    await subject.settle()
    peak = read().peak
    # One more turn: the loop still holds what woke this task, and through it every task of a gather.
    await asyncio.sleep(0)
    gc.collect()
    now = read().now
    subject.check(outcomes)
    results = sum(len(json.dumps(_value(outcome))) for outcome in outcomes)
    return Memory(peak - before.peak - results, now - before.now - results)


def _set_gauge(gauge: Gauge) -> Callable[[], Memory]:
    if gauge == "resident":
        return _resident
    tracemalloc.start()
    return _traced


def _traced() -> Memory:
    now, peak = tracemalloc.get_traced_memory()
    return Memory(peak, now)


def _resident() -> Memory:
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            return Memory(peak, int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except FileNotFoundError:
        # Only Linux tells what is resident now; elsewhere the peak stands for both.
        return Memory(peak, peak)


def _value(outcome: Any) -> Any:
    return outcome if isinstance(outcome, dict) else outcome.value


async def main(runner: Runner, gauge: Gauge, size: int) -> Memory:
    """Measure one batch of `size` calls."""
    if runner == "gather":
        return await measure_batch(bare_gather(WARM_UP), bare_gather(size), gauge)
    # Here, so that the sections load where toolwright does not.
    from bench.contestant import open_contestant

    async with open_contestant() as contestant:
        return await measure_batch(contestant.subject(WARM_UP), contestant.subject(size), gauge)


if __name__ == "__main__":
    parser = probe_parser(__doc__)
    parser.add_argument("runner", choices=get_args(Runner))
    parser.add_argument("gauge", choices=get_args(Gauge))
    parser.add_argument("size", type=int)
    arguments = parser.parse_args()
    emit(asyncio.run(main(arguments.runner, arguments.gauge, arguments.size))._asdict())
