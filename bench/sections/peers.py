"""What a call costs in the peers, each beside a bare gather in a process and an environment of its own.

Peers cannot share a process, so microseconds of different peers are not compared; their ratios to the same
bare gather are. The peers run as they come: without the deadline, the bound on concurrency, the events, and
the records that toolwright has on.
"""

from collections.abc import Iterator, Mapping

from bench.pairing import Pairing, Spread
from bench.peers import PEERS, Peer
from bench.peers.install import InstallError, environment_python
from bench.probe import ProbeError, run_probe
from bench.report import Line, Report, Target
from bench.sections.batch import line_name

COMPARED_SIZES = (100, 1_000)
LIMIT_SHARE = 0.5
LOWER_LIMITS = {("openai_agents", 100): 0.45}
"""Lower shares, by peer and batch size: openai-agents is the cheapest of the peers."""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure every peer that installs and runs; with a report of `batch`, toolwright's share of it too."""
    lines: list[Line] = []
    for peer in PEERS:
        try:
            pairings = measure(peer, quick)
        except (InstallError, ProbeError) as error:
            lines.append(Line(peer.title, error=str(error), detail={"requirements": peer.requirements}))
            continue
        lines += [Line.paired(f"{peer.title}, {line_name(each.calls)}", each) for each in pairings]
        lines += shares(peer, pairings, earlier.get("batch"))
    return Report("peers", "a peer beside a bare asyncio.gather", lines)


def measure(peer: Peer, quick: bool) -> list[Pairing]:
    """The peer's pairings with a bare gather, by batch size."""
    documents = run_probe(peer.probe, quick=quick, python=environment_python(peer), isolated=True)
    return [Pairing.from_json(document) for document in documents]


def shares(peer: Peer, pairings: list[Pairing], ours: Report | None) -> Iterator[Line]:
    """toolwright's ratio over the peer's, where both are known and a target is set."""
    for pairing in pairings:
        mine = ours and ours.line(line_name(pairing.calls))
        if pairing.calls not in COMPARED_SIZES or not mine or not mine.ratio:
            continue
        yield Line(
            f"toolwright / {peer.title}, {line_name(pairing.calls)}",
            ratio=divide(mine.ratio, pairing.ratio),
            target=Target("ratio", LOWER_LIMITS.get((peer.key, pairing.calls), LIMIT_SHARE)),
            detail={"toolwright": mine.ratio.median, "peer": pairing.ratio.median},
        )


def divide(ours: Spread, theirs: Spread) -> Spread:
    """One ratio to a bare gather over another."""
    # The two were not sampled in pairs: the widest reading of both quartiles is the honest one.
    return Spread(
        median=ours.median / theirs.median,
        lower=ours.lower / theirs.upper,
        upper=ours.upper / theirs.lower,
        samples=min(ours.samples, theirs.samples),
    )
