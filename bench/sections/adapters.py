"""What a call costs through an adapter: an agent of a framework with toolwright's tools, beside the same agent with its
own. Both have the same fake model, whose one answer has 100 parallel calls.

The frameworks are those of this environment. DBOS is in an environment of its own: what is compared is its ratio to the
same agent without it.
"""

from collections.abc import Iterator, Mapping

from bench.pairing import Pairing, Spread
from bench.peers import PYDANTIC_AI_DBOS
from bench.peers.install import InstallError, environment_python
from bench.probe import ProbeError, run_probe
from bench.report import Line, Report, Target
from bench.sections.peers import divide
from bench.workload import PARALLEL_CALLS

LIMITS = {"pydantic_ai": 1.2, "openai_agents": 1.2}
"""The most that a call costs through each adapter in memory, in calls of the framework's own tools."""
LIMIT_LANGGRAPH = 1.0
"""The same for LangGraph, by a node and by middleware."""
LIMIT_CHECKPOINTER = 10
"""How many times cheaper a durable call is than with LangGraph's SQLite checkpointer, at least."""
LIMIT_DBOS = 10
"""How many times cheaper a durable call is than with DBOS, at least."""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure each adapter in a fresh process; one that fails takes no other with it."""
    lines: list[Line] = []
    for name, limit in LIMITS.items():
        try:
            found = run_probe(f"bench.adapters.{name}", quick=quick)
        except ProbeError as error:
            lines.append(Line(name, error=str(error)))
            continue
        lines.append(Line.paired(f"{name}, in memory", Pairing.from_json(found["memory"]), target=limit))
        durable = Pairing.from_json(found["file"])
        lines.append(Line.paired(f"{name}, on a file, sync full", durable))
        if name == "pydantic_ai":
            lines += dbos_lines(quick, durable.ratio)
    lines += langgraph_lines(quick)
    return Report("adapters", f"{PARALLEL_CALLS} parallel calls through an adapter, beside the framework's own", lines)


def langgraph_lines(quick: bool) -> Iterator[Line]:
    """LangGraph's own tools beside ours in memory, and its SQLite checkpointer beside a graph of ours on a file."""
    try:
        found = run_probe("bench.adapters.langgraph", quick=quick)
    except ProbeError as error:
        yield Line("langgraph", error=str(error))
        return
    for name in ("node", "middleware"):
        pairing = Pairing.from_json(found[name])
        yield Line.paired(f"langgraph, {name}, in memory", pairing, target=LIMIT_LANGGRAPH)
    durable = Pairing.from_json(found["durable"])
    target = Target("ratio", LIMIT_CHECKPOINTER, at_least=True)
    yield Line.paired("langgraph, an agent with its SQLite checkpointer / ours on a file", durable, target=target)


def dbos_lines(quick: bool, mine: Spread) -> Iterator[Line]:
    """The same agent with DBOS, and how many times that is toolwright's cost on a file."""
    peer = PYDANTIC_AI_DBOS
    try:
        python = environment_python(peer)
        theirs = Pairing.from_json(run_probe(peer.probe, quick=quick, python=python, isolated=True))
    except (InstallError, ProbeError) as error:
        yield Line(peer.title, error=str(error), detail={"requirements": peer.requirements})
        return
    yield Line.paired(peer.title, theirs)
    target = Target("ratio", LIMIT_DBOS, at_least=True)
    detail = {"toolwright": mine.median, "peer": theirs.ratio.median}
    yield Line(f"{peer.title} / toolwright", ratio=divide(theirs.ratio, mine), target=target, detail=detail)
