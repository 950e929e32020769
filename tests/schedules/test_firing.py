"""What schedules start, when, and how often: through sessions, on every store."""

import logging
from datetime import UTC, datetime

import pytest

from tests.schedules.conftest import NINE, did
from tests.support import fail_after
from toolwright import Policy, ToolContext, tool
from toolwright.schedules.firing import PORTION

TEN_MINUTES = 600
HOUR = 3600


@pytest.fixture
def ran():
    return []


@pytest.fixture
def report(ran):
    @tool(supports_background=True)
    async def report(ctx: ToolContext, of: str, deep: dict | None = None) -> str:
        ran.append((of, deep))
        return f"report of {of}"

    return report


@pytest.mark.promise("CRON-03")
async def test_a_schedule_starts_its_tool_at_each_instant_with_what_was_stored(stage, place, report, ran):
    runtime = await stage.open(place, report)
    session = runtime.session("s1")
    deep = {"ünï": [1, 2.5, None, {"a": True}], "text": "with 'quotes' and \n lines"}
    schedule = await session.schedule("report", {"of": "sales", "deep": deep}, cron="*/10 * * * *", title="Sales")
    assert (schedule.state, schedule.next_at) == ("active", NINE + TEN_MINUTES)
    await stage.pass_time(TEN_MINUTES - 1)
    assert ran == []
    await stage.pass_time(2 * TEN_MINUTES + 31)
    assert ran == [("sales", deep)] * 3
    runs = await session.runs()
    assert [(run.status, run.record.title, run.record.schedule) for run in runs] == [
        ("completed", "Sales", schedule.id)
    ] * 3
    assert [run.record.provenance["instant"] for run in runs] == [
        "2026-06-01T09:30:00Z",
        "2026-06-01T09:20:00Z",
        "2026-06-01T09:10:00Z",
    ]
    assert runs[0].outcome.value == "report of sales"
    assert await did(schedule) == [("0:10", "fired"), ("0:20", "fired"), ("0:30", "fired")]
    assert [fired.run for fired in await schedule.history()] == [run.id for run in runs]
    assert {record.source for record in runtime.log.records} == {"schedule"}


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize(
    "at", [datetime(2026, 6, 1, 9, 0, 30, tzinfo=UTC), "2026-06-01T09:00:30Z", "2026-06-01T11:00:30+02:00"]
)
async def test_a_one_shot_fires_once_and_has_ended(stage, place, report, ran, at):
    runtime = await stage.open(place, report)
    session = runtime.session("s1")
    schedule = await session.schedule("report", {"of": "it"}, at=at)
    await stage.pass_time(HOUR, step=30)
    assert ran == [("it", None)]
    assert ((await schedule.refresh()).state, schedule.next_at, schedule.upcoming()) == ("ended", None, [])
    assert await did(schedule) == [("0:00:30", "fired")]
    assert await session.schedules(active=True) == []
    assert [found.id for found in await session.schedules()] == [schedule.id]
    assert (await schedule.pause(), await schedule.resume(), await schedule.cancel()) == (False, False, False)
    assert schedule.state == "ended"


@pytest.mark.promise("CRON-03")
async def test_the_next_instants_follow_the_zone_through_changes_of_the_clocks(stage, place, report, ran):
    # In Berlin the clocks were put forward on 29 March 2026 at 01:00 UTC, and in New York on 8 March.
    stage.clock.jump(datetime(2026, 3, 27, 12, tzinfo=UTC).timestamp() - NINE)
    runtime = await stage.open(place, report)
    session = runtime.session("s1")
    berlin = await session.schedule("report", {"of": "b"}, cron="30 2 * * *", timezone="Europe/Berlin")
    york = await session.schedule("report", {"of": "n"}, cron="30 2 * * *", timezone="America/New_York")
    days = [datetime(2026, 3, 28, 1, 30), datetime(2026, 3, 29, 1, 0), datetime(2026, 3, 30, 0, 30)]
    assert berlin.upcoming(3) == [day.replace(tzinfo=UTC).timestamp() for day in days]
    for instant in sorted([*berlin.upcoming(3), *york.upcoming(3)]):
        stage.clock.jump(instant - TEN_MINUTES - stage.clock.now())  # there is nothing to do until then
        await stage.pass_time(2 * TEN_MINUTES, step=60)
    history = [fired.instant for fired in reversed(await berlin.history())]
    assert history == [day.replace(tzinfo=UTC).timestamp() for day in days]
    history = [fired.instant for fired in reversed(await york.history())]
    assert history == [datetime(2026, 3, day, 6, 30, tzinfo=UTC).timestamp() for day in (28, 29, 30)]
    assert sorted(of for of, _ in ran) == ["b"] * 3 + ["n"] * 3


@pytest.mark.promise("CRON-03")
async def test_the_worker_of_another_runtime_fires_and_runs_what_this_one_scheduled(stage, file, report, ran):
    idle = await stage.open(file, report, worker=False)
    schedule = await idle.session("s1").schedule("report", {"of": "x"}, cron="*/10 * * * *")
    await stage.pass_time(TEN_MINUTES + 60, step=30)
    assert (ran, await did(schedule)) == ([], [])
    await stage.open(file, report, worker=True)
    await stage.pass_time(TEN_MINUTES, step=30)
    assert [of for of, _ in ran] == ["x", "x"]
    assert await did(schedule) == [("0:10", "fired"), ("0:20", "fired")]
    (run, _) = await idle.session("s1").runs()
    async with fail_after(5):
        assert (await run.wait()).value == "report of x"


@pytest.mark.promise("CRON-03")
async def test_several_workers_fire_each_instant_once(stage, file, report, ran):
    runtimes = [await stage.open(file, report, worker=True) for _ in range(3)]
    schedules = [
        await runtime.session(f"s{number}").schedule("report", {"of": str(number)}, cron="* * * * *")
        for number, runtime in enumerate(runtimes)
    ]
    await stage.pass_time(10 * 60 + 30)
    for number, schedule in enumerate(schedules):
        assert await did(schedule) == [(f"0:{minute:02}", "fired") for minute in range(1, 11)]
        assert ran.count((str(number), None)) == 10


@pytest.mark.promise("CRON-03")
async def test_a_schedule_survives_the_end_of_the_runtime_that_made_it(stage, file, report, ran):
    first = await stage.open(file, report)
    schedule = await first.session("s1").schedule("report", {"of": "x"}, cron="*/10 * * * *")
    await stage.close(first)
    await stage.clock.advance(TEN_MINUTES - 30)
    second = await stage.open(file, report, worker=True)
    await stage.pass_time(60)
    found = await second.session("s1").scheduled(schedule.id)
    assert await did(found) == [("0:10", "fired")]
    assert len(ran) == 1


@pytest.mark.promise("CRON-03")
async def test_what_no_worker_has_the_tool_for_is_started_when_one_has(stage, file, report, ran):
    with_tool = await stage.open(file, report, worker=False)
    session = with_tool.session("s1")
    schedule = await session.schedule("report", {"of": "x"}, cron="*/10 * * * *")
    await stage.open(file, worker=True)
    await stage.pass_time(25 * 60, step=30)
    # The first waits for a worker, and the second is passed over for it.
    assert await did(schedule) == [("0:10", "fired"), ("0:20", "skipped")]
    assert [run.status for run in await session.runs()] == ["queued"]
    await stage.open(file, report, worker=True)
    await stage.pass_time(60)
    assert [run.status for run in await session.runs()] == ["completed"]
    assert len(ran) == 1


@pytest.mark.promise("CRON-03")
async def test_what_is_due_beyond_the_limit_of_runs_is_held_and_none_is_lost(stage, place):
    running, most = set(), []

    @tool(supports_background=True)
    async def work(ctx: ToolContext, number: int) -> int:
        running.add(number)
        most.append(len(running))
        await stage.clock.sleep(20)
        running.remove(number)
        return number

    runtime = await stage.open(place, work, policy=Policy(background_per_session=2))
    session = runtime.session("s1")
    schedules = [await session.schedule("work", {"number": n}, at="2026-06-01T09:10:00Z") for n in range(5)]
    await stage.pass_time(TEN_MINUTES + 10, step=5)
    assert [run.status for run in await session.runs()].count("queued") == 3
    await stage.pass_time(60, step=5)
    runs = await session.runs()
    assert sorted(run.outcome.value for run in runs) == [0, 1, 2, 3, 4]
    assert max(most) == 2
    for schedule in schedules:
        assert await did(schedule) == [("0:10", "fired")]


@pytest.mark.promise("CRON-03")
async def test_several_hundred_that_are_due_at_once_all_fire_promptly(stage, place, report, ran):
    runtime = await stage.open(place, report, worker=False)
    count = 2 * PORTION + PORTION // 2
    for number in range(count):
        await runtime.session(f"s{number}").schedule("report", {"of": str(number)}, at="2026-06-01T09:10:00Z")
    if place == ":memory:":
        await stage.close(runtime)
        runtime = await stage.open(place, report)
        for number in range(count):
            await runtime.session(f"s{number}").schedule("report", {"of": str(number)}, at="2026-06-01T09:10:00Z")
    else:
        await stage.open(place, report, worker=True)
    await stage.pass_time(TEN_MINUTES, step=60)

    async def all_ran():
        return len(ran) == count

    await stage.until_so(all_ran, most=10)
    assert sorted(of for of, _ in ran) == sorted(map(str, range(count)))
    await stage.pass_time(5)
    assert len(ran) == count


@pytest.mark.promise("CRON-03")
async def test_all_that_are_due_fire_at_one_look_also_where_nothing_can_run(stage, file, report):
    maker = await stage.open(file, report, worker=False)
    schedules = [
        await maker.session(f"s{number}").schedule("report", {"of": ""}, at="2026-06-01T09:10:00Z")
        for number in range(3 * PORTION + 1)
    ]
    await stage.open(file, worker=True)
    await stage.pass_time(TEN_MINUTES - 1, step=60)
    assert await did(schedules[0]) == []

    async def all_fired():
        return all([(await schedule.refresh()).state == "ended" for schedule in schedules])

    await stage.until_so(all_fired, step=0.05, most=2.0)
    lateness = [fired.at - fired.instant for schedule in schedules for fired in await schedule.history()]
    assert (len(lateness), max(lateness) - min(lateness) < 0.5) == (3 * PORTION + 1, True)


@pytest.mark.promise("CRON-03")
async def test_schedules_that_cannot_be_fired_here_hold_up_no_others(stage, file, report, ran, monkeypatch, caplog):
    maker = await stage.open(file, report, worker=False)
    for number in range(PORTION + 10):
        zone = f"Atlantis/City_{number % 2}"
        session = maker.session(f"s{number}")
        with monkeypatch.context() as known_there:
            known_there.setattr("toolwright.schedules.parse_timing.find_zone", lambda name: UTC)
            known_there.setattr("toolwright.schedules.timing.find_zone", lambda name: UTC)
            await session.schedule("report", {"of": "lost"}, cron="0 * * * *", timezone=zone)
    known = await maker.session("s").schedule("report", {"of": "known"}, cron="10 10 * * *")
    with caplog.at_level(logging.WARNING, "toolwright.schedules"):
        await stage.open(file, report, worker=True)
        await stage.pass_time(HOUR + TEN_MINUTES + 50, step=10)
    assert ran == [("known", None)]
    assert await did(known) == [("1:10", "fired")]
    # Each is told of once, and not at every look.
    assert len(caplog.records) == PORTION + 10
    assert "timezone 'Atlantis/City_0' is not known" in caplog.text
