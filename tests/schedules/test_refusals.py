"""What is refused when a schedule is added, by a program and by a tool, and how many a session may have."""

import asyncio
from datetime import datetime

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolContext, tool
from toolwright.errors import RunError, ScheduleError


@tool(supports_background=True)
async def report(of: str = "") -> str:
    return of


@tool
async def quick() -> str:
    return "done"


BOTH = "schedule must not include both cron_expression and scheduled_at; provide exactly one"
NEITHER = "schedule must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"
REFUSED = {
    "both": ({"cron": "* * * * *", "at": "2026-06-01T10:00:00Z"}, BOTH),
    "neither": ({}, NEITHER),
    "blank": ({"cron": "  ", "at": ""}, NEITHER),
    "no instant": ({"at": "tomorrow"}, "scheduled_at must be RFC3339"),
    "no zone": ({"at": "2026-06-01T10:00:00"}, "scheduled_at must be RFC3339"),
    "the past": (
        {"at": "2026-06-01T08:59:59Z"},
        "scheduled_at '2026-06-01T08:59:59+00:00' is in the past; give an instant after '2026-06-01T09:00:00+00:00'",
    ),
    "this instant": (
        {"at": "2026-06-01T09:00:00Z"},
        "scheduled_at '2026-06-01T09:00:00+00:00' is in the past; give an instant after '2026-06-01T09:00:00+00:00'",
    ),
    "bad cron": (
        {"cron": "61 * * * *"},
        "cron_expression '61 * * * *' has a bad minute, '61'; use five fields (minute, hour, day of month, month, "
        "day of week), such as '*/10 * * * *'",
    ),
    "never": ({"cron": "0 0 30 2 *"}, "cron_expression '0 0 30 2 *' never fires; use a day that its months have"),
    "zone": (
        {"cron": "* * * * *", "timezone": "Europe/Berln"},
        "timezone 'Europe/Berln' is not known; did you mean 'Europe/Berlin'?",
    ),
    "misfire": (
        {"cron": "* * * * *", "misfire": "often"},
        "misfire 'often' is not a policy; use 'skip', 'once', 'all'",
    ),
    "overlap": (
        {"cron": "* * * * *", "overlap": "mix"},
        "overlap 'mix' is not a policy; use 'skip', 'queue', 'allow'",
    ),
}


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("case", REFUSED)
async def test_a_timing_that_is_not_one_is_refused_to_a_program(stage, place, case):
    options, told = REFUSED[case]
    session = (await stage.open(place, report)).session("s1")
    with pytest.raises(ScheduleError) as caught:
        await session.schedule("report", {}, **options)
    in_python = told.replace("cron_expression", "cron").replace("scheduled_at", "at")
    assert (str(caught.value), caught.value.code) == (in_python, "invalid_arguments")
    assert await session.schedules() == []


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("case", REFUSED)
async def test_the_same_is_a_failure_of_the_tool_that_asks_for_it(stage, place, case):
    options, told = REFUSED[case]

    @tool
    async def plan(ctx: ToolContext) -> str:
        await ctx.schedules.add("report", {}, **options)
        return "planned"

    session = (await stage.open(place, report, plan)).session("s1")
    outcome = await session.call("plan")
    in_python = told.replace("cron_expression", "cron").replace("scheduled_at", "at")
    assert (outcome.status, outcome.failure.code, outcome.failure.message) == (
        "failure",
        "invalid_arguments",
        in_python,
    )
    assert in_python in outcome.text
    assert await session.schedules() == []


@pytest.mark.promise("CRON-01")
async def test_a_datetime_without_a_zone_is_refused(stage, place):
    session = (await stage.open(place, report)).session("s1")
    with pytest.raises(ScheduleError, match="has no time zone"):
        await session.schedule("report", {}, at=datetime(2026, 6, 1, 10))


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    ("name", "args", "told", "code"),
    [
        ("", {}, "Missing required parameter: tool", "invalid_arguments"),
        ("nothing", {}, "Unknown tool: nothing", "not_found"),
        ("quick", {}, "Tool does not support background execution: quick", "invalid_arguments"),
        ("report", "x", "Missing required parameter: args (object expected)", "invalid_arguments"),
    ],
)
async def test_what_could_not_run_in_the_background_is_not_scheduled(stage, place, name, args, told, code):
    session = (await stage.open(place, report, quick)).session("s1")
    with pytest.raises(RunError) as caught:
        await session.schedule(name, args, cron="* * * * *")
    assert (str(caught.value), caught.value.code) == (told, code)


@pytest.mark.promise("CRON-01")
async def test_a_secret_in_clear_is_not_kept_in_a_schedule(stage, place):
    @tool
    async def plan(ctx: ToolContext, of: str) -> str:
        await ctx.schedules.add("report", {"of": [of]}, cron="* * * * *")
        return "planned"

    session = (await stage.open(place, report, plan)).session("s1")
    await session.secrets.set("token", "hunter2-hunter2")
    with pytest.raises(RunError, match="The arguments hold the value of a secret"):
        await session.schedule("report", {"of": "say hunter2-hunter2"}, cron="* * * * *")
    outcome = await session.call("plan", of="hunter2-hunter2")
    assert outcome.status == "failure"
    assert "The arguments hold the value of a secret" in outcome.failure.message
    assert await session.schedules() == []


FULL = "Maximum 5 active schedules per session. Cancel an existing schedule first."


@pytest.mark.promise("CRON-02")
async def test_a_session_has_at_most_five_active_schedules(stage, place):
    runtime = await stage.open(place, report)
    session = runtime.session("s1")
    made = [await session.schedule("report", {}, cron="0 * * * *") for _ in range(5)]
    with pytest.raises(ScheduleError) as caught:
        await session.schedule("report", {}, cron="0 * * * *")
    assert (str(caught.value), caught.value.code) == (FULL, "session_limit")
    # One that is paused comes back, so it counts; one of another session does not.
    await made[0].pause()
    with pytest.raises(ScheduleError):
        await session.schedule("report", {}, cron="0 * * * *")
    await runtime.session("s2").schedule("report", {}, cron="0 * * * *")
    await made[0].cancel()
    await session.schedule("report", {}, cron="0 * * * *")
    assert len(await session.schedules(active=True)) == 5


@pytest.mark.promise("CRON-02")
async def test_one_that_has_ended_makes_room(stage, place):
    session = (await stage.open(place, report)).session("s1")
    for _ in range(5):
        await session.schedule("report", {}, at="2026-06-01T09:01:00Z")
    await stage.pass_time(90)
    assert await session.schedules(active=True) == []
    await session.schedule("report", {}, at="2026-06-01T09:10:00Z")


@pytest.mark.promise("CRON-02")
async def test_the_limit_is_the_owners_and_a_failure_of_the_tool_that_meets_it(stage, place):
    @tool(parallel=True)
    async def plan(ctx: ToolContext) -> str:
        return (await ctx.schedules.add("report", {}, cron="0 * * * *")).id

    session = (await stage.open(place, report, plan, policy=Policy(schedules_per_session=2))).session("s1")
    outcomes = await session.run_batch([{"id": f"c{n}", "name": "plan"} for n in range(4)])
    assert [outcome.status for outcome in outcomes].count("success") == 2
    told = "Maximum 2 active schedules per session. Cancel an existing schedule first."
    refused = {(o.failure.code, o.failure.message) for o in outcomes if o.failure is not None}
    assert refused == {("session_limit", told)}


@pytest.mark.promise("CRON-02")
async def test_the_limit_holds_when_several_runtimes_add_at_once(file):
    async with fail_after(30):
        runtimes = [await Runtime.open(file, tools=[report], sync="normal", worker=False) for _ in range(3)]
        try:
            asked = [
                runtime.session(f"s{number}").schedule("report", {}, cron="0 * * * *")
                for _ in range(7)
                for runtime in runtimes
                for number in range(4)
            ]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, BaseException)]
            assert {str(answer) for answer in refused} == {FULL}
            assert len(answers) - len(refused) == 4 * 5
            for number in range(4):
                assert len(await runtimes[0].session(f"s{number}").schedules(active=True)) == 5
        finally:
            for runtime in runtimes:
                await runtime.close()
