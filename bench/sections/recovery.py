"""What it costs to recover: open a file, finish what a crash cut off, and close it; long and short files.

The long file is made from the rows of real calls, copied inside the database. Each sample cuts the same calls
off again, untimed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.disk import new_file
from bench.pairing import AnySubject, Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target

LONG, SHORT = 1_000_000, 1_000
UNFINISHED = 100
LIMIT_SECONDS = 1
LIMIT_RATIO = 1.5

COPY = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)
INSERT INTO calls ({columns}) SELECT {copied} FROM number, calls WHERE session = 'past'
"""
CUT_OFF = """
UPDATE calls SET outcome = NULL, status = NULL, finished_at = NULL, owner = 'gone' WHERE session = 'cut off';
DELETE FROM crashes WHERE session = 'cut off'
"""
"""The crashes of earlier samples are forgotten: a call that is cut off again and again is given up."""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Recover both files in a fresh process."""
    try:
        pairing = Pairing.from_json(run_probe("bench.sections.recovery", quick=quick))
    except ProbeError as error:
        lines = [Line("recovery", error=str(error))]
    else:
        seconds = pairing.variant.median * UNFINISHED / 1e6
        limit = Target("value", LIMIT_SECONDS, " s", strict=True)
        lines = [
            Line(f"{LONG:,} finished", seconds, "s", target=limit, detail=pairing.to_json()),
            Line.paired(f"… to {SHORT:,} finished", pairing, target=LIMIT_RATIO),
        ]
    return Report("recovery", f"{UNFINISHED} unfinished calls, opened, recovered and closed", lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """The long file between two samples of the short one."""
    with new_file() as short, new_file() as long:
        baseline, variant = await recovering(short, SHORT), await recovering(long, LONG)
        # No time to fill: a sample is one recovery, for the next would find nothing to do.
        once = replace(effort, variant_seconds=0, baseline_seconds=0)
        return (await pair(baseline, variant, once)).to_json()


async def recovering(file: Path, finished: int) -> AnySubject:
    """Make the file, and a subject that recovers it."""
    from bench.contestant import POLICY, TOOLS, workload_calls
    from toolwright import Runtime

    async with Runtime.open(file, tools=TOOLS, policy=POLICY) as runtime:
        await runtime.session("past").run_batch(workload_calls(1, 0))
        await runtime.session("cut off").run_batch(workload_calls(UNFINISHED, 0))
    fill(file, finished - 1)

    async def run(file: Path) -> list[Any]:
        async with Runtime.open(file, tools=TOOLS, policy=POLICY) as runtime:
            return await runtime.recover()

    return Subject(calls=UNFINISHED, prepare=cut_off(file), run=run, count=_rerun)


def fill(file: Path, count: int) -> None:
    """Copy the one call of the session `past` so many times, each under an id of its own."""
    import apsw

    with contextlib.closing(apsw.Connection(str(file))) as connection:
        connection.execute("PRAGMA synchronous = off")
        columns = [row[1] for row in connection.execute("PRAGMA table_info (calls)")]
        copied = ["printf('past-%09d', n)" if name == "call_id" else name for name in columns]
        connection.execute(COPY.format(columns=", ".join(columns), copied=", ".join(copied)), (count,))


def cut_off(file: Path) -> Callable[[], Path]:
    """What leaves the calls of the session `cut off` as a killed process would."""

    def prepare() -> Path:
        import apsw

        with contextlib.closing(apsw.Connection(str(file))) as connection:
            connection.execute(CUT_OFF)
        return file

    return prepare


def _rerun(done: list[Any]) -> int:
    return sum(each.action == "rerun" and each.outcome.status == "success" for each in done)


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
