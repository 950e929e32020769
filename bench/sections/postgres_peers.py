"""What a durable call costs on PostgreSQL, beside a step of DBOS on the same server.

As in `durable-peers`, what is compared is each one's ratio to the same bare gather. The two are measured one after the
other, each in a fresh process, in a schema or database of its own.
"""

import argparse
import asyncio
from collections.abc import Iterator, Mapping

from bench.pairing import Effort, Pairing, pair
from bench.peers import DURABLE_PEERS
from bench.peers.install import InstallError, environment_python
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.durable import Variant, tools_of
from bench.sections.peers import divide
from bench.servers import postgres_server
from bench.workload import DURABLE_SIZE, bare_gather

TIMES_CHEAPER = {"readonly": 40}
"""By kind of tool. A step of DBOS runs again after a crash, as a call of a readonly tool does; a default tool is marked
before it runs, which DBOS does not do, and is shown for comparison."""
DBOS = DURABLE_PEERS[0]
VARIANTS = (Variant("readonly", "full"), Variant("default", "full"))


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure both against one server."""
    about = f"a durable batch of {DURABLE_SIZE} calls on PostgreSQL, beside a bare asyncio.gather"
    try:
        with postgres_server() as server:
            server.execute("CREATE DATABASE dbos")
            lines = [*compared(server.url, quick)]
    except (InstallError, ProbeError) as error:
        lines = [Line(DBOS.title, error=str(error), detail={"requirements": DBOS.requirements})]
    return Report("postgres-peers", about, lines)


def compared(url: str, quick: bool) -> Iterator[Line]:
    """The peer, each variant of ours, and how many times the peer's cost is ours."""
    dbos = url.removesuffix("/postgres") + "/dbos"
    found = run_probe(DBOS.probe, "--url", dbos, quick=quick, python=environment_python(DBOS), isolated=True)
    ((name, document),) = found.items()
    theirs = Pairing.from_json(document)
    yield Line(f"{DBOS.title}, {name}", theirs.variant.median / 1_000, "ms/step", theirs.ratio, detail=document)
    mine = run_probe("bench.sections.postgres_peers", "--url", url, quick=quick)
    for variant in VARIANTS:
        ours = Pairing.from_json(mine[variant.name])
        yield Line.paired(f"toolwright, {variant.name}", ours)
        least = TIMES_CHEAPER.get(variant.kind)
        yield Line(
            f"{DBOS.title} / toolwright, {variant.name}",
            ratio=divide(theirs.ratio, ours.ratio),
            target=None if least is None else Target("ratio", least, at_least=True),
        )


async def measure(url: str, effort: Effort) -> dict[str, dict[str, object]]:
    """One pairing for each variant."""
    from bench.contestant import open_contestant

    found = {}
    for variant in VARIANTS:
        async with open_contestant(tools_of(variant), f"{url}?schema={variant.kind}", variant.sync) as contestant:
            pairing = await pair(bare_gather(DURABLE_SIZE), contestant.subject(DURABLE_SIZE), effort)
            found[variant.name] = pairing.to_json()
    return found


def options() -> argparse.Namespace:
    """The command line of the probe."""
    parser = probe_parser(__doc__)
    parser.add_argument("--url", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = options()
    emit(asyncio.run(measure(chosen.url, effort_of(chosen))))
