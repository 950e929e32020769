"""What a call costs in toolwright with everything on, beside a bare gather of the same functions."""

import asyncio
from collections.abc import Mapping
from typing import Any

from bench.pairing import Effort, Pairing, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report
from bench.workload import BATCH_SIZES, bare_gather

LIMIT_RATIOS = {1: 1.6, 10: 2.0, 100: 1.9, 1_000: 1.8}
"""The most that a batch of each size may cost."""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure every batch size in a fresh process."""
    try:
        pairings = [Pairing.from_json(document) for document in run_probe("bench.sections.batch", quick=quick)]
    except ProbeError as error:
        lines = [Line("toolwright", error=str(error))]
    else:
        lines = [Line.paired(line_name(each.calls), each, target=LIMIT_RATIOS[each.calls]) for each in pairings]
    return Report("batch", "toolwright with everything on beside a bare asyncio.gather", lines)


def line_name(calls: int) -> str:
    """How a batch of this size is called in the tables."""
    return f"{calls:,} call{'' if calls == 1 else 's'}"


async def measure(effort: Effort) -> list[dict[str, Any]]:
    """One pairing per batch size."""
    # Here, so that the sections load where toolwright does not.
    from bench.contestant import open_contestant

    pairings = []
    for size in BATCH_SIZES:
        async with open_contestant() as contestant:
            pairings.append(await pair(bare_gather(size), contestant.subject(size), effort))
    return [pairing.to_json() for pairing in pairings]


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
