"""Leases of workers: one holder of a run at a time, rising tokens, and refusals for former holders."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.background_run import Options, Progress
from toolwright.stores.contracts.run_store import Claimed, Piece, Renewal, Report
from toolwright.testing.conformance import session_services
from toolwright.testing.conformance.background import (
    CASE_CLOCK,
    LEASE,
    PLENTY,
    QUOTAS,
    begun,
    claim,
    current,
    end,
    ending,
    open_services,
    registration,
    taken_over,
    types,
)
from toolwright.testing.conformance.cases import Database, cases


async def a_claimed_run_belongs_to_its_worker(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration(options=Options(timeout=60.0))], PLENTY, None)
    (claimed,) = await stores.runs.claim("w1", ["work"], 110.0, 140.0, 1)
    run = await current(other)
    assert claimed == Claimed(run, None, False)
    assert (run.status, run.worker, run.lease_until) == ("running", "w1", 140.0)
    assert (run.token, run.attempts, run.crashes) == (1, 1, 0)
    assert (run.started_at, run.deadline) == (110.0, 170.0)
    event = (await other.runs.events("p1", 0, 10))[-1]
    assert event.type == "started"
    assert event.payload == {"worker": "w1", "attempt": 1, "taken_over_from": None}


async def a_worker_claims_runs_of_its_tools_up_to_its_limit(database: Database) -> None:
    stores = await open_services(database)
    new = [registration("p1"), registration("p2", tool="other"), registration("p3"), registration("p4")]
    await stores.runs.register(new, PLENTY, None)
    assert [run.id for run in await claim(stores, most=2)] == ["p1", "p3"]
    assert [run.id for run in await claim(stores, "w2", most=2)] == ["p4"]
    assert await stores.runs.claim("w1", [], 100.0, 130.0, 9) == []
    taken = await stores.runs.claim("w1", ["some", "other"], 100.0, 130.0, 9)
    assert [claimed.run.id for claimed in taken] == ["p2"]


async def a_worker_that_claims_certain_runs_gets_no_others(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration(id) for id in ("p1", "p2", "p3", "p4")], PLENTY, None)
    await stores.runs.register([registration("q", tool="other")], PLENTY, None)
    taken = await stores.runs.claim("w1", ["work"], 100.0, 130.0, 9, ["p3", "p2", "q", "unknown"])
    assert [claimed.run.id for claimed in taken] == ["p2", "p3"]
    assert await other.runs.claim("w2", ["work"], 129.0, 159.0, 9, ["p3"]) == []
    assert await other.runs.claim("w2", ["work"], 131.0, 161.0, 9, []) == []
    (claimed,) = await other.runs.claim("w2", ["work"], 131.0, 161.0, 9, ["p3"])
    assert (claimed.run.id, claimed.run.token, claimed.before) == ("p3", 2, "w1")
    assert len(await other.runs.claim("w2", ["work"], 131.0, 161.0, 1, ["p1", "p2", "p4"])) == 1


async def unclaimed_runs_are_those_that_a_worker_could_claim(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await other.runs.register([registration("p1", at=10.0), registration("p2", at=5.0)], PLENTY, None)
    await other.runs.register([registration("q", tool="other", at=20.0)], PLENTY, None)
    assert [run.id for run in await other.runs.unclaimed(["work"], 100.0, 9)] == ["p2", "p1"]
    assert [run.id for run in await other.runs.unclaimed(["work", "other"], 100.0, 2)] == ["p2", "p1"]
    assert [run.id for run in await claim(stores, most=1)] == ["p2"]
    assert [run.id for run in await other.runs.unclaimed(["work"], 129.0, 9)] == ["p1"]
    assert [run.id for run in await other.runs.unclaimed(["work"], 131.0, 9)] == ["p2", "p1"]
    assert (await current(other, "p2")).worker == "w1"  # it only looked


async def runs_of_a_lost_worker_are_claimed_before_queued_runs(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration("left", at=50.0)], PLENTY, None)
    await claim(stores)
    for id, at in (("young", 30.0), ("old", 10.0), ("same a", 20.0), ("same b", 20.0)):
        await stores.runs.register([registration(id, at=at)], PLENTY, None)
    assert [run.id for run in await claim(stores, "w2", 131.0, 3)] == ["left", "old", "same a"]
    assert [run.id for run in await claim(stores, "w2", 131.0, 3)] == ["same b", "young"]


async def each_run_is_claimed_by_one_of_many_workers(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    new = [registration(f"p{number:02}") for number in range(40)]
    await owners[0].runs.register(new, PLENTY, None)
    found = await asyncio.gather(*(claim(owners[number % 4], f"w{number}", most=6) for number in range(8)))
    assert sorted(run.id for each in found for run in each) == [one.id for one in new]
    assert all(run.token == 1 for each in found for run in each)


async def a_run_cannot_be_claimed_until_its_lease_has_passed(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration(options=Options(timeout=600.0))], PLENTY, None)
    (held,) = await claim(stores)
    assert await claim(other, "w2", 129.0) == []
    assert await claim(stores, "w1", 131.0) == []  # only another takes it over
    (claimed,) = await other.runs.claim("w2", ["work"], 131.0, 161.0, 1)
    heir = claimed.run
    assert (claimed.before, heir.worker, heir.token, heir.lease_until) == ("w1", "w2", 2, 161.0)
    assert (heir.attempts, heir.crashes) == (2, 1)
    assert (heir.started_at, heir.deadline) == (held.started_at, held.deadline) == (100.0, 700.0)
    started = (await other.runs.events("p1", 0, 10))[-1]
    assert started.payload == {"worker": "w2", "attempt": 2, "taken_over_from": "w1"}


async def a_wall_clock_that_is_set_does_not_move_leases(database: Database) -> None:
    """Neither the clock of this machine nor that of a worker elsewhere, which says at which instant it asks."""
    first, second = session_services.services_of(await database.open()), await session_services.open_services(database)
    CASE_CLOCK.at = 100.0
    await first.runs.register([registration()], PLENTY, None)
    assert await first.runs.renew("w1", [], 100.0, LEASE, 5) == Renewal([], {})
    assert len(await first.runs.claim("w1", ["work"], 100.0, LEASE, 5)) == 1
    try:
        for ahead in (45.0, 86_400.0, -86_400.0):
            CASE_CLOCK.ahead = ahead
            CASE_CLOCK.at = 129.0
            assert not await second.runs.work_waits("w2", ["work"], LEASE)
            assert await second.runs.claim("w2", ["work"], CASE_CLOCK.now(), LEASE, 5) == []
        CASE_CLOCK.at = 131.0
        (claimed,) = await second.runs.claim("w2", ["work"], CASE_CLOCK.now(), LEASE, 5)
        assert (claimed.run.token, claimed.before) == (2, "w1")
        assert (await first.runs.renew("w1", [("p1", 1)], 131.0, LEASE, 5)).lost == ["p1"]
    finally:
        CASE_CLOCK.ahead = 0.0


async def one_of_several_workers_takes_a_run_over(database: Database) -> None:
    owners = [await open_services(database) for _ in range(4)]
    await begun(owners[0])
    found = await asyncio.gather(*(claim(one, f"heir {index}", 131.0) for index, one in enumerate(owners)))
    assert [run.token for each in found for run in each] == [2]


async def the_token_rises_with_each_takeover(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.register([registration()], PLENTY, None)
    tokens = []
    for number in range(6):
        (run,) = await claim(stores, f"w{number}", 100.0 + number * 31.0)
        tokens.append(run.token)
        if number % 2:
            await stores.runs.hand_back(f"w{number}", [("p1", run.token)], 101.0 + number * 31.0)
    assert tokens == sorted(set(tokens))
    assert (await current(stores)).token == tokens[-1]


async def a_lease_that_is_renewed_lasts_longer(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    assert await stores.runs.renew("w1", [("p1", held.token)], 110.0, 140.0, 5) == Renewal([], {})
    assert (await current(other)).lease_until == 140.0
    assert await claim(other, "w2", 139.0) == []
    assert [run.token for run in await claim(other, "w2", 141.0)] == [2]


async def a_worker_with_a_passed_lease_may_write_until_another_claims_the_run(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    assert await stores.runs.report([Report(id="p1", token=held.token, at=500.0, status_text="still here")]) == []
    assert await stores.runs.renew("w1", [("p1", held.token)], 500.0, 530.0, 5) == Renewal([], {})
    assert await claim(other, "w2", 520.0) == []
    assert await stores.runs.finish(ending(held), QUOTAS)


async def every_write_of_a_former_worker_is_refused(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    former, heir = await taken_over(stores)
    before, events = await current(stores), await types(stores)
    for token in (former.token, heir.token + 1):
        report = Report(
            id="p1", token=token, at=132.0, pieces=[Piece("stdout", "x")], progress=Progress(1), waiting=["event"]
        )
        assert await stores.runs.report([report]) == ["p1"]
        assert await stores.runs.append("p1", token, "status", b'{"text":"x"}', None, 132.0) is None
        assert (await stores.runs.renew("w1", [("p1", token)], 132.0, 999.0, 5)).lost == ["p1"]
        await stores.runs.hand_back("w1", [("p1", token)], 132.0)
        assert not await stores.runs.finish(ending(replace(former, token=token)), QUOTAS)
    assert await current(other) == before == heir
    assert await types(other) == events
    assert (await other.runs.renew("w2", [("p1", heir.token)], 132.0, 160.0, 5)).lost == []
    await end(other, heir)


async def runs_that_a_worker_claimed_without_an_answer_are_handed_back(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.register([registration("held"), registration("unheard")], PLENTY, None)
    await claim(stores, "w1", most=1)
    await claim(stores, "w1", most=1)
    await begun(other, "theirs", "w2")
    assert (await stores.runs.renew("w1", [("held", 1)], 110.0, 140.0, 5)).lost == []
    (again,) = await claim(other, "w2", 111.0)
    assert (again.id, again.token, again.crashes) == ("unheard", 2, 0)
    assert (await current(other, "held")).worker == "w1"


async def a_run_that_is_handed_back_can_be_claimed_at_once(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    held = await begun(stores)
    await stores.runs.hand_back("w1", [("p1", held.token)], 110.0)
    left = await current(other)
    assert (left.status, left.lease_until, left.token) == ("queued", None, held.token)
    assert (await other.runs.events("p1", 0, 10))[-1].payload == {"worker": "w1"}
    assert await types(other) == ["queued", "started", "handed_back"]
    (mine,) = await claim(stores, "w1", 111.0)
    assert (mine.token, mine.attempts, mine.crashes) == (2, 2, 0)
    await stores.runs.hand_back("w1", [("p1", mine.token)], 112.0)
    (claimed,) = await other.runs.claim("w2", ["work"], 113.0, 143.0, 1)
    assert (claimed.before, claimed.run.crashes) == ("w1", 0)


async def a_worker_is_told_which_of_its_runs_to_stop(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    mine, also = await begun(stores, "mine"), await begun(stores, "also")
    await begun(stores, "theirs", "w2")
    for id in ("mine", "theirs"):
        await other.runs.cancel(id, f"no {id}", 110.0)
    assert await stores.runs.cancelled("w1") == {"mine": "no mine"}
    assert await stores.runs.cancelled("w3") == {}
    held = [(run.id, run.token) for run in (mine, also)]
    assert await stores.runs.renew("w1", held, 110.0, 140.0, 5) == Renewal([], {"mine": "no mine"})
    await end(stores, mine)
    assert await stores.runs.cancelled("w1") == {}


async def a_worker_can_ask_whether_there_is_a_run_to_claim(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    assert not await other.runs.work_waits("w2", ["work"], 100.0)
    await stores.runs.register([registration()], PLENTY, None)
    assert await other.runs.work_waits("w2", ["some", "work"], 100.0)
    assert not await other.runs.work_waits("w2", ["some"], 100.0)
    (held,) = await claim(stores)
    assert not await other.runs.work_waits("w2", ["work"], 100.0 + LEASE - 1)
    assert await other.runs.work_waits("w2", ["work"], 100.0 + LEASE + 1)
    await end(stores, held)
    assert not await other.runs.work_waits("w2", ["work"], 100.0 + LEASE + 1)


LEASES = cases(
    a_claimed_run_belongs_to_its_worker,
    a_worker_claims_runs_of_its_tools_up_to_its_limit,
    a_worker_that_claims_certain_runs_gets_no_others,
    unclaimed_runs_are_those_that_a_worker_could_claim,
    runs_of_a_lost_worker_are_claimed_before_queued_runs,
    each_run_is_claimed_by_one_of_many_workers,
    a_run_cannot_be_claimed_until_its_lease_has_passed,
    a_wall_clock_that_is_set_does_not_move_leases,
    one_of_several_workers_takes_a_run_over,
    the_token_rises_with_each_takeover,
    a_lease_that_is_renewed_lasts_longer,
    a_worker_with_a_passed_lease_may_write_until_another_claims_the_run,
    every_write_of_a_former_worker_is_refused,
    runs_that_a_worker_claimed_without_an_answer_are_handed_back,
    a_run_that_is_handed_back_can_be_claimed_at_once,
    a_worker_is_told_which_of_its_runs_to_stop,
    a_worker_can_ask_whether_there_is_a_run_to_claim,
)
