"""Stored schedules: their number, which are due, and a next instant that only rises."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.errors import ScheduleError
from toolwright.stores.contracts.background_run import Options
from toolwright.stores.contracts.schedule import Schedule, State, Timing
from toolwright.stores.contracts.sessions import Mark
from toolwright.testing.conformance.background import (
    PLENTY,
    claim,
    firing,
    open_services,
    refusal,
    schedule,
    scheduled,
    services_of,
)
from toolwright.testing.conformance.cases import Database, call, cases, intent

LIVE: tuple[State, ...] = ("active", "paused")


async def a_schedule_is_read_as_it_was_added(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    given = Schedule(
        id="h1",
        session="s1",
        tool="work",
        arguments={"city": "Zürich", "n": [1, 2.5, None]},
        title="Wörk ✓",
        options=Options(timeout=60.0, signal_on_completion=True),
        timing=Timing(cron="30 2 * * *", timezone="Europe/Zurich"),
        misfire="all",
        overlap="queue",
        next_at=1_000.5,
        created_at=100.25,
        provenance={"by": "host"},
    )
    once = replace(given, id="h2", timing=Timing(at=2_000.5), misfire="skip", overlap="allow", state="paused")
    assert await stores.schedules.add(given, 5, None) == "h1"
    assert await stores.schedules.add(once, 5, None) == "h2"
    assert await other.schedules.find("h1") == given
    assert await other.schedules.find("h2") == once
    assert await other.schedules.find("h3") is None


async def a_session_at_its_limit_is_refused_more_schedules(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id in ("h1", "h2", "h3"):
        await stores.schedules.add(schedule(id), 3, None)
    assert await stores.schedules.change("h1", ["active"], "paused", 1_000.0, None)
    assert await refusal(other.schedules.add(schedule("h4"), 3, None)) == "session_limit"
    assert await other.schedules.find("h4") is None
    assert await other.schedules.add(schedule("theirs", session="s2"), 3, None) == "theirs"
    assert await stores.schedules.change("h2", LIVE, "cancelled", None, None)
    assert await other.schedules.add(schedule("h4"), 3, None) == "h4"
    assert await stores.schedules.fire("h3", 1_000.0, [], None, 1_000.0, PLENTY) == []
    assert await other.schedules.add(schedule("h5"), 3, None) == "h5"


async def the_limit_of_schedules_holds_when_many_add_at_once(database: Database) -> None:
    owners = [await open_services(database) for _ in range(3)]
    tried = await asyncio.gather(
        *(
            one.schedules.add(schedule(f"h{number}-{index}"), 2, None)
            for index, one in enumerate(owners)
            for number in range(3)
        ),
        return_exceptions=True,
    )
    assert [error.code for error in tried if isinstance(error, ScheduleError)] == ["session_limit"] * 7
    assert len(await owners[0].schedules.list("s1")) == 2


async def a_change_of_schedules_with_a_mark_is_made_once(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    schedules = services_of(store).schedules
    add, pause = Mark(call(), "schedules.add:1"), Mark(call(), "schedules.pause:1")
    assert await schedules.added(add) is None
    assert await schedules.add(schedule("h1"), 1, add) == "h1"
    assert await schedules.add(schedule("h2"), 1, add) == "h1"
    assert await schedules.find("h2") is None
    assert await schedules.added(add) == "h1"
    assert await schedules.added(Mark(call(), "schedules.add:2")) is None
    assert await schedules.added(Mark(call("c2"), "schedules.add:1")) is None
    assert await schedules.change("h1", ["active"], "paused", 1_000.0, pause)
    assert await schedules.change("h1", ["paused"], "active", 1_000.0, None)
    assert await schedules.change("h1", ["active"], "paused", 1_000.0, pause)
    assert (await schedules.list("s1"))[0].state == "active"


async def schedules_are_listed_oldest_first(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id, session, at in (("h1", "s1", 300.0), ("h2", "s2", 200.0), ("h3", "s1", 100.0), ("h4", "s1", 150.0)):
        await stores.schedules.add(schedule(id, session=session, created_at=at), 9, None)
    await stores.schedules.change("h3", ["active"], "paused", 1_000.0, None)
    await stores.schedules.change("h4", ["active"], "cancelled", None, None)
    assert [one.id for one in await other.schedules.list(None)] == ["h3", "h4", "h2", "h1"]
    assert [one.id for one in await other.schedules.list("s1")] == ["h3", "h4", "h1"]
    assert [one.id for one in await other.schedules.list("s1", active=True)] == ["h3", "h1"]
    assert [one.id for one in await other.schedules.list(None, active=True)] == ["h3", "h2", "h1"]
    assert await other.schedules.list("nobody's") == []


async def due_schedules_are_listed_by_their_instant(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    instants = {"a": 500.0, "b": 300.0, "c": 500.0, "d": 600.0, "e": 400.0, "f": 200.0}
    for id, instant in instants.items():
        await stores.schedules.add(schedule(id, next_at=instant), 9, None)
    assert [one.id for one in await other.schedules.due(199.0, 9)] == []
    assert [one.id for one in await other.schedules.due(500.0, 9)] == ["f", "b", "e", "a", "c"]
    assert [one.id for one in await other.schedules.due(500.0, 2)] == ["f", "b"]
    assert [one.id for one in await other.schedules.due(500.0, 2, (300.0, "b"))] == ["e", "a"]
    assert [one.id for one in await other.schedules.due(500.0, 2, (500.0, "a"))] == ["c"]


async def only_active_schedules_are_due(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id in ("active", "paused", "cancelled", "ended", "resumed"):
        await stores.schedules.add(schedule(id), 9, None)
    await stores.schedules.change("paused", ["active"], "paused", 1_000.0, None)
    await stores.schedules.change("cancelled", LIVE, "cancelled", None, None)
    await stores.schedules.fire("ended", 1_000.0, [], None, 1_000.0, PLENTY)
    await stores.schedules.change("resumed", ["active"], "paused", 1_000.0, None)
    await stores.schedules.change("resumed", ["paused"], "active", 1_000.0, None)
    assert [one.id for one in await other.schedules.due(9_999.0, 9)] == ["active", "resumed"]


async def a_state_is_changed_only_from_the_expected_states(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert not await stores.schedules.change("h1", ["paused"], "active", 5_000.0, None)
    assert await scheduled(other) == schedule()
    paused = await asyncio.gather(
        *(one.schedules.change("h1", ["active"], "paused", 1_000.0, None) for one in (stores, other))
    )
    assert sorted(paused) == [False, True]
    assert (await scheduled(other)).state == "paused"
    assert await stores.schedules.change("h1", LIVE, "cancelled", None, None)
    assert not await stores.schedules.change("h1", LIVE, "active", 5_000.0, None)
    assert (await scheduled(other)).state == "cancelled"
    assert not await stores.schedules.change("nobody", LIVE, "cancelled", None, None)


async def the_next_instant_only_rises(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert await stores.schedules.change("h1", ["active"], "paused", 1_000.0, None)
    assert await stores.schedules.change("h1", ["paused"], "active", 3_000.0, None)
    assert (await scheduled(other)).next_at == 3_000.0
    # A process that looked before that still knows the former instant.
    assert await other.schedules.change("h1", ["active"], "paused", 1_000.0, None)
    assert await other.schedules.change("h1", ["paused"], "active", 2_000.0, None)
    assert (await scheduled(other)).next_at == 3_000.0
    assert await stores.schedules.due(2_999.0, 9) == []


async def a_cancelled_schedule_has_no_next_instant_and_its_runs_continue(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], 2_000.0, 1_000.0, PLENTY) == ["p1"]
    assert await stores.schedules.change("h1", LIVE, "cancelled", None, None)
    assert (await scheduled(other)).next_at is None
    assert await other.schedules.fire("h1", 2_000.0, [firing("p2", 2_000.0)], None, 2_000.0, PLENTY) is None
    assert [run.id for run in await claim(other)] == ["p1"]
    assert len(await other.schedules.history("h1", 9)) == 1


SCHEDULES = cases(
    a_schedule_is_read_as_it_was_added,
    a_session_at_its_limit_is_refused_more_schedules,
    the_limit_of_schedules_holds_when_many_add_at_once,
    a_change_of_schedules_with_a_mark_is_made_once,
    schedules_are_listed_oldest_first,
    due_schedules_are_listed_by_their_instant,
    only_active_schedules_are_due,
    a_state_is_changed_only_from_the_expected_states,
    the_next_instant_only_rises,
    a_cancelled_schedule_has_no_next_instant_and_its_runs_continue,
)
