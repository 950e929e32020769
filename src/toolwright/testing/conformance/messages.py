"""Messages of sessions: numbered without gaps, several together or none."""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.sessions import MessageStore, NewMessage, Quota
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, marked, open_services, services_of


def said(text: str) -> NewMessage:
    return NewMessage("user", b'"%s"' % text.encode(), b"{}")


async def all_of(messages: MessageStore, session: str = "s1") -> list[tuple[int, bytes]]:
    """The number and the content of each message."""
    return [(number, content) for number, _, content, _, _ in await messages.list_messages(session, 0, 10_000)]


async def a_message_comes_back_as_it_was_appended(database: Database) -> None:
    messages, other = (await open_services(database)).messages, (await open_services(database)).messages
    given = [
        NewMessage("assistant", b'"\\u0000 \xc3\xa9"', b'{"a":1}'),
        NewMessage("runtime", b"[1]", b"{}"),
        NewMessage("tool", b"null", b"{}"),
    ]
    assert await messages.append_messages("s1", given, 100.0, WIDE, None) == (1, 100.0)
    assert await messages.append_messages("s1", [said("next")], 200.0, WIDE, None) == (4, 200.0)
    assert [tuple(row) for row in await other.list_messages("s1", 0, 10)] == [
        (1, *given[0], 100.0),
        (2, *given[1], 100.0),
        (3, *given[2], 100.0),
        (4, *said("next"), 200.0),
    ]


async def messages_are_read_on_from_a_number(database: Database) -> None:
    messages = (await open_services(database)).messages
    await messages.append_messages("s1", [said(f"{number}") for number in range(1, 8)], 100.0, WIDE, None)
    assert [row[0] for row in await messages.list_messages("s1", 2, 3)] == [3, 4, 5]
    assert [row[0] for row in await messages.list_messages("s1", 5, 100)] == [6, 7]
    assert await messages.list_messages("s1", 7, 100) == []


async def of_many_who_append_at_once_each_gets_numbers_of_its_own(database: Database) -> None:
    stores = [(await open_services(database)).messages for _ in range(4)]
    batches = [[said(f"{number}a"), said(f"{number}b")] for number in range(16)]
    told = await asyncio.gather(
        *(stores[number % 4].append_messages("s1", batch, 100.0, WIDE, None) for number, batch in enumerate(batches))
    )
    found = dict(await all_of(stores[0]))
    assert sorted(found) == list(range(1, 33))
    for (first, _), batch in zip(told, batches, strict=True):
        assert [found[first], found[first + 1]] == [message.content for message in batch]


async def messages_beyond_the_quota_are_refused_all_together(database: Database) -> None:
    messages = (await open_services(database)).messages
    quota = Quota(3, 10_000)
    await messages.append_messages("s1", [said("1"), said("2")], 100.0, quota, None)
    assert await refusal(messages.append_messages("s1", [said("3"), said("4")], 100.0, quota, None)) == "quota"
    assert await refusal(messages.append_messages("s1", [said("x" * 100)], 100.0, Quota(9, 50), None)) == "quota"
    assert await messages.append_messages("s1", [said("3")], 100.0, quota, None) == (3, 100.0)


async def messages_under_a_mark_are_appended_once(database: Database) -> None:
    store = await database.open()
    messages, mark = services_of(store).messages, await marked(store)
    assert await messages.append_messages("s1", [said("a"), said("b")], 100.0, WIDE, mark) == (1, 100.0)
    await messages.append_messages("s1", [said("c")], 150.0, WIDE, None)
    assert await messages.append_messages("s1", [said("a"), said("b")], 200.0, WIDE, mark) == (1, 100.0)
    assert [number for number, _ in await all_of(messages)] == [1, 2, 3]


async def messages_are_those_of_one_session(database: Database) -> None:
    messages = (await open_services(database)).messages
    await messages.append_messages("s1", [said("mine")], 100.0, WIDE, None)
    assert await all_of(messages, "s2") == []
    assert await messages.append_messages("s2", [said("theirs")], 100.0, WIDE, None) == (1, 100.0)
    assert await all_of(messages) == [(1, b'"mine"')]


MESSAGES = cases(
    a_message_comes_back_as_it_was_appended,
    messages_are_read_on_from_a_number,
    of_many_who_append_at_once_each_gets_numbers_of_its_own,
    messages_beyond_the_quota_are_refused_all_together,
    messages_under_a_mark_are_appended_once,
    messages_are_those_of_one_session,
)
