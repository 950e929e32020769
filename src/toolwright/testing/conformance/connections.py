"""Connections of sessions to providers."""

from __future__ import annotations

import asyncio

from toolwright.errors import ServiceError
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import open_services


async def a_connection_comes_back_as_it_was_set(database: Database) -> None:
    connections, other = (await open_services(database)).connections, (await open_services(database)).connections
    assert await connections.get_connection("s1", "mail") is None
    await connections.set_connection("s1", "mail", b'{"user":"\\u0000"}', 100.0, 9)
    assert tuple(await other.get_connection("s1", "mail") or ()) == (b'{"user":"\\u0000"}', 100.0)
    await connections.set_connection("s1", "mail", b"null", 200.0, 9)
    await connections.set_connection("s1", "calendar", b"1", 300.0, 9)
    assert [tuple(row) for row in await other.list_connections("s1")] == [
        ("calendar", b"1", 300.0),
        ("mail", b"null", 200.0),
    ]


async def a_connection_is_deleted_once(database: Database) -> None:
    connections = (await open_services(database)).connections
    await connections.set_connection("s1", "mail", b"1", 100.0, 9)
    assert await connections.delete_connection("s1", "mail")
    assert not await connections.delete_connection("s1", "mail")
    assert await connections.list_connections("s1") == []


async def a_session_has_no_more_connections_than_it_may(database: Database) -> None:
    stores = [(await open_services(database)).connections for _ in range(3)]

    async def connect(number: int) -> bool:
        try:
            await stores[number % 3].set_connection("s1", f"p{number}", b"1", 100.0, 4)
        except ServiceError:
            return False
        return True

    assert sum(await asyncio.gather(*map(connect, range(12)))) == 4
    found = await stores[0].list_connections("s1")
    assert len(found) == 4
    await stores[0].set_connection("s1", found[0][0], b"2", 200.0, 4)  # in place of one that was there
    assert await refusal(stores[0].set_connection("s1", "more", b"1", 100.0, 4)) == "quota"


async def connections_are_those_of_one_session(database: Database) -> None:
    connections = (await open_services(database)).connections
    await connections.set_connection("s1", "mail", b"1", 100.0, 9)
    assert await connections.get_connection("s2", "mail") is None
    assert await connections.list_connections("s2") == []
    assert not await connections.delete_connection("s2", "mail")
    assert await connections.get_connection("s1", "mail") is not None


CONNECTIONS = cases(
    a_connection_comes_back_as_it_was_set,
    a_connection_is_deleted_once,
    a_session_has_no_more_connections_than_it_may,
    connections_are_those_of_one_session,
)
