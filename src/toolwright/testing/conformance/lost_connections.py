"""A server that goes away in the middle of a commit, for stores that are reached over connections: what was asked for
is written once, and nobody is taken for dead.

A store may hide that its connection was lost, or raise `StoreUnavailable`; then the verb is repeated here, as its owner
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from toolwright.errors import StoreUnavailable
from toolwright.stores.contracts.journal import Kept
from toolwright.stores.contracts.sessions import Mark
from toolwright.stores.contracts.waits import Standing, WaitKey
from toolwright.testing.conformance.cases import Database, call, cases, intent, resolved, success, wait
from toolwright.testing.conformance.event_log import told
from toolwright.testing.conformance.messages import all_of, said
from toolwright.testing.conformance.news import LONG, settled
from toolwright.testing.conformance.session_services import WIDE, services_of

T = TypeVar("T")
MOST_TRIES = 100
"""How often a verb is repeated before the server counts as gone for good."""


class RemoteDatabase(Database, Protocol):
    """A database that is reached over connections, which can be lost."""

    async def cut(self) -> None:
        """End all connections of its owners now, also in the middle of a commit. New ones are accepted."""
        ...


async def answered(verb: Callable[..., Awaitable[T]], *given: object) -> T:
    """The answer to a verb, which is repeated while nobody knows whether it was carried out."""
    for _ in range(MOST_TRIES):
        try:
            return await verb(*given)
        except StoreUnavailable:
            await asyncio.sleep(0)
    raise AssertionError("The store did not find its server again.")


async def cut_off(database: RemoteDatabase, verb: Callable[..., Awaitable[T]], *given: object) -> T:
    """The answer to a verb during which all connections are lost."""
    going = asyncio.ensure_future(answered(verb, *given))
    await asyncio.sleep(0)
    await database.cut()
    return await going


async def what_is_asked_for_while_connections_are_lost_is_written_once(database: RemoteDatabase) -> None:
    store, other = await database.open(), await database.open()
    services, keys = services_of(store), [call(f"c{number}") for number in range(6)]
    first = (await services.events.after(None, 1)).last
    for number, key in enumerate(keys):
        await cut_off(database, store.journal.begin, [intent(key)])
        assert await cut_off(database, store.journal.keep, key, Kept("step:pay", b"5", 102.0, True, b'"paid"'))
        new, mark = [said(f"{number}")], Mark(key, "change:1")
        await cut_off(database, services.messages.append_messages, "s1", new, 100.0, WIDE, mark)
        assert await cut_off(database, store.journal.finish, key, success(key), 101.0, 103.0)
    entries = await answered(other.journal.begin, [intent(key) for key in keys])
    assert [entry and entry.outcome for entry in entries] == [success(key) for key in keys]
    assert await answered(all_of, services.messages) == [(n + 1, b'"%d"' % n) for n in range(6)]
    events = await answered(told, services.events, first)
    for kind in ("batch.started", "call.finished", "message.added"):
        assert len([event for event in events if event.kind == kind]) == 6, f"{kind} was told more or less than once."


async def an_owner_that_lost_its_connections_keeps_its_calls(database: RemoteDatabase) -> None:
    store, other = await database.open(), await database.open()
    await store.journal.begin([intent(call())])
    for _ in range(3):
        await database.cut()
        (entry,) = await answered(other.journal.begin, [intent(call())])
        assert entry is not None
        assert (entry.owner, entry.cut_off) == (store.journal.owner, False)
    assert await answered(store.journal.start, call(), 101.0)
    assert await answered(store.journal.finish, call(), success(call()), 101.0, 102.0)


async def the_first_resolution_counts_while_connections_are_lost(database: RemoteDatabase) -> None:
    stores = [await database.open() for _ in range(3)]
    await stores[0].journal.begin([intent(call())])
    await stores[0].waits.open_wait(wait(call()))
    key = WaitKey(call(), "event")
    answers = [
        cut_off(database, store.waits.resolve, key, resolved(b"%d" % number, at=200.0 + number))
        for number, store in enumerate(stores)
    ]
    resolutions = [each.resolution for each in await asyncio.gather(*answers) if isinstance(each, Standing)]
    assert len(resolutions) == 3
    assert resolutions == resolutions[:1] * 3, "Two resolutions of one wait were acknowledged."


async def who_waits_is_told_also_after_a_lost_connection(database: RemoteDatabase) -> None:
    store, other = await database.open(), await database.open()
    for number in range(3):
        position = await answered(settled, store)
        waiting = asyncio.ensure_future(answered(store.news, position, LONG))
        await asyncio.sleep(0)
        await database.cut()
        await answered(other.journal.begin, [intent(call(f"c{number}"))])
        assert await waiting != position, "Nobody was told."


LOST_CONNECTIONS = cases(
    what_is_asked_for_while_connections_are_lost_is_written_once,
    an_owner_that_lost_its_connections_keeps_its_calls,
    the_first_resolution_counts_while_connections_are_lost,
    who_waits_is_told_also_after_a_lost_connection,
)
"""For stores that have `services` and are reached over connections."""
