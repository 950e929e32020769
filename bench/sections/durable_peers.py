"""What a durable call costs in the peers that have one, and in the fastest peer that keeps nothing.

As in `peers`, what is compared is each one's ratio to the same bare gather. The durable peers run on SQLite
files on the same disk, as they come.
"""

from collections.abc import Iterator, Mapping

from bench.pairing import Pairing, Spread
from bench.peers import DURABLE_PEERS, NOT_DURABLE, Peer
from bench.peers.install import InstallError, environment_python
from bench.probe import ProbeError, run_probe
from bench.report import Line, Report, Target
from bench.sections import durable
from bench.sections.batch import line_name
from bench.sections.peers import divide, measure
from bench.workload import DURABLE_SIZE

TIMES_FASTER = {"dbos": 50, "langgraph_tasks": 15}


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure the peers, and how many times faster toolwright is, by the report of `durable`."""
    durably = earlier.get("durable") or durable.section(quick, earlier)
    ours = durably.line(durable.durable_name(DURABLE_SIZE))
    mine = ours.ratio if ours else None
    lines: list[Line] = []
    for peer in DURABLE_PEERS:
        try:
            lines += durable_lines(peer, quick, mine)
        except (InstallError, ProbeError) as error:
            lines.append(Line(peer.title, error=str(error), detail={"requirements": peer.requirements}))
    try:
        lines += lines_beside_memory(quick, mine, earlier.get("peers"))
    except (InstallError, ProbeError) as error:
        lines.append(Line(NOT_DURABLE.title, error=str(error)))
    return Report("durable-peers", f"a durable batch of {DURABLE_SIZE} calls beside a bare asyncio.gather", lines)


def durable_lines(peer: Peer, quick: bool, mine: Spread | None) -> Iterator[Line]:
    """What a durable peer costs, and how many times that is toolwright's cost."""
    found = run_probe(peer.probe, quick=quick, python=environment_python(peer), isolated=True)
    for name, document in found.items():
        pairing = Pairing.from_json(document)
        title = f"{peer.title}, {name}"
        milliseconds = pairing.variant.median / 1_000
        yield Line(title, milliseconds, "ms/step", pairing.ratio, detail=pairing.to_json())
        yield _compared(title, pairing.ratio, mine, Target("ratio", TIMES_FASTER[peer.key], at_least=True))


def lines_beside_memory(quick: bool, mine: Spread | None, peers: Report | None) -> Iterator[Line]:
    """The peer that keeps nothing, which toolwright should undercut while it keeps everything."""
    title = f"{NOT_DURABLE.title}, not durable"
    known = peers and peers.line(f"{NOT_DURABLE.title}, {line_name(DURABLE_SIZE)}")
    if known and known.ratio:
        theirs = known.ratio
    else:
        (pairing,) = [each for each in measure(NOT_DURABLE, quick) if each.calls == DURABLE_SIZE]
        theirs = pairing.ratio
        yield Line.paired(title, pairing)
    yield _compared(title, theirs, mine, Target("ratio", 1, strict=True, at_least=True))


def _compared(title: str, theirs: Spread, mine: Spread | None, target: Target) -> Line:
    name = f"{title} / toolwright"
    if mine is None:
        return Line(name, error="toolwright was not measured; run it with --only durable to see why")
    detail = {"toolwright": mine.median, "peer": theirs.median}
    return Line(name, ratio=divide(theirs, mine), target=target, detail=detail)
