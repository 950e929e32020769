"""Firing schedules: each instant once, by the first worker, with its run and its history in one transaction."""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.schedule import Fired
from toolwright.stores.contracts.sessions import Mark
from toolwright.testing.conformance.background import (
    PLENTY,
    QUEUEING,
    begun,
    claim,
    current,
    end,
    firing,
    open_services,
    registration,
    schedule,
    scheduled,
    services_of,
)
from toolwright.testing.conformance.cases import Database, call, cases, intent


async def an_instant_that_many_fire_at_once_is_fired_once(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    await owners[0].schedules.add(schedule(), 5, None)
    found = await asyncio.gather(
        *(
            one.schedules.fire("h1", 1_000.0, [firing(f"p{index}")], 1_060.0, 1_001.0, PLENTY)
            for index, one in enumerate(owners)
        )
    )
    (first,) = [ids for ids in found if ids is not None]
    assert [run.id for run in await owners[0].runs.list(None)] == first
    assert await owners[1].schedules.history("h1", 9) == [Fired(1_000.0, 1_001.0, "fired", first[0])]
    assert (await scheduled(owners[1])).next_at == 1_060.0


async def a_firing_starts_the_run_that_was_given(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], 1_060.0, 1_001.0, PLENTY) == ["p1"]
    started = await current(other)
    assert (started.schedule, started.session, started.status) == ("h1", "s1", "queued")
    assert [run.id for run in await claim(other, now=1_001.0)] == ["p1"]


async def nothing_is_done_unless_the_next_instant_is_the_expected_one(database: Database) -> None:
    stores = await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    for expected in (940.0, 1_060.0, None):
        assert await stores.schedules.fire("h1", expected, [firing("p1")], 1_120.0, 1_100.0, PLENTY) is None
    assert await stores.schedules.fire("nobody", 1_000.0, [firing("p1")], 1_120.0, 1_100.0, PLENTY) is None
    assert await scheduled(stores) == schedule()
    assert await stores.runs.list(None) == []
    assert await stores.schedules.history("h1", 9) == []


async def a_paused_schedule_is_not_fired(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    (known,) = await other.schedules.due(1_000.0, 9)
    assert await stores.schedules.change("h1", ["active"], "paused", known.next_at, None)
    assert await other.schedules.fire("h1", known.next_at, [firing("p1")], 1_060.0, 1_000.0, PLENTY) is None
    assert await other.runs.list(None) == []
    assert (await scheduled(other)).next_at == 1_000.0


async def a_schedule_without_a_next_instant_has_ended(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], None, 1_000.0, PLENTY) == ["p1"]
    found = await scheduled(other)
    assert (found.state, found.next_at) == ("ended", None)
    assert await other.schedules.due(9_999.0, 9) == []
    assert await other.schedules.fire("h1", None, [firing("p2")], None, 1_000.0, PLENTY) is None
    assert await other.runs.find("p2") is None


async def an_instant_that_was_fired_is_not_fired_again(database: Database) -> None:
    stores = await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], 1_060.0, 1_000.0, PLENTY) == ["p1"]
    again = [firing("p2", 1_000.0), firing("p3", 1_060.0)]
    assert await stores.schedules.fire("h1", 1_060.0, again, 1_120.0, 1_060.0, PLENTY) == ["p3"]
    assert await stores.runs.find("p2") is None
    assert [fired.run for fired in await stores.schedules.history("h1", 9)] == ["p3", "p1"]


async def missed_instants_are_fired_or_skipped_together(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    firings = [firing(None, 1_000.0), firing("p1", 1_060.0), firing("p2", 1_120.0)]
    assert await stores.schedules.fire("h1", 1_000.0, firings, 1_180.0, 1_130.0, PLENTY) == ["p1", "p2"]
    assert await other.schedules.history("h1", 9) == [
        Fired(1_120.0, 1_130.0, "fired", "p2"),
        Fired(1_060.0, 1_130.0, "fired", "p1"),
        Fired(1_000.0, 1_130.0, "missed", None),
    ]
    assert await other.schedules.history("h1", 1) == [Fired(1_120.0, 1_130.0, "fired", "p2")]
    assert await other.schedules.history("h2", 9) == []


async def an_instant_is_skipped_while_a_run_is_unfinished(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id in ("h1", "h2"):
        await stores.schedules.add(schedule(id), 5, None)
    await begun(stores, "busy")
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], 1_060.0, 1_000.0, QUEUEING) == ["p1"]
    theirs = [firing("theirs", 1_000.0, schedule="h2", unless_active=True)]
    assert await stores.schedules.fire("h2", 1_000.0, theirs, 1_060.0, 1_000.0, PLENTY) == ["theirs"]
    # Its first run is held, and not finished.
    skipped = [firing("p2", 1_060.0, unless_active=True)]
    assert await other.schedules.fire("h1", 1_060.0, skipped, 1_120.0, 1_060.0, PLENTY) == []
    assert (await other.schedules.history("h1", 1))[0] == Fired(1_060.0, 1_060.0, "skipped", None)
    assert await other.runs.find("p2") is None
    await end(stores, await current(stores, "p1"))
    allowed = [firing("p3", 1_120.0, unless_active=True), firing("p4", 1_180.0)]
    assert await other.schedules.fire("h1", 1_120.0, allowed, 1_240.0, 1_180.0, PLENTY) == ["p3", "p4"]


async def exclusive_runs_of_a_schedule_run_one_after_the_other(database: Database) -> None:
    stores = await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    firings = [firing(f"p{number}", 1_000.0 + number, alone=True) for number in range(3)]
    assert await stores.schedules.fire("h1", 1_000.0, firings, 1_060.0, 1_002.0, PLENTY) == ["p0", "p1", "p2"]
    for number in range(3):
        (taken,) = await claim(stores, now=1_010.0)
        assert taken.id == f"p{number}"
        await end(stores, taken)


async def a_run_of_a_schedule_beyond_the_limits_waits(database: Database) -> None:
    stores = await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    held = await begun(stores, "busy")
    assert await stores.schedules.fire("h1", 1_000.0, [firing("p1")], 1_060.0, 1_000.0, QUEUEING) == ["p1"]
    run = await stores.schedules.run_now("h1", registration("p2", at=1_001.0, schedule="h1"), 1_001.0, QUEUEING, None)
    assert run == "p2"
    assert await claim(stores, now=1_001.0) == []
    await end(stores, held)
    assert [run.id for run in await claim(stores, now=1_001.0)] == ["p1"]


async def running_a_schedule_now_does_not_change_its_next_instant(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.schedules.add(schedule(), 5, None)
    for id in ("p1", "p2"):
        run = await stores.schedules.run_now("h1", registration(id, schedule="h1"), 1_000.0, PLENTY, None)
        assert run == id
    assert await scheduled(other) == schedule()
    found = await other.schedules.history("h1", 9)
    assert sorted(found) == [Fired(1_000.0, 1_000.0, "now", id) for id in ("p1", "p2")]
    assert await other.schedules.fire("h1", 1_000.0, [firing("p3")], 1_060.0, 1_000.0, PLENTY) == ["p3"]


async def a_schedule_that_is_not_cancelled_can_be_run_now(database: Database) -> None:
    stores = await open_services(database)
    for id in ("paused", "ended", "cancelled"):
        await stores.schedules.add(schedule(id), 5, None)
    await stores.schedules.change("paused", ["active"], "paused", 1_000.0, None)
    await stores.schedules.fire("ended", 1_000.0, [], None, 1_000.0, PLENTY)
    await stores.schedules.change("cancelled", ["active"], "cancelled", None, None)
    for id, expected in (("paused", "p1"), ("ended", "p2"), ("cancelled", None), ("nobody", None)):
        new = registration(expected or "p3", schedule=id)
        assert await stores.schedules.run_now(id, new, 1_100.0, PLENTY, None) == expected
    assert await stores.runs.find("p3") is None


async def running_a_schedule_now_with_a_mark_starts_one_run(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    stores, mark = services_of(store), Mark(call(), "schedules.run_now:1")
    await stores.schedules.add(schedule(), 5, None)
    for id in ("p1", "p2"):
        run = await stores.schedules.run_now("h1", registration(id, schedule="h1"), 1_000.0, PLENTY, mark)
        assert run == "p1"
    assert await stores.runs.find("p2") is None


FIRINGS = cases(
    an_instant_that_many_fire_at_once_is_fired_once,
    a_firing_starts_the_run_that_was_given,
    nothing_is_done_unless_the_next_instant_is_the_expected_one,
    a_paused_schedule_is_not_fired,
    a_schedule_without_a_next_instant_has_ended,
    an_instant_that_was_fired_is_not_fired_again,
    missed_instants_are_fired_or_skipped_together,
    an_instant_is_skipped_while_a_run_is_unfinished,
    exclusive_runs_of_a_schedule_run_one_after_the_other,
    a_run_of_a_schedule_beyond_the_limits_waits,
    running_a_schedule_now_does_not_change_its_next_instant,
    a_schedule_that_is_not_cancelled_can_be_run_now,
    running_a_schedule_now_with_a_mark_starts_one_run,
)
