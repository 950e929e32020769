"""Claims of calls: the calls of a session have one order for all owners of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from toolwright.stores.contracts.journal import NO_CLAIMS, Begun, CallKey, Ended, Holder
from toolwright.stores.contracts.store import Store
from toolwright.testing.conformance.cases import Database, call, cases, intent, success
from toolwright.tools.outcome import ToolOutcome

_PAST_TEN = [call(f"c{number}") for number in range(12)]


async def _begin(store: Store, key: CallKey, claims: str | None) -> Begun:
    return await store.journal.begin([replace(intent(key), claims=claims)])


def _names(holders: Sequence[Holder]) -> list[tuple[str, str | None]]:
    return sorted((holder.key.call_id, holder.claims) for holder in holders)


async def a_batch_is_told_of_the_claims_that_other_owners_had_before(database: Database) -> None:
    first, second, third = await database.open(), await database.open(), await database.open()
    nested = replace(intent(call("b"), position=3, queued_at=7.5), parent="a", claims="for b")
    assert (await _begin(first, call("a"), "for a")).others == []
    await first.journal.begin([nested])
    assert _names((await _begin(second, call("c"), None)).others) == [("a", "for a"), ("b", "for b")]
    begun = await _begin(third, call("d"), "for d")
    assert begun == [None]
    assert _names(begun.others) == [("a", "for a"), ("b", "for b"), ("c", None)]
    (held,) = [holder for holder in begun.others if holder.key == call("b")]
    assert held == Holder(call("b"), first.journal.owner, "a", 7.5, 3, "for b")
    # What came later is for those that come after it.
    assert _names((await _begin(first, call("e"), "for e")).others) == [("c", None), ("d", "for d")]


async def calls_without_claims_of_other_sessions_and_of_this_owner_are_not_told(database: Database) -> None:
    first, second = await database.open(), await database.open()
    await _begin(first, call("waits"), NO_CLAIMS)
    await _begin(first, call("a", "s2"), "for a")
    await _begin(second, call("mine"), "for mine")
    assert (await _begin(second, call("b"), "for b")).others == []
    assert await second.journal.holders(["s1"]) == []
    assert _names(await second.journal.holders(["s2", "s1"])) == [("a", "for a")]


async def claims_end_with_their_call(database: Database) -> None:
    first, second = await database.open(), await database.open()
    keys = [call(name) for name in ("ends", "ends with others", "forgotten", "released", "stays")]
    await first.journal.begin([replace(intent(key), claims="held") for key in keys])
    assert len(await second.journal.holders(["s1"])) == 5
    await first.journal.finish(keys[0], success(keys[0]), 101.0, 102.0)
    await first.journal.forget(keys[2])
    await first.journal.release(keys[3])
    assert _names(await second.journal.holders(["s1"])) == [("ends with others", "held"), ("stays", "held")]
    ended = Ended(keys[1], success(keys[1]), 101.0, 102.0)
    await first.journal.finish_all([ended])
    assert _names((await _begin(second, call("a"), "for a")).others) == [("stays", "held")]


async def claims_end_with_their_owner(database: Database) -> None:
    first, second, third = await database.open(), await database.open(), await database.open()
    await _begin(first, call("a"), "for a")
    await _begin(second, call("b"), None)
    await database.kill(first)
    await second.close()
    assert (await _begin(third, call("c"), "for c")).others == []
    assert await third.journal.holders(["s1"]) == []


async def a_call_that_is_continued_or_reopened_has_no_claims_at_first(database: Database) -> None:
    first, second, third = await database.open(), await database.open(), await database.open()
    await _begin(first, call("a"), "for a")
    await database.kill(first)
    (taken,) = await _begin(second, call("a"), "for a")
    assert taken is not None
    assert taken.cut_off
    lacks = ToolOutcome(call_id="b", tool="book", status="connection_required", provider="airline")
    await _begin(second, call("b"), "for b")
    await second.journal.finish(call("b"), lacks, 101.0, 102.0)
    assert await second.journal.reopen(call("b"))
    assert await third.journal.holders(["s1"]) == []
    assert await second.journal.hold([(call("a"), "again"), (call("b"), "again")]) == []
    assert _names(await third.journal.holders(["s1"])) == [("a", "again"), ("b", "again")]


async def calls_take_other_claims_behind_all_that_are_there(database: Database) -> None:
    first, second = await database.open(), await database.open()
    await first.journal.begin([replace(intent(key), claims=NO_CLAIMS) for key in (call("a"), call("b"))])
    await _begin(second, call("c"), "for c")
    assert _names(await first.journal.hold([(call("a"), "for a"), (call("theirs"), "x")])) == [("c", "for c")]
    assert _names(await second.journal.holders(["s1"])) == [("a", "for a")]
    assert _names(await second.journal.hold([(call("c"), "other"), (call("a"), "stolen")])) == [("a", "for a")]
    assert _names(await first.journal.holders(["s1"])) == [("c", "other")]
    assert await first.journal.hold([(call("a"), NO_CLAIMS)])
    assert await second.journal.holders(["s1"]) == []


async def the_claims_of_many_calls_are_found_while_some_of_them_end(database: Database) -> None:
    first, second = await database.open(), await database.open()
    keys = _PAST_TEN
    intents = [replace(intent(key, position=n), claims=f"of {n}" if n % 2 else None) for n, key in enumerate(keys)]
    await first.journal.begin(intents)
    await first.journal.finish(keys[3], success(keys[3]), 101.0, 102.0)
    await first.journal.hold([(keys[5], "new"), (keys[6], "new")])
    expected = {key.call_id: f"of {n}" if n % 2 else None for n, key in enumerate(keys) if n != 3}
    expected |= {keys[5].call_id: "new", keys[6].call_id: "new"}
    assert dict(_names(await second.journal.holders(["s1"]))) == expected
    assert dict(_names((await _begin(second, call("z"), "for z")).others)) == expected


async def no_call_is_marked_as_started_beside_calls_of_others(database: Database) -> None:
    first, second, third = await database.open(), await database.open(), await database.open()
    starting = [replace(intent(call(name)), claims="held", starts_at=101.0) for name in ("a", "b")]
    await first.journal.begin(starting[:1])
    assert (await second.journal.begin(starting[1:])).others
    await database.kill(first)
    await database.kill(second)
    found = {entry.intent.key.call_id: entry.started_at for entry in await third.journal.unfinished()}
    assert found["b"] is None  # it may have to wait for the other


async def a_call_that_nobody_was_before_is_marked_as_started(database: Database) -> None:
    first, second, third = await database.open(), await database.open(), await database.open()
    starting = [replace(intent(call(name)), claims="held", starts_at=101.0) for name in ("a", "b")]
    await first.journal.begin(starting[:1])
    await database.kill(first)
    assert (await second.journal.begin(starting[1:])).others == []  # a call of the dead keeps nobody waiting
    await database.kill(second)
    found = {entry.intent.key.call_id: entry.started_at for entry in await third.journal.unfinished()}
    assert found["b"] == 101.0  # its owner was told so, and wrote no start of its own


async def of_two_that_begin_at_once_one_comes_first(database: Database) -> None:
    first, second = await database.open(), await database.open()
    for number in range(20):
        keys = call(f"a{number}"), call(f"b{number}")
        begun = await asyncio.gather(_begin(first, keys[0], "x"), _begin(second, keys[1], "x"))
        assert [len(each.others) for each in begun] in ([0, 1], [1, 0])
        await first.journal.finish(keys[0], success(keys[0]), 101.0, 102.0)
        await second.journal.finish(keys[1], success(keys[1]), 101.0, 102.0)


async def of_two_that_take_claims_at_once_one_comes_first(database: Database) -> None:
    first, second = await database.open(), await database.open()
    for number in range(20):
        keys = call(f"a{number}"), call(f"b{number}")
        await asyncio.gather(_begin(first, keys[0], NO_CLAIMS), _begin(second, keys[1], NO_CLAIMS))
        others = await asyncio.gather(first.journal.hold([(keys[0], "x")]), second.journal.hold([(keys[1], "x")]))
        assert [len(each) for each in others] in ([0, 1], [1, 0])
        await first.journal.finish(keys[0], success(keys[0]), 101.0, 102.0)
        await second.journal.finish(keys[1], success(keys[1]), 101.0, 102.0)


CLAIMS = cases(
    a_batch_is_told_of_the_claims_that_other_owners_had_before,
    calls_without_claims_of_other_sessions_and_of_this_owner_are_not_told,
    claims_end_with_their_call,
    claims_end_with_their_owner,
    a_call_that_is_continued_or_reopened_has_no_claims_at_first,
    calls_take_other_claims_behind_all_that_are_there,
    the_claims_of_many_calls_are_found_while_some_of_them_end,
    no_call_is_marked_as_started_beside_calls_of_others,
    a_call_that_nobody_was_before_is_marked_as_started,
    of_two_that_begin_at_once_one_comes_first,
    of_two_that_take_claims_at_once_one_comes_first,
)
