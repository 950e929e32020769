"""Tokens of the HTTP service: revoked at once for everybody, and a link makes one login."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwright.stores.contracts.tokens import StoredToken
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import open_services

TOKEN = StoredToken(
    id="t1",
    kind="token",
    hash=b"\0\xff",
    name="ann\0☀",
    scopes=("read", "run"),
    sessions=("team-*", "☀"),
    created_at=100.5,
    created_by="root",
    expires_at=900.5,
)
PLAIN = replace(TOKEN, id="t2", created_by=None, expires_at=None)
LOGIN = replace(TOKEN, id="l1", kind="login", parent="t1")
LINK = replace(TOKEN, id="k1", kind="link")


async def a_token_is_read_as_it_was_added(database: Database) -> None:
    tokens, other = (await open_services(database)).tokens, (await open_services(database)).tokens
    assert await tokens.get_token("t1") is None
    for each in (PLAIN, TOKEN, LOGIN):
        assert await tokens.add_token(each, 9)
        assert await other.get_token(each.id) == each
    assert not await other.add_token(replace(TOKEN, name="bob"), 9)
    assert await other.list_tokens("token", None, 9) == [TOKEN, PLAIN]
    assert await other.list_tokens("token", "t1", 9) == [PLAIN]
    assert await other.list_tokens("token", None, 1) == [TOKEN]
    assert await other.list_tokens("link", None, 9) == []


async def a_token_is_revoked_with_its_logins(database: Database) -> None:
    tokens, other = (await open_services(database)).tokens, (await open_services(database)).tokens
    for each in (TOKEN, PLAIN, LOGIN):
        await tokens.add_token(each, 9)
    revoked = replace(TOKEN, revoked_at=200.5)
    assert await tokens.revoke_token("t1", 200.5) == revoked
    assert await other.get_token("t1") == revoked
    assert await other.get_token("l1") == replace(LOGIN, revoked_at=200.5)
    assert await other.get_token("t2") == PLAIN
    assert await other.revoke_token("t1", 300.5) == revoked
    assert await other.revoke_token("unknown", 300.5) is None


async def the_valid_ones_among_tokens_are_told(database: Database) -> None:
    tokens, other = (await open_services(database)).tokens, (await open_services(database)).tokens
    for each in (TOKEN, PLAIN, LOGIN, LINK):
        await tokens.add_token(each, 9)
    asked = ["t1", "t2", "l1", "unknown"]
    assert await other.valid_tokens(asked, 900.0) == {"t1", "t2", "l1"}
    assert await other.valid_tokens(asked, 900.5) == {"t2"}
    await other.revoke_token("t2", 200.0)
    assert await tokens.valid_tokens(asked, 900.0) == {"t1", "l1"}
    assert await tokens.valid_tokens([], 900.0) == set()


async def a_login_needs_a_token_that_is_valid(database: Database) -> None:
    tokens, other = (await open_services(database)).tokens, (await open_services(database)).tokens
    await tokens.add_token(TOKEN, 9)
    assert not await other.add_token(replace(LOGIN, created_at=900.5), 9)
    assert not await other.add_token(replace(LOGIN, parent="unknown"), 9)
    await other.revoke_token("t1", 200.0)
    assert not await tokens.add_token(LOGIN, 9)
    assert await tokens.get_token("l1") is None


async def there_are_no_more_valid_tokens_of_a_kind_than_may_be(database: Database) -> None:
    stores = [(await open_services(database)).tokens for _ in range(3)]

    async def add(number: int) -> bool:
        return await stores[number % 3].add_token(replace(TOKEN, id=f"t{number}"), 4)

    assert sum(await asyncio.gather(*map(add, range(12)))) == 4
    assert await stores[0].add_token(LINK, 1)
    first = (await stores[0].list_tokens("token", None, 1))[0]
    await stores[0].revoke_token(first.id, 200.0)
    assert await stores[1].add_token(replace(TOKEN, id="new"), 4)
    assert await stores[2].add_token(replace(TOKEN, id="later", created_at=900.5, expires_at=None), 4)


async def a_link_makes_one_login(database: Database) -> None:
    stores = [(await open_services(database)).tokens for _ in range(3)]
    await stores[0].add_token(LINK, 9)
    assert not await stores[0].use_link("k1", b"wrong", b"cookie", 200.0, 500.0)
    assert not await stores[0].use_link("k1", LINK.hash, b"cookie", 900.5, 999.0)
    used = await asyncio.gather(*(store.use_link("k1", LINK.hash, b"cookie", 200.0, 500.0) for store in stores * 3))
    assert sum(used) == 1
    assert await stores[1].get_token("k1") == replace(
        LINK, kind="login", hash=b"cookie", created_at=200.0, expires_at=500.0
    )
    await stores[0].add_token(replace(LINK, id="k2"), 9)
    await stores[1].revoke_token("k2", 200.0)
    assert not await stores[0].use_link("k2", LINK.hash, b"cookie", 200.0, 500.0)


async def expired_logins_and_links_are_forgotten(database: Database) -> None:
    tokens = (await open_services(database)).tokens
    for each in (TOKEN, LOGIN, LINK, replace(LINK, id="k2", expires_at=901.0)):
        await tokens.add_token(each, 9)
    await tokens.add_token(replace(PLAIN, created_at=900.5), 9)
    assert [await tokens.get_token(id) is None for id in ("t1", "l1", "k1", "k2")] == [False, True, True, False]


TOKENS = cases(
    a_token_is_read_as_it_was_added,
    a_token_is_revoked_with_its_logins,
    the_valid_ones_among_tokens_are_told,
    a_login_needs_a_token_that_is_valid,
    there_are_no_more_valid_tokens_of_a_kind_than_may_be,
    a_link_makes_one_login,
    expired_logins_and_links_are_forgotten,
)
