"""What several processes get done together on PostgreSQL, beside one alone, and whether each gets its share.

As `writers`, on a schema of a server instead of a file, in batches of 100 calls. Here several processes write at once;
the server is on the same machine, so that they share its processors with it.
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.probe import ProbeError, emit, probe_parser, run_probe
from bench.report import Line, Report
from bench.sections import writers
from bench.servers import postgres_server

LEAST_SUM = {4: 1.5}
CALLS = 100
"""The calls of one batch."""
KINDS = ("readonly", "default")


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure four processes beside one, for each kind of tool."""
    about = f"processes that write batches of {CALLS} calls to one server, with sync full, beside one process"
    try:
        found = run_probe("bench.sections.postgres_writers", quick=quick)
    except ProbeError as error:
        return Report("postgres-writers", about, [Line("postgres-writers", error=str(error))])
    lines = [line for kind in KINDS for line in writers.lines_of(found[kind], LEAST_SUM, f"{kind} tool, ")]
    return Report("postgres-writers", about, lines)


def measure(effort: writers.Effort) -> dict[str, Any]:
    """Each sample in a schema of its own."""
    numbers = itertools.count()
    with postgres_server() as server:

        @contextmanager
        def schema() -> Iterator[str]:
            name = f"sample{next(numbers)}"
            try:
                yield f"{server.url}?schema={name}"
            finally:
                server.execute(f"DROP SCHEMA {name} CASCADE")

        return {
            kind: writers.measure(effort, LEAST_SUM, schema, ("--kind", kind, "--calls", str(CALLS))) for kind in KINDS
        }


if __name__ == "__main__":
    emit(measure(writers.QUICK if probe_parser(__doc__).parse_args().quick else writers.THOROUGH))
