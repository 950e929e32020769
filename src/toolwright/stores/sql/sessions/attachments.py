"""Attachments in a SQL store. Owns their queries; their content is among the blobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from toolwright.stores.contracts.sessions import Mark, Quota
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.sessions.blobs import drop_blobs, get_blob, put_blob
from toolwright.tools.service_protocols import AttachmentInfo

PIECE = 1024 * 1024
"""Bytes in one row."""


class SqlAttachmentStore:
    """`AttachmentStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def put_attachment(
        self, session: str, content: bytes, name: str, media_type: str, at: float, quota: Quota, mark: Mark | None
    ) -> float:
        def work(connection: Connection) -> float:
            digest = hashlib.sha256(content).digest()
            put_blob(connection, digest, _pieces(content))
            since: float = one(
                connection,
                "INSERT INTO attachments (session, digest, name, media_type, size, at)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session, digest) DO UPDATE"
                " SET name = excluded.name, media_type = excluded.media_type RETURNING at",
                (session, digest, name, media_type, len(content), at),
            )
            require_quota(connection, session, "attachments", quota)
            return since

        return await self._changes.change(mark, work)

    async def get_attachment(self, session: str, digest: bytes) -> bytes | None:
        def work(connection: Connection) -> bytes | None:
            # By the session's own row: content that only another session has is not there.
            query = "SELECT 1 FROM attachments WHERE session = ? AND digest = ?"
            return None if one(connection, query, (session, digest)) is None else get_blob(connection, digest)

        return await self._changes.read(work)

    async def list_attachments(self, session: str) -> list[AttachmentInfo]:
        query = "SELECT digest, name, media_type, size, at FROM attachments WHERE session = ? ORDER BY at, digest"
        rows: list[Any] = await self._changes.read(lambda connection: connection.execute(query, (session,)).fetchall())
        return [AttachmentInfo(digest.hex(), name, media_type, size, at) for digest, name, media_type, size, at in rows]

    async def delete_attachment(self, session: str, digest: bytes, mark: Mark | None) -> bool:
        def work(connection: Connection) -> bool:
            connection.execute("DELETE FROM attachments WHERE session = ? AND digest = ?", (session, digest))
            removed = connection.changes() == 1
            if removed:
                drop_blobs(connection, [digest])
            return removed

        return await self._changes.change(mark, work)


def _pieces(content: bytes) -> Iterator[memoryview]:
    view = memoryview(content)
    return (view[start : start + PIECE] for start in range(0, len(view), PIECE))
