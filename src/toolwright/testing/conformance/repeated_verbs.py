"""Verbs that their owner repeats, because the store did not answer and nobody knows whether it wrote.

A store over a network raises `StoreUnavailable` where its answer is lost. Here the first of two equal verbs is the one
whose answer was lost: it was written. Where it was not, the second is simply the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec.structs import replace

from toolwright.errors import StoreUnavailable
from toolwright.stores.contracts.journal import Ended, Kept
from toolwright.stores.contracts.waits import Resolution, Standing, WaitKey
from toolwright.testing.conformance.cases import CANCELLED, Database, call, cases, intent, resolved, success, wait
from toolwright.testing.conformance.controllers import raised
from toolwright.tools.outcome import ToolOutcome

WANTING = ToolOutcome(call_id="c1", tool="book", status="connection_required", provider="airline")


async def unanswered(verb: Awaitable[Any]) -> None:
    """Carry out a verb whose answer its owner never gets."""

    async def lose() -> None:
        await verb
        raise StoreUnavailable("The connection was lost before the answer came; try again")

    await raised(StoreUnavailable, lose())


async def calls_that_are_begun_again_are_found_as_their_owners_own(database: Database) -> None:
    store, other = await database.open(), await database.open()
    batch = [intent(call("c1")), intent(call("c2"), position=1)]
    await unanswered(store.journal.begin(batch))
    entries = await store.journal.begin(batch)
    found = [(entry.owner, entry.outcome, entry.cut_off, entry.crashes) for entry in entries if entry is not None]
    assert found == [(store.journal.owner, None, False, 0)] * 2
    (theirs,) = await other.journal.begin([intent(call("c1"))])
    assert theirs is not None
    assert theirs.owner == store.journal.owner


async def a_call_that_was_taken_over_is_taken_over_once(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    await dead.journal.begin([intent(call())])
    await dead.journal.start(call(), 101.0)
    await database.kill(dead)
    await unanswered(heir.journal.begin([intent(call())]))
    (entry,) = await heir.journal.begin([intent(call())])
    assert entry is not None
    assert (entry.owner, entry.started_at, entry.crashes) == (heir.journal.owner, 101.0, 1)


async def a_start_and_an_effect_that_are_written_again_are_there_once(database: Database) -> None:
    journal = (await database.open()).journal
    kept = Kept("step:pay", b"5", 102.0, True, b'"paid"')
    await journal.begin([intent(call())])
    await unanswered(journal.start(call(), 101.0))
    assert await journal.start(call(), 101.0)
    await unanswered(journal.start_all([(call(), 101.0)]))
    await journal.start_all([(call(), 101.0)])
    await unanswered(journal.keep(call(), kept))
    assert await journal.keep(call(), kept)
    await unanswered(journal.keep_all([(call(), kept)]))
    await journal.keep_all([(call(), kept)])
    assert await journal.effects(call()) == [kept]


async def outcomes_that_are_written_again_stand(database: Database) -> None:
    store, other = await database.open(), await database.open()
    keys = [call(name) for name in ("c1", "c2", "refused")]
    await store.journal.begin([intent(key) for key in keys[:2]])
    ended = [
        Ended(keys[0], success(keys[0]), 101.0, 102.0),
        Ended(keys[1], success(keys[1]), 101.0, 102.0, waited=True),
        Ended(keys[2], success(keys[2]), None, 102.0, intent=intent(keys[2])),
    ]
    await unanswered(store.journal.finish_all(ended))
    await store.journal.finish_all(ended)
    for end in ended[:2]:
        assert await store.journal.finish(end.key, end.outcome, 101.0, 102.0)
    entries = await other.journal.begin([intent(key) for key in keys])
    assert [entry is not None and entry.outcome for entry in entries] == [end.outcome for end in ended]


async def a_call_that_is_forgotten_again_is_gone(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    await unanswered(store.journal.forget(call()))
    assert await store.journal.forget(call())
    assert await other.journal.begin([intent(call())]) == [None]
    assert not await store.journal.forget(call())  # it is another owner's now
    assert await other.journal.start(call(), 101.0)


async def a_call_that_is_released_again_is_nobodys(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    await unanswered(store.journal.release(call()))
    assert await store.journal.release(call())
    (entry,) = await other.journal.begin([intent(call())])
    assert entry is not None
    assert entry.cut_off
    assert not await store.journal.release(call())  # it is another owner's now
    assert await other.journal.start(call(), 101.0)


async def a_former_owner_is_refused_also_where_nobody_owns_the_call(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    await former.journal.begin([intent(call("c1")), intent(call("c2"))])
    await database.kill(former)
    await heir.journal.begin([intent(call("c1")), intent(call("c2"))])
    assert await heir.journal.release(call("c1"))
    assert await heir.journal.forget(call("c2"))
    assert not await former.journal.release(call("c1"))
    assert not await former.journal.forget(call("c2"))


async def a_call_that_is_reopened_again_is_its_owners(database: Database) -> None:
    first, second = await database.open(), await database.open()
    await first.journal.begin([intent(call())])
    await first.journal.finish(call(), WANTING, 101.0, 102.0)
    await unanswered(second.journal.reopen(call()))
    assert await second.journal.reopen(call())
    assert not await first.journal.reopen(call())
    assert await second.journal.start(call(), 103.0)
    assert not await second.journal.reopen(call())  # it runs


async def of_many_who_reopen_a_call_one_owns_it(database: Database) -> None:
    stores = [await database.open() for _ in range(4)]
    await stores[0].journal.begin([intent(call())])
    await stores[0].journal.finish(call(), WANTING, 101.0, 102.0)
    assert sum(await asyncio.gather(*(store.journal.reopen(call()) for store in stores))) == 1


async def a_wait_that_begins_or_is_resolved_again_is_as_it_was(database: Database) -> None:
    store = await database.open()
    await store.journal.begin([intent(call())])
    began, key = wait(call()), WaitKey(call(), "event")
    await unanswered(store.waits.open_wait(began))
    assert await store.waits.open_wait(replace(began, opened_at=900.0)) == began
    await unanswered(store.waits.resolve(key, resolved()))
    assert await store.waits.resolve(key, resolved()) == Standing(False, resolved())
    end = Resolution("cancelled", 300.0, by="\0call")
    await unanswered(store.waits.end_wait(WaitKey(call(), "completion"), end))
    assert await store.waits.end_wait(WaitKey(call(), "completion"), end) is None
    await unanswered(store.waits.cancel_waits("s1", CANCELLED, revoke=True))
    assert await store.waits.cancel_waits("s1", CANCELLED, revoke=True) == []


REPEATED = cases(
    calls_that_are_begun_again_are_found_as_their_owners_own,
    a_call_that_was_taken_over_is_taken_over_once,
    a_start_and_an_effect_that_are_written_again_are_there_once,
    outcomes_that_are_written_again_stand,
    a_call_that_is_forgotten_again_is_gone,
    a_call_that_is_released_again_is_nobodys,
    a_former_owner_is_refused_also_where_nobody_owns_the_call,
    a_call_that_is_reopened_again_is_its_owners,
    of_many_who_reopen_a_call_one_owns_it,
    a_wait_that_begins_or_is_resolved_again_is_as_it_was,
)
