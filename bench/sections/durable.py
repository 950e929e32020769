"""What a call costs when intents and outcomes go to a file, beside a bare gather that keeps nothing.

The targets are in microseconds, for a sync of the disk is: they hold for a disk that syncs in about a
millisecond. Disk syncs are counted where SQLite asks the system for them, and not timed.
"""

import asyncio
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from bench.disk import new_file
from bench.pairing import Effort, Pairing, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.batch import line_name
from bench.workload import bare_gather

LIMIT_MICROSECONDS = {"readonly": {100: 32, 1_000: 28}, "default": {100: 45, 1_000: 40}}
"""By kind of tool and size, with a full sync. The readonly ones cost as much before the others were judged."""
LIMIT_SYNCS = 2
SIZES = (1, 10, 100, 1_000)
COUNTED_CALLS = 200


class Variant(NamedTuple):
    """One way to run: which kind of tool, and how safe is the file?

    A "default" tool may not simply run again after a crash; it is parallel, as the readonly one is. A "bare" tool says
    nothing at all: its calls run one after the other. `unlimited` lets all calls of a batch run at once, as the peers
    do; the others have the default limit of eight.
    """

    kind: Literal["readonly", "default", "bare"]
    sync: Literal["full", "normal"]
    unlimited: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} tool, sync {self.sync}{', all at once' if self.unlimited else ''}"


JUDGED = Variant("readonly", "full")
VARIANTS = (
    JUDGED,
    Variant("default", "full"),
    Variant("default", "full", unlimited=True),
    Variant("bare", "full"),
    Variant("readonly", "normal"),
    Variant("default", "normal"),
)


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure every variant and size in a fresh process; readonly and default tools with a full sync are judged."""
    try:
        found = run_probe("bench.sections.durable", quick=quick)
    except ProbeError as error:
        lines = [Line("durable", error=str(error))]
    else:
        lines = [*time_lines(found["times"]), *sync_lines(found["syncs"])]
    return Report("durable", "toolwright on a file, with everything on, beside a bare asyncio.gather", lines)


def time_lines(times: Mapping[str, list[dict[str, Any]]]) -> Iterator[Line]:
    """Microseconds per call, by variant and size."""
    for variant in VARIANTS:
        for pairing in map(Pairing.from_json, times[variant.name]):
            limits = LIMIT_MICROSECONDS.get(variant.kind, {}) if variant.sync == "full" else {}
            limit = limits.get(pairing.calls)
            target = None if limit is None else Target("value", limit, " µs/call")
            yield Line.paired(durable_name(pairing.calls, variant), pairing, target=target)


def sync_lines(syncs: Mapping[str, list[int]]) -> Iterator[Line]:
    """Disk syncs of a batch of one; now and then one also pays for moving the log into the database."""
    for variant in VARIANTS:
        counts = syncs.get(variant.name)
        if counts is None:
            continue
        # A rule of the policy looks at every second call.
        kinds = {"1 call": counts[::2], "1 call that a rule looks at": counts[1::2]}
        for name, found in kinds.items():
            yield Line(
                f"{name}, {variant.name}: disk syncs",
                statistics.median(found),
                "syncs",
                target=Target("value", LIMIT_SYNCS),
                detail={"samples": len(found), "mean": statistics.mean(found), "most": max(found)},
            )


def durable_name(calls: int, variant: Variant = JUDGED) -> str:
    """How a batch of this size is called in the table."""
    return f"{line_name(calls)}, {variant.name}"


async def measure(effort: Effort) -> dict[str, Any]:
    """Times first; then syncs, for counting them takes time."""
    times = {variant.name: await measure_times(variant, effort) for variant in VARIANTS}
    syncs = {
        variant.name: await count_syncs(variant)
        for variant in VARIANTS
        if variant.sync == "full" and not variant.unlimited
    }
    return {"times": times, "syncs": syncs}


async def measure_times(variant: Variant, effort: Effort) -> list[dict[str, Any]]:
    """One pairing per size, each on a file of its own."""
    from bench.contestant import open_contestant

    pairings = []
    for size in SIZES:
        with new_file() as file:
            async with open_contestant(
                tools_of(variant), file, variant.sync, at_once=size if variant.unlimited else None
            ) as contestant:
                pairings.append(await pair(bare_gather(size), contestant.subject(size), effort))
    return [pairing.to_json() for pairing in pairings]


async def count_syncs(variant: Variant) -> list[int]:
    """The disk syncs of each of many batches of one call."""
    from bench.contestant import open_contestant
    from bench.syncs import counted_syncs

    counts = []
    with counted_syncs() as syncs, new_file() as file:
        async with open_contestant(tools_of(variant), file, variant.sync) as contestant:
            subject = contestant.subject(1)
            for _ in range(COUNTED_CALLS):
                before = syncs.total
                subject.check(await subject.run(subject.prepare()))
                counts.append(syncs.total - before)
    return counts


def tools_of(variant: Variant) -> list[Any]:
    """The tools of the workload, of this kind."""
    # Here, so that the sections load where toolwright does not.
    from bench.contestant import TOOLS
    from bench.workload import FUNCTIONS
    from toolwright import tool

    if variant.kind == "readonly":
        return TOOLS
    decorate = tool(parallel=True) if variant.kind == "default" else tool
    return [decorate(function) for function in FUNCTIONS.values()]


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
