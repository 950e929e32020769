"""Probe: DBOS on SQLite or PostgreSQL, as it comes: one workflow that gathers a step for each call."""

import asyncio
from collections.abc import Sequence
from typing import Any

from dbos import DBOS

from bench.disk import new_file
from bench.pairing import Subject, pair
from bench.probe import effort_of, emit, probe_parser
from bench.workload import DURABLE_SIZE, FUNCTIONS, Request, bare_gather, requests


def dbos() -> Subject[Sequence[Request], list[Any]]:
    """Run a workflow per batch; each call is a step."""
    steps = {name: DBOS.step(name=name)(function) for name, function in FUNCTIONS.items()}

    @DBOS.workflow()
    async def run(calls: Sequence[Request]) -> list[Any]:
        return await asyncio.gather(*[steps[name](**arguments) for _, name, arguments in calls])

    calls = requests(DURABLE_SIZE)
    return Subject(calls=DURABLE_SIZE, prepare=lambda: calls, run=run, count=len)


def main() -> None:
    """Measure it on a file of its own, or in the database it is given, and print the pairing."""
    parser = probe_parser(__doc__)
    parser.add_argument("--url", help="a database of PostgreSQL")
    chosen = parser.parse_args()
    effort = effort_of(chosen)
    with new_file() as file:
        url = chosen.url or f"sqlite:///{file}"
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "enable_otlp": False})
        subject = dbos()
        DBOS.launch()
        try:
            pairing = asyncio.run(pair(bare_gather(DURABLE_SIZE), subject, effort))
        finally:
            DBOS.destroy()
    emit({f"{'PostgreSQL' if chosen.url else 'SQLite'} as it comes": pairing.to_json()})


if __name__ == "__main__":
    main()
