"""Input from outside: signals in order, and changes since the last look."""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.waits import Refused, Wait, WaitKey
from toolwright.testing.conformance.cases import CANCELLED, Database, call, cases, intent, resolved, success, wait

GO = WaitKey(call(), "signal", "go")
STOP = WaitKey(call(), "signal", "stop")


async def signals_of_a_name_are_read_in_the_order_of_sending(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    for number in range(5):
        sender = (store, other)[number % 2]
        assert await sender.waits.signal(GO, b"%d" % number, 100.0) == number + 1
    assert await other.waits.signal(STOP, b'"now"', 100.0) == 1
    assert await store.waits.signals(GO) == [b"0", b"1", b"2", b"3", b"4"]
    assert await store.waits.signals(GO, 3) == [b"3", b"4"]
    assert await store.waits.signals(GO, 9) == []
    assert await store.waits.signals(STOP) == [b'"now"']
    assert await store.waits.signals(WaitKey(call("c2"), "signal", "go")) == []


async def no_signal_is_lost_when_many_are_sent_at_once(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    await stores[0].journal.begin([intent(call())])
    sent = [(stores[number % 3], b"%d" % number) for number in range(90)]
    counts = await asyncio.gather(*(store.waits.signal(GO, payload, 100.0) for store, payload in sent))
    assert sorted(counts, key=str) == sorted(range(1, 91), key=str)
    found = await stores[0].waits.signals(GO)
    assert sorted(found) == sorted(payload for _, payload in sent)
    for first in range(3):  # each sender's in the order it sent them
        mine = [int(payload) for payload in found if int(payload) % 3 == first]
        assert mine == sorted(mine)


async def signals_for_a_call_that_is_unknown_or_over_are_refused(database: Database) -> None:
    store = await database.open()
    assert await store.waits.signal(GO, b"1", 100.0) == Refused("unknown")
    await store.journal.begin([intent(call())])
    assert await store.waits.signal(GO, b"1", 100.0) == 1
    await store.journal.finish(call(), success(call()), None, 102.0)
    assert await store.waits.signal(GO, b"2", 103.0) == Refused("over")
    assert await store.waits.signals(GO) == [b"1"]


async def signals_outlive_their_owner_but_not_a_forgotten_call(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    await dead.journal.begin([intent(call())])
    await dead.waits.signal(GO, b"1", 100.0)
    await database.kill(dead)
    await heir.journal.begin([intent(call())])
    assert await heir.waits.signals(GO) == [b"1"]
    cursor = (await heir.waits.arrivals(None)).cursor
    assert await heir.waits.signal(GO, b"2", 101.0) == 2
    await heir.journal.forget(call())
    await heir.journal.begin([intent(call())])
    assert await heir.waits.signals(GO) == []
    assert (await heir.waits.arrivals(cursor)).signals == []
    assert await heir.waits.signal(GO, b"3", 102.0) == 1


async def a_reader_is_told_once_of_each_change_of_any_owner(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2"))])
    await store.waits.open_wait(wait(call("c1")))
    await other.waits.resolve(WaitKey(call("c2"), "event", "before"), resolved())
    await other.waits.signal(GO, b"0", 100.0)

    start = await store.waits.arrivals(None)
    assert (start.resolved, start.signals) == ([], [])
    assert (await store.waits.arrivals(start.cursor)) == start

    await other.waits.resolve(WaitKey(call("c2"), "event"), resolved(b"2"))
    await other.waits.signal(STOP, b"1", 100.0)
    await other.waits.resolve(WaitKey(call("c1"), "event"), resolved(b"1"))
    await store.waits.resolve(WaitKey(call("c1"), "event"), resolved(b"too late"))
    await store.waits.signal(GO, b"1", 100.0)
    news = await store.waits.arrivals(start.cursor)
    assert news.resolved == [
        Wait(WaitKey(call("c2"), "event"), resolution=resolved(b"2")),
        Wait(WaitKey(call("c1"), "event"), 100.0, resolution=resolved(b"1")),
    ]
    assert news.signals == [STOP, GO]
    later = await store.waits.arrivals(news.cursor)
    assert (later.resolved, later.signals) == ([], [])
    assert (await other.waits.arrivals(start.cursor)).resolved == news.resolved


async def a_reader_is_told_of_waits_that_were_cancelled_together(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call("c1")), intent(call("c2"))])
    await store.waits.open_wait(wait(call("c2"), opened_at=110.0))
    await store.waits.open_wait(wait(call("c1"), opened_at=120.0))
    cursor = (await store.waits.arrivals(None)).cursor
    cancelled = await other.waits.cancel_waits("s1", CANCELLED)
    news = await store.waits.arrivals(cursor)
    assert [found.key for found in news.resolved] == cancelled
    assert [found.resolution for found in news.resolved] == [CANCELLED] * 2


async def no_change_is_missed_when_the_newest_one_is_forgotten(database: Database) -> None:
    store = await database.open()
    for name in ("c1", "c2"):
        await store.journal.begin([intent(call(name))])
    await store.waits.resolve(WaitKey(call("c1"), "event"), resolved())
    await store.waits.signal(GO, b"1", 100.0)
    cursor = (await store.waits.arrivals(None)).cursor
    await store.journal.forget(call("c1"))
    await store.waits.resolve(WaitKey(call("c2"), "event"), resolved())
    await store.waits.signal(WaitKey(call("c2"), "signal", "go"), b"1", 100.0)
    news = await store.waits.arrivals(cursor)
    assert [found.key.call.call_id for found in news.resolved] == ["c2"]
    assert [key.call.call_id for key in news.signals] == ["c2"]


SIGNALS = cases(
    signals_of_a_name_are_read_in_the_order_of_sending,
    no_signal_is_lost_when_many_are_sent_at_once,
    signals_for_a_call_that_is_unknown_or_over_are_refused,
    signals_outlive_their_owner_but_not_a_forgotten_call,
    a_reader_is_told_once_of_each_change_of_any_owner,
    a_reader_is_told_of_waits_that_were_cancelled_together,
    no_change_is_missed_when_the_newest_one_is_forgotten,
)
