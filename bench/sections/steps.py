"""What a durable step inside of a call costs: one step in each of 100 parallel calls, on a file with a full sync.

A step that may simply run again is written once, with its result. One that may not is marked before it runs, too, and
so is its call. The peers' steps are of the first kind. As in `durable-peers`, what is compared with them is the ratio
to a bare gather. Commits are counted, not timed.
"""

import asyncio
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.disk import new_file
from bench.pairing import Effort, Pairing, Spread, pair
from bench.peers import DURABLE_PEERS
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.peers import divide
from bench.workload import DURABLE_SIZE, FUNCTIONS, bare_gather

LIMIT_MICROSECONDS = 60
TIMES_CHEAPER = {"dbos": 50, "langgraph_tasks": 12}
COUNTED_BATCHES = 9


class Variant(NamedTuple):
    """Which tool, and how many of its calls run at once: eight, which is the default, or all.

    A step of a tool may simply run again if the tool may.
    """

    name: str
    readonly: bool
    at_once: int | None = None


VARIANTS = (
    Variant("readonly tool", readonly=True),
    Variant("readonly tool, all at once", readonly=True, at_once=DURABLE_SIZE),
    Variant("default tool", readonly=False),
    Variant("default tool, all at once", readonly=False, at_once=DURABLE_SIZE),
)


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Both kinds of steps, with eight calls and with all at once; those that may run again also beside the peers."""
    about = f"one step in each of {DURABLE_SIZE} calls, on a file with sync full, beside a bare asyncio.gather"
    try:
        found = run_probe("bench.sections.steps", quick=quick)
    except ProbeError as error:
        return Report("steps", about, [Line("steps", error=str(error))])
    lines: list[Line] = []
    pairings = {name: Pairing.from_json(document) for name, document in found["times"].items()}
    for variant in VARIANTS:
        target = Target("value", LIMIT_MICROSECONDS, " µs/call")
        lines.append(Line.paired(f"call and step, {variant.name}", pairings[variant.name], target=target))
        lines.append(
            Line(f"… commits for {DURABLE_SIZE}", statistics.median(found["commits"][variant.name]), "commits")
        )
    peers = earlier.get("durable-peers")
    for variant in VARIANTS:
        if variant.readonly:
            lines += peer_lines(peers, variant.name, pairings[variant.name].ratio)
    return Report("steps", about, lines)


def peer_lines(peers: Report | None, name: str, mine: Spread) -> list[Line]:
    """How many times cheaper a call with a step is than a step of each durable peer, by the report of
    `durable-peers`."""
    lines: list[Line] = []
    for peer in DURABLE_PEERS:
        target = Target("ratio", TIMES_CHEAPER[peer.key], at_least=True)
        for line in peers.lines if peers is not None else ():
            if line.name.startswith(peer.title) and line.unit == "ms/step" and line.ratio is not None:
                detail = {"toolwright": mine.median, "peer": line.ratio.median}
                ratio = divide(line.ratio, mine)
                lines.append(Line(f"{line.name} / toolwright, {name}", ratio=ratio, target=target, detail=detail))
    return lines


async def measure(effort: Effort) -> dict[str, Any]:
    """Times and commits of each kind, each on a file of its own."""
    times, commits = {}, {}
    for variant in VARIANTS:
        times[variant.name], commits[variant.name] = await measure_variant(variant, effort)
    return {"times": times, "commits": commits}


async def measure_variant(variant: Variant, effort: Effort) -> tuple[dict[str, Any], list[int]]:
    """The pairing of one kind, and the commits of some of its batches."""
    from bench.contestant import open_contestant
    from toolwright import ToolContext, tool
    from toolwright.stores.sqlite.store import SqliteStore

    decorate = tool(readonly=True) if variant.readonly else tool(parallel=True)

    @decorate
    async def echo(ctx: ToolContext, message: str) -> dict[str, Any]:
        """Give the message back."""
        return await ctx.step("echo", FUNCTIONS["echo"], message)

    @decorate
    async def add(ctx: ToolContext, a: int, b: int) -> dict[str, Any]:
        """Add two numbers."""
        return await ctx.step("add", FUNCTIONS["add"], a, b)

    counts: list[int] = []
    with new_file() as file:
        store = SqliteStore(file)
        async with open_contestant([echo, add], store, at_once=variant.at_once) as contestant:
            subject = contestant.subject(DURABLE_SIZE)
            pairing = await pair(bare_gather(DURABLE_SIZE), subject, effort)
            for _ in range(COUNTED_BATCHES):
                before = store.commits
                subject.check(await subject.run(subject.prepare()))
                counts.append(store.commits - before)
    return pairing.to_json(), counts


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
