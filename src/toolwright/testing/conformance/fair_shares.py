"""Fair shares of sessions: no run waits behind all runs of another session that has very many queued."""

from __future__ import annotations

from collections import Counter

from toolwright.stores.contracts.run_store import Limits
from toolwright.testing.conformance.background import TimedServices, claim, end, open_services, registration
from toolwright.testing.conformance.cases import Database, cases

FLOOD = 1_000
"""How many runs one session has queued before the others come."""
MANY = Limits(per_session=10_000, per_worker=100_000)


async def queue(stores: TimedServices, session: str, count: int, at: float) -> None:
    """Register runs of a session at an instant."""
    new = [registration(f"{session}:{number}", session=session, at=at) for number in range(count)]
    await stores.runs.register(new, MANY, None)


async def claimed_by(stores: TimedServices, worker: str, now: float, most: int) -> list[str]:
    """The sessions of the runs that a worker claims, sorted."""
    return sorted(run.session for run in await claim(stores, worker, now, most))


async def a_session_with_many_queued_runs_leaves_others_their_share(database: Database) -> None:
    stores = await open_services(database)
    await queue(stores, "flood", FLOOD, 100.0)
    for session in ("s1", "s2", "s3"):
        await queue(stores, session, 2, 101.0)
    assert await claimed_by(stores, "w1", 102.0, 4) == ["flood", "s1", "s2", "s3"]
    assert await claimed_by(stores, "w2", 103.0, 5) == ["flood", "flood", "s1", "s2", "s3"]
    assert await claimed_by(stores, "w3", 104.0, 3) == ["flood", "flood", "flood"]


async def a_session_that_has_fewer_running_goes_first(database: Database) -> None:
    stores = await open_services(database)
    await queue(stores, "flood", FLOOD, 100.0)
    assert await claimed_by(stores, "w1", 101.0, 5) == ["flood"] * 5
    await queue(stores, "late", 3, 102.0)
    assert await claimed_by(stores, "w1", 103.0, 1) == ["late"]
    assert "late" in await claimed_by(stores, "w2", 104.0, 3)


async def a_worker_that_runs_one_at_a_time_takes_from_one_session_after_the_other(database: Database) -> None:
    stores = await open_services(database)
    await queue(stores, "flood", FLOOD, 100.0)
    await queue(stores, "other", 3, 101.0)
    order = []
    for number in range(8):
        (run,) = await claim(stores, "w1", 102.0 + number, 1)
        order.append(run.session)
        await end(stores, run)
    assert order == ["flood", "other", "flood", "other", "flood", "other", "flood", "flood"]


async def sessions_far_behind_a_flood_are_all_served(database: Database) -> None:
    stores = await open_services(database)
    await queue(stores, "flood", FLOOD, 100.0)
    sessions = [f"s{number:03}" for number in range(100)]
    for session in sessions:
        await queue(stores, session, 1, 101.0)
    served: Counter[str] = Counter()
    for number in range(100):
        for run in await claim(stores, "w1", 102.0 + number, 4):
            served[run.session] += 1
            await end(stores, run)
        if len(served) == 101:
            break
    assert set(served) == {"flood", *sessions}
    assert served["flood"] <= 101


async def between_sessions_with_the_same_share_the_oldest_goes_first(database: Database) -> None:
    stores = await open_services(database)
    for number in range(200):
        await queue(stores, f"s{199 - number:03}", 1, 100.0 + number)
    assert await claimed_by(stores, "w1", 500.0, 3) == ["s197", "s198", "s199"]
    assert await claimed_by(stores, "w1", 501.0, 2) == ["s195", "s196"]


async def what_is_left_over_is_taken_whoever_it_belongs_to(database: Database) -> None:
    stores = await open_services(database)
    await queue(stores, "flood", 6, 100.0)
    await queue(stores, "other", 1, 101.0)
    assert await claimed_by(stores, "w1", 102.0, 9) == ["flood"] * 6 + ["other"]
    assert await claimed_by(stores, "w1", 103.0, 9) == []


async def fairly_claimed(stores: TimedServices, worker: str, most: int = 64) -> int:
    """How many runs a worker claims that leaves others their share."""
    return len(await stores.runs.claim(worker, ["work"], 102.0, 132.0, most, fair=True))


async def a_worker_leaves_others_with_room_their_share(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.runs.renew("w1", [], 100.0, 130.0, 64)
    await other.runs.renew("w2", [], 100.0, 130.0, 64)
    await queue(stores, "s1", 20, 101.0)
    assert await fairly_claimed(stores, "w1") == 10
    assert await fairly_claimed(stores, "w1") == 0
    assert await fairly_claimed(other, "w2") == 10
    await queue(stores, "s2", 3, 101.0)
    assert await fairly_claimed(other, "w2") == 2
    assert await fairly_claimed(stores, "w1") == 1


async def shares_fit_the_capacities_of_workers(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.renew("w1", [], 100.0, 130.0, 30)
    await stores.runs.renew("w2", [], 100.0, 130.0, 10)
    await queue(stores, "s1", 20, 101.0)
    assert await fairly_claimed(stores, "w2", 10) == 5
    assert await fairly_claimed(stores, "w1", 30) == 15


async def nothing_is_left_to_workers_that_are_full_or_gone(database: Database) -> None:
    stores = await open_services(database)
    await stores.runs.renew("w1", [], 100.0, 130.0, 64)
    await stores.runs.renew("full", [], 100.0, 130.0, 2)
    await stores.runs.renew("silent", [], 10.0, 40.0, 64)
    await queue(stores, "s1", 22, 101.0)
    assert len(await claim(stores, "full", 101.0, 2)) == 2
    assert await fairly_claimed(stores, "w1") == 20


async def a_worker_that_need_not_be_fair_takes_all_it_has_room_for(database: Database) -> None:
    stores = await open_services(database)
    for worker in ("w1", "w2"):
        await stores.runs.renew(worker, [], 100.0, 130.0, 64)
    await queue(stores, "s1", 20, 101.0)
    assert len(await claim(stores, "w1", 102.0, 64)) == 20


SHARES = cases(
    a_session_with_many_queued_runs_leaves_others_their_share,
    a_session_that_has_fewer_running_goes_first,
    a_worker_that_runs_one_at_a_time_takes_from_one_session_after_the_other,
    sessions_far_behind_a_flood_are_all_served,
    between_sessions_with_the_same_share_the_oldest_goes_first,
    what_is_left_over_is_taken_whoever_it_belongs_to,
    a_worker_leaves_others_with_room_their_share,
    shares_fit_the_capacities_of_workers,
    nothing_is_left_to_workers_that_are_full_or_gone,
    a_worker_that_need_not_be_fair_takes_all_it_has_room_for,
)
