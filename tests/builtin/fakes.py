"""Session services in memory, as `tools/clients.py` describes them, for tests of tools that use them."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any

from toolwright.errors import ServiceError
from toolwright.tools.clients import FileInfo, GrepMatch, KeyInfo


class FakeFiles:
    """`FilesClient` in memory. It takes time for changes, and can be stopped after a write."""

    def __init__(self) -> None:
        self.content: dict[str, bytes | None] = {"/": None}
        self.readonly: set[str] = set()
        self.after_write: Callable[[], Awaitable[Any]] | None = None

    def _path(self, path: str) -> str:
        parts = path.split("/")
        if not path.startswith("/") or "\0" in path or ".." in parts:
            raise ServiceError(f"The path {path!r} is not usable; use an absolute path")
        parts = [part for part in parts if part not in ("", ".")]
        if parts and parts[0] == "workspace":
            del parts[0]
        return "/" + "/".join(parts)

    async def _take_time(self) -> None:
        """Let others go on meanwhile: who may overlap a change sees what was before."""
        for _ in range(50):
            await asyncio.sleep(0)

    def _bytes(self, path: str) -> bytes:
        where = self._path(path)
        if where not in self.content:
            raise ServiceError(f"There is no file {path!r}; write it first", "not_found")
        found = self.content[where]
        if found is None:
            raise ServiceError(f"{path!r} is a directory; name a file in it", "is_directory")
        return found

    def _info(self, where: str) -> FileInfo:
        found = self.content[where]
        return FileInfo(
            path=where,
            directory=found is None,
            size=0 if found is None else len(found),
            hash=None if found is None else hashlib.sha256(found).hexdigest(),
            readonly=where in self.readonly,
            created_at=0.0,
            updated_at=0.0,
        )

    async def read(self, path: str) -> str:
        try:
            return self._bytes(path).decode()
        except UnicodeDecodeError:
            raise ServiceError(f"The file {path!r} is not text; read its bytes", "not_text") from None

    async def read_bytes(self, path: str) -> bytes:
        return self._bytes(path)

    async def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo:
        where = self._path(path)
        await self._take_time()
        if where in self.readonly:
            raise ServiceError(f"The file {path!r} is read-only; write to another path", "permission_denied")
        if where in self.content and self.content[where] is None:
            raise ServiceError(f"{path!r} is a directory; name a file in it", "is_directory")
        has = self.content.get(where)
        if expected is not None and expected != ("" if has is None else hashlib.sha256(has).hexdigest()):
            raise ServiceError(f"The file {path!r} has another hash; read it again", "conflict")
        for depth in range(1, where.count("/")):
            above = "/".join(where.split("/")[: depth + 1])
            if self.content.setdefault(above, None) is not None:
                raise ServiceError(f"{above!r} is a file; nothing can be below it", "not_directory")
        self.content[where] = content.encode() if isinstance(content, str) else content
        if readonly is not None:
            (self.readonly.add if readonly else self.readonly.discard)(where)
        if self.after_write is not None:
            await self.after_write()
        return self._info(where)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        yield self._bytes(path)

    async def write_stream(self, path: str, content: AsyncIterable[bytes]) -> FileInfo:
        return await self.write(path, b"".join([piece async for piece in content]))

    async def make_directory(self, path: str) -> FileInfo:
        where = self._path(path)
        self.content.setdefault(where, None)
        return self._info(where)

    async def list(self, path: str = "/"):
        where = self._path(path)
        if where not in self.content:
            raise ServiceError(f"There is no directory {path!r}; make it first", "not_found")
        head = where.rstrip("/") + "/"
        inside = [one for one in self.content if one.startswith(head) and one != head and "/" not in one[len(head) :]]
        return [self._info(one) for one in sorted(inside)]

    async def stat(self, path: str) -> FileInfo | None:
        where = self._path(path)
        return self._info(where) if where in self.content else None

    async def delete(self, path: str, recursive: bool = False) -> int:
        where = self._path(path)
        await self._take_time()
        gone = [one for one in self.content if one == where or one.startswith(where.rstrip("/") + "/")]
        if len(gone) > 1 and not recursive:
            raise ServiceError(f"The directory {path!r} is not empty; delete it recursively", "not_empty")
        if self.readonly.intersection(gone):
            raise ServiceError(f"The file {path!r} is read-only; leave it", "permission_denied")
        for one in gone:
            del self.content[one]
        return len(gone)

    async def grep(self, pattern: str, path: str = "/", *, limit: int = 1_000):
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ServiceError(f"The pattern {pattern!r} can not be read: {error}; correct it") from None
        where = self._path(path)
        found: list[GrepMatch] = []
        for one in sorted(self.content):
            content = self.content[one]
            if content is None or not (one == where or one.startswith(where.rstrip("/") + "/")):
                continue
            lines = content.decode(errors="replace").split("\n")
            found += [GrepMatch(one, number, line) for number, line in enumerate(lines, 1) if wanted.search(line)]
        return found[:limit]


class FakeSecrets:
    """`SecretsClient` in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def get(self, name: str) -> str | None:
        return self.values.get(name)

    async def set(self, name: str, value: str) -> None:
        self.values[name] = value

    async def delete(self, name: str) -> bool:
        return self.values.pop(name, None) is not None

    async def list(self):
        return [KeyInfo(name, 0.0, 0.0) for name in sorted(self.values)]
