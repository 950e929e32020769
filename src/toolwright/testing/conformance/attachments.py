"""Attachments of sessions, by the hash of their content."""

from __future__ import annotations

from toolwright.stores.contracts.sessions import PIECE, Quota
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, content, marked, open_services, services_of
from toolwright.tools.service_protocols import AttachmentInfo


def digest(data: bytes) -> bytes:
    return content(data).digest


async def an_attachment_comes_back_by_its_hash(database: Database) -> None:
    attachments, other = (await open_services(database)).attachments, (await open_services(database)).attachments
    for data in (b"", b"text", b"x" * PIECE, b"y" * (3 * PIECE + 1)):
        assert await attachments.put_attachment("s1", data, "n", "image/png", 100.0, WIDE, None) == 100.0
        assert await other.get_attachment("s1", digest(data)) == data
    assert await other.get_attachment("s1", digest(b"never")) is None


async def attachments_are_listed_from_the_oldest_on(database: Database) -> None:
    attachments = (await open_services(database)).attachments
    await attachments.put_attachment("s1", b"young", "young.txt", "text/plain", 200.0, WIDE, None)
    await attachments.put_attachment("s1", b"old", "old.png", "image/png", 100.0, WIDE, None)
    assert await attachments.list_attachments("s1") == [
        AttachmentInfo(digest(b"old").hex(), "old.png", "image/png", 3, 100.0),
        AttachmentInfo(digest(b"young").hex(), "young.txt", "text/plain", 5, 200.0),
    ]


async def content_that_is_put_again_gets_the_new_name_and_keeps_its_instant(database: Database) -> None:
    attachments = (await open_services(database)).attachments
    await attachments.put_attachment("s1", b"same", "a", "text/plain", 100.0, WIDE, None)
    assert await attachments.put_attachment("s1", b"same", "b", "text/html", 200.0, WIDE, None) == 100.0
    assert await attachments.list_attachments("s1") == [
        AttachmentInfo(digest(b"same").hex(), "b", "text/html", 4, 100.0)
    ]


async def an_attachment_is_deleted_once_and_from_its_session_alone(database: Database) -> None:
    attachments = (await open_services(database)).attachments
    for session in ("s1", "s2"):
        await attachments.put_attachment(session, b"same", "n", "text/plain", 100.0, WIDE, None)
    assert await attachments.delete_attachment("s1", digest(b"same"), None)
    assert not await attachments.delete_attachment("s1", digest(b"same"), None)
    assert await attachments.get_attachment("s1", digest(b"same")) is None
    assert await attachments.get_attachment("s2", digest(b"same")) == b"same"


async def content_of_another_session_is_not_there(database: Database) -> None:
    services = await open_services(database)
    await services.attachments.put_attachment("s1", b"mine", "n", "text/plain", 100.0, WIDE, None)
    assert await services.attachments.get_attachment("s2", digest(b"mine")) is None
    assert await services.attachments.list_attachments("s2") == []
    assert not await services.attachments.delete_attachment("s2", digest(b"mine"), None)


async def a_session_has_no_more_attachments_than_it_may(database: Database) -> None:
    attachments = (await open_services(database)).attachments
    quota = Quota(2, 6)
    await attachments.put_attachment("s1", b"123", "n", "t/x", 100.0, quota, None)
    assert await refusal(attachments.put_attachment("s1", b"1234", "n", "t/x", 100.0, quota, None)) == "quota"
    assert await attachments.get_attachment("s1", digest(b"1234")) is None
    await attachments.put_attachment("s1", b"456", "n", "t/x", 100.0, quota, None)
    await attachments.put_attachment("s1", b"456", "again", "t/x", 100.0, quota, None)
    assert await refusal(attachments.put_attachment("s1", b"", "n", "t/x", 100.0, quota, None)) == "quota"


async def an_attachment_under_a_mark_is_put_once(database: Database) -> None:
    store = await database.open()
    attachments, mark = services_of(store).attachments, await marked(store)
    assert await attachments.put_attachment("s1", b"1", "n", "t/x", 100.0, WIDE, mark) == 100.0
    await attachments.delete_attachment("s1", digest(b"1"), None)
    assert await attachments.put_attachment("s1", b"1", "n", "t/x", 200.0, WIDE, mark) == 100.0
    assert await attachments.list_attachments("s1") == []


ATTACHMENTS = cases(
    an_attachment_comes_back_by_its_hash,
    attachments_are_listed_from_the_oldest_on,
    content_that_is_put_again_gets_the_new_name_and_keeps_its_instant,
    an_attachment_is_deleted_once_and_from_its_session_alone,
    content_of_another_session_is_not_there,
    a_session_has_no_more_attachments_than_it_may,
    an_attachment_under_a_mark_is_put_once,
)
