"""What a turn costs in the peers that have one, each beside a plain loop in a process and an environment of its own.

As in `peers`, what is compared is each one's ratio to the same plain loop. The peers run as they come, in memory.
"""

from collections.abc import Iterator, Mapping

from bench.pairing import Pairing, Spread
from bench.peers import TURN_PEERS, Peer
from bench.peers.install import InstallError, environment_python
from bench.probe import ProbeError, run_probe
from bench.report import Line, Report, Target
from bench.sections import turns
from bench.sections.peers import divide

LIMIT_SHARE = 1 / 3


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure the peers, and toolwright's share of each, by the report of `turns`."""
    ours = earlier["turns"].line(turns.IN_MEMORY) if "turns" in earlier else measure_ours(quick)
    mine = ours.ratio if ours else None
    lines: list[Line] = []
    for peer in TURN_PEERS:
        try:
            lines += peer_lines(peer, quick, mine)
        except (InstallError, ProbeError) as error:
            lines.append(Line(peer.title, error=str(error), detail={"requirements": peer.requirements}))
    return Report("turn-peers", "turns of 10 model calls with 10 tool calls each, beside a plain loop", lines)


def measure_ours(quick: bool) -> Line | None:
    """The turn of toolwright in memory; None when it could not be measured."""
    try:
        lines = [*turns.time_lines(run_probe("bench.sections.turns", "times", quick=quick))]
    except ProbeError:
        return None
    return next(line for line in lines if line.name == turns.IN_MEMORY)


def peer_lines(peer: Peer, quick: bool, mine: Spread | None) -> Iterator[Line]:
    """What a turn of the peer costs, and toolwright's share of that."""
    document = run_probe(peer.probe, quick=quick, python=environment_python(peer), isolated=True)
    pairing = Pairing.from_json(document)
    yield Line.paired(peer.title, pairing)
    name = f"toolwright / {peer.title}"
    if mine is None:
        yield Line(name, error="toolwright was not measured; run it with --only turns to see why")
        return
    detail = {"toolwright": mine.median, "peer": pairing.ratio.median}
    yield Line(name, ratio=divide(mine, pairing.ratio), target=Target("ratio", LIMIT_SHARE), detail=detail)
