"""Several owners of one database: the owner of a call, taking calls over, and writes of former owners."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.journal import Kept
from toolwright.stores.contracts.waits import WaitKey
from toolwright.testing.conformance.cases import Database, call, cases, intent, resolved, success, wait


async def every_owner_has_a_name_of_its_own(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    assert len({store.journal.owner for store in stores}) == 3


async def calls_of_a_dead_owner_are_taken_over_as_cut_off(database: Database) -> None:
    dead = await database.open()
    await dead.journal.begin([intent(call("begun")), intent(call("started"), position=1)])
    await dead.journal.start(call("started"), 101.0)
    await database.kill(dead)
    heir = await database.open()
    begun, started, fresh = await heir.journal.begin(
        [intent(call("begun")), intent(call("started")), intent(call("fresh"))]
    )
    assert begun is not None
    assert started is not None
    assert fresh is None
    assert [(entry.owner, entry.cut_off, entry.pending) for entry in (begun, started)] == [
        (heir.journal.owner, True, False)
    ] * 2
    assert (begun.started_at, started.started_at) == (None, 101.0)
    assert await heir.journal.finish(call("begun"), success(call("begun")), None, 102.0)


async def unfinished_calls_of_a_closed_owner_are_taken_over(database: Database) -> None:
    first, second = await database.open(), await database.open()
    await first.journal.begin([intent(call())])
    await first.close()
    await first.close()
    (entry,) = await second.journal.begin([intent(call())])
    assert entry is not None
    assert entry.cut_off


async def nothing_is_written_while_a_living_owner_runs_one_of_the_calls(database: Database) -> None:
    mine, theirs = await database.open(), await database.open()
    await theirs.journal.begin([intent(call("theirs"))])
    dead = await database.open()
    await dead.journal.begin([intent(call("left"))])
    await database.kill(dead)
    batch = [intent(call(name)) for name in ("fresh", "left", "theirs")]
    fresh, left, taken = await mine.journal.begin(batch)
    assert fresh is None
    assert left is not None
    assert taken is not None
    assert (taken.owner, taken.cut_off) == (theirs.journal.owner, False)
    assert not left.cut_off
    assert not await mine.journal.start(call("fresh"), 101.0)
    assert not await mine.journal.start(call("left"), 101.0)
    assert await theirs.journal.begin([intent(call("fresh"))]) == [None]


async def a_released_call_is_cut_off_for_its_next_owner(database: Database) -> None:
    first, second = await database.open(), await database.open()
    await first.journal.begin([intent(call("c1")), intent(call("c2"))])
    assert await first.journal.release(call("c1"))
    assert await first.journal.release(call("c2"))
    assert not await first.journal.finish(call("c1"), success(call("c1")), None, 102.0)
    (entry,) = await second.journal.begin([intent(call("c1"))])
    assert entry is not None
    assert (entry.owner, entry.cut_off) == (second.journal.owner, True)
    (entry,) = await first.journal.begin([intent(call("c2"))])
    assert entry is not None
    assert (entry.owner, entry.cut_off) == (first.journal.owner, True)


async def a_former_owner_cannot_write(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    await former.journal.begin([intent(call())])
    await database.kill(former)
    await heir.journal.begin([intent(call())])
    assert not await former.journal.start(call(), 101.0)
    assert not await former.journal.keep(call(), Kept("step:a", b"null", 101.0))
    assert not await former.journal.finish(call(), success(call()), None, 102.0)
    assert not await former.journal.release(call())
    assert not await former.journal.forget(call())
    assert await former.waits.open_wait(wait(call())) is None
    assert await heir.journal.effects(call()) == []
    assert await heir.waits.waiting() == []
    assert await heir.journal.finish(call(), success(call(), b'"mine"'), None, 103.0)


async def one_of_several_owners_takes_a_call_over(database: Database) -> None:
    dead = await database.open()
    await dead.journal.begin([intent(call())])
    await database.kill(dead)
    heirs = [await database.open() for _ in range(4)]
    entries = [found[0] for found in await asyncio.gather(*(heir.journal.begin([intent(call())]) for heir in heirs))]
    assert sum(entry is not None and entry.cut_off for entry in entries) == 1
    assert len({entry.owner for entry in entries if entry is not None}) == 1


async def a_call_may_be_taken_over_more_than_once(database: Database) -> None:
    for _ in range(3):
        store = await database.open()
        (entry,) = await store.journal.begin([intent(call())])
        assert entry is None or entry.cut_off
        await database.kill(store)
    last = await database.open()
    assert [entry.intent.key for entry in await last.journal.unfinished()] == [call()]


async def a_call_that_waits_for_its_completion_is_taken_over_as_pending(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    keys = [call("waits"), call("came early"), call("came"), call("another wait")]
    await dead.journal.begin([intent(key) for key in keys])
    await dead.waits.open_wait(wait(keys[0], "completion"))
    await heir.waits.resolve(WaitKey(keys[1], "completion"), resolved())
    await dead.waits.open_wait(wait(keys[2], "completion"))
    await heir.waits.resolve(WaitKey(keys[2], "completion"), resolved())
    await dead.waits.open_wait(wait(keys[3], "event", "completion"))
    await database.kill(dead)
    entries = await heir.journal.begin([intent(key) for key in keys])
    assert [entry is not None and entry.pending for entry in entries] == [True, True, True, False]


async def a_call_that_its_own_owner_begins_again_is_known_as_pending_too(database: Database) -> None:
    store = await database.open()
    keys = [call("waits"), call("runs")]
    await store.journal.begin([intent(key) for key in keys])
    await store.waits.open_wait(wait(keys[0], "completion"))
    entries = await store.journal.begin([intent(key) for key in keys])
    assert [entry is not None and (entry.cut_off, entry.pending) for entry in entries] == [
        (False, True),
        (False, False),
    ]


async def unfinished_calls_of_dead_owners_are_listed_oldest_first(database: Database) -> None:
    dead, closed, living = await database.open(), await database.open(), await database.open()
    await dead.journal.begin([intent(call("young"), queued_at=300.0)])
    await dead.journal.begin(
        [intent(call("second"), position=1, queued_at=200.0), intent(call("first"), queued_at=200.0)]
    )
    await dead.journal.begin([intent(call("done"), queued_at=100.0)])
    await dead.journal.finish(call("done"), success(call("done")), None, 102.0)
    await closed.journal.begin([intent(call("other", "s2"), queued_at=100.0)])
    await living.journal.begin([intent(call("alive"), queued_at=50.0), intent(call("released"), queued_at=60.0)])
    await living.journal.release(call("released"))
    await database.kill(dead)
    await closed.close()
    found = await living.journal.unfinished()
    assert [entry.intent.key.call_id for entry in found] == ["released", "other", "first", "second", "young"]
    assert all(entry.outcome is None for entry in found)
    found = await living.journal.unfinished("s2")
    assert [entry.intent.key.call_id for entry in found] == ["other"]
    assert await living.journal.unfinished("nobody's") == []


async def deaths_of_the_owner_of_a_running_call_are_counted(database: Database) -> None:
    async def die(*, started_at: float | None, rerun: bool, released: bool = False, done: int = 0) -> int:
        """Take the call over, do some of it, and die; the number of crashes that were found."""
        owner = await database.open()
        (entry,) = await owner.journal.begin([replace(intent(call()), rerun=rerun)])
        if started_at is not None:
            assert await owner.journal.start(call(), started_at)
        for number in range(done):
            assert await owner.journal.keep(call(), Kept(f"step:{number}", b"", 100.0, True))
        if released:
            assert await owner.journal.release(call())
        await database.kill(owner)
        return 0 if entry is None else entry.crashes

    assert await die(started_at=101.0, rerun=False) == 0
    assert await die(started_at=None, rerun=False) == 1
    assert await die(started_at=102.0, rerun=True, released=True) == 1  # nor since that one
    assert await die(started_at=103.0, rerun=True) == 1  # it was released, not cut off
    assert await die(started_at=104.0, rerun=True, done=2) == 2
    assert await die(started_at=105.0, rerun=True, done=2) == 1  # it got further
    assert await die(started_at=106.0, rerun=True, done=2) == 2
    assert await die(started_at=107.0, rerun=True, done=2) == 3


async def the_first_crash_of_a_call_that_may_run_again_counts_without_a_start(database: Database) -> None:
    for expected in (0, 1, 1):
        owner = await database.open()
        (entry,) = await owner.journal.begin([replace(intent(call()), rerun=True)])
        assert (0 if entry is None else entry.crashes) == expected
        await database.kill(owner)


async def a_death_counts_for_the_innermost_call_that_was_running(database: Database) -> None:
    outer, inner = (
        replace(intent(call("outer")), rerun=True),
        replace(intent(call("inner")), rerun=True, parent="outer"),
    )

    async def die(started_at: float, *, until: str) -> tuple[int, int]:
        """Take both calls over and die with the outer or the inner one running; how often each was found to crash."""
        owner = await database.open()
        (entry,) = await owner.journal.begin([replace(outer, queued_at=started_at)])
        assert await owner.journal.start(outer.key, started_at)
        nested = None
        if until != "outer":
            (nested,) = await owner.journal.begin([replace(inner, queued_at=started_at + 0.1)])
        if until == "inner":  # else it is only queued
            assert await owner.journal.start(inner.key, started_at + 0.2)
        if until == "inner ended":
            assert await owner.journal.finish(inner.key, success(inner.key), started_at, started_at + 0.3)
        await database.kill(owner)
        return (0 if entry is None else entry.crashes), (0 if nested is None else nested.crashes)

    assert await die(101.0, until="outer") == (0, 0)
    assert await die(102.0, until="inner") == (1, 0)
    assert await die(103.0, until="inner") == (1, 1)
    assert await die(104.0, until="outer") == (1, 0)  # that one was the inner call's again
    assert await die(105.0, until="inner queued") == (2, 2)
    assert await die(106.0, until="inner ended") == (3, 2)
    assert await die(107.0, until="outer") == (1, 0)  # it got further


OWNERS = cases(
    every_owner_has_a_name_of_its_own,
    calls_of_a_dead_owner_are_taken_over_as_cut_off,
    unfinished_calls_of_a_closed_owner_are_taken_over,
    nothing_is_written_while_a_living_owner_runs_one_of_the_calls,
    a_released_call_is_cut_off_for_its_next_owner,
    a_former_owner_cannot_write,
    one_of_several_owners_takes_a_call_over,
    a_call_may_be_taken_over_more_than_once,
    a_call_that_waits_for_its_completion_is_taken_over_as_pending,
    a_call_that_its_own_owner_begins_again_is_known_as_pending_too,
    unfinished_calls_of_dead_owners_are_listed_oldest_first,
    deaths_of_the_owner_of_a_running_call_are_counted,
    the_first_crash_of_a_call_that_may_run_again_counts_without_a_start,
    a_death_counts_for_the_innermost_call_that_was_running,
)
