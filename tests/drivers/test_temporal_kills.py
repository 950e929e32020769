"""Workers and the server of Temporal are killed for real. An outside ledger has what tools did: nothing is lost, and
nothing happens twice that must not.

A round for each fault hits every kind of work where it stands; a test judges one of them.
"""

import asyncio
import functools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from tests.drivers.temporal_server import TemporalServer
from tests.rounds import play_once
from tests.support import until
from toolwright import Runtime
from toolwright.testing import FunctionModel

PATIENCE = 90.0
COMPLETED = WorkflowExecutionStatus.COMPLETED
AGENT = '''
import asyncio
import os
from pathlib import Path

from toolwright import App, ToolCall, ToolContext, tool
from toolwright.crash_seams import crash_seams
from toolwright.testing import FunctionModel

folder = Path(__file__).parent


def note(line):
    with (folder / "ledger").open("a") as file:
        file.write(line + "\\n")


async def gate():
    while not (folder / "open").exists():
        await asyncio.sleep(0.02)


@tool(supports_background=True)
async def pay(key: str) -> str:
    """Must not happen twice."""
    note(f"pay {key}")
    await gate()
    return f"paid {key}"


@tool(readonly=True, supports_background=True)
async def look(key: str) -> str:
    """May happen again."""
    note(f"look {key}")
    await gate()
    return f"saw {key}"


@tool(on_crash="rerun", supports_background=True)
async def stepped(ctx: ToolContext, key: str) -> str:
    """Has a step that is done, and one that is cut off."""

    async def first() -> None:
        note(f"first {key}")

    async def second() -> None:
        note(f"second {key}")
        await gate()

    await ctx.step("first", first)
    await ctx.step("second", second, on_crash="rerun")
    return f"stepped {key}"


@tool(on_crash="rerun", supports_background=True)
async def waits(ctx: ToolContext, key: str) -> str:
    """Waits for a signal, after a step."""

    async def before() -> None:
        note(f"before {key}")

    await ctx.step("before", before)
    note(f"waits {key}")
    return f"{key} got {await ctx.receive('go')}"


async def model(request):
    note(f"model {request.number}")
    if request.number == 0:
        return [ToolCall("pay", {"key": "in a turn"}, "1")]
    return "Done."


@tool(supports_background=True)
async def ends(key: str) -> str:
    """Its worker stops before the end of the run is written."""
    note(f"ends {key}")
    return f"ended {key}"


class Part:
    def __init__(self, inner, **parts):
        self.inner = inner
        self.__dict__.update(parts)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def stop_at_the_end(store):
    runs = store.services.runs

    async def finish(ending, quotas):
        if ending.id == "ends":
            note("at the end")
            await gate()
        return await runs.finish(ending, quotas)

    return Part(store, services=Part(store.services, runs=Part(runs, finish=finish)))


if "STOPS" in os.environ:
    crash_seams.store = stop_at_the_end
app = App(tools=[pay, look, stepped, waits, ends], model=FunctionModel(model))
'''


class Scene:
    """A store, a ledger, a server of Temporal, and workers in processes of their own."""

    def __init__(self, folder: Path, server: TemporalServer) -> None:
        self.folder = folder
        self.server = server
        self.driver = server.url("agents")
        self.workers: list[subprocess.Popen[bytes]] = []
        (folder / "agent.py").write_text(AGENT)

    def open(self) -> Any:
        """The program that starts the work, and has no worker."""
        sys.path.insert(0, str(self.folder))
        try:
            sys.modules.pop("agent", None)
            from agent import app  # type: ignore[import-not-found]
        finally:
            sys.path.remove(str(self.folder))
        return Runtime.open(
            self.folder / "agent.db",
            tools=app.tools,
            model=FunctionModel(lambda request: ""),
            worker=False,
            driver=self.driver,
        )

    def start_worker(self) -> "subprocess.Popen[bytes]":
        words = ["worker", "--app", "agent:app", "--db", "agent.db", "--grace", "0", "--driver", self.driver]
        with (self.folder / f"worker{len(self.workers)}.log").open("wb") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "toolwright.cli", *words],
                cwd=self.folder,
                env={**os.environ, "STOPS": "yes"},
                stderr=log,
                stdout=log,
            )
        self.workers.append(started)
        return started

    @property
    def ledger(self) -> Counter[str]:
        file = self.folder / "ledger"
        return Counter(file.read_text().splitlines() if file.exists() else ())

    async def until(self, true: Callable[[], bool]) -> None:
        try:
            await until(true, PATIENCE)
        except pytest.fail.Exception:
            logs = [file.read_text(errors="replace")[-3_000:] for file in sorted(self.folder.glob("worker*.log"))]
            pytest.fail(f"It did not come to that: {self.ledger}\n" + "\n".join(logs))

    def go(self) -> None:
        """Let the tools end."""
        (self.folder / "open").touch()

    async def workflows(self) -> dict[str, WorkflowExecutionStatus | None]:
        """The workflows of the server by their type, once all are closed."""
        client = await Client.connect(f"127.0.0.1:{self.server.port}")

        async def found() -> dict[str, WorkflowExecutionStatus | None]:
            listed = [each async for each in client.list_workflows()]
            closed = all(each.status != WorkflowExecutionStatus.RUNNING for each in listed)
            return {each.id.split("/")[2]: each.status for each in listed} if closed else {}

        return dict(await until(found, PATIENCE))

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


FAULTS = ("worker", "server", "worker and server")
WORKS = ("pay", "look", "stepped", "waits", "ends", "later", "scheduled", "turn")
"""Where they stand: in a tool three times, in a step, in a wait, at the end, before it begins, and a call of a turn."""
BEGUN = {
    "pay k",
    "look k",
    "first k",
    "second k",
    "before k",
    "waits k",
    "at the end",
    "pay scheduled",
    "pay in a turn",
}


async def play(fault: str, folder: Path) -> dict[str, Any]:
    """Bring all work to its point, let the fault come, and see how each ends."""
    server = TemporalServer(folder)
    await asyncio.to_thread(server.start)
    scene = Scene(folder, server)
    try:
        async with scene.open() as runtime:
            return await see(fault, scene, runtime)
    finally:
        scene.close()
        server.stop()


async def see(fault: str, scene: Scene, runtime: Runtime) -> dict[str, Any]:
    dies = fault != "server"
    runs = {name: await runtime.session(name).spawn(name, {"key": "k"}, id=name) for name in WORKS[:5]}
    at = datetime.fromtimestamp(time.time() + 1, UTC).isoformat()
    await runtime.session("scheduled").schedule("pay", {"key": "scheduled"}, at=at)
    turn = await runtime.session("turn").start_turn("Go.", id="turn", background=True)
    workers = [scene.start_worker() for _ in range(1 if fault != "worker and server" else 2)]
    await scene.until(lambda: set(scene.ledger) >= BEGUN)
    if dies:
        for worker in workers:
            worker.kill()
            worker.wait()
    if fault != "worker":
        scene.server.kill()
    # Nobody can be told of it now, or nobody is there.
    runs["later"] = await runtime.session("later").spawn("look", {"key": "later"}, id="later")
    scene.go()
    if dies:
        scene.start_worker()  # perhaps before its server is there
    else:
        await runs["pay"].wait(PATIENCE)
    if fault != "worker":
        await asyncio.to_thread(scene.server.start)
    await scene.until(lambda: scene.ledger["waits k"] == (2 if dies else 1))
    await runs["waits"].signal("go", 42)
    (runs["scheduled"],) = await runtime.session("scheduled").runs()
    outcomes = {name: await run.wait(PATIENCE) for name, run in runs.items()}
    ended = await turn.wait(PATIENCE)
    assert ended is not None
    workflows = await scene.workflows()
    seen: dict[str, Any] = {
        name: [outcome.value, outcome.failure and outcome.failure.code, workflows[runs[name].id] == COMPLETED]
        for name, outcome in outcomes.items()
    }
    return seen | {
        "turn": [ended.text, ended.status, workflows["turn"] == COMPLETED],
        "ledger": scene.ledger,
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """The round of a fault, which is played once, also where several processes of the test run share its cells."""
    return functools.cache(
        lambda fault: play_once(tmp_path_factory, "temporal", fault, lambda f: asyncio.run(play(fault, f)))
    )


@pytest.mark.promise("ENG-04", "PROC-04", "TURN-03")
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_repeated_after_a_kill_of(seen, fault, work):
    told = seen(fault)
    dies, ledger = fault != "server", told["ledger"]
    twice = 2 if dies else 1
    ends = {
        "look": "saw k",
        "stepped": "stepped k",
        "waits": "k got 42",
        "ends": "ended k",
        "later": "saw later",
    }
    lines = {
        "pay": {"pay k": 1},
        "look": {"look k": twice},
        "stepped": {"first k": 1, "second k": twice},
        "waits": {"before k": 1, "waits k": twice},
        "ends": {"ends k": 1},
        "later": {"look later": 1},
        "scheduled": {"pay scheduled": 1},
        "turn": {"model 0": 1, "pay in a turn": 1, "model 1": 1},
    }
    assert {line: ledger.get(line) for line in lines[work]} == lines[work]
    if work == "turn":
        assert told[work] == ["Done.", "answered", True]
    elif work in ends:
        assert told[work] == [ends[work], None, True]
    else:
        paid = f"paid {'k' if work == 'pay' else work}"
        assert told[work] == ([None, "interrupted", False] if dies else [paid, None, True])
