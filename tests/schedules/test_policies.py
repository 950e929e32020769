"""What becomes of instants that were missed, that overlap, or that a clock passes twice."""

import pytest

from tests.schedules.conftest import NINE, did

HOUR = 3600
TEN_MINUTES = 600


async def after_a_gap(stage, file, work, gap, **options):
    """A schedule that nobody fired for some time, when a worker has been back for two minutes."""
    work.go_on.set()
    maker = await stage.open(file, work.tool, worker=False)
    schedule = await maker.session("s1").schedule("work", {}, cron="0 * * * *", **options)
    await stage.pass_time(gap, step=gap)
    await stage.open(file, work.tool, worker=True)
    await stage.pass_time(120)
    return schedule


@pytest.mark.promise("CRON-04")
async def test_of_missed_instants_skip_fires_none(stage, file, work):
    schedule = await after_a_gap(stage, file, work, 3.5 * HOUR, misfire="skip")
    assert await did(schedule) == [("1:00", "missed")]
    assert (await schedule.refresh()).next_at == NINE + 4 * HOUR
    assert work.begun == []
    await stage.pass_time(HOUR / 2, step=30)
    assert await did(schedule) == [("1:00", "missed"), ("4:00", "fired")]


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("options", [{}, {"misfire": "once"}])
async def test_of_missed_instants_the_latest_fires_once_and_that_is_the_default(stage, file, work, options):
    schedule = await after_a_gap(stage, file, work, 3.5 * HOUR, **options)
    assert await did(schedule) == [("1:00", "missed"), ("3:00", "fired")]
    assert len(work.begun) == 1
    await stage.pass_time(HOUR / 2, step=30)
    assert (await did(schedule))[2:] == [("4:00", "fired")]


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
async def test_of_missed_instants_all_fire_under_all(stage, file, work, overlap):
    schedule = await after_a_gap(stage, file, work, 3.5 * HOUR, misfire="all", overlap=overlap)
    assert await did(schedule) == [("1:00", "fired"), ("2:00", "fired"), ("3:00", "fired")]
    assert len(work.begun) == 3
    runs = await (stage.opened[0].session("s1")).runs()
    assert sorted(run.record.provenance["instant"] for run in runs) == [
        f"2026-06-01T{hour}:00:00Z" for hour in (10, 11, 12)
    ]


@pytest.mark.promise("CRON-04")
async def test_what_is_made_up_for_runs_one_after_the_other_in_the_order_of_its_instants(stage, file, work):
    maker = await stage.open(file, work.tool, worker=False)
    session = maker.session("s1")
    schedule = await session.schedule("work", {}, cron="0 * * * *", misfire="all")
    await stage.pass_time(3.5 * HOUR, step=3.5 * HOUR)
    await stage.open(file, work.tool, worker=True)
    await stage.pass_time(120)
    assert [run.status for run in await session.runs()] == ["queued", "queued", "running"]
    work.go_on.set()
    await stage.pass_time(60)
    begun = [await session.run(id) for id in work.runs]
    assert [run.record.provenance["instant"][11:16] for run in begun] == ["10:00", "11:00", "12:00"]
    assert (work.most, len(await schedule.history())) == (1, 3)


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
async def test_a_one_shot_that_was_missed_follows_its_policy_and_is_over(stage, file, work, misfire):
    work.go_on.set()
    maker = await stage.open(file, work.tool, worker=False)
    schedule = await maker.session("s1").schedule("work", {}, at="2026-06-01T09:10:00Z", misfire=misfire)
    await stage.pass_time(HOUR, step=HOUR)
    await stage.open(file, work.tool, worker=True)
    await stage.pass_time(60)
    assert await did(schedule) == [("0:10", "missed" if misfire == "skip" else "fired")]
    assert ((await schedule.refresh()).state, len(work.begun)) == ("ended", 0 if misfire == "skip" else 1)


@pytest.mark.promise("CRON-04")
async def test_an_instant_is_passed_over_while_a_run_is_not_over_and_that_is_the_default(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="*/10 * * * *")
    await stage.pass_time(2 * TEN_MINUTES + 60)
    assert await did(schedule) == [("0:10", "fired"), ("0:20", "skipped")]
    work.go_on.set()
    await stage.pass_time(TEN_MINUTES)
    assert await did(schedule) == [("0:10", "fired"), ("0:20", "skipped"), ("0:30", "fired")]
    assert (work.most, len(work.begun)) == (1, 2)


@pytest.mark.promise("CRON-04")
async def test_under_queue_a_run_waits_until_the_one_before_is_over(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="*/10 * * * *", overlap="queue")
    await stage.pass_time(3 * TEN_MINUTES + 60)
    assert [run.status for run in await session.runs()] == ["queued", "queued", "running"]
    work.go_on.set()
    await stage.pass_time(60)
    assert [run.status for run in await session.runs()] == ["completed"] * 3
    assert (work.most, await did(schedule)) == (1, [(f"0:{minute}", "fired") for minute in (10, 20, 30)])


@pytest.mark.promise("CRON-04")
async def test_under_allow_runs_go_side_by_side(stage, place, work):
    session = (await stage.open(place, work.tool)).session("s1")
    await session.schedule("work", {}, cron="*/10 * * * *", overlap="allow")
    await stage.pass_time(3 * TEN_MINUTES + 60)
    assert [run.status for run in await session.runs()] == ["running"] * 3
    assert work.most == 3
    work.go_on.set()


@pytest.mark.promise("CRON-04")
async def test_a_clock_that_is_put_back_fires_nothing_again_and_one_put_forward_misses(stage, place, work):
    work.go_on.set()
    session = (await stage.open(place, work.tool)).session("s1")
    schedule = await session.schedule("work", {}, cron="0 * * * *")
    await stage.pass_time(HOUR + 60, step=30)
    stage.clock.jump(-HOUR)
    await stage.pass_time(HOUR + 60, step=30)
    assert await did(schedule) == [("1:00", "fired")]
    stage.clock.jump(3.5 * HOUR)
    await stage.pass_time(60)
    assert (await did(schedule))[1:] == [("2:00", "missed"), ("4:00", "fired")]
    stage.clock.jump(-3 * HOUR)
    await stage.pass_time(3 * HOUR, step=60)
    assert len(await did(schedule)) == 3
    await stage.pass_time(HOUR, step=30)
    assert (await did(schedule))[3:] == [("5:00", "fired")]
