"""Effects of calls: stored under their labels, replaced in place, read by the next owner of the call."""

from __future__ import annotations

from msgspec.structs import replace

from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import Kept
from toolwright.testing.conformance.cases import Database, call, cases, intent, success
from toolwright.testing.conformance.controllers import raised
from toolwright.tools.outcome import Failure

BEGAN = Kept("step:pay", b'{"sum":5}', 101.5)
DONE = Kept("step:pay", b'{"sum":5}', 102.5, True, b'{"id":"\xc3\xa9"}')
FAILED = Kept(
    "step:mail", b"null", 103.5, True, failure=Failure(message="No ✉", code="bounced", retry_after=2.5, detail="550")
)


async def an_effect_is_read_as_it_was_written(database: Database) -> None:
    journal = (await database.open()).journal
    await journal.begin([intent(call())])
    assert await journal.effects(call()) == []
    assert await journal.keep(call(), BEGAN)
    assert await journal.effects(call()) == [BEGAN]
    assert await journal.keep(call(), FAILED)
    assert sorted(await journal.effects(call()), key=lambda kept: kept.label) == [FAILED, BEGAN]


async def an_effect_that_is_written_again_replaces_the_earlier_one(database: Database) -> None:
    journal = (await database.open()).journal
    await journal.begin([intent(call())])
    for kept in (BEGAN, DONE):
        assert await journal.keep(call(), kept)
        assert await journal.effects(call()) == [kept]


async def one_label_in_two_calls_makes_two_effects(database: Database) -> None:
    journal = (await database.open()).journal
    keys = [call("c1"), call("c2"), call("c1", "s2"), call("c1", "s1", "other")]
    for key in keys:
        await journal.begin([intent(key)])
    await journal.keep(keys[0], DONE)
    assert [len(await journal.effects(key)) for key in keys] == [1, 0, 0, 0]


async def effects_outlive_their_owner_and_their_call(database: Database) -> None:
    dead = await database.open()
    await dead.journal.begin([intent(call())])
    await dead.journal.keep(call(), BEGAN)
    await database.kill(dead)
    heir = await database.open()
    await heir.journal.begin([intent(call())])
    assert await heir.journal.effects(call()) == [BEGAN]
    assert await heir.journal.keep(call(), DONE)
    await heir.journal.finish(call(), success(call()), None, 103.0)
    assert await heir.journal.effects(call()) == [DONE]
    assert not await heir.journal.keep(call(), BEGAN)
    assert await heir.journal.effects(call()) == [DONE]


async def only_the_owner_of_a_call_writes_its_effects(database: Database) -> None:
    owner, other = await database.open(), await database.open()
    await owner.journal.begin([intent(call())])
    assert not await other.journal.keep(call(), BEGAN)
    assert await owner.journal.release(call())
    assert not await owner.journal.keep(call(), BEGAN)
    assert await owner.journal.effects(call()) == []


async def effects_are_written_together_or_not_at_all(database: Database) -> None:
    owner, heir = await database.open(), await database.open()
    keys = [call(f"c{number}") for number in range(10)]
    # So many calls that may simply run again: a store may hold their intents in another form than rows of their own.
    await owner.journal.begin([replace(intent(key, position=n), rerun=True) for n, key in enumerate(keys)])
    await owner.journal.keep_all([(keys[0], BEGAN), (keys[1], FAILED), (keys[0], DONE)])
    await owner.journal.keep_all([])
    await owner.journal.finish(keys[2], success(keys[2]), 101.0, 102.0)
    for late in (keys[2], call("unknown")):
        await raised(StoreError, owner.journal.keep_all([(keys[3], BEGAN), (late, BEGAN)]))
    await raised(StoreError, heir.journal.keep_all([(keys[4], BEGAN)]))
    found = [await owner.journal.effects(key) for key in keys[:5]]
    assert found == [[DONE], [FAILED], [], [], []]
    await database.kill(owner)
    entries = await heir.journal.begin([replace(intent(key, position=n), rerun=True) for n, key in enumerate(keys)])
    assert [entry is not None and entry.cut_off for entry in entries] == [n != 2 for n in range(10)]
    assert await heir.journal.effects(keys[0]) == [DONE]
    await raised(StoreError, owner.journal.keep_all([(keys[5], BEGAN)]))
    await heir.journal.keep_all([(keys[5], BEGAN), (keys[1], DONE)])
    found = [await heir.journal.effects(key) for key in (keys[1], keys[5])]
    assert [sorted(each, key=lambda kept: kept.label) for each in found] == [[FAILED, DONE], [BEGAN]]


EFFECTS = cases(
    an_effect_is_read_as_it_was_written,
    an_effect_that_is_written_again_replaces_the_earlier_one,
    one_label_in_two_calls_makes_two_effects,
    effects_outlive_their_owner_and_their_call,
    only_the_owner_of_a_call_writes_its_effects,
    effects_are_written_together_or_not_at_all,
)
