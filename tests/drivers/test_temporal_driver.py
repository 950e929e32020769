"""Temporal as a driver: what a person sees there, what its URL may be, and how little its histories hold."""

import asyncio
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from tests.drivers.temporal_server import TemporalServer
from tests.support import until
from toolwright import DriverError, Policy, Runtime, ToolCall, tool
from toolwright.background import worker
from toolwright.clock import SystemClock
from toolwright.drivers import open_driver, register_driver
from toolwright.stores.sqlite.core import writer
from toolwright.testing import FunctionModel
from toolwright.tools.background_protocols import RunClient

PATIENCE = 60.0
STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


async def workflows(server: TemporalServer, driver: str, closed: int) -> list[WorkflowExecution]:
    """The workflows of a queue, once some of them are closed."""
    client = await Client.connect(f"127.0.0.1:{server.port}")
    queue = driver.partition("queue=")[2].partition("&")[0]

    async def found() -> list[WorkflowExecution]:
        listed = [each async for each in client.list_workflows(f"TaskQueue = {queue!r}")]
        enough = sum(each.status != WorkflowExecutionStatus.RUNNING for each in listed) >= closed
        return listed if enough else []

    return list(await until(found, PATIENCE))


async def history_bytes(server: TemporalServer, id: str) -> int:
    client = await Client.connect(f"127.0.0.1:{server.port}")
    history = await client.get_workflow_handle(id).fetch_history()
    return sum(event.ByteSize() for event in history.events)


@pytest.mark.promise("ENG-04")
async def test_a_run_is_a_workflow_that_a_person_understands(file: Path, driver: str, shared_temporal: TemporalServer):
    @tool(supports_background=True)
    async def report(text: str) -> str:
        """Make a report."""
        return "hidden outcome"

    async with Runtime.open(file, tools=[report], worker=True, driver=driver) as runtime:
        run = await runtime.session("ann").spawn("report", {"text": "hidden argument"}, title="The report of May")
        assert (await run.wait(PATIENCE)).value == "hidden outcome"
        (found,) = await workflows(shared_temporal, driver, 1)
    assert found.workflow_type == "toolwright.run"
    assert run.id in found.id
    assert found.status == WorkflowExecutionStatus.COMPLETED
    memo = await found.memo()
    assert memo == {"id": run.id, "session": "ann", "tool": "report", "title": "The report of May"}
    client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
    history = await client.get_workflow_handle(found.id).fetch_history()
    assert "hidden" not in history.to_json()


@pytest.mark.promise("ENG-04")
async def test_a_turn_of_a_hundred_calls_has_a_small_history(file: Path, driver: str, shared_temporal: TemporalServer):
    @tool(readonly=True)
    async def look(number: int) -> str:
        """Look."""
        return "x" * 1_000

    def model(request: Any) -> Any:
        if request.number == 0:
            return [ToolCall("look", {"number": number}, f"c{number}") for number in range(100)]
        return "Done."

    async with Runtime.open(file, tools=[look], model=FunctionModel(model), worker=True, driver=driver) as runtime:
        turn = await runtime.session("s").start_turn("Go.", background=True)
        outcome = await turn.wait(PATIENCE)
        assert outcome is not None
        assert (outcome.text, len(outcome.calls)) == ("Done.", 100)
        (found,) = await workflows(shared_temporal, driver, 1)
        assert await history_bytes(shared_temporal, found.id) < 8 * 1024


@pytest.mark.promise("ENG-04")
async def test_a_turn_has_the_history_of_one_activity_though_two_processes_offer_it(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    begun, go = asyncio.Event(), asyncio.Event()

    async def model(request: Any) -> str:
        begun.set()
        await go.wait()
        return "Done."

    options: Any = {"model": FunctionModel(model), "driver": driver}
    async with Runtime.open(file, worker=False, **options) as runtime:
        turn = await runtime.session("s").start_turn("Go.", background=True)
        async with Runtime.open(file, worker=True, **options):
            async with asyncio.timeout(PATIENCE):
                await begun.wait()
            go.set()
            assert await turn.wait(PATIENCE) is not None
            (found,) = await workflows(shared_temporal, driver, 1)
    client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
    history = await client.get_workflow_handle(found.id).fetch_history()
    events = [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in history.events]
    assert [event for event in events if not event.startswith("WORKFLOW_TASK_")] == [
        "WORKFLOW_EXECUTION_STARTED",
        "ACTIVITY_TASK_SCHEDULED",
        "ACTIVITY_TASK_STARTED",
        "ACTIVITY_TASK_COMPLETED",
        "WORKFLOW_EXECUTION_COMPLETED",
    ]


@pytest.mark.promise("ENG-04")
async def test_a_run_that_is_cancelled_in_temporal_is_cancelled(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    begun = asyncio.Event()

    @tool(supports_background=True)
    async def hold() -> None:
        """Hold."""
        begun.set()
        await asyncio.Event().wait()

    async with Runtime.open(file, tools=[hold], worker=True, driver=driver) as runtime:
        run = await runtime.session("s").spawn("hold")
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        (found,) = await workflows(shared_temporal, driver, 0)
        client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
        await client.get_workflow_handle(found.id).cancel()
        outcome = await run.wait(PATIENCE)
        assert outcome.status == "cancelled"
        (found,) = await workflows(shared_temporal, driver, 1)
    assert found.status == WorkflowExecutionStatus.CANCELED


@pytest.mark.promise("ENG-04")
async def test_a_run_that_is_cancelled_in_temporal_while_the_store_cannot_be_written_is_cancelled_later(
    file: Path, driver: str, shared_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "BUSY", 1)  # The worker does not wait for the program that holds the file.
    begun = asyncio.Event()

    @tool(supports_background=True)
    async def hold() -> None:
        """Hold."""
        begun.set()
        await asyncio.Event().wait()

    async with Runtime.open(file, tools=[hold], worker=True, driver=driver) as runtime:
        run = await runtime.session("s").spawn("hold")
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        (found,) = await workflows(shared_temporal, driver, 0)
        client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
        handle = client.get_workflow_handle(found.id)

        async def could_not_write() -> bool:
            failed = EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED
            return any(event.event_type == failed for event in (await handle.fetch_history()).events)

        with closing(apsw.Connection(str(file))) as other:
            other.set_busy_timeout(10_000)
            other.execute("BEGIN IMMEDIATE")
            await handle.cancel()
            await until(could_not_write, PATIENCE)
        assert (await run.wait(PATIENCE)).status == "cancelled"
        (found,) = await workflows(shared_temporal, driver, 1)
    assert found.status == WorkflowExecutionStatus.CANCELED


@pytest.mark.promise("ENG-04")
async def test_a_run_that_is_cancelled_in_the_store_is_shown_as_cancelled_in_temporal(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    begun = asyncio.Event()

    @tool(supports_background=True)
    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Runtime.open(file, tools=[work], worker=True, driver=driver) as runtime:
        run = await runtime.session("s").spawn("work", {})
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await run.cancel("not needed")
        assert (await run.wait(PATIENCE)).status == "cancelled"
        (found,) = await workflows(shared_temporal, driver, 1)
    assert found.status == WorkflowExecutionStatus.CANCELED


@pytest.mark.promise("ENG-04")
async def test_a_run_that_waits_in_temporals_queue_can_be_cancelled_there(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    @tool(supports_background=True)
    async def work() -> None:
        """Work."""
        raise AssertionError("It ran.")

    async with Runtime.open(file, tools=[work], worker=False, driver=driver) as runtime:
        run = await runtime.session("s").spawn("work")
        found = await workflows(shared_temporal, driver, 0)
        client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
        await client.get_workflow_handle(found[0].id).cancel()
        async with Runtime.open(file, tools=[work], worker=True, driver=driver):
            assert (await run.wait(PATIENCE)).status == "cancelled"
            (ended,) = await workflows(shared_temporal, driver, 1)
    assert ended.status == WorkflowExecutionStatus.CANCELED


class Full:
    """A tool that holds the only place of a worker, until it may go."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[int] = asyncio.Queue()
        self.go = asyncio.Event()

        @tool(supports_background=True)
        async def hold(number: int) -> int:
            self.begun.put_nowait(number)
            await self.go.wait()
            return number

        self.options: Any = {
            "tools": [hold],
            "policy": Policy(background_per_worker=1, on_background_limit="queue"),
            "worker": True,
        }

    async def spawn(self, runtime: Runtime, number: int) -> RunClient:
        return await runtime.session("s").spawn("hold", {"number": number})


async def is_brought(server: TemporalServer, driver: str, run: RunClient) -> bool:
    """True when a worker has got a run from Temporal, whether there is room for it or not."""
    client = await Client.connect(f"127.0.0.1:{server.port}")
    for each in await workflows(server, driver, 0):
        if run.id in each.id:
            told = await client.get_workflow_handle(each.id).describe()
            return any(one.attempt > 1 or one.state == STARTED for one in told.raw_description.pending_activities)
    return False


@pytest.mark.promise("ENG-04")
async def test_a_run_for_which_a_worker_has_no_room_is_brought_to_another_one(
    file: Path, driver: str, shared_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "NO_ROOM", 0.0)
    full = Full()
    async with Runtime.open(file, **full.options, driver=driver) as runtime, asyncio.timeout(PATIENCE):
        runs = [await full.spawn(runtime, 1)]
        assert await full.begun.get() == 1
        runs.append(await full.spawn(runtime, 2))
        await until(lambda: is_brought(shared_temporal, driver, runs[1]), PATIENCE)
        async with Runtime.open(file, **full.options, driver=driver):
            assert await full.begun.get() == 2
            full.go.set()
            assert [(await run.wait(PATIENCE)).value for run in runs] == [1, 2]


@pytest.mark.promise("ENG-04")
async def test_a_run_that_waits_behind_others_can_be_cancelled_in_temporal(
    file: Path, driver: str, shared_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "NO_ROOM", 1_000.0)
    full = Full()
    async with Runtime.open(file, **full.options, driver=driver) as runtime, asyncio.timeout(PATIENCE):
        runs = [await full.spawn(runtime, 1)]
        assert await full.begun.get() == 1
        runs.append(await full.spawn(runtime, 2))
        await until(lambda: is_brought(shared_temporal, driver, runs[1]), PATIENCE)
        runs.append(await full.spawn(runtime, 3))
        client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
        for each in await until(lambda: at_temporal(shared_temporal, driver, 3), PATIENCE):
            if runs[2].id in each.id:
                await client.get_workflow_handle(each.id).cancel()
        assert (await runs[2].wait(PATIENCE)).status == "cancelled"
        full.go.set()
        assert [(await run.wait(PATIENCE)).value for run in runs[:2]] == [1, 2]


async def at_temporal(server: TemporalServer, driver: str, count: int) -> list[WorkflowExecution]:
    """So many workflows of a queue; none while there are fewer."""
    found = await workflows(server, driver, 0)
    return found if len(found) == count else []


@pytest.mark.promise("ENG-04")
async def test_a_run_whose_workflow_was_terminated_stays_in_the_store_and_is_offered_again(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    @tool(supports_background=True)
    async def work() -> str:
        """Work."""
        return "done"

    async with Runtime.open(file, tools=[work], worker=False, driver=driver) as runtime:
        run = await runtime.session("s").spawn("work")
        found = await workflows(shared_temporal, driver, 0)
        client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
        await client.get_workflow_handle(found[0].id).terminate()
        async with Runtime.open(file, tools=[work], worker=True, driver=driver):
            assert (await run.wait(PATIENCE)).value == "done"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("temporal://", "is not usable"),
        ("temporal:///default", "no host"),
        ("temporal://h:99999/", "is not usable"),
        ("temporal://user:word@h", "TEMPORAL_API_KEY"),
        ("temporal://h?queue=a&queue=b", "twice"),
        ("temporal://h?retries=5", "'retries'"),
        ("temporal://h?heartbeat=0", "from 1 to 3600"),
        ("temporal://h?tls=perhaps", "true or false"),
        ("temporal://h/a/b", "short name"),
        ("restate://h", "known: store, temporal"),
        ("temporal", "use 'store'"),
    ],
)
def test_a_driver_that_cannot_work_is_refused_with_the_way_out(url: str, message: str):
    with pytest.raises(DriverError, match=message):
        open_driver(url, SystemClock())


@pytest.mark.parametrize(
    "url", ["temporal://h?api_key=hidden", "temporal://user:hidden/word@h", "temporal:///default?token=hidden"]
)
def test_a_key_or_password_in_the_wrong_place_is_not_shown(url: str):
    with pytest.raises(DriverError) as refused:
        open_driver(url, SystemClock())
    assert "hidden" not in str(refused.value)


async def test_a_driver_needs_a_store_that_workers_share():
    with pytest.raises(DriverError, match="give it a file"):
        await Runtime.open(driver="temporal://127.0.0.1:1")


async def test_a_program_opens_and_closes_while_temporal_is_away(file: Path):
    @tool(supports_background=True)
    async def work() -> str:
        """Work."""
        return "done"

    async with Runtime.open(file, tools=[work], worker=True, driver="temporal://127.0.0.1:1") as runtime:
        run = await runtime.session("s").spawn("work")
        assert (await run.refresh()).status == "queued"
    async with Runtime.open(file, tools=[work], worker=True) as runtime:  # the store has it
        assert (await (await runtime.run(run.id)).wait(PATIENCE)).value == "done"


def test_a_driver_of_others_is_registered_by_its_scheme():
    made: list[str] = []

    class Scheme:
        def make(self, url: str, clock: object) -> Any:
            made.append(url)
            return open_driver("store", SystemClock())

    register_driver("carrier-pigeon", Scheme())
    open_driver("carrier-pigeon://loft", SystemClock())
    assert made == ["carrier-pigeon://loft"]
    with pytest.raises(DriverError, match="method make"):
        register_driver("x", object())  # type: ignore[arg-type]


@pytest.mark.promise("ENG-04", "CRON-03")
async def test_a_schedule_is_fired_at_its_instant_also_where_the_clock_of_the_worker_is_behind(
    file: Path, driver: str, shared_temporal: TemporalServer
):
    class Behind(SystemClock):
        """A clock that is behind that of Temporal."""

        @staticmethod
        def now() -> float:
            return time.time() - 1.0

    fired = []

    @tool(supports_background=True)
    async def report() -> None:
        fired.append(Behind.now())

    async with Runtime.open(file, tools=[report], worker=True, driver=driver, clock=Behind()) as runtime:
        at = datetime.fromtimestamp(Behind.now() + 2, UTC)
        schedule = await runtime.session("s").schedule("report", at=at)
        await until(lambda: fired, PATIENCE)
        (found,) = [each for each in await workflows(shared_temporal, driver, 2) if "/schedule/" in each.id]
        assert schedule.id in found.id
    assert fired[0] >= at.timestamp()
    client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
    history = await client.get_workflow_handle(found.id).fetch_history()
    markers = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED]
    assert len(markers) == 1, "it is not brought again and again until that clock has come to the instant"
