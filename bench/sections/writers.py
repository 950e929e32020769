"""What several processes that write to one file get done together, beside one alone, and whether each gets its share.

Every process runs batches of the default tool in a session of its own, for as long as the others. A sample of several
processes sits between two samples of one, each on a fresh file. Two processes cannot write at once, so the sum can
grow only by what they compute while another waits for the disk.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from bench.disk import new_file
from bench.probe import ROOT, ProbeError, child_environment, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.durable import Variant, tools_of

LEAST_SUM = {2: 1.0, 4: 0.9, 8: 0.8}
LEAST_SHARE = 0.5
CALLS = 10
"""The calls of one batch."""


class Effort(NamedTuple):
    """How often each number of processes is measured, and for how many seconds."""

    samples: int
    seconds: float


THOROUGH, QUICK = Effort(5, 3.0), Effort(1, 1.0)


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure each number of processes beside one."""
    about = f"processes that write batches of {CALLS} default calls to one file, with sync full, beside one process"
    try:
        found = run_probe("bench.sections.writers", quick=quick)
    except ProbeError as error:
        return Report("writers", about, [Line("writers", error=str(error))])
    return Report("writers", about, [*lines_of(found, LEAST_SUM)])


def lines_of(found: Mapping[str, Any], least_sum: Mapping[int, float], kind: str = "") -> Iterator[Line]:
    """What one process does, and each number of them in sum."""
    yield Line(f"{kind}1 process", found["alone"], "batches/s")
    for count, least in least_sum.items():
        seen = found["together"][str(count)]
        sums, shares = seen["sums"], seen["shares"]
        yield Line(f"{kind}{count} processes, in sum", statistics.median(seen["rates"]), "batches/s", detail=seen)
        yield Line("… to one", statistics.median(sums), "x", target=Target("value", least, "x", at_least=True))
        yield Line(
            "… slowest to fastest",
            statistics.median(shares),
            "x",
            target=Target("value", LEAST_SHARE, "x", at_least=True),
        )


Place = Callable[[], AbstractContextManager[object]]
"""Makes a place to write to, which is there while its block runs: its location."""


def measure(
    effort: Effort, counts: Iterable[int] = LEAST_SUM, place: Place = new_file, how: Sequence[str] = ()
) -> dict[str, Any]:
    """Each number of processes between two samples of one. `how` are options of each process."""

    def rates(count: int) -> list[float]:
        with place() as location:
            return rates_of(count, [*how, "--seconds", str(effort.seconds), "--at", str(location)])

    alone: list[float] = []
    together: dict[int, dict[str, list[float]]] = {}
    for count in counts:
        seen = together[count] = {"rates": [], "sums": [], "shares": []}
        for _ in range(effort.samples):
            before = sum(rates(1))
            each = rates(count)
            after = sum(rates(1))
            alone += [before, after]
            seen["rates"].append(sum(each))
            seen["sums"].append(2 * sum(each) / (before + after))
            seen["shares"].append(min(each) / max(each))
    return {"alone": statistics.median(alone), "together": together}


def rates_of(count: int, how: Sequence[str]) -> list[float]:
    """Batches a second of each of so many processes that write at once."""
    writers = [_start(number, how) for number in range(count)]
    try:
        for writer in writers:
            _read(writer)  # It is ready.
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        return [float(_read(writer)) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def _start(number: int, how: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.sections.writers", "--writer", str(number), *how],
        cwd=ROOT,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _read(writer: subprocess.Popen[str]) -> str:
    assert writer.stdout is not None
    line = writer.stdout.readline()
    if not line:
        raise RuntimeError("A writing process ended; run it by hand with --writer 0 --at FILE to see why.")
    return line


async def write(location: str, number: int, seconds: float, kind: Any, calls: int) -> None:
    """Be one of the processes: say that it is ready, wait for a line, write, and say how much."""
    from bench.contestant import workload_calls
    from toolwright import Runtime

    async with Runtime.open(location, tools=tools_of(Variant(kind, "full"))) as runtime:
        session = runtime.session(f"writer {number}")
        await session.run_batch(workload_calls(calls, 0))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, batches = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            batches += 1
            await session.run_batch(workload_calls(calls, batches * calls))
        print(batches / elapsed, flush=True)


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: of the probe, or of one process that it starts."""
    parser = probe_parser(__doc__)
    parser.add_argument("--writer", type=int, metavar="NUMBER", help="be this writing process")
    parser.add_argument("--at", metavar="LOCATION")
    parser.add_argument("--kind", default="default")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=QUICK.seconds)
    return parser.parse_args(given)


if __name__ == "__main__":
    chosen = options()
    if chosen.writer is None:
        emit(measure(QUICK if chosen.quick else THOROUGH))
    else:
        asyncio.run(write(chosen.at, chosen.writer, chosen.seconds, chosen.kind, chosen.calls))
