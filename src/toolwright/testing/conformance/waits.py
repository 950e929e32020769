"""Waits of calls: begun once, resolved once, by the first answer."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.waits import BY_CALL, Refused, Resolution, Standing, Wait, WaitKey
from toolwright.testing.conformance.cases import CANCELLED, Database, call, cases, intent, resolved, success, wait
from toolwright.tools.outcome import Failure


async def every_owner_has_the_same_secret(database: Database) -> None:
    first, second = await database.open(), await database.open()
    assert first.waits.secret == second.waits.secret
    assert len(first.waits.secret) >= 32


async def a_wait_that_began_keeps_its_deadline_and_detail(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    await dead.journal.begin([intent(call())])
    began = Wait(WaitKey(call(), "approval", "ask"), 100.5, 160.25, b'{"sum":"\xe2\x82\xac5"}')
    assert await dead.waits.open_wait(began) == began
    assert await dead.waits.open_wait(replace(began, opened_at=900.0, deadline=None, detail=b"1")) == began
    await database.kill(dead)
    await heir.journal.begin([intent(call())])
    assert await heir.waits.open_wait(replace(began, opened_at=900.0, deadline=999.0)) == began
    assert await heir.waits.waiting() == [began]


async def a_resolution_is_read_as_it_was_written(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    failure = Failure(message="No ✗", code="declined", retry=True, detail="private")
    given = Resolution("error", 200.5, b'{"n":1}', failure, "because", "Zoë")
    assert await other.waits.resolve(WaitKey(call(), "event", "paid"), given) == Standing(True, given)
    stands = await store.waits.open_wait(wait(call(), "event", "paid"))
    assert stands is not None
    assert stands.resolution == given


async def a_wait_that_was_resolved_early_is_resolved_when_it_opens(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    began = Wait(WaitKey(call(), "completion"), 100.0, 160.0, b'"detail"')
    assert await other.waits.resolve(began.key, resolved()) == Standing(True, resolved())
    assert await store.waits.waiting() == []
    assert await store.waits.open_wait(began) == replace(began, resolution=resolved())
    assert await store.waits.open_wait(replace(began, opened_at=900.0)) == replace(began, resolution=resolved())
    assert await store.waits.waiting() == []


async def the_first_resolution_counts_and_later_ones_are_told_it(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    await store.waits.open_wait(wait(call()))
    key = WaitKey(call(), "event")
    assert await store.waits.resolve(key, resolved(b"1")) == Standing(True, resolved(b"1"))
    assert await other.waits.resolve(key, resolved(b"2")) == Standing(False, resolved(b"1"))
    await store.journal.finish(call(), success(call()), None, 300.0)
    assert await other.waits.resolve(key, resolved(b"3")) == Standing(False, resolved(b"1"))


async def one_of_many_resolutions_at_once_is_first(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    await stores[0].journal.begin([intent(call())])
    await stores[0].waits.open_wait(wait(call()))
    given = [resolved(b"%d" % number) for number in range(30)]
    answers = await asyncio.gather(
        *(stores[number % 3].waits.resolve(WaitKey(call(), "event"), given[number]) for number in range(30))
    )
    standing = [answer for answer in answers if isinstance(answer, Standing)]
    assert len(standing) == 30
    assert sum(answer.first for answer in standing) == 1
    assert len({answer.resolution.payload for answer in standing}) == 1


async def a_wait_of_a_call_that_is_unknown_or_over_is_refused(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call("done")), intent(call("forgotten"))])
    await store.waits.open_wait(wait(call("done")))
    await store.waits.open_wait(wait(call("forgotten")))
    await store.journal.finish(call("done"), success(call("done")), None, 102.0)
    await store.journal.forget(call("forgotten"))
    refusals = [
        await store.waits.resolve(WaitKey(call(name), "event"), resolved()) for name in ("never", "done", "forgotten")
    ]
    assert refusals == [Refused("unknown"), Refused("over"), Refused("unknown")]
    assert await store.waits.waiting() == []
    assert await store.waits.open_wait(wait(call("done"))) is None
    assert await store.waits.open_wait(wait(call("never"))) is None


async def a_call_begun_again_after_it_was_forgotten_has_no_waits(database: Database) -> None:
    store = await database.open()
    cursor = (await store.waits.arrivals(None)).cursor
    await store.journal.begin([intent(call())])
    await store.waits.open_wait(wait(call(), "event", "open"))
    await store.waits.resolve(WaitKey(call(), "event", "resolved"), resolved())
    await store.journal.forget(call())
    await store.journal.begin([intent(call())])
    assert await store.waits.waiting() == []
    assert (await store.waits.arrivals(cursor)).resolved == []
    began = wait(call(), "event", "resolved", 500.0)
    assert await store.waits.open_wait(began) == began


async def only_the_owner_of_a_call_begins_its_waits_and_anybody_resolves_them(database: Database) -> None:
    owner, other = await database.open(), await database.open()
    await owner.journal.begin([intent(call())])
    assert await other.waits.open_wait(wait(call())) is None
    assert await owner.waits.waiting() == []
    await owner.waits.open_wait(wait(call()))
    await owner.journal.release(call())
    assert await owner.waits.open_wait(wait(call(), "event", "late")) is None
    assert [found.key.name for found in await other.waits.waiting()] == [""]
    assert await other.waits.resolve(WaitKey(call(), "event"), resolved()) == Standing(True, resolved())


async def waits_of_other_calls_kinds_and_names_are_separate(database: Database) -> None:
    store = await database.open()
    keys = [
        WaitKey(call("c1"), "event", "a"),
        WaitKey(call("c1"), "event", "b"),
        WaitKey(call("c1"), "approval", "a"),
        WaitKey(call("c2"), "event", "a"),
        WaitKey(call("c1", "s2"), "event", "a"),
    ]
    for name, session in (("c1", "s1"), ("c2", "s1"), ("c1", "s2")):
        await store.journal.begin([intent(call(name, session))])
    for key in keys:
        await store.waits.open_wait(Wait(key, 100.0))
    await store.waits.resolve(keys[0], resolved())
    assert {found.key for found in await store.waits.waiting()} == set(keys[1:])


async def open_waits_are_listed_oldest_first(database: Database) -> None:
    store, reader = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1"))])
    await store.journal.begin([intent(call("c2", "s2"))])
    await store.journal.begin([intent(call("done"))])
    given = [
        Wait(WaitKey(call("c1"), "event", "third"), 130.0),
        Wait(WaitKey(call("c1"), "approval", "first"), 110.0),
        Wait(WaitKey(call("c2", "s2"), "crash", "second"), 120.0),
        Wait(WaitKey(call("c1"), "completion"), 140.0),
        Wait(WaitKey(call("done"), "approval", "over"), 100.0),
        Wait(WaitKey(call("c1"), "approval", "resolved"), 100.0),
    ]
    for one in given:
        await store.waits.open_wait(one)
    await store.journal.finish(call("done"), success(call("done")), None, 200.0)
    await store.waits.resolve(given[5].key, resolved())

    assert await reader.waits.waiting() == [given[1], given[2], given[0], given[3]]
    assert await reader.waits.waiting("s1") == [given[1], given[0], given[3]]
    assert await reader.waits.waiting(kinds=["approval", "crash"]) == [given[1], given[2]]
    assert await reader.waits.waiting(kinds=["crash"]) == [given[2]]
    assert await reader.waits.waiting("s1", ["event", "approval"]) == [given[1], given[0]]
    assert await reader.waits.waiting("s3") == []


async def a_call_that_ends_without_a_wait_takes_an_earlier_resolution(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("before")), intent(call("after"))])
    before, after = WaitKey(call("before"), "completion"), WaitKey(call("after"), "completion")
    assert await other.waits.resolve(before, resolved()) == Standing(True, resolved())
    assert await other.waits.end_wait(before, CANCELLED) is None
    assert await store.waits.end_wait(before, CANCELLED) == resolved()
    assert await other.waits.end_wait(after, CANCELLED) is None
    assert await store.waits.end_wait(after, CANCELLED) is None
    assert await other.waits.resolve(before, resolved(b"2")) == Standing(False, resolved())
    assert await other.waits.resolve(after, resolved()) == Standing(False, CANCELLED)


async def a_call_whose_completion_came_before_it_waited_is_found_pending(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    calls = [call("came"), call("ended"), call("none")]
    await dead.journal.begin([intent(one) for one in calls])
    await heir.waits.resolve(WaitKey(calls[0], "completion"), resolved())
    await dead.waits.end_wait(WaitKey(calls[1], "completion"), Resolution("cancelled", 300.0, by=BY_CALL))
    await database.kill(dead)
    entries = await heir.journal.begin([intent(one) for one in calls])
    assert [entry is not None and (entry.cut_off, entry.pending) for entry in entries] == [
        (True, True),
        (True, False),
        (True, False),
    ]


WAITS = cases(
    every_owner_has_the_same_secret,
    a_wait_that_began_keeps_its_deadline_and_detail,
    a_resolution_is_read_as_it_was_written,
    a_wait_that_was_resolved_early_is_resolved_when_it_opens,
    the_first_resolution_counts_and_later_ones_are_told_it,
    one_of_many_resolutions_at_once_is_first,
    a_wait_of_a_call_that_is_unknown_or_over_is_refused,
    a_call_begun_again_after_it_was_forgotten_has_no_waits,
    only_the_owner_of_a_call_begins_its_waits_and_anybody_resolves_them,
    waits_of_other_calls_kinds_and_names_are_separate,
    open_waits_are_listed_oldest_first,
    a_call_that_ends_without_a_wait_takes_an_earlier_resolution,
    a_call_whose_completion_came_before_it_waited_is_found_pending,
)
