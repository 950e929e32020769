"""What the owner of a runtime sees and does across all sessions."""

import asyncio
from pathlib import Path

import pytest

from tests.support import fail_after
from toolwright import Runtime, tool
from toolwright.errors import RunError, ScheduleError


@tool(supports_background=True, readonly=True)
async def work() -> str:
    """Work at once."""
    return "done"


@tool(supports_background=True, readonly=True)
async def sit() -> None:
    """Never end."""
    await asyncio.Event().wait()


@pytest.mark.promise("PROC-09")
async def test_the_owner_lists_and_steers_the_runs_of_every_session(tmp_path: Path):
    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[work, sit], worker=True) as runtime:
        first = await runtime.session("s1").spawn("work")
        assert (await first.wait()).value == "done"
        second = await runtime.session("s2").spawn("sit")
        assert [run.id for run in await runtime.runs()] == [second.id, first.id]
        assert [run.id for run in await runtime.runs("s1")] == [first.id]
        assert [run.id for run in await runtime.runs(active=True)] == [second.id]
        assert [run.id for run in await runtime.runs(limit=1)] == [second.id]
        handle = await runtime.run(second.id)
        await handle.cancel("enough")
        assert (await handle.wait()).status == "cancelled"
        types = [event.type async for event in handle.events()]
        assert (types[0], types[-1]) == ("queued", "cancelled")
        with pytest.raises(RunError, match="There is no run 'bg_none' in the store"):
            await runtime.run("bg_none")


@pytest.mark.promise("PROC-04")
async def test_a_worker_counts_what_it_does_and_tells_who_listens(tmp_path: Path):
    told: list[tuple[str, str]] = []
    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[work, sit], worker=True) as runtime:
        worker = runtime.worker
        worker.counts.listen(lambda deed, run: told.append((deed, run.id)))
        session = runtime.session("s1")
        done, left = await session.spawn("work"), await session.spawn("sit")
        await done.wait()
        async for event in left.follow():
            if event.type == "started":
                break
        await runtime.drain(0)
        counts = worker.state()["runs"]
    # Which of the two is told of first, beyond their starts, is theirs.
    assert sorted(told) == sorted(
        [("started", done.id), ("completed", done.id), ("started", left.id), ("handed_back", left.id)]
    )
    assert {deed: count for deed, count in counts.items() if count} == {"started": 2, "completed": 1, "handed_back": 1}
    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[sit], worker=True) as runtime:
        worker = runtime.worker
        run = await runtime.run(left.id)
        async for event in run.follow():
            if event.type == "started" and event.payload["attempt"] == 2:
                break
        await run.cancel()
        await run.wait()
        await runtime.drain(0)
        counts = worker.state()["runs"]
    assert {deed: count for deed, count in counts.items() if count} == {"started": 1, "taken_over": 1, "cancelled": 1}


@pytest.mark.promise("CRON-04")
async def test_the_owner_lists_and_steers_the_schedules_of_every_session(tmp_path: Path):
    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[work], worker=False) as runtime:
        first = await runtime.session("s1").schedule("work", cron="30 2 * * *")
        second = await runtime.session("s2").schedule("work", cron="0 3 * * *")
        assert [one.id for one in await runtime.schedules()] == [first.id, second.id]
        assert [one.id for one in await runtime.schedules("s2")] == [second.id]
        assert await (await runtime.scheduled(first.id)).cancel()
        assert [one.id for one in await runtime.schedules(active=True)] == [second.id]
        with pytest.raises(ScheduleError, match="There is no schedule 'sch_none' in the store"):
            await runtime.scheduled("sch_none")


def test_a_blocking_runtime_has_the_same_handles_of_schedules(tmp_path: Path):
    with Runtime.open_blocking(tmp_path / "agent.db", tools=[work], worker=False) as runtime:
        added = runtime.session("s1").schedule("work", cron="30 2 * * *")
        assert added.pause()
        (listed,) = runtime.schedules()
        assert (listed.id, listed.state) == (added.id, "paused")
        assert listed.resume()
