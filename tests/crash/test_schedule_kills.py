"""Schedules, when those who add or fire them are killed in the middle."""

from random import Random

import pytest

from toolwright import Policy, Runtime, ToolCall, ToolContext, tool
from toolwright.testing import FakeClock, die, note, say

NINE = 1_780_304_400.0
"""2026-06-01, 09:00 UTC."""
MINUTE = 60


@tool(supports_background=True)
async def report(number: int = 0) -> int:
    return number


async def adding(*, store="agent.db", dies: str, at: float) -> None:
    @tool(on_crash="rerun")
    async def plan(ctx: ToolContext) -> list:
        once = await ctx.schedules.add("report", {"number": 1}, at="2026-06-01T09:10:00Z")
        if dies == "after the first":
            die()
        often = await ctx.schedules.add("report", {"number": 2}, cron="0 * * * *")
        alike = await ctx.schedules.add("report", {"number": 2}, cron="0 * * * *")
        done = [await often.pause(), await often.resume(), await alike.cancel()]
        run = await often.run_now()
        note(run)
        if dies == "at the end":
            die()
        return [once.id != often.id != alike.id, *done, await often.run_now() != run]

    options = {"tools": [report, plan], "clock": FakeClock(at), "worker": False}
    async with Runtime.open(store, **options) as runtime:
        session = runtime.session("s")
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="plan", arguments={})])
        schedules = [[one.to_json()["args"]["number"], one.state] for one in await session.schedules()]
        say([outcome.value, schedules, len(await session.runs())])


@pytest.mark.promise("CRON-02", "CRON-04")
@pytest.mark.parametrize("dies", ["after the first", "at the end"])
def test_a_call_that_runs_again_after_a_kill_does_each_thing_to_schedules_once(crashes, dies):
    crashes.crash(adding, dies=dies, at=NINE)
    crashes.crash(adding, dies=dies, at=NINE)
    # By now the instant of the first is past, which is no reason to refuse what was added before.
    (told,) = crashes.run(adding, dies="", at=NINE + 3600).said
    value, schedules, runs = told
    assert value == [True] * 5
    assert schedules == [[1, "active"], [2, "active"], [2, "cancelled"]]
    assert runs == 2
    assert len(set(crashes.ledger)) == 1


async def making(*, store="agent.db") -> None:
    async with Runtime.open(store, tools=[report], clock=FakeClock(NINE), worker=False) as runtime:
        for number in range(4):
            options = {"cron": f"*/{number + 1} * * * *", "misfire": "all", "overlap": "allow"}
            await runtime.session(f"s{number}").schedule("report", {"number": number}, **options)


async def firing(*, store="agent.db", minutes: int) -> None:
    """A worker whose clock is as far as the store says, and goes on a minute at a time."""
    clock = FakeClock(NINE)
    options = {"tools": [report], "clock": clock, "sync": "normal", "policy": Policy(max_crashes=1000)}
    async with Runtime.open(store, **options, worker=True) as runtime:
        onlooker = runtime.session("s0")
        (schedule,) = await onlooker.schedules()
        clock.jump((schedule.next_at or NINE) - MINUTE - clock.now())
        while clock.now() < NINE + minutes * MINUTE + 30:
            await clock.advance(MINUTE / 2)
            for _ in range(10):
                await onlooker.runs()
                await runtime.approvals()
                await clock.settle()
            say(clock.now())


def fired(crashes):
    """What was fired for each schedule in minutes after nine, and what of it was started, by what is stored of it."""
    with crashes.look() as connection:
        rows = connection.execute(
            "SELECT json_extract(arguments, '$.number'), instant FROM firings JOIN schedules ON id = schedule"
            " WHERE what = 'fired' ORDER BY instant"
        ).fetchall()
        started = connection.execute(
            "SELECT json_extract(arguments, '$.number'), unixepoch(json_extract(provenance, '$.instant'))"
            " FROM processes ORDER BY 2"
        ).fetchall()
    return [
        {n: [round((instant - NINE) / MINUTE) for number, instant in found if number == n] for n in range(4)}
        for found in (rows, started)
    ]


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize("point", ["before a commit", "after a commit"])
def test_a_worker_that_is_killed_at_a_commit_loses_no_instant_and_fires_none_twice(crashes, point):
    crashes.run(making)
    for nth in range(2, 40, 3):
        crashes.kill_at(point, firing, nth=nth, minutes=10_000)
    with crashes.look() as connection:
        latest = connection.execute("SELECT max(instant) FROM firings").fetchall()[0][0]
    minutes = round((latest - NINE) / MINUTE) + 5
    crashes.run(firing, minutes=minutes)
    expected = {n: list(range(n + 1, minutes + 1, n + 1)) for n in range(4)}
    assert fired(crashes) == [expected, expected]


@pytest.mark.promise("CRON-03")
def test_three_workers_that_are_killed_at_random_fire_each_instant_once(crashes):
    random = Random(5)
    crashes.run(making)
    minutes = 150
    running = [crashes.start(firing, minutes=minutes) for _ in range(3)]
    for _ in range(20):
        victim = running.pop(random.randrange(3))
        for _ in range(random.randrange(1, 5)):
            victim.hear()
        victim.listen(random.random() * 0.02)
        victim.kill()
        running.append(crashes.start(firing, minutes=minutes))
    for one in running:
        one.wait()
    expected = {n: list(range(n + 1, minutes + 1, n + 1)) for n in range(4)}
    assert fired(crashes) == [expected, expected]
