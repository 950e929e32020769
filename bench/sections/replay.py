"""What it costs to run a recorded batch again: the file is opened anew, and no tool runs.

Opening and closing are in the figure, as they would be for a program that comes back after a crash.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from bench.disk import new_file
from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.workload import bare_gather

CALLS = 10_000
LIMIT_MICROSECONDS = 25


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Record a batch once and replay it many times, in a fresh process."""
    try:
        pairing = Pairing.from_json(run_probe("bench.sections.replay", quick=quick))
    except ProbeError as error:
        line = Line("replay", error=str(error))
    else:
        target = Target("value", LIMIT_MICROSECONDS, " µs/call")
        line = Line.paired(f"{CALLS:,} calls replayed", pairing, target=target)
    return Report("replay", "a recorded batch, run again on a file opened anew, beside a bare asyncio.gather", [line])


async def measure(effort: Effort) -> dict[str, Any]:
    """Replays between bare gathers of as many calls."""
    from bench.contestant import POLICY, TOOLS, workload_calls
    from toolwright import Runtime, ToolCall, ToolOutcome

    calls = workload_calls(CALLS, 0)
    with new_file() as file:

        async def run(calls: list[ToolCall]) -> list[ToolOutcome]:
            async with Runtime.open(file, tools=TOOLS, policy=POLICY) as runtime:
                return await runtime.session("bench").run_batch(calls)

        await run(calls)
        replaying = Subject(calls=CALLS, prepare=lambda: calls, run=run, count=_replayed)
        return (await pair(bare_gather(CALLS), replaying, effort)).to_json()


def _replayed(outcomes: list[Any]) -> int:
    return sum(outcome.replayed and outcome.status == "success" for outcome in outcomes)


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
