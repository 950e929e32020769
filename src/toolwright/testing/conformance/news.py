"""News: a waiter is told that another owner has written or died, and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolwright.stores.contracts.journal import Cursor, Kept
from toolwright.stores.contracts.store import Store
from toolwright.stores.contracts.waits import WaitKey
from toolwright.testing.conformance import background
from toolwright.testing.conformance.background import PLENTY, registration
from toolwright.testing.conformance.cases import CANCELLED, Database, call, cases, intent, resolved, success, wait
from toolwright.testing.conformance.session_services import WIDE, services_of
from toolwright.testing.conformance.turns import turn

LONG = 15.0
"""Seconds that no news need."""


async def comes(store: Store, write: Callable[[], Awaitable[Any]], *, own: bool = False) -> None:
    """A waiter in `store` is told of a write, whether the write is before the wait begins or after."""
    position = await settled(store)
    await write()
    after = await store.news(position, LONG, own=own)
    assert after != position, f"No waiter was told of {write}."


async def settled(store: Store) -> Cursor:
    """A position after which nothing has come yet."""
    position = await store.news(None, 0.0)
    while (after := await store.news(position, 0.0, own=True)) != position:
        position = after
    return position


async def nothing_comes_where_nobody_writes(database: Database) -> None:
    store, _ = await database.open(), await database.open()
    position = await settled(store)
    assert await store.news(position, 0.0) == position
    assert await store.news(position, 0.05, own=True) == position


async def every_write_of_another_owner_about_a_call_comes(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await comes(store, lambda: other.journal.begin([intent(call())]))
    await comes(store, lambda: other.journal.start(call(), 101.0))
    await comes(store, lambda: other.journal.keep(call(), Kept("step:a", b"1", 101.0, True)))
    await comes(store, lambda: other.waits.open_wait(wait(call())))
    await comes(store, lambda: other.waits.resolve(WaitKey(call(), "event"), resolved()))
    await comes(store, lambda: other.waits.signal(WaitKey(call(), "signal", "go"), b"1", 200.0))
    await comes(store, lambda: other.journal.finish(call(), success(call()), None, 102.0))


async def a_resolution_that_comes_while_somebody_waits_is_there_when_he_is_told(database: Database) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    await store.waits.open_wait(wait(call()))
    cursor = (await store.waits.arrivals(None)).cursor
    position = await settled(store)
    told = asyncio.ensure_future(store.news(position, LONG))
    await other.waits.resolve(WaitKey(call(), "event"), resolved())
    assert await told != position
    assert [each.key for each in (await store.waits.arrivals(cursor)).resolved] == [WaitKey(call(), "event")]


async def the_death_and_the_end_of_an_owner_come(database: Database) -> None:
    store, dies, closes = await database.open(), await database.open(), await database.open()
    await dies.journal.begin([intent(call())])
    await settled(store)
    await comes(store, lambda: database.kill(dies))
    (entry,) = await store.journal.begin([intent(call())])
    assert entry is not None
    assert entry.cut_off
    await comes(store, closes.close)


async def the_writes_of_the_owner_itself_come_to_those_who_ask_for_them(database: Database) -> None:
    store, _ = await database.open(), await database.open()
    await comes(store, lambda: store.journal.begin([intent(call())]), own=True)
    position = await settled(store)
    await store.journal.start(call(), 101.0)
    assert await store.news(position, 0.05) == position
    assert await store.news(position, LONG, own=True) != position


async def everybody_who_waits_is_told(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    other = await database.open()
    positions = [await settled(store) for store in stores for _ in range(5)]
    waits = [
        asyncio.ensure_future(stores[number // 5].news(position, LONG)) for number, position in enumerate(positions)
    ]
    await other.journal.begin([intent(call())])
    after = await asyncio.gather(*waits)
    assert all(told != position for told, position in zip(after, positions, strict=True))


async def somebody_who_stops_to_wait_leaves_the_others_alone(database: Database) -> None:
    store, other = await database.open(), await database.open()
    position = await settled(store)
    gone, stays = (asyncio.ensure_future(store.news(position, LONG)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    await other.waits.cancel_waits("s1", CANCELLED)
    await other.journal.begin([intent(call())])
    assert await stays != position
    assert gone.cancelled()


async def what_others_do_beside_calls_comes(database: Database) -> None:
    store, other = await database.open(), await database.open()
    services, timed = services_of(other), background.services_of(other)
    await comes(store, lambda: timed.runs.register([registration()], PLENTY, None))
    await comes(store, lambda: background.claim(timed))
    await comes(store, lambda: timed.runs.cancel("p1", "no longer needed", 101.0))
    await comes(store, lambda: services.turns.add(turn(), WIDE))
    await comes(store, lambda: services.turns.steer("t1", "faster", 101.0))
    await comes(store, lambda: services.schedules.add(background.schedule(), 10, None))
    await comes(store, lambda: services.kv.set_value("s1", "k", b"1", 100.0, WIDE, None))


NEWS = cases(
    nothing_comes_where_nobody_writes,
    every_write_of_another_owner_about_a_call_comes,
    a_resolution_that_comes_while_somebody_waits_is_there_when_he_is_told,
    the_death_and_the_end_of_an_owner_come,
    the_writes_of_the_owner_itself_come_to_those_who_ask_for_them,
    everybody_who_waits_is_told,
    somebody_who_stops_to_wait_leaves_the_others_alone,
)
SERVICE_NEWS = cases(what_others_do_beside_calls_comes)
"""For stores with `services`."""
