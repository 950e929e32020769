"""Text with every character: a store gives it back as it was, also U+0000, which some databases cannot hold as text."""

from __future__ import annotations

from msgspec.structs import replace

from toolwright.stores.contracts.journal import Ended, Kept
from toolwright.stores.contracts.waits import Remembered, Resolution, Standing, WaitKey
from toolwright.testing.conformance.cases import Database, call, cases, intent, resolved, success, wait
from toolwright.tools.outcome import Failure

ODD = "a\0b"
"""Text that ends too early where the character 0 ends it."""
NEAR = ("a", "a\0c", "a\0", "a\\u0000b", "a\\0b", "ab")
"""Other text, which such a store takes for the same."""


async def an_odd_id_is_one_of_its_own(database: Database) -> None:
    store, other = await database.open(), await database.open()
    keys = [call(ODD, ODD, ODD), *(call(near, ODD, ODD) for near in NEAR), call(ODD, "a", ODD), call(ODD, ODD, "a")]
    for key in keys:
        assert await store.journal.begin([intent(key)]) == [None]
    await store.journal.start(keys[0], 101.0)
    await store.journal.keep(keys[0], Kept(f"step:{ODD}", b'"\\u0000"', 101.0, True, b'"\\u0000"'))
    assert await store.journal.effects(keys[0]) == [Kept(f"step:{ODD}", b'"\\u0000"', 101.0, True, b'"\\u0000"')]
    assert await store.journal.finish(keys[0], success(keys[0]), None, 102.0)
    entries = [(await other.journal.begin([intent(key)]))[0] for key in keys]
    assert [entry and (entry.intent.key, entry.outcome is not None) for entry in entries] == [
        (key, key == keys[0]) for key in keys
    ]
    (entry,) = await other.journal.begin([], [keys[0]])
    assert entry is not None
    assert entry.outcome == success(keys[0])


async def odd_ids_of_one_batch_are_found_again(database: Database) -> None:
    store = await database.open()
    keys = [call(f"{ODD}{number}") for number in range(20)]
    assert await store.journal.begin([intent(key) for key in keys]) == [None] * 20
    await store.journal.finish_all([Ended(key, success(key), 101.0, 102.0) for key in keys])
    await store.close()
    entries = await (await database.open()).journal.begin([intent(key) for key in keys])
    assert [entry is not None and entry.outcome for entry in entries] == [success(key) for key in keys]


async def odd_text_in_a_call_comes_back_as_it_was(database: Database) -> None:
    store, other = await database.open(), await database.open()
    given = replace(intent(call()), tool=ODD, tool_id=ODD, arguments=b'{"text":"\\u0000"}', parent=ODD, batch=ODD)
    failure = Failure(message=ODD, code=ODD, detail=ODD)
    outcome = replace(success(call(), b'"\\u0000"'), tool=ODD, status="failure", failure=failure)
    await store.journal.begin([given])
    await store.journal.finish(call(), outcome, 101.0, 102.0)
    (entry,) = await other.journal.begin([given])
    assert entry is not None
    assert (entry.intent, entry.outcome) == (given, outcome)


async def an_odd_wait_is_one_of_its_own(database: Database) -> None:
    store, other = await database.open(), await database.open()
    key = call(ODD, ODD)
    await store.journal.begin([intent(key)])
    cursor = (await other.waits.arrivals(None)).cursor
    for name in (ODD, *NEAR):
        assert await store.waits.open_wait(wait(key, "event", name)) == wait(key, "event", name)
    answer = Resolution("error", 200.0, b'"\\u0000"', Failure(message=ODD), reason=ODD, by=ODD)
    remember = Remembered(ODD, ODD, "allow", b'{"to":"\\u0000"}', 200.0, ODD, ODD)
    assert await other.waits.resolve(WaitKey(key, "event", ODD), answer, remember) == Standing(True, answer)
    assert {found.key.name for found in await other.waits.waiting(ODD)} == set(NEAR)
    assert [(found.key.name, found.resolution) for found in (await other.waits.arrivals(cursor)).resolved] == [
        (ODD, answer)
    ]
    assert await store.waits.remembered(ODD) == [remember]
    assert await store.waits.remembered("a") == []
    assert await other.waits.signal(WaitKey(key, "signal", ODD), b'"\\u0000"', 200.0) == 1
    assert await store.waits.signals(WaitKey(key, "signal", ODD)) == [b'"\\u0000"']
    assert await store.waits.signals(WaitKey(key, "signal", "a")) == []
    assert await other.waits.resolve(WaitKey(key, "event", "a"), resolved()) == Standing(True, resolved())


TEXT = cases(
    an_odd_id_is_one_of_its_own,
    odd_ids_of_one_batch_are_found_again,
    odd_text_in_a_call_comes_back_as_it_was,
    an_odd_wait_is_one_of_its_own,
)
