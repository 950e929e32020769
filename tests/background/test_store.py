"""The store of runs, verb by verb: only the holder of the newest token may write."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolwright.background.ending import make_ending
from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import BackgroundRun, Options, Progress, Registration
from toolwright.stores.contracts.run_store import Limits, Piece, Report
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.sqlite.services import services_in_memory
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.conformance.background import CASE_CLOCK, TimedRuns
from toolwright.tools.outcome import ToolOutcome

LIMITS = Limits(per_session=1_000, per_worker=1_000)
QUOTAS = Quotas()


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TimedRuns]:
    if request.param == "memory":
        services = services_in_memory(CASE_CLOCK)
        yield TimedRuns(services.runs)
        await services.close()
    else:
        file = SqliteStore(tmp_path / "agent.db", sync="normal", clock=CASE_CLOCK)
        yield TimedRuns(file.services.runs)
        await file.close()


def registration(id: str = "p1", *, at: float = 0.0, tool: str = "work") -> Registration:
    return Registration(id=id, session="s", tool=tool, arguments=b"{}", title="t", options=Options(), at=at)


async def claimed(store: TimedRuns, worker: str, now: float, most: int = 10) -> list[BackgroundRun]:
    return [one.run for one in await store.claim(worker, ["work"], now, now + 30, most)]


async def twice_claimed(store: TimedRuns) -> tuple[BackgroundRun, BackgroundRun]:
    """A run as its first worker knows it, and as the second does."""
    await store.register([registration()], LIMITS, None)
    (first,) = await claimed(store, "one", 0)
    (second,) = await claimed(store, "two", 31)
    return first, second


def success(run: BackgroundRun) -> ToolOutcome:
    return ToolOutcome(run.id, run.tool, "success", b'"fine"')


@pytest.mark.promise("PROC-04")
async def test_the_former_holder_cannot_end_a_run_and_the_new_one_can_once(store: TimedRuns):
    first, second = await twice_claimed(store)
    assert (first.token, second.token) == (1, 2)
    assert not await store.finish(make_ending(first, success(first), 32), QUOTAS)
    found = await store.find("p1")
    assert found is not None
    assert found.status == "running"
    assert await store.finish(make_ending(second, success(second), 33), QUOTAS)
    assert not await store.finish(make_ending(second, success(second), 34), QUOTAS)
    events = await store.events("p1", 0, 100)
    assert [event.type for event in events] == ["queued", "started", "started", "completed"]


@pytest.mark.promise("PROC-04")
async def test_the_former_holder_can_neither_report_nor_append_nor_renew_nor_hand_back(store: TimedRuns):
    first, second = await twice_claimed(store)
    before = await store.find("p1")
    report = Report(id="p1", token=1, at=32, pieces=[Piece("stdout", "x")], progress=Progress(1), tail="x")
    assert await store.report([report]) == ["p1"]
    assert await store.append("p1", 1, "note", b"1", None, 32) is None
    assert (await store.renew("one", [("p1", 1)], 32, 99, 1)).lost == ["p1"]
    await store.hand_back("one", [("p1", 1)], 32)
    assert await store.find("p1") == before
    assert (await store.renew("two", [("p1", second.token)], 32, 99, 1)).lost == []
    assert first.worker == "one"


@pytest.mark.promise("PROC-04")
async def test_a_lease_that_has_passed_is_the_holders_until_somebody_takes_it(store: TimedRuns):
    await store.register([registration()], LIMITS, None)
    (held,) = await claimed(store, "one", 0)
    report = Report(id="p1", token=1, at=500, status_text="still here")
    assert await store.report([report]) == []
    assert (await store.renew("one", [("p1", 1)], 500, 530, 1)).lost == []
    assert await claimed(store, "two", 520) == []
    assert await store.finish(make_ending(held, success(held), 525), QUOTAS)


@pytest.mark.promise("PROC-04")
async def test_what_a_worker_claimed_without_hearing_of_it_is_handed_back(store: TimedRuns):
    """Its answer was lost in a fault: nobody holds the run, and its worker is alive."""
    await store.register([registration("held"), registration("unheard")], LIMITS, None)
    await claimed(store, "one", 0)
    assert (await store.renew("one", [("held", 1)], 10, 40, 5)).lost == []
    assert [run.id for run in await claimed(store, "one", 11)] == ["unheard"]
    assert (await store.renew("one", [("held", 1), ("unheard", 2)], 20, 50, 5)).lost == []


@pytest.mark.promise("PROC-04")
async def test_one_of_many_workers_gets_each_run(store: TimedRuns):
    await store.register([registration(f"p{number}") for number in range(50)], LIMITS, None)
    found = await asyncio.gather(*(claimed(store, f"w{number}", 0, 7) for number in range(10)))
    ids = [run.id for each in found for run in each]
    assert sorted(ids) == sorted(f"p{number}" for number in range(50))
    assert all(run.token == 1 for each in found for run in each)
    assert await claimed(store, "late", 10) == []


@pytest.mark.promise("PROC-04")
async def test_what_was_left_is_taken_first_and_then_the_oldest(store: TimedRuns):
    await store.register([registration("left")], LIMITS, None)
    await claimed(store, "one", 0)
    await store.register([registration(name, at=5) for name in ("zebra", "ant", "mole")], LIMITS, None)
    await store.register([registration("foreign", at=1, tool="other")], LIMITS, None)
    taken = [run.id for run in await claimed(store, "two", 40, 3)]
    assert taken == ["left", "zebra", "ant"]
    assert [run.id for run in await claimed(store, "two", 40, 3)] == ["mole"]
    assert not await store.work_waits("two", ["work"], 40)
    assert await store.work_waits("two", ["other"], 40)


@pytest.mark.promise("PROC-02")
async def test_numbers_rise_over_all_that_is_written(store: TimedRuns):
    await store.register([registration()], LIMITS, None)
    (held,) = await claimed(store, "one", 0)
    numbers = []
    for count in range(5):
        numbers.append(await store.append("p1", 1, "note", b"%d" % count, f"k{count}", 1))
        await store.report([Report(id="p1", token=1, at=1, pieces=[Piece("stdout", "x")], progress=Progress(count))])
    assert await store.append("p1", 1, "note", b"3", "k3", 2) == numbers[3]
    with pytest.raises(RunError):
        await store.append("p1", 1, "completed", b"{}", None, 2)
    assert await store.finish(make_ending(held, success(held), 3), QUOTAS)
    assert await store.append("p1", 1, "note", b"9", None, 4) is None
    events = await store.events("p1", 0, 1_000)
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert [event.payload for event in events if event.type == "note"] == [0, 1, 2, 3, 4]
    assert events[-1].last
