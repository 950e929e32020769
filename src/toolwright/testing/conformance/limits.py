"""How many runs may be active: counted in the store, refused or held, and released in their order."""

from __future__ import annotations

import asyncio

from toolwright.errors import RunError
from toolwright.stores.contracts.run_store import Limits
from toolwright.testing.conformance.background import (
    PLENTY,
    QUEUEING,
    QUOTAS,
    begun,
    claim,
    current,
    end,
    ending,
    open_services,
    refusal,
    registration,
)
from toolwright.testing.conformance.cases import Database, cases

TWO = Limits(per_session=2, per_worker=1_000)


async def a_session_at_its_limit_is_refused_more_runs(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration("p1"), registration("p2")], TWO, None)
    more = [registration("p3", session="s2"), registration("p4")]
    assert await refusal(other.runs.register(more, TWO, None)) == "session_limit"
    assert await other.runs.find("p3") is None
    assert await other.runs.register([registration("p1")], TWO, None) == ["p1"]
    assert await other.runs.register(more[:1], TWO, None) == ["p3"]
    await claim(stores)
    assert await refusal(other.runs.register(more[1:], TWO, None)) == "session_limit"
    await end(stores, await current(stores, "p1"))
    assert await other.runs.register(more[1:], TWO, None) == ["p4"]


async def runs_that_are_registered_together_are_counted_together(database: Database) -> None:
    stores = await open_services(database)
    three = [registration(id) for id in ("p1", "p2", "p3")]
    assert await refusal(stores.runs.register(three, TWO, None)) == "session_limit"
    assert await stores.runs.list("s1") == []


async def a_limit_holds_when_many_register_at_once(database: Database) -> None:
    owners = [await open_services(database) for _ in range(3)]
    tried = await asyncio.gather(
        *(
            one.runs.register([registration(f"p{number}-{index}")], TWO, None)
            for index, one in enumerate(owners)
            for number in range(3)
        ),
        return_exceptions=True,
    )
    refused = [found for found in tried if isinstance(found, RunError)]
    assert [error.code for error in refused] == ["session_limit"] * 7
    assert len(await owners[0].runs.list("s1")) == 2


async def workers_get_no_more_runs_than_their_capacity(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    limits = Limits(per_session=1_000, per_worker=1)
    new = [registration(f"p{number}", session=f"s{number}", at=110.0) for number in range(5)]
    await stores.runs.register(new[:1], limits, None)
    assert await refusal(other.runs.register(new[1:2], limits, None)) == "worker_limit"
    await stores.runs.renew("w1", [], 100.0, 130.0, 2)
    await stores.runs.renew("w2", [], 100.0, 120.0, 9)
    await stores.runs.renew("w2", [], 100.0, 130.0, 1)
    await other.runs.register(new[1:3], limits, None)
    assert await refusal(other.runs.register(new[3:4], limits, None)) == "worker_limit"
    await stores.runs.renew("w3", [], 100.0, 109.0, 50)  # which is no longer alive at 110
    assert await refusal(other.runs.register(new[3:4], limits, None)) == "worker_limit"
    await stores.runs.renew("w3", [], 100.0, 130.0, 2)
    await other.runs.register(new[3:4], limits, None)
    await stores.runs.leave("w3")
    assert await refusal(other.runs.register(new[4:], limits, None)) == "worker_limit"
    waiting = Limits(per_session=1_000, per_worker=1, queue=True)
    assert await other.runs.register(new[4:], waiting, None) == ["p4"]


async def runs_beyond_the_limit_are_held_and_start_oldest_first(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    for id, at in (("p1", 100.0), ("late", 120.0), ("early", 110.0)):
        await stores.runs.register([registration(id, at=at)], QUEUEING, None)
    for id, at in (("theirs", 130.0), ("their next", 105.0)):
        await stores.runs.register([registration(id, session="s2", at=at)], QUEUEING, None)
    assert (await current(other, "early")).status == "queued"
    active = await other.runs.list("s1", active=True)
    assert [run.id for run in active] == ["late", "early", "p1"]
    for expected in (["p1", "theirs"], ["early"], ["late"]):
        taken = await claim(other, now=140.0)
        assert [run.id for run in taken] == expected
        assert not await other.runs.work_waits("w1", ["work"], 140.0)
        await end(stores, taken[0])


async def held_runs_count_for_no_limit(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration("p1")], QUEUEING, None)
    await stores.runs.register([registration("held")], QUEUEING, None)
    assert await stores.runs.register([registration("p2")], TWO, None) == ["p2"]
    assert await refusal(stores.runs.register([registration("p3")], TWO, None)) == "session_limit"


async def the_end_of_a_held_run_starts_no_other(database: Database) -> None:
    stores = await open_services(database)
    for id in ("p1", "gone", "next"):
        await stores.runs.register([registration(id)], QUEUEING, None)
    assert await stores.runs.finish(ending(await current(stores, "gone"), "cancelled"), QUOTAS)
    assert [run.id for run in await claim(stores)] == ["p1"]


async def a_child_run_beyond_the_limit_is_refused_and_not_held(database: Database) -> None:
    stores = await open_services(database)
    await begun(stores)
    child = registration("child", parent="p1")
    assert await refusal(stores.runs.register([child], QUEUEING, None)) == "session_limit"
    assert await stores.runs.register([child], PLENTY, None) == ["child"]
    assert [run.parent for run in await claim(stores)] == ["p1"]


async def an_exclusive_run_waits_for_the_others_of_its_schedule(database: Database) -> None:
    stores = await open_services(database)
    for id in ("p1", "p2", "p3"):
        await stores.runs.register([registration(id, schedule="h1", alone=True)], PLENTY, None)
    await stores.runs.register([registration("other", schedule="h2", alone=True)], PLENTY, None)
    first, other = await claim(stores)
    assert (first.id, other.id) == ("p1", "other")
    await end(stores, other)
    assert await claim(stores) == []
    await end(stores, first)
    (second,) = await claim(stores)
    assert second.id == "p2"
    await end(stores, second)
    assert [run.id for run in await claim(stores)] == ["p3"]


LIMITS = cases(
    a_session_at_its_limit_is_refused_more_runs,
    runs_that_are_registered_together_are_counted_together,
    a_limit_holds_when_many_register_at_once,
    workers_get_no_more_runs_than_their_capacity,
    runs_beyond_the_limit_are_held_and_start_oldest_first,
    held_runs_count_for_no_limit,
    the_end_of_a_held_run_starts_no_other,
    a_child_run_beyond_the_limit_is_refused_and_not_held,
    an_exclusive_run_waits_for_the_others_of_its_schedule,
)
