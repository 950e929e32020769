"""Content in a SQL store. Owns keeping it once under its hash, in pieces, for as long as something refers to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.stores.sql.connection import Connection


def put_blob(connection: Connection, digest: bytes, pieces: Iterable[bytes | memoryview]) -> None:
    """Store content, unless it is stored already; to be called in the transaction that refers to it."""
    if connection.execute("SELECT 1 FROM blobs WHERE digest = ? LIMIT 1", (digest,)).fetchone() is None:
        for number, piece in enumerate(pieces):
            connection.execute("INSERT INTO blobs (digest, number, content) VALUES (?, ?, ?)", (digest, number, piece))


def get_blob(connection: Connection, digest: bytes) -> bytes:
    """Content, whole."""
    rows: Any = connection.execute("SELECT content FROM blobs WHERE digest = ? ORDER BY number", (digest,)).fetchall()
    return bytes(rows[0][0]) if len(rows) == 1 else b"".join(content for (content,) in rows)


def drop_blobs(connection: Connection, digests: Iterable[bytes]) -> None:
    """Remove content that nothing refers to any more; to be called after the change that may have made it so."""
    for digest in digests:
        connection.execute(
            "DELETE FROM blobs WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM files WHERE digest = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM attachments WHERE digest = ?1)",
            (digest,),
        )
