"""What a call costs on PostgreSQL, beside the same calls on a SQLite file; one process, loopback, full syncs."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from bench.disk import new_file
from bench.pairing import Effort, Pairing, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.batch import line_name
from bench.sections.durable import Variant, tools_of
from bench.servers import postgres_server

SIZES = (1, 100)
LIMIT = {100: 2.0}
"""How many times the cost of a file a call may have, by the size of its batch."""
VARIANTS = (Variant("readonly", "full"), Variant("default", "full"))


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure each variant and size in a fresh process, against a server of its own."""
    try:
        found = run_probe("bench.sections.postgres", quick=quick)
    except ProbeError as error:
        lines = [Line("postgres", error=str(error))]
    else:
        lines = [*ratio_lines(found)]
    return Report("postgres", "toolwright on PostgreSQL, beside toolwright on a SQLite file", lines)


def ratio_lines(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[Line]:
    """Microseconds per call on PostgreSQL, with the ratio to the file, by variant and size."""
    for variant in VARIANTS:
        for pairing in map(Pairing.from_json, found[variant.name]):
            limit = LIMIT.get(pairing.calls)
            target = None if limit is None else Target("ratio", limit, " x")
            yield Line.paired(f"{line_name(pairing.calls)}, {variant.name}", pairing, target=target)


async def measure(effort: Effort) -> dict[str, list[dict[str, Any]]]:
    """One pairing for each variant and size: a file, and a schema."""
    from bench.contestant import open_contestant

    found: dict[str, list[dict[str, Any]]] = {}
    with postgres_server() as server:
        for variant in VARIANTS:
            pairings = found.setdefault(variant.name, [])
            for size in SIZES:
                url = f"{server.url}?schema=bench_{size}_{variant.kind}"
                with new_file() as file:
                    tools = tools_of(variant)
                    async with (
                        open_contestant(tools, file, variant.sync) as on_file,
                        open_contestant(tools, url, variant.sync) as on_server,
                    ):
                        pairings.append((await pair(on_file.subject(size), on_server.subject(size), effort)).to_json())
    return found


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
