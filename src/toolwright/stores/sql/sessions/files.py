"""Files in a SQL store. Owns their queries; the rules of a change are the session's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.session.services.files import (
    refuse_full,
    require_changeable,
    require_directory,
    require_expected,
    require_writable,
)
from toolwright.session.services.paths import ROOT, below, parent_of
from toolwright.stores.contracts.sessions import PIECE, Content, Mark, Piece, Portion, Quota, Writing
from toolwright.stores.sql.changes import Changes, require_quota
from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.sessions.blobs import drop_blobs, get_blob, put_blob
from toolwright.tools.service_protocols import FileInfo

PORTION = 4 * 1024 * 1024
"""Bytes that are read at once in a search: others may read and write in between."""
_COLUMNS = "path, directory, size, digest, readonly, created_at, updated_at"
_FIND = f"SELECT {_COLUMNS} FROM files WHERE session = ? AND path = ?"
_BELOW = "FROM files WHERE session = ? AND path >= ? AND path < ?"


class SqlFilesStore:
    """`FilesStore` in a SQL store."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def find_file(self, session: str, path: str) -> FileInfo | None:
        return await self._changes.read(lambda connection: _find(connection, session, path))

    async def read_file(self, session: str, path: str) -> tuple[FileInfo, bytes] | None:
        def work(connection: Connection) -> tuple[FileInfo, bytes] | None:
            found = _find(connection, session, path)
            if found is None:
                return None
            return found, b"" if found.hash is None else get_blob(connection, bytes.fromhex(found.hash))

        return await self._changes.read(work)

    async def read_piece(self, session: str, file: FileInfo, number: int) -> bytes | None:
        assert file.hash is not None
        query = (
            "SELECT content FROM files JOIN blobs USING (digest)"
            " WHERE session = ? AND path = ? AND digest = ? AND number = ?"
        )
        values = (session, file.path, bytes.fromhex(file.hash), number)
        found: bytes | None = await self._changes.read(lambda connection: one(connection, query, values))
        return found

    async def write_file(
        self, session: str, path: str, content: Content, writing: Writing, mark: Mark | None
    ) -> FileInfo:
        def work(connection: Connection) -> tuple[Any, ...]:
            return put_file(connection, session, path, content, writing)

        return FileInfo(*await self._changes.change(mark, work))

    async def make_directory(self, session: str, path: str, at: float, quota: Quota, mark: Mark | None) -> FileInfo:
        def work(connection: Connection) -> tuple[Any, ...]:
            _make_directories(connection, session, path, at)
            require_quota(connection, session, "files", quota)
            created = one(connection, "SELECT created_at FROM files WHERE session = ? AND path = ?", (session, path))
            return path, True, 0, None, False, created, created

        return FileInfo(*await self._changes.change(mark, work))

    async def list_files(self, session: str, path: str) -> list[FileInfo]:
        query = f"SELECT {_COLUMNS} FROM files WHERE session = ? AND parent = ? ORDER BY path"

        def work(connection: Connection) -> list[FileInfo]:
            rows: Any = connection.execute(query, (session, path))
            return [_info(*row) for row in rows]

        return await self._changes.read(work)

    async def delete_file(
        self, session: str, path: str, recursive: bool, host: bool, mark: Mark | None, expected: str | None = None
    ) -> int:
        def work(connection: Connection) -> int:
            found = _find(connection, session, path)
            require_expected(path, found, expected)
            if found is None and path != ROOT:
                return 0
            removed = 0
            if found is None or found.directory:
                removed = _delete_below(connection, session, path, recursive, host)
            if found is not None:
                require_changeable(found, host)
                connection.execute("DELETE FROM files WHERE session = ? AND path = ?", (session, path))
                removed += 1
                if found.hash is not None:
                    drop_blobs(connection, [bytes.fromhex(found.hash)])
            return removed

        return await self._changes.change(mark, work)

    async def scan_files(self, session: str, path: str, after: Portion | None) -> Portion:
        return await self._changes.read(lambda connection: _scan(connection, session, path, after))


def put_file(connection: Connection, session: str, path: str, content: Content, writing: Writing) -> tuple[Any, ...]:
    """Write a file inside the transaction of the caller, and return the fields of `FileInfo`.

    Raises:
        ServiceError: it may not be written, or the quota is used up.
    """
    found = _find(connection, session, path)
    require_writable(path, found, writing)
    if found is None:
        _make_directories(connection, session, parent_of(path), writing.at)
    put_blob(connection, content.digest, content.pieces())
    connection.execute(
        "INSERT INTO files (session, path, parent, directory, digest, size, readonly, created_at, updated_at)"
        " VALUES (?1, ?2, ?3, 0, ?4, ?5, coalesce(?6, 0), ?7, ?7) ON CONFLICT (session, path) DO UPDATE SET"
        " digest = excluded.digest, size = excluded.size, readonly = coalesce(?6, files.readonly),"
        " updated_at = excluded.updated_at",
        (session, path, parent_of(path), content.digest, content.size, writing.readonly, writing.at),
    )
    if found is not None and found.hash is not None and found.hash != content.digest.hex():
        drop_blobs(connection, [bytes.fromhex(found.hash)])
    require_quota(connection, session, "files", writing.quota)
    created = writing.at if found is None else found.created_at
    was_readonly = found is not None and found.readonly
    readonly = was_readonly if writing.readonly is None else writing.readonly
    return path, False, content.size, content.digest.hex(), readonly, created, writing.at


def _find(connection: Connection, session: str, path: str) -> FileInfo | None:
    row: Any = connection.execute(_FIND, (session, path)).fetchone()
    return None if row is None else _info(*row)


def _info(
    path: str, directory: int, size: int, digest: bytes | None, readonly: int, created: float, updated: float
) -> FileInfo:
    hash = None if digest is None else digest.hex()
    return FileInfo(path, directory != 0, size, hash, readonly != 0, created, updated)


def _make_directories(connection: Connection, session: str, path: str, at: float) -> None:
    """Make a directory and the missing ones above it: above an existing one, all exist."""
    missing: list[str] = []
    while path != ROOT:
        found = _find(connection, session, path)
        if found is not None:
            require_directory(found)
            break
        missing.append(path)
        path = parent_of(path)
    connection.executemany(
        "INSERT INTO files (session, path, parent, directory, digest, size, readonly, created_at, updated_at)"
        " VALUES (?, ?, ?, 1, NULL, 0, 0, ?, ?)",
        [(session, each, parent_of(each), at, at) for each in reversed(missing)],
    )


def _delete_below(connection: Connection, session: str, path: str, recursive: bool, host: bool) -> int:
    inside = (session, *below(path))
    if not recursive:
        if one(connection, f"SELECT 1 {_BELOW} LIMIT 1", inside) is not None:
            refuse_full(path)
        return 0
    if not host:
        row: Any = connection.execute(f"SELECT {_COLUMNS} {_BELOW} AND readonly = 1 LIMIT 1", inside).fetchone()
        if row is not None:
            require_changeable(_info(*row), host)
    rows: Any = connection.execute(f"SELECT DISTINCT digest {_BELOW} AND digest IS NOT NULL", inside).fetchall()
    digests = [digest for (digest,) in rows]
    connection.execute(f"DELETE {_BELOW}", inside)
    removed = connection.changes()
    drop_blobs(connection, digests)
    return removed


def _scan(connection: Connection, session: str, path: str, after: Portion | None) -> Portion:
    """The next pieces at and below a path. A file that was changed since its first pieces were read has no more."""
    pieces: list[Piece] = []
    size = 0
    hash: str | None = None
    first, end = below(path)
    start = path if path != ROOT else first
    if after is not None and after.pieces:
        last = after.pieces[-1]
        start = last.path
        if not last.last and after.hash is not None:
            hash, digest, number = after.hash, bytes.fromhex(after.hash), last.number + 1
            total = one(connection, f"{_SIZE_NOW} AND digest = ?", (session, last.path, digest))
            for content, piece_number in _pieces(connection, digest, number) if total is not None else ():
                final = (piece_number + 1) * PIECE >= total
                pieces.append(Piece(last.path, piece_number, final, content))
                size += len(content)
                if size >= PORTION:
                    return Portion(pieces, hash, False)
    # The path itself sorts before those below it, with others in between: "/a", "/a-b", "/a/c".
    query = (
        "SELECT path, digest, size FROM files WHERE session = ?1 AND path > ?2 AND path < ?4 AND size > 0"
        " AND (path = ?5 OR path >= ?3) ORDER BY path"
    )
    if after is None and path != ROOT:
        query = query.replace("path > ?2", "path >= ?2")
    rows: Any = connection.execute(query, (session, start, first, end, path))
    for name, digest, total in rows:
        hash = digest.hex()
        for content, number in _pieces(connection, digest, 0):
            pieces.append(Piece(name, number, (number + 1) * PIECE >= total, content))
            size += len(content)
            if size >= PORTION:
                return Portion(pieces, hash, False)
    return Portion(pieces, hash, True)


_SIZE_NOW = "SELECT size FROM files WHERE session = ? AND path = ?"


def _pieces(connection: Connection, digest: bytes, number: int) -> Iterable[tuple[Any, ...]]:
    return connection.execute(
        "SELECT content, number FROM blobs WHERE digest = ? AND number >= ? ORDER BY number", (digest, number)
    )
