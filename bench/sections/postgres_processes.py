"""How soon one process learns what another one did, on PostgreSQL, and what waiting costs the server.

A resolution wakes a call, a run that is spawned starts, and the runs of a worker that is killed start again, each in
another process than the one that did it; times are from before the verb, or the kill, until the tool runs. The clock is
that of the machine, which all its processes share.

Queries of an idle process are counted in the log of the server: every statement but those that only begin and end
transactions. On a file there is no server to ask, so that what is shown is the processor time of the idle process.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from bench.disk import new_file
from bench.probe import ROOT, ProbeError, child_environment, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.servers import postgres_server

WAKE, PICK_UP, TAKE_OVER, QUERIES = 10, 20, 6, 1
"""Milliseconds, milliseconds, seconds, and queries a second."""
WAITING, IDLE = 10_000, 1_000
"""Calls that wait, and sessions that do nothing, in an idle process."""
PAUSE = 0.1
"""Seconds between two samples: the first answer must not be there because of the question before."""
_QUERY = re.compile(r"(?:statement|execute [^:]*): (?!BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)")


class Effort(NamedTuple):
    """How often each thing is done, and for how many seconds an idle process is watched."""

    samples: int
    kills: int
    seconds: float


THOROUGH, QUICK = Effort(50, 5, 30.0), Effort(10, 1, 10.0)


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in fresh processes, with a server of their own."""
    about = "what one process does, seen by another one; and processes that only wait"
    try:
        found = run_probe("bench.sections.postgres_processes", quick=quick)
    except ProbeError as error:
        return Report("postgres-processes", about, [Line("postgres-processes", error=str(error))])
    lines = [
        Line(name, statistics.median(found[key]), unit, target=Target("value", most, f" {unit}"), detail=found)
        for name, key, unit, most in (
            ("a resolution wakes a call, median", "wake", "ms", WAKE),
            ("a run that was spawned starts, median", "pick_up", "ms", PICK_UP),
            ("the run of a killed worker starts again, median", "take_over", "s", TAKE_OVER),
        )
    ]
    lines += [Line("… slowest", max(found["take_over"]), "s")]
    for name, queries in found["queries"].items():
        limit = Target("value", QUERIES, " queries/s", strict=True)
        lines.append(Line(f"{name} on PostgreSQL", queries, "queries/s", target=limit))
    lines += [
        Line(f"{name} {where}: processor time", share * 1e3, "ms/s")
        for where, shares in found["shares"].items()
        for name, share in shares.items()
    ]
    return Report("postgres-processes", about, lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """Each question on a schema of its own; first those whose answer is a time, for counting queries takes time."""
    with postgres_server(log_line_prefix="%a: ") as server:
        found: dict[str, Any] = {
            "wake": await waking(f"{server.url}?schema=wake", effort.samples),
            "pick_up": await picking_up(f"{server.url}?schema=pick_up", effort.samples),
            "take_over": await taking_over(f"{server.url}?schema=take_over", effort.kills),
            "queries": {},
            "shares": {"on PostgreSQL": {}, "on a file": {}},
        }
        server.execute("ALTER SYSTEM SET log_statement = 'all'")
        server.execute("SELECT pg_reload_conf()")
        for name, role in IDLE_ROLES.items():
            with processes(f"{server.url}?schema={role}", role) as (process,):
                process.line()
                await asyncio.sleep(3)
                before = len(server.log())
                share = await process.processor_share(effort.seconds)
                queries = sum(
                    line.startswith("toolwright: ") and _QUERY.search(line) is not None
                    for line in server.log()[before:].splitlines()
                )
                found["queries"][name] = queries / effort.seconds
                found["shares"]["on PostgreSQL"][name] = share
    for name, role in IDLE_ROLES.items():
        with new_file() as file, processes(str(file), role) as (process,):
            process.line()
            await asyncio.sleep(3)
            found["shares"]["on a file"][name] = await process.processor_share(effort.seconds)
    return found


async def waking(url: str, samples: int) -> list[float]:
    """Milliseconds from a resolution here to the call that it wakes there."""
    async with runtime_at(url) as runtime:
        with processes(url, "waiter", str(samples)) as (waiter,):
            keys = [waiter.line() for _ in range(samples)]
            times = []
            for key in keys:
                await asyncio.sleep(PAUSE)
                began = time.monotonic()
                await runtime.resolve(key, 1)
                times.append((float(await asyncio.to_thread(waiter.line)) - began) * 1e3)
            return times


async def picking_up(url: str, samples: int) -> list[float]:
    """Milliseconds from spawning a run here to its tool there."""
    async with runtime_at(url) as runtime:
        with processes(url, "worker") as (worker,):
            worker.line()
            times = []
            for _ in range(samples):
                await asyncio.sleep(PAUSE)
                began = time.monotonic()
                run = await runtime.session("s").spawn("begin", {"for_seconds": 0})
                times.append((float(await asyncio.to_thread(worker.line)) - began) * 1e3)
                await run.wait()
            return times


async def taking_over(url: str, kills: int) -> list[float]:
    """Seconds from the kill of a worker to the tool of its run in another one."""
    times = []
    async with runtime_at(url) as runtime:
        for number in range(kills):
            with processes(url, "worker", count=1) as (first,), processes(url, "worker", count=1) as (second,):
                first.line()
                run = await runtime.session("s").spawn("begin", {"for_seconds": 3_600}, id=f"run{number}")
                second.line()
                # Whoever has it says so.
                has, other = await first_of(first, second)
                await asyncio.sleep(1 + 1.6 * number / kills)  # not always right after a sign of life
                began = time.monotonic()
                has.kill()
                times.append(float(await asyncio.to_thread(other.line)) - began)
                await run.cancel("measured")
    return times


class Process:
    """Another process with a store open, which speaks in lines."""

    def __init__(self, location: str, role: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "bench.sections.postgres_processes", "--role", role, "--at", location]
        self._process = subprocess.Popen(
            [*command, *(["--count", *arguments] if arguments else [])],
            cwd=ROOT,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("A process ended before it said what was expected.")
        return line.strip()

    def kill(self) -> None:
        """End it without any order."""
        self._process.kill()

    async def processor_share(self, seconds: float) -> float:
        """Seconds of a processor that it takes in each second, for a while."""

        def used() -> float:
            with open(f"/proc/{self._process.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before = used()
        await asyncio.sleep(seconds)
        return (used() - before) / seconds

    def end(self) -> None:
        """End it, and wait for that."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def processes(location: str, role: str, *arguments: str, count: int = 1) -> Iterator[list[Process]]:
    """Other processes, until the end of the block."""
    found = [Process(location, role, arguments) for _ in range(count)]
    try:
        yield found
    finally:
        for process in found:
            process.end()


async def first_of(*both: Process) -> tuple[Process, Process]:
    """The one of two processes that says something first, and the other one, whose next line is left to be read."""
    import selectors

    with selectors.DefaultSelector() as any_of:
        for process in both:
            any_of.register(process._process.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
        ((key, _), *_) = await asyncio.to_thread(any_of.select, 30)
    has = key.data
    has.line()
    (other,) = [process for process in both if process is not has]
    return has, other


def tools() -> list[Any]:
    """The tools of all processes here: each says when it runs."""
    from toolwright import Pending, ToolContext, tool

    @tool(parallel=True)
    async def wait(ctx: ToolContext) -> float:
        key = ctx.event_key("go")
        print(key, flush=True)
        await ctx.wait(key, deadline=3_600)
        print(time.monotonic(), flush=True)
        return 1

    @tool(supports_background=True, idempotent=True)
    async def begin(for_seconds: float) -> float:
        print(time.monotonic(), flush=True)
        await asyncio.sleep(for_seconds)
        return 1

    @tool(parallel=True)
    async def book(ctx: ToolContext, number: int) -> Pending:
        ctx.completion_key()
        return Pending(deadline=3_600)

    @tool(readonly=True)
    async def nothing() -> int:
        return 1

    return [wait, begin, book, nothing]


@asynccontextmanager
async def runtime_at(location: str, *, worker: bool = False) -> AsyncIterator[Any]:
    """A runtime with these tools."""
    from toolwright import Runtime

    async with Runtime.open(location, tools=tools(), worker=worker) as runtime:
        yield runtime


async def wait_for_keys(location: str, count: int) -> None:
    """Be a process whose calls wait, and say the key of each, and when it is woken."""
    from toolwright import ToolCall

    async with runtime_at(location) as runtime:
        calls = [ToolCall(id=f"w{number}", name="wait", arguments={}) for number in range(count)]
        await runtime.session("s").run_batch(calls)
        await asyncio.sleep(3_600)


async def work(location: str, count: int) -> None:
    """Be a worker."""
    async with runtime_at(location, worker=True):
        await asyncio.sleep(1)  # until it is known, and listens
        print("ready", flush=True)
        await asyncio.sleep(3_600)


async def do_nothing(location: str, *, worker: bool) -> None:
    """Be a process with calls that wait and sessions that do nothing."""
    from toolwright import ToolCall

    async with runtime_at(location, worker=worker) as runtime:
        session, left = runtime.session("waiting"), WAITING
        with session.subscribe(limit=10 * WAITING) as events:
            batch = session.start_batch(
                [ToolCall(id=f"b{number}", name="book", arguments={"number": number}) for number in range(WAITING)]
            )
            async for event in events:
                left -= event.kind == "call.waiting"
                if not left:
                    break
        sessions = [runtime.session(f"idle {number}") for number in range(IDLE)]
        for each in sessions:
            await each.run_batch([ToolCall(id="1", name="nothing", arguments={})])
        print("ready", flush=True)
        await asyncio.sleep(3_600)
        del batch


IDLE_ROLES = {
    f"{WAITING:,} calls that wait and {IDLE:,} idle sessions": "idle",
    "… and a worker": "idle_worker",
}


def options() -> argparse.Namespace:
    """The command line: of the probe, or of one process that it starts."""
    parser = probe_parser(__doc__)
    parser.add_argument("--role", choices=["waiter", "worker", *IDLE_ROLES.values()], help="be this process")
    parser.add_argument("--at", metavar="LOCATION")
    parser.add_argument("--count", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Be the probe, or one of its processes."""
    chosen = options()
    if chosen.role is None:
        emit(asyncio.run(measure(QUICK if chosen.quick else THOROUGH)))
    elif chosen.role in IDLE_ROLES.values():
        asyncio.run(do_nothing(chosen.at, worker=chosen.role == "idle_worker"))
    else:
        roles = {"waiter": wait_for_keys, "worker": work}
        asyncio.run(roles[chosen.role](chosen.at, chosen.count))


if __name__ == "__main__":
    main()
