"""Probe: DBOS on SQLite, as it comes: one workflow that gathers a step for each call."""

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
    """Measure it on a file of its own, and print the pairing."""
    effort = effort_of(probe_parser(__doc__).parse_args())
    with new_file() as file:
        url = f"sqlite:///{file}"
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "enable_otlp": False})
        subject = dbos()
        DBOS.launch()
        try:
            pairing = asyncio.run(pair(bare_gather(DURABLE_SIZE), subject, effort))
        finally:
            DBOS.destroy()
    emit({"SQLite as it comes": pairing.to_json()})


if __name__ == "__main__":
    main()
