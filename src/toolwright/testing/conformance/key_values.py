"""Named values of sessions."""

from __future__ import annotations

from toolwright.stores.contracts.sessions import Quota
from toolwright.testing.conformance.any_text import NEAR, ODD
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, marked, open_services, services_of
from toolwright.tools.service_protocols import KeyInfo


async def a_value_comes_back_as_it_was_set(database: Database) -> None:
    kv, other = (await open_services(database)).kv, (await open_services(database)).kv
    assert await kv.get_value("s1", "k") is None
    for value in (b"1", b'"\\u0000 \xc3\xa9"', b"[" + b"1," * 10_000 + b"1]"):
        await kv.set_value("s1", "k", value, 100.0, WIDE, None)
        assert await other.get_value("s1", "k") == value


async def a_key_keeps_the_instant_when_it_was_first_set(database: Database) -> None:
    kv = (await open_services(database)).kv
    await kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    await kv.set_value("s1", "k", b"2", 200.0, WIDE, None)
    assert await kv.list_keys("s1", "") == [KeyInfo("k", 100.0, 200.0)]


async def keys_are_listed_in_order_by_their_beginning(database: Database) -> None:
    kv = (await open_services(database)).kv
    keys = ["b", "a:2", "a:10", "a", "A:1", "a%b", "a_b", "é:1", ODD, *NEAR[1:3]]
    for key in keys:
        await kv.set_value("s1", key, b"1", 100.0, WIDE, None)

    async def listed(prefix: str) -> list[str]:
        return [each.key for each in await kv.list_keys("s1", prefix)]

    assert await listed("") == sorted(keys)
    assert await listed("a:") == ["a:10", "a:2"]
    assert await listed("a%") == ["a%b"]
    assert await listed("a_") == ["a_b"]
    assert await listed("é") == ["é:1"]
    assert await listed(ODD) == [ODD]
    assert await listed("a\0") == sorted([ODD, *NEAR[1:3]])
    assert await listed("c") == []


async def a_value_is_deleted_once(database: Database) -> None:
    kv = (await open_services(database)).kv
    await kv.set_value("s1", "k", b"1", 100.0, WIDE, None)
    assert await kv.delete_value("s1", "k", None)
    assert not await kv.delete_value("s1", "k", None)
    assert await kv.get_value("s1", "k") is None


async def a_session_has_no_more_values_than_it_may(database: Database) -> None:
    kv = (await open_services(database)).kv
    quota = Quota(2, 10)
    await kv.set_value("s1", "a", b"12345", 100.0, quota, None)
    assert await refusal(kv.set_value("s1", "b", b"123456", 100.0, quota, None)) == "quota"
    await kv.set_value("s1", "b", b"12345", 100.0, quota, None)
    assert await refusal(kv.set_value("s1", "c", b"", 100.0, quota, None)) == "quota"
    assert await refusal(kv.set_value("s1", "a", b"123456", 100.0, quota, None)) == "quota"
    assert (await kv.get_value("s1", "a"), await kv.get_value("s1", "c")) == (b"12345", None)
    await kv.delete_value("s1", "a", None)
    await kv.set_value("s1", "c", b"12345", 100.0, quota, None)


async def a_change_of_values_under_a_mark_is_made_once(database: Database) -> None:
    store = await database.open()
    kv, mark = services_of(store).kv, await marked(store)
    await kv.set_value("s1", "k", b"1", 100.0, WIDE, mark)
    await kv.set_value("s1", "k", b"2", 200.0, WIDE, None)
    await kv.set_value("s1", "k", b"1", 300.0, WIDE, mark)
    assert await kv.get_value("s1", "k") == b"2"
    delete = await marked(store, "delete:1")
    assert await kv.delete_value("s1", "k", delete)
    await kv.set_value("s1", "k", b"3", 400.0, WIDE, None)
    assert await kv.delete_value("s1", "k", delete)  # what it was told the first time
    assert await kv.get_value("s1", "k") == b"3"


async def a_change_that_is_refused_has_no_mark(database: Database) -> None:
    store = await database.open()
    kv, mark = services_of(store).kv, await marked(store)
    assert await refusal(kv.set_value("s1", "k", b"1", 100.0, Quota(0, 0), mark)) == "quota"
    await kv.set_value("s1", "k", b"1", 200.0, WIDE, mark)
    assert await kv.list_keys("s1", "") == [KeyInfo("k", 200.0, 200.0)]


async def values_are_those_of_one_session(database: Database) -> None:
    kv = (await open_services(database)).kv
    for session in ("s1", ODD):
        await kv.set_value(session, "k", b"1", 100.0, WIDE, None)
    for session in ("s2", "s", *NEAR):
        assert await kv.get_value(session, "k") is None
        assert await kv.list_keys(session, "") == []
        assert not await kv.delete_value(session, "k", None)
    assert await kv.get_value(ODD, "k") == b"1"


KEY_VALUES = cases(
    a_value_comes_back_as_it_was_set,
    a_key_keeps_the_instant_when_it_was_first_set,
    keys_are_listed_in_order_by_their_beginning,
    a_value_is_deleted_once,
    a_session_has_no_more_values_than_it_may,
    a_change_of_values_under_a_mark_is_made_once,
    a_change_that_is_refused_has_no_mark,
    values_are_those_of_one_session,
)
