"""Runs and faults of their store: what could not be written is written when it can be, by the same worker."""

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.background.conftest import Stage
from toolwright import ToolContext, tool
from toolwright.errors import StoreUnavailable
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.run_store import Report
from toolwright.stores.sql.background.runs import SqlRunStore
from toolwright.stores.sqlite.admin.maintenance import prune


class Fault:
    """Makes a store refuse some changes, as a full disk does, until it is mended."""

    def __init__(self, file: Path, when: str) -> None:
        self._file = file
        self._when = when

    def strike(self) -> None:
        self._execute(f"CREATE TRIGGER fault BEFORE {self._when} BEGIN SELECT RAISE(ABORT, 'a fault'); END")

    def mend(self) -> None:
        self._execute("DROP TRIGGER IF EXISTS fault")

    def _execute(self, statement: str) -> None:
        connection = apsw.Connection(str(self._file))
        connection.set_busy_timeout(5_000)
        connection.execute(statement)
        connection.close()


@pytest.mark.promise("PROC-04")
async def test_a_run_whose_steps_cannot_be_written_is_handed_back_and_run_again(stage: Stage, file: Path):
    fault = Fault(file, "INSERT ON effects")
    ran = []

    @tool(supports_background=True, idempotent=True)
    async def work(ctx: ToolContext) -> str:
        ran.append(1)
        await asyncio.to_thread(fault.strike if len(ran) == 1 else fault.mend)
        await ctx.step("one", lambda: 1)
        return "done"

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    assert (await stage.until(run.wait())).value == "done"
    assert ran == [1, 1]
    types = [event.type async for event in run.follow()]
    assert types.count("started") == 2
    assert types.count("handed_back") == 1


@pytest.mark.promise("PROC-04", "PROC-08")
async def test_an_end_that_cannot_be_written_is_written_later_and_told_once(stage: Stage, file: Path):
    fault = Fault(file, "UPDATE OF outcome ON processes WHEN NEW.outcome IS NOT NULL")
    ran = []

    @tool(supports_background=True)
    async def work() -> str:
        ran.append(1)
        await asyncio.to_thread(fault.strike)
        return "done"

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work", signal_on_completion=True)
    await stage.status(run, "running")
    await stage.pass_time(30, 0.5)
    assert not (await run.refresh()).over
    await asyncio.to_thread(fault.mend)
    outcome = await stage.until(run.wait())
    assert outcome.value == "done"
    assert ran == [1], "its outcome was in the journal: nothing is done again"
    assert len(await session.messages.list()) == 1


@pytest.mark.promise("PROC-04")
async def test_a_runtime_that_closes_after_a_fault_leaves_the_run_to_the_next_at_once(stage: Stage, file: Path):
    fault = Fault(file, "UPDATE OF outcome ON processes WHEN NEW.outcome IS NOT NULL")

    @tool(supports_background=True)
    async def work() -> str:
        await asyncio.to_thread(fault.strike)
        return "done"

    first = await stage.open(file, work)
    run = await first.session("s").spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(2, 0.25)
    await stage.close(first)
    await asyncio.to_thread(fault.mend)
    handle = await (await stage.open(file, work, worker=True)).session("s").run(run.id)
    assert (await stage.until(handle.wait(), most=10)).value == "done"


@pytest.mark.promise("PROC-04")
async def test_the_outcome_of_a_run_that_has_not_ended_yet_is_not_pruned(stage: Stage, file: Path):
    fault = Fault(file, "UPDATE OF outcome ON processes WHEN NEW.outcome IS NOT NULL")
    ran = []

    @tool(supports_background=True, idempotent=True)
    async def work() -> str:
        ran.append(1)
        await asyncio.to_thread(fault.strike)
        return "done"

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(3, 0.5)
    assert (await prune(file, stage.clock.now() + 1)).spared == 1
    await asyncio.to_thread(fault.mend)
    assert (await stage.until(run.wait())).value == "done"
    assert ran == [1]


@pytest.mark.promise("PROC-07")
async def test_output_that_cannot_be_written_is_written_later(stage: Stage, file: Path):
    fault = Fault(file, "INSERT ON process_events WHEN NEW.type = 'output'")
    struck, go = asyncio.Event(), asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await asyncio.to_thread(fault.strike)
        struck.set()
        for number in range(4):
            ctx.output("stdout", f"{number}\n")
            await stage.clock.sleep(1)
        await go.wait()
        return "done"

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    await stage.until(struck.wait())
    await stage.pass_time(10)
    assert await run.log() == ""
    await asyncio.to_thread(fault.mend)
    await stage.pass_time(2)
    assert await run.log() == "[stdout] 0\n1\n2\n3\n"
    go.set()
    assert (await stage.until(run.wait())).value == "done"


@pytest.mark.promise("PROC-04")
async def test_leases_that_cannot_be_renewed_for_a_while_are_renewed_later(stage: Stage, file: Path):
    fault = Fault(file, "UPDATE OF lease_until ON processes")
    go = asyncio.Event()

    @tool(supports_background=True)
    async def work() -> str:
        await asyncio.to_thread(fault.strike)
        await go.wait()
        return "done"

    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    await stage.status(run, "running")
    await stage.pass_time(25)
    until = (await run.refresh()).lease_until
    await asyncio.to_thread(fault.mend)
    await stage.pass_time(2)
    assert (await run.refresh()).lease_until > until
    go.set()
    assert (await stage.until(run.wait())).value == "done"


@pytest.mark.promise("PROC-08")
async def test_the_log_of_a_run_has_output_that_is_being_written_when_it_ends(
    stage: Stage, file: Path, monkeypatch: pytest.MonkeyPatch
):
    printed, ends, writing, slow = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.output("stdout", "working\n")
        printed.set()
        await ends.wait()
        return "done"

    write = SqlRunStore.report

    async def report(store: SqlRunStore, reports: list[Report]) -> list[str]:
        writing.set()
        await slow.wait()
        return await write(store, reports)

    monkeypatch.setattr(SqlRunStore, "report", report)
    session = (await stage.open(file, work)).session("s")
    run = await session.spawn("work")
    await stage.until(printed.wait(), step=0.01)
    await stage.until(writing.wait())
    ends.set()
    await stage.settle()
    slow.set()
    await stage.until(run.wait())
    assert await session.files.read(f"/.background/{run.id}/output.log") == "[stdout] working\n"


@pytest.mark.promise("PROC-03")
async def test_who_waits_learns_of_an_end_that_came_while_the_changes_could_not_be_read(
    stage: Stage, file: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = Stage()

    @tool(supports_background=True)
    async def work() -> str:
        return "done"

    changed, refused = SqlRunStore.changed, []

    async def refuse_once(store: SqlRunStore, since: Cursor | None) -> tuple[Cursor, list[str]]:
        if not refused:
            refused.append(since)
            raise StoreUnavailable("The store cannot be reached")
        return await changed(store, since)

    session = (await stage.open(file, work, worker=False)).session("s")
    run = await session.spawn("work")
    monkeypatch.setattr(SqlRunStore, "changed", refuse_once)
    waiting = asyncio.ensure_future(run.wait())
    await stage.settle()
    assert refused
    # No time passes for who waits, until the run has ended elsewhere.
    there = (await elsewhere.open(file, work, worker=True)).session("s")
    await elsewhere.status(await there.run(run.id), "completed")
    assert (await stage.until(waiting)).value == "done"
    await elsewhere.close(elsewhere.opened[0])


@pytest.mark.promise("PROC-04")
async def test_a_worker_whose_store_fails_does_not_try_again_all_the_time(
    stage: Stage, file: Path, caplog: pytest.LogCaptureFixture
):
    fault = Fault(file, "UPDATE OF lease_until ON processes")

    @tool(supports_background=True)
    async def work() -> None:
        await asyncio.Event().wait()

    session = (await stage.open(file, work)).session("s")
    runs = [await session.spawn("work") for _ in range(2)]
    await stage.status(runs[0], "running")
    await asyncio.to_thread(fault.strike)
    await stage.pass_time(15, 0.05)  # until after the next renewal
    caplog.clear()
    await stage.pass_time(10, 0.05)
    told = [record for record in caplog.records if record.levelname == "WARNING" and "tries again" in record.message]
    assert 5 <= len(told) <= 50, "each second, and when there are news, which this clock tells four times a second"
    await asyncio.to_thread(fault.mend)
