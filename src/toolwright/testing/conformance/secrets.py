"""Sealed secrets of sessions, and the change of the key that seals them."""

from __future__ import annotations

from toolwright.stores.contracts.sessions import Quota
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, marked, open_services, sealed, services_of
from toolwright.tools.service_protocols import KeyInfo


async def a_secret_comes_back_as_it_was_sealed(database: Database) -> None:
    secrets, other = (await open_services(database)).secrets, (await open_services(database)).secrets
    assert await secrets.get_secret("s1", "token") is None
    await secrets.set_secret("s1", "token", sealed(b"\0\xff"), 100.0, WIDE, None)
    assert await other.get_secret("s1", "token") == sealed(b"\0\xff")
    await secrets.set_secret("s1", "token", sealed(b"new"), 200.0, WIDE, None)
    await secrets.set_secret("s1", "a", sealed(b"a"), 300.0, WIDE, None)
    assert await other.all_secrets("s1") == [("a", sealed(b"a")), ("token", sealed(b"new"))]
    assert await other.list_secrets("s1") == [KeyInfo("a", 300.0, 300.0), KeyInfo("token", 100.0, 200.0)]


async def a_secret_is_deleted_once(database: Database) -> None:
    secrets = (await open_services(database)).secrets
    await secrets.set_secret("s1", "token", sealed(), 100.0, WIDE, None)
    assert await secrets.delete_secret("s1", "token", None)
    assert not await secrets.delete_secret("s1", "token", None)
    assert await secrets.get_secret("s1", "token") is None


async def a_session_has_no_more_secrets_than_it_may(database: Database) -> None:
    secrets = (await open_services(database)).secrets
    await secrets.set_secret("s1", "a", sealed(), 100.0, Quota(1, 1_000), None)
    assert await refusal(secrets.set_secret("s1", "b", sealed(), 100.0, Quota(1, 1_000), None)) == "quota"
    assert await refusal(secrets.set_secret("s1", "a", sealed(b"x" * 100), 100.0, Quota(9, 50), None)) == "quota"
    assert await secrets.all_secrets("s1") == [("a", sealed())]


async def a_change_of_secrets_under_a_mark_is_made_once(database: Database) -> None:
    store = await database.open()
    secrets, mark = services_of(store).secrets, await marked(store)
    await secrets.set_secret("s1", "token", sealed(b"old"), 100.0, WIDE, mark)
    await secrets.set_secret("s1", "token", sealed(b"new"), 200.0, WIDE, None)
    await secrets.set_secret("s1", "token", sealed(b"old"), 300.0, WIDE, mark)
    assert await secrets.get_secret("s1", "token") == sealed(b"new")


async def secrets_are_those_of_one_session(database: Database) -> None:
    secrets = (await open_services(database)).secrets
    await secrets.set_secret("s1", "token", sealed(), 100.0, WIDE, None)
    assert await secrets.get_secret("s2", "token") is None
    assert await secrets.all_secrets("s2") == []
    assert not await secrets.delete_secret("s2", "token", None)
    assert await secrets.get_secret("s1", "token") == sealed()


async def secrets_of_all_sessions_are_sealed_anew(database: Database) -> None:
    secrets = (await open_services(database)).secrets
    places = [("s1", "a"), ("s1", "b"), ("s2", "a")]
    for session, name in places:
        await secrets.set_secret(session, name, sealed(name.encode()), 100.0, WIDE, None)
    found = await secrets.secrets_after(("", ""), 2)
    assert [(session, name) for session, name, _ in found] == places[:2]
    assert [row[:2] for row in await secrets.secrets_after(found[-1][:2], 2)] == places[2:]
    new = sealed(b"a", "key-2")
    await secrets.set_secret("s2", "a", sealed(b"set meanwhile"), 200.0, WIDE, None)
    changes = [("s1", "a", sealed(b"a"), new), ("s2", "a", sealed(b"a"), new), ("s3", "a", sealed(b"a"), new)]
    assert await secrets.rewrap_secrets(changes) == 1
    moved = await secrets.get_secret("s1", "a")
    assert moved is not None
    assert (moved.master, moved.wrapped) == (new.master, new.wrapped)
    assert await secrets.get_secret("s2", "a") == sealed(b"set meanwhile")


async def the_key_of_fingerprints_is_the_first_that_was_kept(database: Database) -> None:
    secrets, other = (await open_services(database)).secrets, (await open_services(database)).secrets
    assert await secrets.keep_fingerprints(None, sealed(b"first")) == sealed(b"first")
    assert await other.keep_fingerprints(None, sealed(b"second")) == sealed(b"first")
    assert await other.keep_fingerprints(sealed(b"first"), sealed(b"second")) == sealed(b"second")
    assert await secrets.keep_fingerprints(sealed(b"first"), sealed(b"third")) == sealed(b"second")


SECRETS = cases(
    a_secret_comes_back_as_it_was_sealed,
    a_secret_is_deleted_once,
    a_session_has_no_more_secrets_than_it_may,
    a_change_of_secrets_under_a_mark_is_made_once,
    secrets_are_those_of_one_session,
    secrets_of_all_sessions_are_sealed_anew,
    the_key_of_fingerprints_is_the_first_that_was_kept,
)
