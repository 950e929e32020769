"""Files. Owns the rules for a session's files, and the verbs a store must offer for them.

The rules of a change are functions here, which a store applies inside its transaction: each store has the same.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import NoReturn

from toolwright.argument_checks import require_count
from toolwright.clock import Clock
from toolwright.errors import ServiceError
from toolwright.session.services.content import hold, spool, to_bytes
from toolwright.session.services.grep import Search, run_search
from toolwright.session.services.paths import ROOT, clean_path
from toolwright.session.services.quotas import Marker, Unmarked
from toolwright.stores.contracts.sessions import PIECE, Content, FilesStore, Portion, Quotas, Writing
from toolwright.tools.service_protocols import FileInfo, GrepMatch

_HASH = re.compile("([0-9a-f]{64})?")


class Files:
    """The files client of one session, for its host or for one attempt of a call."""

    def __init__(
        self, store: FilesStore, session: str, marker: Marker, clock: Clock, quotas: Quotas, grep_seconds: float
    ) -> None:
        self._store = store
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quotas.files
        self._file_bytes = quotas.file_bytes
        self._grep_seconds = grep_seconds
        self._host = isinstance(marker, Unmarked)

    async def read(self, path: str) -> str:
        """The text of a file.

        Raises:
            ServiceError: there is no such file, or it is not UTF-8.
        """
        data = await self.read_bytes(path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ServiceError(f"The file {path!r} is not text in UTF-8; read it as bytes", "not_text") from error

    async def read_bytes(self, path: str) -> bytes:
        """The content of a file, whole.

        Raises:
            ServiceError: there is no such file.
        """
        path = clean_path(path)
        found = (THE_ROOT, b"") if path == ROOT else await self._store.read_file(self._session, path)
        if found is None:
            raise _no_file(path)
        require_file(found[0])
        return found[1]

    async def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo:
        """Write a file, see `FilesClient`.

        Writing the same content again is a write like any other. With `expected` it is refused as any other, too: a
        caller that makes a file that must not exist has to learn that another made it, even with the same content.

        Raises:
            ServiceError: the path or content is not usable (code "invalid_arguments"), the file has other content than
                expected ("conflict") or is read-only ("permission_denied"), or the quota is used up ("quota").
        """
        path = clean_path(path)
        held = await hold(path, to_bytes(path, content), self._file_bytes)
        return await self._write(path, held, expected, readonly)

    async def write_stream(self, path: str, content: AsyncIterable[bytes], *, expected: str | None = None) -> FileInfo:
        """Write a file from pieces of any size: all of it once they have come, or nothing. `expected` as for `write`.

        Raises:
            ServiceError: as for `write`.
        """
        path = clean_path(path)
        spooled = await spool(path, content, self._file_bytes)
        try:
            return await self._write(path, spooled, expected, None)
        finally:
            spooled.close()

    async def _write(self, path: str, content: Content, expected: str | None, readonly: bool | None) -> FileInfo:
        _require_hash(expected)
        if readonly is not None and not isinstance(readonly, bool):
            raise ServiceError(f"The flag readonly is {readonly!r:.100}; use True or False")
        writing = Writing(self._clock.now(), self._quota, expected, readonly, self._host)
        mark = self._marker.mark("files.write", path, content.digest.hex(), expected, readonly)
        return await self._store.write_file(self._session, path, content, writing, mark)

    async def stream(self, path: str, *, start: int = 0, expected: str | None = None) -> AsyncIterator[bytes]:
        """The content of a file in pieces, from its byte `start` on; that of the hash `expected`, if it is given.

        Raises:
            ServiceError: there is no such file, or it was changed before its last piece was read ("conflict").
        """
        path = clean_path(path)
        file = await self._find(path)
        if file is None:
            raise _no_file(path)
        require_file(file)
        if expected is not None and file.hash != expected:
            raise _changed(path)
        require_count("start of a stream", start, 0)
        for number in range(start // PIECE, -(-file.size // PIECE)):
            piece = await self._store.read_piece(self._session, file, number)
            if piece is None:
                raise _changed(path)
            skipped = start - number * PIECE
            yield piece if skipped <= 0 else piece[skipped:]

    async def make_directory(self, path: str) -> FileInfo:
        """Make a directory, and those above it; an existing one is not changed.

        Raises:
            ServiceError: a file is in the way ("not_directory"), or the quota is used up.
        """
        path = clean_path(path)
        if path == ROOT:
            return THE_ROOT
        mark = self._marker.mark("files.make_directory", path)
        return await self._store.make_directory(self._session, path, self._clock.now(), self._quota, mark)

    async def list(self, path: str = ROOT) -> builtins.list[FileInfo]:
        """The entries of a directory, by name.

        Raises:
            ServiceError: there is no such directory.
        """
        path = clean_path(path)
        listed = await self._store.list_files(self._session, path)
        if not listed:
            require_directory(await self._require(path))
        return listed

    async def stat(self, path: str) -> FileInfo | None:
        """The file or directory at a path; None when there is nothing."""
        return await self._find(clean_path(path))

    async def delete(self, path: str, recursive: bool = False, *, expected: str | None = None) -> int:
        """Remove a file or directory, see `FilesClient`; for the root, its content. With `expected`, only a file that
        has this hash.

        Raises:
            ServiceError: it is a directory with something in it and not `recursive` ("not_empty"), a file is read-only
                ("permission_denied"), or the file has other content than expected ("conflict"): then nothing is
                removed.
        """
        path = clean_path(path)
        _require_hash(expected)
        asked = (path, bool(recursive)) if expected is None else (path, bool(recursive), expected)
        mark = self._marker.mark("files.delete", *asked)
        return await self._store.delete_file(self._session, path, bool(recursive), self._host, mark, expected)

    async def grep(
        self, pattern: str, path: str = ROOT, *, glob: str | None = None, limit: int = 1_000
    ) -> builtins.list[GrepMatch]:
        """The first lines that match, in the order of paths; files that are not text are passed over.

        A regular expression is one of RE2, whose time grows with the text alone. Long lines are cut around the match.
        `glob` is a shell-style pattern of the files to search: of their names, such as "*.py", or of their whole paths
        if it has a slash, such as "/src/*.py", where `*` matches any characters.

        Raises:
            ServiceError: the pattern is not usable, nothing is at the path ("not_found"), or it takes too long
                ("timeout").
        """
        path = clean_path(path)
        search = Search(pattern, limit, glob)
        await self._require(path)
        return await run_search(search, self._grep_seconds, lambda last: self._scan(path, last))

    async def _scan(self, path: str, last: Portion | None) -> Portion:
        return await self._store.scan_files(self._session, path, last)

    async def _find(self, path: str) -> FileInfo | None:
        return THE_ROOT if path == ROOT else await self._store.find_file(self._session, path)

    async def _require(self, path: str) -> FileInfo:
        found = await self._find(path)
        if found is None:
            raise ServiceError(f"There is no file or directory {path!r}; list the directory above it", "not_found")
        return found


THE_ROOT = FileInfo(ROOT, True, 0, None, False, 0.0, 0.0)
"""The directories that every session has from its beginning, and that cannot be removed."""


# --- the rules of a change


def require_file(found: FileInfo) -> None:
    """Refuse a directory where a file is needed."""
    if found.directory:
        raise ServiceError(f"The path {found.path!r} is a directory; name a file in it", "is_directory")


def require_directory(found: FileInfo) -> None:
    """Refuse a file where a directory is needed."""
    if not found.directory:
        raise ServiceError(f"The path {found.path!r} is a file and not a directory; choose another", "not_directory")


def require_writable(path: str, found: FileInfo | None, writing: Writing) -> None:
    """Refuse to write a path that is a directory, read-only, or not as expected."""
    if path == ROOT:
        require_file(THE_ROOT)
    if found is not None:
        require_file(found)
        require_changeable(found, writing.host)
    require_expected(path, found, writing.expected)


def _require_hash(expected: object) -> None:
    if expected is not None and (not isinstance(expected, str) or not _HASH.fullmatch(expected)):
        raise ServiceError(f"The expected hash {expected!r:.100} is not one; use the hash that `stat` gives, or ''")


def require_expected(path: str, found: FileInfo | None, expected: str | None) -> None:
    """Refuse to change a file that is not as its reader has seen it."""
    now = "" if found is None else found.hash
    if expected is not None and expected != now:
        is_now = f"has the hash {now} now" if now else "is not there"
        raise ServiceError(f"The file {path!r} {is_now}, which was not expected; read it again", "conflict")


def require_changeable(found: FileInfo, host: bool) -> None:
    """Refuse a tool that changes a read-only file."""
    if found.readonly and not host:
        raise ServiceError(f"The file {found.path!r} is read-only; write another", "permission_denied")


def refuse_full(path: str) -> NoReturn:
    """Refuse to remove a directory with something in it."""
    raise ServiceError(f"The directory {path!r} is not empty; remove it with recursive=True", "not_empty")


def _changed(path: str) -> ServiceError:
    return ServiceError(f"The file {path!r} was changed while it was read; read it again", "conflict")


def _no_file(path: str) -> ServiceError:
    return ServiceError(f"There is no file {path!r}; list the directory above it", "not_found")
