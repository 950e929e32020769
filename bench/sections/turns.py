"""What a turn costs: beside a plain loop, on a file, in memory while it waits, while it streams, and after a crash.

The turn has ten model calls with ten calls of tools each, and one more model call that ends it. The plain loop asks the
same script, gathers the same functions, and appends both to a list. Each part is measured in a process of its own.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from bench.disk import new_file
from bench.pairing import Effort, Pairing, pair
from bench.probe import ROOT, ProbeError, child_environment, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.sections.waiting import resident
from bench.workload import plain_loop

IN_MEMORY = "in memory"
"""The name of the line that peers are compared with."""
LIMIT_RATIO = 2.5
LIMIT_DURABLE = 60
LIMIT_WAITING_KIB, LIMIT_SUSPENDED_KIB = 40, 4
LIMIT_DELTA = 2
LIMIT_COMMITS = 20
LIMIT_REPLAY = 50
WAITING, SUSPENDED, SUSPENDED_QUICKLY = 1_000, 10_000, 1_000
COUNTED_TURNS = 9
AT_ONCE = 100
"""How many turns are started at a time, until all are suspended."""
DELTAS_A_SECOND, STREAM_SECONDS = 1_000, 5
REPLAY_STEPS, REPLAY_CALLS = 100, 10


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure each part in a fresh process; one that fails takes no other with it."""
    lines: list[Line] = []
    for part, to_lines in PARTS.items():
        try:
            lines += to_lines(run_probe("bench.sections.turns", part, quick=quick))
        except ProbeError as error:
            lines.append(Line(part, error=str(error)))
    return Report("turns", "turns of 10 model calls with 10 tool calls each, beside a plain loop", lines)


# --- a turn beside a plain loop


def time_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    yield Line.paired(IN_MEMORY, Pairing.from_json(found["memory"]), target=LIMIT_RATIO)
    for sync, target in (("full", Target("value", LIMIT_DURABLE, " µs/call")), ("normal", None)):
        durable = Pairing.from_json(found[sync])
        more = durable.variant.median - durable.baseline.median
        yield Line(f"on a file, sync {sync}: more than in memory", more, target=target, detail=durable.to_json())
    yield Line("on a file, sync full: disk syncs", statistics.median(found["syncs"]), "a turn")


async def times(effort: Effort) -> dict[str, Any]:
    """The turn in memory beside the plain loop, and on a file beside the turn in memory."""
    # Here, so that the sections load where toolwright does not.
    from bench.contestant import open_contestant

    found: dict[str, Any] = {}
    syncs: tuple[Literal["full", "normal"], ...] = ("full", "normal")
    async with open_contestant() as memory:
        found["memory"] = (await pair(plain_loop(), memory.turn_subject(), effort)).to_json()
        for sync in syncs:
            with new_file() as file:
                async with open_contestant(store=file, sync=sync) as durable:
                    beside_memory = await pair(memory.turn_subject(), durable.turn_subject(), effort)
                    found[sync] = beside_memory.to_json()
    return {**found, "syncs": await count_syncs()}


async def count_syncs() -> list[int]:
    """The disk syncs of each of some turns; counted apart, for counting takes time."""
    from bench.contestant import open_contestant
    from bench.syncs import counted_syncs

    counts = []
    with counted_syncs() as syncs, new_file() as file:
        async with open_contestant(store=file) as contestant:
            subject = contestant.turn_subject()
            for _ in range(COUNTED_TURNS):
                before = syncs.total
                subject.check(await subject.run(subject.prepare()))
                counts.append(syncs.total - before)
    return counts


# --- memory


def waiting_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    limit = Target("value", LIMIT_WAITING_KIB, " KiB", strict=True)
    name = f"{WAITING:,} turns that wait for their model, {found['store']}"
    yield Line(name, found["bytes"] / 1024, "KiB/turn", target=limit)


async def waiting_on_file() -> dict[str, Any]:
    """The same as `waiting`, on a file."""
    with new_file() as file:
        return {"store": "on a file", "bytes": await waiting(file)}


async def waiting_in_memory() -> dict[str, Any]:
    """The same as `waiting`, in memory."""
    return {"store": "in memory", "bytes": await waiting(":memory:")}


async def waiting(store: str | Path) -> float:
    """Bytes of each of many turns whose model has not answered yet."""
    from bench.contestant import POLICY, TOOLS
    from toolwright import Runtime

    arrived, answer = 0, asyncio.Event()

    class Silent:
        provider, name = "bench", "silent"

        async def complete(self, request: Any) -> str:
            nonlocal arrived
            arrived += 1
            if not request.session.startswith("warm"):
                await answer.wait()
            return "done"

    async with Runtime.open(store, tools=TOOLS, policy=POLICY, model=Silent(), sync="normal") as runtime:
        for number in range(20):
            await runtime.session(f"warm {number}").ask("?")
        arrived, before = 0, resident()
        turns = [await runtime.session(f"s{number}").start_turn("?") for number in range(WAITING)]
        while arrived < WAITING:  # noqa: ASYNC110 - an event would be one more thing in memory
            await asyncio.sleep(0.01)
        grown = resident() - before
        answer.set()
        for turn in turns:
            assert (await turn).text == "done"
        return grown / WAITING


def suspended_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    limit = Target("value", LIMIT_SUSPENDED_KIB, " KiB", strict=True)
    name = f"{found['turns']:,} turns that wait for approval, on a file"
    yield Line(name, found["bytes"] / 1024, "KiB/turn", target=limit)


async def suspended(count: int) -> dict[str, Any]:
    """Bytes of each of many turns with a call that must be approved."""
    from toolwright import Runtime, ToolCall, tool

    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe a path."""
        return path

    class Wiper:
        provider, name = "bench", "wiper"

        async def complete(self, request: Any) -> list[ToolCall]:
            return [ToolCall(id="w", name="wipe", arguments={"path": f"/{request.session}"})]

    async def suspend(session: str) -> None:
        assert (await runtime.session(session).ask("Wipe it.")).status == "waiting"

    with new_file() as file:
        async with Runtime.open(file, tools=[wipe], model=Wiper(), sync="normal") as runtime:
            await asyncio.gather(*[suspend(f"warm {number}") for number in range(AT_ONCE)])
            before = resident()
            for start in range(0, count, AT_ONCE):
                await asyncio.gather(*[suspend(f"s{number}") for number in range(start, start + AT_ONCE)])
            return {"turns": count, "bytes": (resident() - before) / count}


# --- streaming


def stream_lines(found: Mapping[str, float]) -> Iterator[Line]:
    limit = Target("value", LIMIT_DELTA, " ms")
    yield Line("first text delta, until `follow()` gives it", found["first"], "ms", target=limit)
    yield Line("… every other delta", found["others"], "ms")
    rate = f"{found['rate']:,.0f} deltas a second"
    yield Line(f"{rate}: store transactions", found["commits"], "a second", target=Target("value", LIMIT_COMMITS))


async def stream(effort: Effort) -> dict[str, float]:
    """How long a delta travels, and how often the store is written to while they come fast; on a file."""
    from toolwright import Runtime
    from toolwright.tools.model import ModelAnswer, TextDelta

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(10):
            await asyncio.sleep(0.01)
            writer.write(f"{perf_counter()!r}\n".encode())
        writer.close()

    class Remote:
        """A model behind a socket: each line is a piece of its text."""

        provider, name = "bench", "remote"

        async def complete(self, request: Any) -> ModelAnswer:
            raise NotImplementedError("Its answers are streamed.")

        async def stream(self, request: Any) -> AsyncIterator[TextDelta | ModelAnswer]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async for line in reader:
                yield TextDelta(line.decode())
            writer.close()
            yield ModelAnswer(text="done")

    class Fast:
        """A model that says something a thousand times a second."""

        provider, name = "bench", "fast"

        async def complete(self, request: Any) -> ModelAnswer:
            raise NotImplementedError("Its answers are streamed.")

        async def stream(self, request: Any) -> AsyncIterator[TextDelta | ModelAnswer]:
            started, said = perf_counter(), 0
            while said < DELTAS_A_SECOND * STREAM_SECONDS:
                await asyncio.sleep(0.001)
                due = int((perf_counter() - started) * DELTAS_A_SECOND)
                while said < due:
                    said += 1
                    yield TextDelta("word ")
            yield ModelAnswer(text="done")

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    first: list[float] = []
    others: list[float] = []
    with new_file() as file:
        async with Runtime.open(file, model=Remote()) as runtime:
            for number in range(5 * effort.pairs):
                turn = await runtime.session(f"s{number}").start_turn("?")
                took = [
                    (perf_counter() - float(event.data["text"])) * 1e3
                    async for event in turn.follow()
                    if event.kind == "text"
                ]
                first.append(took[0])
                others += took[1:]
            store = runtime._parts.storage.store
            before, began = store.commits, perf_counter()  # type: ignore[union-attr]
            turn = await runtime.session("fast").start_turn("?", model=Fast())
            deltas = [event.number async for event in turn.follow() if event.kind == "text"]
            seconds = perf_counter() - began
            assert (await turn).text == "done"
            commits = store.commits - before  # type: ignore[union-attr]
    server.close()
    return {
        "first": statistics.median(first),
        "others": statistics.median(others),
        "rate": len(deltas) / seconds,
        "commits": commits / seconds,
    }


# --- after a crash


def replay_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    name = f"{REPLAY_STEPS} model calls, {REPLAY_STEPS * REPLAY_CALLS:,} tool calls, killed"
    milliseconds = statistics.median(found["milliseconds"])
    target = Target("value", LIMIT_REPLAY, " ms")
    yield Line(f"{name}: until the next request", milliseconds, "ms", target=target, detail=found)
    yield Line("… model calls that were repeated", found["repeated"], "calls", target=Target("value", 0))


async def replay(effort: Effort) -> dict[str, Any]:
    """From `recover()` to the request of the model call that the kill prevented, for several killed processes."""
    from bench.contestant import POLICY, TOOLS, TurnModel
    from toolwright import Runtime

    asked: list[tuple[int, float]] = []

    class Asked(TurnModel):
        async def complete(self, request: Any) -> Any:
            asked.append((request.number, perf_counter()))
            return await super().complete(request)

    milliseconds, repeated = [], 0
    for _ in range(effort.pairs):
        with new_file() as file:
            _run_until_killed(file)
            model = Asked(REPLAY_STEPS, REPLAY_CALLS)
            async with Runtime.open(file, tools=TOOLS, policy=POLICY, model=model) as runtime:
                asked.clear()
                began = perf_counter()
                await runtime.recover()
                outcome = await (await runtime.session("s").turn("t"))
                assert outcome.model_calls == REPLAY_STEPS + 1
                assert len(outcome.calls) == REPLAY_STEPS * REPLAY_CALLS
            milliseconds.append((asked[0][1] - began) * 1e3)
            repeated += sum(number < REPLAY_STEPS for number, _ in asked)
    return {"milliseconds": milliseconds, "repeated": repeated}


def _run_until_killed(file: Path) -> None:
    command = [sys.executable, "-m", "bench.sections.turns", "killed", "--file", str(file)]
    ended = subprocess.run(command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False)
    if ended.returncode != -signal.SIGKILL:
        raise RuntimeError(f"The process was not killed, but ended with {ended.returncode}: {ended.stderr[-300:]}")


async def be_killed(file: Path) -> None:
    """Run a turn, and kill this process when the model is asked after the last batch."""
    from bench.contestant import POLICY, TOOLS, TurnModel
    from toolwright import Budget, Runtime

    class Deadly(TurnModel):
        async def complete(self, request: Any) -> Any:
            if request.number == REPLAY_STEPS:
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().complete(request)

    model, budget = Deadly(REPLAY_STEPS, REPLAY_CALLS), Budget(model_calls=2 * REPLAY_STEPS)
    async with Runtime.open(file, tools=TOOLS, policy=POLICY, model=model, sync="normal") as runtime:
        await runtime.session("s").ask("?", id="t", budget=budget)


PARTS: dict[str, Callable[[Any], Iterator[Line]]] = {
    "times": time_lines,
    "waiting-in-memory": waiting_lines,
    "waiting-on-file": waiting_lines,
    "suspended": suspended_lines,
    "stream": stream_lines,
    "replay": replay_lines,
}


def main() -> None:
    """Measure one part, and print it."""
    parser = probe_parser(__doc__)
    parser.add_argument("part", choices=[*PARTS, "killed"])
    parser.add_argument("--file", type=Path, help="the store of the process that kills itself")
    given = parser.parse_args()
    if given.part == "killed":
        asyncio.run(be_killed(given.file))
        return
    effort, count = effort_of(given), SUSPENDED_QUICKLY if given.quick else SUSPENDED
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "times": lambda: times(effort),
        "waiting-in-memory": waiting_in_memory,
        "waiting-on-file": waiting_on_file,
        "suspended": lambda: suspended(count),
        "stream": lambda: stream(effort),
        "replay": lambda: replay(effort),
    }

    async def measure() -> None:
        emit(await parts[given.part]())

    asyncio.run(measure())


if __name__ == "__main__":
    main()
