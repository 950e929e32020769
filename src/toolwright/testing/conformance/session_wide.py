"""Session-wide verbs: waits that are cancelled together, sessions that are revoked, decisions that last."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.waits import Refused, Remembered, Standing, Wait, WaitKey
from toolwright.testing.conformance.cases import CANCELLED, Database, call, cases, intent, resolved, success, wait

ALLOW = Remembered("s1", "travel.book", "allow", b'{"to":"K*"}', 200.5, "trusted", "ann")
DENY = Remembered("s1", "travel.book", "deny", b"{}", 201.5)


async def a_session_cancels_the_waits_of_its_unfinished_calls(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("done"))])
    await store.journal.begin([intent(call("c1", "s2"))])
    await store.waits.open_wait(wait(call("c1"), "event", "young", 120.0))
    await store.waits.open_wait(wait(call("c1"), "event", "old", 110.0))
    await store.waits.open_wait(wait(call("c1"), "event", "resolved", 105.0))
    await store.waits.resolve(WaitKey(call("c1"), "event", "resolved"), resolved())
    await store.waits.open_wait(wait(call("done"), "event", "left"))
    await store.journal.finish(call("done"), success(call("done")), None, 200.0)
    await store.waits.open_wait(wait(call("c1", "s2"), "event", "elsewhere"))

    cancelled = await other.waits.cancel_waits("s1", CANCELLED)
    assert [key.name for key in cancelled] == ["old", "young"]
    assert [found.key.name for found in await store.waits.waiting()] == ["elsewhere"]
    stands = await store.waits.resolve(WaitKey(call("c1"), "event", "old"), resolved())
    assert stands == Standing(False, CANCELLED)
    assert await other.waits.cancel_waits("s1", CANCELLED) == []
    later = wait(call("c1"), "event", "later")
    assert await store.waits.open_wait(later) == later


async def the_waits_of_one_call_are_found_by_their_kind(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2"))])
    young, old = wait(call("c1"), "approval", "young", 120.0), wait(call("c1"), "approval", "old", 110.0)
    for each in (young, old, wait(call("c1"), "event", "e"), wait(call("c2"), "approval", "a")):
        await store.waits.open_wait(each)
    await other.waits.resolve(old.key, resolved())
    assert await other.waits.waits_of(call("c1"), "approval") == [replace(old, resolution=resolved()), young]
    assert await other.waits.waits_of(call("c1"), "crash") == []
    assert await other.waits.waits_of(call("never"), "approval") == []


async def decisions_are_listed_newest_first(database: Database) -> None:
    store, other = await database.open(), await database.open()
    ids = ["c1", "c2", "c3"]
    await store.journal.begin([intent(call(id)) for id in ids])
    await store.journal.begin([intent(call("c1", "s2"))])
    keys = [*(call(id) for id in ids), call("c1", "s2")]
    for key in keys:
        await store.waits.open_wait(wait(key, "approval", "a"))
        await store.waits.open_wait(wait(key, "event", "e"))
    assert await other.waits.decided(None, None, 10) == []
    for number, key in enumerate(keys):
        await other.waits.resolve(WaitKey(key, "event", "e"), resolved())
        if key.call_id != "c2":
            await other.waits.resolve(WaitKey(key, "approval", "a"), replace(resolved(), at=float(number), by="ann"))
    await store.journal.finish(call("c1"), success(call("c1")), None, 200.0)

    found = await other.waits.decided(None, None, 10)
    assert [each.wait.key.call for each in found] == [keys[3], keys[2], keys[0]]
    assert [each.wait.resolution for each in found] == [
        replace(resolved(), at=float(number), by="ann") for number in (3, 2, 0)
    ]
    numbers = [each.number for each in found]
    assert sorted(numbers, reverse=True) == numbers
    assert await store.waits.decided("s1", None, 10) == found[1:]
    assert await store.waits.decided(None, None, 2) == found[:2]
    assert await store.waits.decided(None, found[1].number, 10) == found[2:]
    assert await store.waits.decided("s1", found[2].number, 10) == []


async def answered_questions_are_listed_apart_from_approvals_and_share_their_numbers(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2"))])
    keys = [
        WaitKey(call("c1"), "question", "size"),
        WaitKey(call("c2"), "approval", "a"),
        WaitKey(call("c2"), "question", "size"),
        WaitKey(call("c1"), "question", "open"),
    ]
    for place, key in enumerate(keys):
        await store.waits.open_wait(Wait(key, 100.0 + place, 200.0, b'{"message":"\xe2\x82\xac?"}'))
    assert [one.key for one in await other.waits.waiting(kinds=["question"])] == [keys[0], keys[2], keys[3]]
    assert [one.key for one in await other.waits.waiting(kinds=["approval", "crash"])] == [keys[1]]
    for key in keys[:3]:
        await other.waits.resolve(key, replace(resolved(b'"M"'), by="ann"))
    assert [one.key for one in await other.waits.waiting("s1", ["question"])] == [keys[3]]

    questions = await other.waits.decided(None, None, 10, ["question"])
    assert [one.wait.key for one in questions] == [keys[2], keys[0]]
    assert [one.wait.resolution for one in questions] == [replace(resolved(b'"M"'), by="ann")] * 2
    (approval,) = await other.waits.decided("s1", None, 10)
    assert questions[0].number > approval.number > questions[1].number
    assert [one.wait.key for one in await store.waits.decided("s1", None, 10, ["approval", "crash", "question"])] == [
        keys[2],
        keys[1],
        keys[0],
    ]
    assert await store.waits.decided(None, approval.number, 10, ["question"]) == questions[1:]


async def a_revoked_session_refuses_later_waits_and_signals(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("done"))])
    await store.journal.begin([intent(call("c1", "s2"))])
    await store.waits.open_wait(wait(call("c1"), "event", "open"))
    await store.waits.resolve(WaitKey(call("c1"), "event", "early"), resolved())
    await store.journal.finish(call("done"), success(call("done")), None, 200.0)

    cancelled = await other.waits.cancel_waits("s1", CANCELLED, revoke=True)
    assert [key.name for key in cancelled] == ["open"]
    assert await other.waits.cancel_waits("s1", replace(CANCELLED, at=900.0), revoke=True) == []
    assert await store.waits.resolve(WaitKey(call("c1"), "event", "late"), resolved()) == Refused("revoked")
    assert await store.waits.resolve(WaitKey(call("done"), "event", "late"), resolved()) == Refused("revoked")
    assert await store.waits.resolve(WaitKey(call("never"), "event"), resolved()) == Refused("unknown")
    assert await store.waits.signal(WaitKey(call("c1"), "signal", "go"), b"1", 200.0) == Refused("revoked")
    early = await store.waits.resolve(WaitKey(call("c1"), "event", "early"), resolved(b"2"))
    assert early == Standing(False, resolved())

    late = wait(call("c1"), "event", "late")
    assert await store.waits.open_wait(late) == replace(late, resolution=CANCELLED)
    assert await store.waits.waiting("s1") == []
    assert await store.waits.resolve(late.key, resolved()) == Standing(False, CANCELLED)
    free = await store.waits.resolve(WaitKey(call("c1", "s2"), "event", "late"), resolved())
    assert free == Standing(True, resolved())


async def a_wait_that_begins_while_its_session_is_revoked_is_cancelled(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    keys = [call(f"c{number}") for number in range(30)]
    for number, key in enumerate(keys):
        await stores[number % 3].journal.begin([intent(key)])

    begins = [stores[number % 3].waits.open_wait(wait(key)) for number, key in enumerate(keys)]
    tasks = [asyncio.ensure_future(each) for each in begins[:15]]
    revoking = asyncio.ensure_future(stores[0].waits.cancel_waits("s1", CANCELLED, revoke=True))
    tasks += [asyncio.ensure_future(each) for each in begins[15:]]
    began, cancelled = await asyncio.gather(*tasks), await revoking
    # Each was resolved when it began, or was open by then and cancelled: none is left that nobody can resolve.
    assert {each.key for each in began if each is not None and each.resolution is None} == set(cancelled)
    assert await stores[1].waits.waiting("s1") == []
    again = [await stores[number % 3].waits.open_wait(wait(key)) for number, key in enumerate(keys)]
    assert [each and each.resolution for each in again] == [CANCELLED] * 30


async def a_session_stays_revoked_when_the_store_is_opened_again(database: Database) -> None:
    first = await database.open()
    assert await first.waits.cancel_waits("s1", CANCELLED, revoke=True) == []
    await first.close()
    second = await database.open()
    await second.journal.begin([intent(call())])
    assert await second.waits.open_wait(wait(call())) == replace(wait(call()), resolution=CANCELLED)


async def only_the_first_decision_is_remembered(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2")), intent(call("c3"))])
    keys = [WaitKey(call(name), "approval") for name in ("c1", "c2", "c3")]
    await other.waits.resolve(keys[0], resolved(), ALLOW)
    await store.waits.resolve(keys[0], resolved(), DENY)
    assert await store.waits.remembered("s1") == [ALLOW]
    await store.waits.resolve(keys[1], resolved(), DENY)
    await store.waits.resolve(keys[2], resolved())
    await store.waits.resolve(WaitKey(call("never"), "approval"), resolved(), ALLOW)
    await store.close()
    assert await other.waits.remembered("s1") == [DENY, ALLOW]
    assert await other.waits.remembered("s2") == []


async def a_remembered_decision_outlives_the_call_it_was_made_for(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    await store.waits.resolve(WaitKey(call(), "approval"), resolved(), ALLOW)
    await store.journal.forget(call())
    assert await store.waits.remembered("s1") == [ALLOW]


SESSION_WIDE = cases(
    the_waits_of_one_call_are_found_by_their_kind,
    decisions_are_listed_newest_first,
    answered_questions_are_listed_apart_from_approvals_and_share_their_numbers,
    a_session_cancels_the_waits_of_its_unfinished_calls,
    a_revoked_session_refuses_later_waits_and_signals,
    a_wait_that_begins_while_its_session_is_revoked_is_cancelled,
    a_session_stays_revoked_when_the_store_is_opened_again,
    only_the_first_decision_is_remembered,
    a_remembered_decision_outlives_the_call_it_was_made_for,
)
