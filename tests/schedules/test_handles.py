"""What the session that owns a schedule may do with it, and what it is shown."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.schedules.conftest import NINE, clock_time, did
from toolwright import ToolContext, tool
from toolwright.errors import ScheduleError, ToolwrightError

TEN_MINUTES = 600


@pytest.mark.promise("CRON-04")
async def test_a_schedule_fires_nothing_while_it_is_paused_and_goes_on_with_the_next_instant(stage, place, work):
    work.go_on.set()
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="*/10 * * * *", misfire="all")
    assert (await schedule.resume(), await schedule.pause(), await schedule.pause()) == (False, True, False)
    assert (schedule.state, schedule.next_at, schedule.upcoming()) == ("paused", None, [])
    await stage.pass_time(25 * 60)
    assert await did(schedule) == []
    assert (await schedule.resume(), schedule.state) == (True, "active")
    assert [clock_time(instant) for instant in schedule.upcoming(3)] == ["0:30", "0:40", "0:50"]
    await stage.pass_time(6 * 60)
    assert await did(schedule) == [("0:30", "fired")]


@pytest.mark.promise("CRON-04")
async def test_a_one_shot_whose_instant_passed_in_its_pause_is_not_resumed(stage, place, work):
    work.go_on.set()
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, at="2026-06-01T09:10:00Z")
    await schedule.pause()
    await stage.pass_time(11 * 60, step=60)
    with pytest.raises(ScheduleError, match="has no instant left; run it now, or add another") as caught:
        await schedule.resume()
    assert caught.value.code == "conflict"
    run = await session.run(await schedule.run_now())
    await stage.pass_time(30)
    assert (await run.refresh()).status == "completed"


@pytest.mark.promise("CRON-04")
async def test_a_pause_that_looked_before_a_firing_and_a_clock_put_back_fire_nothing_twice(stage, file, work):
    work.go_on.set()
    maker = await stage.open(file, work.tool, worker=False)
    schedule = await maker.session("s1").schedule("work", {}, cron="*/10 * * * *", overlap="skip")
    worker = await stage.open(file, work.tool, worker=True)
    seen, pausing = asyncio.Event(), asyncio.Event()
    refresh = schedule.refresh

    async def slow_refresh():
        found = await refresh()
        seen.set()
        await pausing.wait()
        return found

    schedule.refresh = slow_refresh
    pause = asyncio.ensure_future(schedule.pause())
    await seen.wait()
    await stage.pass_time(TEN_MINUTES + 60)
    pausing.set()
    assert await pause
    stage.clock.jump(-900)  # before the instant that was fired
    found = await worker.session("s1").scheduled(schedule.id)
    await found.resume()
    assert found.next_at == NINE + 2 * TEN_MINUTES
    await stage.pass_time(900 + 30)
    assert await did(found) == [("0:10", "fired")]
    assert len(work.begun) == 1


@pytest.mark.promise("CRON-04")
async def test_run_now_starts_a_run_beside_the_instants_whatever_else_runs(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {"number": 7}, cron="*/10 * * * *")
    await stage.pass_time(60)
    first, second = await schedule.run_now(), await schedule.run_now()
    await stage.pass_time(60)
    assert work.begun == [7, 7]
    assert {run.id: run.status for run in await session.runs()} == {first: "running", second: "running"}
    assert [what for _, what in await did(schedule)] == ["now", "now"]
    assert (await schedule.refresh()).next_at == NINE + TEN_MINUTES
    work.go_on.set()
    await stage.pass_time(TEN_MINUTES)
    assert [fired.what for fired in await schedule.history()] == ["fired", "now", "now"]
    await schedule.pause()
    await schedule.run_now()
    await schedule.cancel()
    with pytest.raises(ScheduleError, match="was cancelled; add another"):
        await schedule.run_now()


@pytest.mark.promise("CRON-04")
async def test_a_cancelled_schedule_fires_nothing_and_its_runs_go_on(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="*/10 * * * *")
    await stage.pass_time(TEN_MINUTES + 30)
    assert (await schedule.cancel(), schedule.state, schedule.next_at) == (True, "cancelled", None)
    assert (await schedule.cancel(), await schedule.pause(), await schedule.resume()) == (False, False, False)
    (run,) = await session.runs()
    assert run.status == "running"
    work.go_on.set()
    await stage.pass_time(2 * TEN_MINUTES)
    assert (await run.refresh()).status == "completed"
    assert await did(schedule) == [("0:10", "fired")]
    assert await session.schedules(active=True) == []


@pytest.mark.promise("CRON-04")
async def test_only_the_session_that_owns_a_schedule_gets_its_handle(stage, place, work):
    @tool
    async def meddle(ctx: ToolContext, id: str) -> str:
        await (await ctx.schedules.get(id)).cancel()
        return "cancelled"

    runtime = await stage.open(place, work.tool, meddle)
    schedule = await runtime.session("s1").schedule("work", {}, cron="*/10 * * * *")
    other = runtime.session("s2")
    for id in (schedule.id, "sch_none"):
        with pytest.raises(ScheduleError) as caught:
            await other.scheduled(id)
        told = f"There is no schedule {id!r} in this session; list its schedules to see their ids"
        assert (str(caught.value), caught.value.code) == (told, "not_found")
    outcome = await other.call("meddle", id=schedule.id)
    assert (outcome.status, outcome.failure.code) == ("failure", "not_found")
    assert (await other.schedules(), (await schedule.refresh()).state) == ([], "active")
    assert (await runtime.session("s1").call("meddle", id=schedule.id)).value == "cancelled"
    assert (await schedule.refresh()).state == "cancelled"


@pytest.mark.promise("CRON-04")
async def test_history_is_the_latest_first_and_bounded(stage, place, work):
    work.go_on.set()
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="* * * * *")
    await stage.pass_time(5 * 60 + 30)
    assert [clock_time(fired.instant) for fired in await schedule.history(2)] == ["0:05", "0:04"]
    assert [clock_time(fired.instant) for fired in await schedule.history()] == [f"0:0{n}" for n in (5, 4, 3, 2, 1)]
    assert all(0 <= fired.at - fired.instant < 60 for fired in await schedule.history())


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("limit", [-1, 0, "5", 1.5, True])
async def test_a_limit_of_the_history_that_is_no_count_is_refused(stage, place, work, limit):
    session = (await stage.open(place, work.tool, worker=False)).session("s1")
    schedule = await session.schedule("work", {}, cron="* * * * *")
    with pytest.raises(ToolwrightError, match=r"The limit .* is not usable; use a whole number, 1 or more"):
        await schedule.history(limit)


async def test_a_schedule_shows_itself_as_plain_data(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule(
        "work", {"number": 1}, cron=" 0  9 * * MON ", timezone="Europe/Berlin", signal_on_completion=True
    )
    assert schedule.to_json() == {
        "schedule_id": schedule.id,
        "session": "s1",
        "tool": "work",
        "title": "Background work",
        "args": {"number": 1},
        "schedule_type": "recurring",
        "cron_expression": "0 9 * * MON",
        "scheduled_at": None,
        "timezone": "Europe/Berlin",
        "next_trigger_at": "2026-06-08T07:00:00Z",
        "state": "active",
        "enabled": True,
        "misfire": "once",
        "overlap": "skip",
        "signal_on_completion": True,
        "created_at": "2026-06-01T09:00:00Z",
    }
    once = (await session.schedule("work", {}, at=datetime(2026, 6, 2, tzinfo=UTC), title=" At  last ")).to_json()
    assert (once["schedule_type"], once["scheduled_at"]) == ("one_shot", "2026-06-02T00:00:00Z")
    assert (once["title"], once["cron_expression"]) == ("At last", None)


@pytest.mark.promise("CRON-02")
async def test_a_schedule_with_an_id_is_added_once_by_a_program_that_starts_often(stage, file, work):
    for _ in range(3):
        runtime = await stage.open(file, work.tool, worker=False)
        schedule = await runtime.session("s1").schedule("work", {}, cron="0 3 * * *", id="nightly")
        assert (schedule.id, schedule.state) == ("nightly", "active")
        await runtime.close()
    session = (await stage.open(file, work.tool, worker=False)).session("s1")
    assert [one.id for one in await session.schedules()] == ["nightly"]
    await (await session.scheduled("nightly")).cancel()
    again = await session.schedule("work", {}, cron="0 3 * * *", id="nightly")
    assert again.state == "cancelled"


@pytest.mark.promise("CRON-01")
async def test_a_one_shot_with_an_id_is_found_again_after_its_instant(stage, place, work):
    work.go_on.set()
    session = (await stage.open(place, work.tool)).session("s1")
    first = await session.schedule("work", {}, at="2026-06-01T09:10:00Z", id="once")
    await stage.pass_time(11 * 60, step=60)
    again = await session.schedule("work", {}, at="2026-06-01T09:10:00Z", id="once")
    assert (again.id, again.state, len(await session.runs())) == (first.id, "ended", 1)


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("change", [{"cron": "0 4 * * *"}, {"timezone": "Europe/Berlin"}, {"overlap": "queue"}])
async def test_the_id_of_another_schedule_is_refused(stage, place, work, change):
    session = (await stage.open(place, work.tool)).session("s1")
    given = {"cron": "0 3 * * *", "id": "nightly"}
    await session.schedule("work", {}, **given)
    with pytest.raises(ScheduleError, match="'nightly' is that of another schedule") as caught:
        await session.schedule("work", {}, **{**given, **change})
    assert caught.value.code == "conflict"
    for wrong in ("", ".x", "a b", 3):
        with pytest.raises(ScheduleError, match="not usable"):
            await session.schedule("work", {}, cron="0 3 * * *", id=wrong)
