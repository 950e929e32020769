"""Workers and the server of Temporal are killed for real. An outside ledger has what tools did: nothing is lost, and
nothing happens twice that must not."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from tests.drivers.temporal_server import TemporalServer
from tests.support import until
from toolwright import Runtime, ToolOutcome
from toolwright.testing import FunctionModel

PATIENCE = 90.0
AGENT = '''
import asyncio
from pathlib import Path

from toolwright import App, ToolCall, ToolContext, tool
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


app = App(tools=[pay, look, stepped, waits], model=FunctionModel(model))
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
                [sys.executable, "-m", "toolwright.cli", *words], cwd=self.folder, stderr=log, stdout=log
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


@pytest.fixture
def scene(tmp_path: Path, own_temporal: TemporalServer) -> Iterator[Scene]:
    made = Scene(tmp_path, own_temporal)
    yield made
    made.close()


async def start_runs(runtime: Runtime) -> list[Any]:
    session = runtime.session("s")
    return [await session.spawn(name, {"key": "k"}, id=name) for name in ("pay", "look", "stepped", "waits")]


async def outcomes_of(runs: list[Any]) -> list[ToolOutcome]:
    return [await run.wait(PATIENCE) for run in runs]


BEGUN = {"pay k", "look k", "first k", "second k", "before k", "waits k"}


@pytest.mark.promise("ENG-04", "PROC-04")
async def test_a_worker_killed_in_a_tool_a_step_and_a_wait_loses_and_repeats_nothing(scene: Scene):
    async with scene.open() as runtime:
        runs = await start_runs(runtime)
        first = scene.start_worker()
        await scene.until(lambda: set(scene.ledger) >= BEGUN)
        first.kill()
        first.wait()
        scene.go()
        scene.start_worker()
        await scene.until(lambda: scene.ledger["waits k"] == 2)
        await runs[3].signal("go", 42)
        paid, seen, stepped, waited = await outcomes_of(runs)
    assert paid.failure is not None
    assert paid.failure.code == "interrupted"
    assert (seen.value, stepped.value, waited.value) == ("saw k", "stepped k", "k got 42")
    # A call that is not to happen twice did not; what may be repeated was, and the steps that were done were not.
    assert scene.ledger == {"pay k": 1, "look k": 2, "first k": 1, "second k": 2, "before k": 1, "waits k": 2}
    assert await scene.workflows() == {
        "pay": WorkflowExecutionStatus.FAILED,
        "look": WorkflowExecutionStatus.COMPLETED,
        "stepped": WorkflowExecutionStatus.COMPLETED,
        "waits": WorkflowExecutionStatus.COMPLETED,
    }


@pytest.mark.promise("ENG-04")
async def test_a_server_that_is_killed_and_restarted_is_not_noticed_by_tools(scene: Scene):
    async with scene.open() as runtime:
        runs = await start_runs(runtime)
        scene.start_worker()
        await scene.until(lambda: set(scene.ledger) >= BEGUN)
        scene.server.kill()
        later = await runtime.session("s").spawn("look", {"key": "later"}, id="later")  # nobody can be told now
        scene.go()
        assert [outcome.value for outcome in await outcomes_of(runs[:3])] == ["paid k", "saw k", "stepped k"]
        scene.server.start()
        await runs[3].signal("go", 42)
        assert [outcome.value for outcome in await outcomes_of([runs[3], later])] == ["k got 42", "saw later"]
        assert set((await scene.workflows()).values()) == {WorkflowExecutionStatus.COMPLETED}
    assert scene.ledger == dict.fromkeys([*BEGUN, "look later"], 1)


@pytest.mark.promise("ENG-04")
async def test_server_and_workers_killed_together_lose_and_repeat_nothing(scene: Scene):
    async with scene.open() as runtime:
        runs = await start_runs(runtime)
        workers = [scene.start_worker(), scene.start_worker()]
        await scene.until(lambda: set(scene.ledger) >= BEGUN)
        for worker in workers:
            worker.kill()
        scene.server.kill()
        scene.go()
        scene.start_worker()  # before its server is there
        scene.server.start()
        await scene.until(lambda: scene.ledger["waits k"] == 2)
        await runs[3].signal("go", 42)
        paid, seen, stepped, waited = await outcomes_of(runs)
        await scene.workflows()
    assert paid.failure is not None
    assert paid.failure.code == "interrupted"
    assert (seen.value, stepped.value, waited.value) == ("saw k", "stepped k", "k got 42")
    assert scene.ledger == {"pay k": 1, "look k": 2, "first k": 1, "second k": 2, "before k": 1, "waits k": 2}


@pytest.mark.promise("ENG-04", "TURN-03")
async def test_a_turn_of_a_killed_worker_is_brought_to_the_next(scene: Scene):
    async with scene.open() as runtime:
        turn = await runtime.session("s").start_turn("Go.", id="t", background=True)
        first = scene.start_worker()
        await scene.until(lambda: scene.ledger["pay in a turn"] == 1)
        first.kill()
        first.wait()
        scene.go()
        scene.start_worker()
        outcome = await turn.wait(PATIENCE)
        assert await scene.workflows() == {"t": WorkflowExecutionStatus.COMPLETED}
    assert outcome is not None
    assert (outcome.status, outcome.text) == ("answered", "Done.")
    assert scene.ledger == {"model 0": 1, "pay in a turn": 1, "model 1": 1}
