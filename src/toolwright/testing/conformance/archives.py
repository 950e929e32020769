"""Whole sessions: read at one moment, filled all or not at all, listed, deleted."""

from __future__ import annotations

import hashlib

from msgspec import Raw

from toolwright.stores.contracts.archives import (
    TABLES,
    AttachmentRow,
    ConnectionRow,
    FileRow,
    KeyValueRow,
    MessageRow,
    ResourceRow,
    Row,
    SecretRow,
    SessionRows,
    SessionWriter,
    Table,
    Usage,
)
from toolwright.stores.contracts.sessions import NewMessage
from toolwright.stores.contracts.store import BackgroundStores
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.controllers import raised
from toolwright.testing.conformance.session_services import WIDE, content, open_services, sealed, writing

HASH = hashlib.sha256(b"content").hexdigest()
ROWS: dict[Table, Row] = {
    "files": FileRow("/a", False, HASH, 7, True, 100.0, 100.0),
    "key_values": KeyValueRow("k", Raw(b'"\\u0000"'), 100.0, 100.0),
    "secrets": SecretRow("token", "key-1", b"wrapped value", b"sealed value", 100.0, 100.0),
    "messages": MessageRow(1, "user", Raw(b'"hello"'), Raw(b"{}"), 100.0),
    "attachments": AttachmentRow(HASH, "n.txt", "text/plain", 7, 100.0),
    "resources": ResourceRow("r1", "browser", "The browser", "open", Raw(b"{}"), 100.0, 100.0),
    "connections": ConnectionRow("mail", Raw(b"null"), 100.0),
}
"""A row of each service, as `filled` writes it."""


async def filled(services: BackgroundStores, session: str = "s1") -> None:
    """A session with one of everything."""
    flag = writing(readonly=True, host=True)
    await services.files.write_file(session, "/a", content(b"content"), flag, None)
    await services.kv.set_value(session, "k", b'"\\u0000"', 100.0, WIDE, None)
    await services.secrets.set_secret(session, "token", sealed(), 100.0, WIDE, None)
    await services.messages.append_messages(session, [NewMessage("user", b'"hello"', b"{}")], 100.0, WIDE, None)
    await services.attachments.put_attachment(session, b"content", "n.txt", "text/plain", 100.0, WIDE, None)
    await services.resources.upsert_resource(session, "r1", "browser", "The browser", "open", b"{}", 100.0, WIDE, None)
    await services.connections.set_connection(session, "mail", b"null", 100.0, 9)


def copied(rows: SessionRows) -> tuple[dict[Table, list[Row]], bytes]:
    """All rows of a session, and the content of its file."""
    return {table: list(rows.rows(table)) for table in TABLES}, b"".join(rows.blob(HASH))


def fill(target: SessionWriter) -> str:
    """Write one row of each service."""
    for table, row in ROWS.items():
        target.add(table, row)
    target.add_blob(HASH, iter([b"con", b"tent"]))
    return "filled"


async def a_session_is_read_whole(database: Database) -> None:
    services = await open_services(database)
    await filled(services)
    await filled(services, "s2")
    rows, data = await services.archives.read_session("s1", copied)
    assert rows == {table: [row] for table, row in ROWS.items()}
    assert data == b"content"
    assert await refusal(services.archives.read_session("never", copied)) == "not_found"


async def a_session_that_is_filled_is_as_if_it_had_always_been_here(database: Database) -> None:
    services, other = await open_services(database), await open_services(database)
    assert await services.archives.fill_session("new", fill, False) == "filled"
    rows, data = await other.archives.read_session("new", copied)
    assert rows == {table: [row] for table, row in ROWS.items()}
    assert data == b"content"
    found = await other.files.read_file("new", "/a")
    assert found is not None
    assert (found[0].readonly, found[1]) == (True, b"content")
    assert await other.attachments.get_attachment("new", bytes.fromhex(HASH)) == b"content"
    assert [each.path for each in await other.files.list_files("new", "/")] == ["/a"]
    assert await other.messages.append_messages("new", [NewMessage("user", b"1", b"{}")], 200.0, WIDE, None) == (
        2,
        200.0,
    )


async def a_session_is_filled_whole_or_not_at_all(database: Database) -> None:
    services = await open_services(database)

    def fail(target: SessionWriter) -> None:
        fill(target)
        assert target.usage("files") == Usage(1, 7)
        assert target.usage("connections") == Usage(1, 4)
        assert target.usage("messages") == Usage(1, 9)
        raise LookupError("the archive ends here")

    await raised(Exception, services.archives.fill_session("new", fail, False))
    assert await services.archives.list_sessions() == []
    assert await services.kv.get_value("new", "k") is None


async def a_row_that_is_there_twice_is_refused(database: Database) -> None:
    services = await open_services(database)
    refused: list[Table] = []

    def twice(target: SessionWriter) -> None:
        fill(target)
        for table, row in ROWS.items():
            try:
                target.add(table, row)
            except ValueError:
                refused.append(table)

    await services.archives.fill_session("new", twice, False)
    assert refused == list(ROWS)


async def a_session_is_replaced_only_where_that_is_asked_for(database: Database) -> None:
    services = await open_services(database)
    await filled(services)
    await services.kv.set_value("s1", "more", b"1", 100.0, WIDE, None)
    assert await refusal(services.archives.fill_session("s1", fill, False)) == "exists"
    assert await services.kv.get_value("s1", "more") == b"1"
    assert await services.archives.fill_session("s1", fill, True) == "filled"
    assert await services.kv.get_value("s1", "more") is None
    assert await services.archives.read_session("s1", copied) == (
        {table: [row] for table, row in ROWS.items()},
        b"content",
    )


async def a_store_knows_the_keys_that_its_secrets_are_sealed_by(database: Database) -> None:
    services = await open_services(database)
    await services.secrets.set_secret("s1", "token", sealed(), 100.0, WIDE, None)

    def known(target: SessionWriter) -> tuple[bool, bool]:
        return target.knows_master("key-1"), target.knows_master("key-2")

    assert await services.archives.fill_session("new", known, False) == (True, False)


async def sessions_are_listed_with_their_counts(database: Database) -> None:
    services = await open_services(database)
    assert await services.archives.list_sessions() == []
    await filled(services, "s2")
    await services.kv.set_value("s1", "toolwright:title", b'"A title"', 100.0, WIDE, None)
    first, second = await services.archives.list_sessions()
    assert await services.archives.list_sessions(second.id) == [second]
    assert await services.archives.list_sessions("nobody's") == []
    assert await services.archives.list_sessions(limit=1) == [first]
    assert await services.archives.list_sessions(limit=2) == [first, second]
    assert await services.archives.list_sessions(after=first.id, limit=5) == [second]
    assert await services.archives.list_sessions(after=second.id, limit=5) == []
    assert await services.archives.find_sessions("S") == [("s1", "A title"), ("s2", None)]
    assert await services.archives.find_sessions("TITLE") == [("s1", "A title")]
    assert await services.archives.find_sessions("2") == [("s2", None)]
    assert await services.archives.find_sessions("%") == []
    assert (first.id, first.title, first.usage) == ("s1", "A title", {"key_values": Usage(1, 9)})
    assert (second.id, second.title, set(second.usage)) == ("s2", None, set(TABLES))
    assert (second.usage["files"], second.usage["messages"]) == (Usage(1, 7), Usage(1, 9))


async def a_session_is_deleted_with_all_it_has(database: Database) -> None:
    services = await open_services(database)
    await filled(services)
    await filled(services, "s2")
    assert await services.archives.delete_session("s1")
    assert not await services.archives.delete_session("s1")
    assert [each.id for each in await services.archives.list_sessions()] == ["s2"]
    assert await services.attachments.get_attachment("s2", bytes.fromhex(HASH)) == b"content"
    await filled(services)  # none of the quota is used up
    assert [each.usage["files"] for each in await services.archives.list_sessions()] == [Usage(1, 7)] * 2


ARCHIVES = cases(
    a_session_is_read_whole,
    a_session_that_is_filled_is_as_if_it_had_always_been_here,
    a_session_is_filled_whole_or_not_at_all,
    a_row_that_is_there_twice_is_refused,
    a_session_is_replaced_only_where_that_is_asked_for,
    a_store_knows_the_keys_that_its_secrets_are_sealed_by,
    sessions_are_listed_with_their_counts,
    a_session_is_deleted_with_all_it_has,
)
