"""Schedules beside the rest of a store: whole sessions, what is old, other faces, and how they are read."""

import contextlib
import re
from typing import Any

import apsw
import msgspec
import pytest

from tests.schedules.conftest import NINE, did
from toolwright import Runtime, ToolContext, tool
from toolwright.errors import ScheduleError, ServiceError
from toolwright.stores.contracts.inspection import Pruned
from toolwright.stores.sqlite.admin.maintenance import check, prune

HOUR = 3600


@tool(supports_background=True)
async def report(of: str = "") -> str:
    return of


@pytest.mark.promise("CRON-04")
async def test_a_session_is_deleted_with_its_schedules_and_what_they_did(stage, place):
    runtime = await stage.open(place, report)
    gone, other = runtime.session("gone"), runtime.session("other")
    schedule = await gone.schedule("report", {}, cron="*/10 * * * *")
    kept = await other.schedule("report", {}, cron="*/10 * * * *")
    await stage.pass_time(660)
    assert await did(schedule) == [("0:10", "fired")]
    assert await runtime.delete_session("gone")
    assert (await gone.schedules(), await schedule.history()) == ([], [])
    with pytest.raises(ScheduleError, match="is no longer in the store"):
        await schedule.refresh()
    await stage.pass_time(600)
    assert await did(kept) == [("0:10", "fired"), ("0:20", "fired")]
    assert await schedule.history() == []


async def test_a_session_that_has_only_a_schedule_is_listed_and_can_be_deleted(stage, place):
    runtime = await stage.open(place, report)
    await runtime.session("s1").schedule("report", {"of": "x"}, cron="0 * * * *")
    (info,) = await runtime.sessions()
    assert (info.id, info.calls, info.usage["schedules"].entries) == ("s1", 0, 1)
    assert (await runtime.delete_session("s1"), await runtime.delete_session("s1")) == (True, False)
    assert await runtime.sessions() == []


@pytest.mark.promise("CRON-04")
async def test_schedules_are_not_exported_so_that_a_copy_starts_nothing_a_second_time(stage, place, tmp_path):
    runtime = await stage.open(place, report)
    session = runtime.session("s1")
    await session.kv.set("a", 1)
    schedule = await session.schedule("report", {}, cron="*/10 * * * *")
    await runtime.export_session("s1", tmp_path / "s1.zip")
    await runtime.import_session(tmp_path / "s1.zip", as_id="copy")
    copy = runtime.session("copy")
    assert (await copy.kv.get("a"), await copy.schedules()) == (1, [])
    await stage.pass_time(660)
    assert (await copy.runs(), len(await session.runs())) == ([], 1)
    # What is replaced is removed first, with its schedules.
    await runtime.import_session(tmp_path / "s1.zip", replace=True)
    assert (await session.schedules(), await schedule.history()) == ([], [])


async def test_a_session_with_only_schedules_is_not_taken_for_a_new_one_by_an_import(stage, place, tmp_path):
    runtime = await stage.open(place, report)
    await runtime.session("s1").kv.set("a", 1)
    await runtime.export_session("s1", tmp_path / "s1.zip")
    await runtime.session("s2").schedule("report", {}, cron="0 * * * *")
    with pytest.raises(ServiceError, match="There is a session 's2' already"):
        await runtime.import_session(tmp_path / "s1.zip", as_id="s2")


@pytest.mark.promise("CRON-03")
async def test_what_schedules_did_long_ago_can_be_pruned_and_fires_nothing_again(stage, file):
    runtime = await stage.open(file, report)
    one, two = runtime.session("one"), runtime.session("two")
    schedule = await one.schedule("report", {}, cron="*/10 * * * *")
    ended = await one.schedule("report", {}, at="2026-06-01T09:05:00Z")
    late = await two.schedule("report", {}, at="2026-06-01T09:25:00Z")
    await stage.pass_time(31 * 60)
    before = NINE + 22 * 60
    assert (await prune(file, before, sessions=["two"], dry_run=True)).firings == 0
    assert (await prune(file, before, dry_run=True)).firings == 3
    assert len(await schedule.history()) == 3
    assert (await prune(file, before)).firings == 3
    assert await did(schedule) == [("0:30", "fired")]
    assert [found.id for found in await one.schedules()] == [schedule.id]
    assert [found.id for found in await two.schedules()] == [late.id]
    assert await ended.history() == []
    assert await check(file) == []
    stage.clock.jump(-20 * 60)
    await stage.pass_time(19 * 60)
    assert await did(schedule) == [("0:30", "fired")]
    await stage.pass_time(11 * 60)
    assert await did(schedule) == [("0:30", "fired"), ("0:40", "fired")]
    assert await prune(file, None) == Pruned()


async def test_a_message_tells_the_session_of_a_scheduled_run_that_is_over(stage, place):
    session = (await stage.open(place, report)).session("s1")
    await session.schedule("report", {"of": "x"}, at="2026-06-01T09:01:00Z", signal_on_completion=True)
    await stage.pass_time(120)
    (run,) = await session.runs()
    (message,) = await session.messages.list()
    assert (message.sender, message.metadata["run_id"]) == ("runtime", run.id)


async def test_a_run_may_add_look_at_and_cancel_schedules_of_its_session(stage, place):
    @tool(supports_background=True)
    async def plan(ctx: ToolContext) -> list:
        added = await ctx.schedules.add("report", {}, cron="0 * * * *")
        mine = await ctx.schedules.list(active=True)
        found = await ctx.schedules.get(added.id)
        return [[one.id for one in mine] == [added.id], await found.cancel(), found.state]

    session = (await stage.open(place, report, plan)).session("s1")
    await session.schedule("plan", {}, at="2026-06-01T09:01:00Z")
    await stage.pass_time(120)
    (run,) = await session.runs()
    # Its own schedule has ended when it runs.
    assert run.outcome.value == [True, True, "cancelled"]


def test_schedules_are_used_from_code_that_is_not_async(file):
    with Runtime.open_blocking(file, tools=[report], worker=False) as runtime:
        session = runtime.session("s1")
        schedule = session.schedule("report", {"of": "x"}, cron="0 0 1 1 *")
        (found,) = session.schedules()
        assert (found.id, found.state) == (schedule.id, "active")
        assert (found.pause(), found.resume(), found.cancel()) == (True, True, True)
        assert session.scheduled(schedule.id).state == "cancelled"
        assert session.schedules(active=True) == []


@pytest.fixture
def asked(file):
    """Every statement that is run on a connection to the file, by its text."""
    statements: dict[str, Any] = {}

    def trace(connection: apsw.Connection) -> None:
        if connection.filename == str(file):
            connection.exec_trace = lambda cursor, sql, values: statements.update({sql: values}) or True

    apsw.connection_hooks.append(trace)
    yield statements
    apsw.connection_hooks.remove(trace)


@pytest.mark.promise("CRON-03")
async def test_among_a_hundred_thousand_schedules_everything_is_found_by_an_index(stage, file, asked):
    await stage.close(await stage.open(file))
    with contextlib.closing(apsw.Connection(str(file))) as connection, connection:
        _fill(connection)
    asked.clear()
    runtime = await stage.open(file, report, worker=True)
    session = runtime.session("s7")
    schedule = await session.schedule("report", {}, cron="* * * * *")
    await stage.pass_time(90)
    assert await did(schedule) == [("0:01", "fired")]
    assert len(await (await session.scheduled("sch_7")).history(50)) == 50
    assert (len(await session.schedules()), len(await session.schedules(active=True))) == (101, 4)
    await (await session.scheduled("sch_7")).pause()
    await schedule.run_now()
    await stage.pass_time(10)
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        plans = {
            sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
            for sql, values in list(asked.items())  # the look itself is traced, too
            if re.search(r"\b(FROM|UPDATE) (schedules|firings)\b", sql)
        }
    assert len(plans) >= 8
    for sql, plan in plans.items():
        assert all("SEARCH" in line or "TEMP B-TREE" in line for line in plan), (sql, plan)
        # Only those of one session are sorted.
        assert "session = ?" in sql or len(plan) == 1, (sql, plan)


def _fill(connection: apsw.Connection) -> None:
    """100,000 schedules of a thousand sessions, most of them over; one has a long history, and many are due later."""
    timing, options = msgspec.msgpack.encode({"cron": "0 0 1 1 *"}), msgspec.msgpack.encode({})
    connection.executemany(
        "INSERT INTO schedules VALUES (?, ?, 'report', '{}', 't', ?, ?, 'once', 'skip', ?, ?, ?, '{}', NULL)",
        (
            (f"sch_{n}", f"s{n % 1000}", options, timing, "active" if n < 3000 else "ended", NINE + HOUR + n, NINE - n)
            for n in range(100_000)
        ),
    )
    rows = (("sch_7", NINE - 60 * n, NINE - 60 * n, "fired", None) for n in range(100_000))
    connection.executemany("INSERT INTO firings VALUES (?, ?, ?, ?, ?)", rows)
