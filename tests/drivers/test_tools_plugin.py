"""The tools of an app as one activity of a Temporal worker that somebody has already."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, CancelledError
from temporalio.worker import Worker

from tests.drivers.temporal_server import TemporalServer
from tests.support import in_memory, until
from toolwright import App, Runtime, ToolCall, ToolwrightError, tool
from toolwright.adapters.temporal import ToolAnswer, ToolsPlugin, call_tools
from toolwright.runtime import used_sessions
from toolwright.session.core import SessionCore

PATIENCE = 90.0


@workflow.defn
class TwoCalls:
    @workflow.run
    async def run(self, names: list[str]) -> list[ToolAnswer]:
        return await call_tools(
            [ToolCall(name, {"key": "k"}, f"c{number}") for number, name in enumerate(names)],
            session="s",
            heartbeat=2.0,
        )


@pytest.fixture
async def client(shared_temporal: TemporalServer) -> Client:
    return await Client.connect(f"127.0.0.1:{shared_temporal.port}")


@pytest.mark.promise("ENG-04")
async def test_a_workflow_runs_calls_as_one_activity_and_their_values_stay_in_the_store(client: Client, file: Path):
    @tool(readonly=True)
    async def look(key: str) -> dict[str, str]:
        """Look."""
        return {"key": key, "secret of the store": "x" * 10}

    @tool
    async def fail(key: str) -> str:
        """Fail."""
        raise ValueError("no")

    queue = uuid4().hex
    async with Worker(
        client, task_queue=queue, workflows=[TwoCalls], plugins=[ToolsPlugin(App(tools=[look, fail]), file)]
    ):
        handle = await client.start_workflow(TwoCalls.run, ["look", "fail"], id=uuid4().hex, task_queue=queue)
        answers = await asyncio.wait_for(handle.result(), PATIENCE)
    assert [(answer.id, answer.tool, answer.status, answer.ok) for answer in answers] == [
        ("c0", "look", "success", True),
        ("c1", "fail", "failure", False),
    ]
    assert "secret of the store" in answers[0].text
    history = await handle.fetch_history()
    activities = [each for each in history.events if each.HasField("activity_task_scheduled_event_attributes")]
    assert [each.activity_task_scheduled_event_attributes.activity_type.name for each in activities] == [
        "toolwright.call_tools"
    ]
    assert sum(each.ByteSize() for each in history.events) < 10_000
    async with Runtime.open(file, tools=[look, fail], worker=False) as runtime:
        (again,) = await runtime.session("s").run_batch(
            [ToolCall("look", {"key": "k"}, "c0")], scope=f"temporal/{handle.id}"
        )
    assert again.replayed


@pytest.mark.promise("ENG-04")
async def test_a_cancelled_workflow_cancels_its_calls(client: Client, file: Path):
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def hold(key: str) -> str:
        """Hold."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return key

    queue = uuid4().hex
    async with Worker(client, task_queue=queue, workflows=[TwoCalls], plugins=[ToolsPlugin(App(tools=[hold]), file)]):
        handle = await client.start_workflow(TwoCalls.run, ["hold"], id=uuid4().hex, task_queue=queue)
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            await handle.cancel()
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
            await stopped.wait()
    assert isinstance(failed.value.cause, CancelledError)


@workflow.defn
class OneCall:
    @workflow.run
    async def run(self) -> list[ToolAnswer]:
        return await call_tools([ToolCall("look", {"key": "k"}, "c")], heartbeat=2.0)


@pytest.mark.promise("ENG-04")
async def test_a_worker_does_not_keep_the_sessions_of_all_workflows_in_memory(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(used_sessions, "MOST_SESSIONS", 3)

    @tool(readonly=True)
    async def look(key: str) -> str:
        """Look."""
        return key

    queue, before = uuid4().hex, in_memory(SessionCore)
    async with Worker(client, task_queue=queue, workflows=[OneCall], plugins=[ToolsPlugin(App(tools=[look]), file)]):
        for _ in range(12):
            running = client.execute_workflow(OneCall.run, id=uuid4().hex, task_queue=queue)
            (answer,) = await asyncio.wait_for(running, PATIENCE)
            assert answer.ok
        await until(lambda: in_memory(SessionCore) - before < 8)


@workflow.defn
class ManyCalls:
    @workflow.run
    async def run(self, sizes: list[int]) -> list[ToolAnswer]:
        calls = [ToolCall("read", {"size": size}, f"c{number}") for number, size in enumerate(sizes)]
        return await call_tools(calls, heartbeat=2.0)


@pytest.mark.promise("ENG-04")
async def test_texts_that_are_too_long_together_for_temporal_are_cut(client: Client, file: Path):
    @tool(readonly=True)
    async def read(size: int) -> str:
        return "ä" * size

    queue, sizes = uuid4().hex, [10, *[20_000] * 60, 1_000]
    async with Worker(client, task_queue=queue, workflows=[ManyCalls], plugins=[ToolsPlugin(App(tools=[read]), file)]):
        running = client.execute_workflow(ManyCalls.run, sizes, id=uuid4().hex, task_queue=queue)
        answers = await asyncio.wait_for(running, PATIENCE)
    assert all(answer.ok for answer in answers)
    assert [answers[0].text, answers[-1].text] == ["ä" * 10, "ä" * 1_000]
    for answer in answers[1:-1]:
        assert answer.text.startswith("ää")
        assert " bytes in 1 lines omitted …]" in answer.text
    assert 1_400_000 < sum(len(json.dumps(answer.text)) for answer in answers) <= 1_500_000


@workflow.defn
class GivenCall:
    @workflow.run
    async def run(self, call: dict[str, Any]) -> list[ToolAnswer]:
        return await call_tools([call], heartbeat=2.0)


@pytest.mark.promise("ENG-04")
@pytest.mark.parametrize(
    "call", [{"id": "c", "name": "look", "input": {}}, {"id": "c", "arguments": {}}], ids=["unknown field", "no name"]
)
async def test_a_call_that_has_no_form_of_a_call_fails_and_is_not_tried_again(
    client: Client, file: Path, call: dict[str, Any]
):
    queue = uuid4().hex
    async with Worker(client, task_queue=queue, workflows=[GivenCall], plugins=[ToolsPlugin(App(), file)]):
        handle = await client.start_workflow(GivenCall.run, call, id=uuid4().hex, task_queue=queue)
        # Of a try that is to be made again, Temporal keeps no event, but the number of tries.
        await until(lambda: _was_tried(handle), PATIENCE)
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(handle.result(), PATIENCE)
    assert isinstance(failed.value.cause, ActivityError)
    assert "A call is not usable" in str(failed.value.cause.cause)


async def _was_tried(handle: WorkflowHandle[Any, Any]) -> bool:
    found = await handle.describe()
    if found.status != WorkflowExecutionStatus.RUNNING:
        return True
    tries = [each.attempt for each in found.raw_description.pending_activities]
    assert all(number == 1 for number in tries), "It was tried again."
    return False


def test_the_plugin_refuses_a_store_that_no_other_worker_can_open():
    with pytest.raises(ToolwrightError, match="give it a file"):
        ToolsPlugin(App(), ":memory:")


TEAM = '''
import asyncio
import sys
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from toolwright import App, ToolCall, tool
from toolwright.adapters.temporal import ToolAnswer, ToolsPlugin, call_tools

folder = Path(__file__).parent


def note(line):
    with (folder / "ledger").open("a") as file:
        file.write(line + "\\n")


async def gate():
    while not (folder / "open").exists():
        await asyncio.sleep(0.02)


@tool(parallel=True)
async def pay(key: str) -> str:
    """Must not happen twice."""
    note(f"pay {key}")
    await gate()
    return "paid"


@tool(readonly=True)
async def look(key: str) -> str:
    """May happen again."""
    note(f"look {key}")
    await gate()
    return "seen"


@workflow.defn
class TwoCalls:
    @workflow.run
    async def run(self, names: list[str]) -> list[ToolAnswer]:
        calls = [ToolCall(name, {"key": "k"}, f"c{number}") for number, name in enumerate(names)]
        return await call_tools(calls, session="s", heartbeat=2.0)


async def main():
    client = await Client.connect(sys.argv[1])
    plugin = ToolsPlugin(App(tools=[pay, look]), folder / "agent.db")
    await Worker(client, task_queue=sys.argv[2], workflows=[TwoCalls], plugins=[plugin]).run()


if __name__ == "__main__":  # the sandbox of workflows imports this file again
    asyncio.run(main())
'''


def start(words: list[str], folder: Path, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, cwd=folder, stderr=log)


@pytest.mark.promise("ENG-04")
async def test_the_crash_policy_of_each_tool_decides_when_a_worker_is_killed(
    client: Client, shared_temporal: TemporalServer, tmp_path: Path
):
    queue, ledger = uuid4().hex, tmp_path / "ledger"
    (tmp_path / "team.py").write_text(TEAM)
    words = [sys.executable, "team.py", f"127.0.0.1:{shared_temporal.port}", queue]
    handle = await client.start_workflow(TwoCalls.run, ["look", "pay"], id=uuid4().hex, task_queue=queue)
    with (tmp_path / "log").open("wb") as log:
        first = start(words, tmp_path, log)
        try:

            def begun() -> bool:
                assert first.poll() is None, (tmp_path / "log").read_text()
                return ledger.exists() and len(ledger.read_text().splitlines()) == 2

            await until(begun, PATIENCE)
        finally:
            first.kill()
            first.wait()
        (tmp_path / "open").touch()
        second = start(words, tmp_path, log)
        try:
            looked, paid = await asyncio.wait_for(handle.result(), PATIENCE)
        finally:
            second.kill()
            second.wait()
    assert (looked.status, looked.text) == ("success", "seen")
    assert paid.status == "failure"
    assert Counter(ledger.read_text().splitlines()) == {"look k": 2, "pay k": 1}


def test_the_example_of_a_team_runs(shared_temporal: TemporalServer, tmp_path: Path):
    example = Path(__file__).parents[2] / "examples" / "temporal_team.py"
    words = [sys.executable, str(example), f"127.0.0.1:{shared_temporal.port}", str(tmp_path / "agent.db")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["customer 12 has 3 orders", "order 7 is refunded"]
