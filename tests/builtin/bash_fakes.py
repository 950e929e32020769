"""A session's files for the tests of `bash`, to the letter of `FilesClient`.

They are kept as key-values of the session, by its own client: so what a call changes is changed once here too.
"""

import base64
import builtins
import hashlib
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from toolwright.errors import ServiceError
from toolwright.session.services import SessionServices
from toolwright.tools.clients import FileInfo, GrepMatch

PREFIX = "file:"


def clean(path: str) -> str:
    """The path in the session: `/workspace` is the root."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or ".." in parts or "\0" in path:
        raise ServiceError(f"The path {path!r} is not usable; use an absolute one")
    return "/" + "/".join(parts[1:] if parts[:1] == ["workspace"] else parts)


class FakeFiles:
    """Files over the session's key-values. `changes` counts what was written and deleted."""

    def __init__(self, kv: Any) -> None:
        self.kv = kv

    async def entry(self, path: str) -> dict[str, Any] | None:
        return await self.kv.get(PREFIX + clean(path))

    async def stat(self, path: str) -> FileInfo | None:
        path = clean(path)
        entry = {"directory": True} if path == "/" else await self.entry(path)
        if entry is None:
            return None
        if entry["directory"]:
            return FileInfo(path, True, 0, None, False, 0.0, 0.0)
        content = base64.b64decode(entry["content"])
        hash = hashlib.sha256(content).hexdigest()
        return FileInfo(path, False, len(content), hash, entry["readonly"], 0.0, 0.0)

    async def read_bytes(self, path: str) -> bytes:
        entry = await self.entry(path)
        if entry is None or entry["directory"]:
            raise ServiceError(f"There is no file {path!r}", "not_found")
        return base64.b64decode(entry["content"])

    async def read(self, path: str) -> str:
        try:
            return (await self.read_bytes(path)).decode()
        except UnicodeDecodeError:
            raise ServiceError(f"The file {path!r} is not text; read its bytes") from None

    async def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo:
        path = clean(path)
        raw = content.encode() if isinstance(content, str) else content
        known = await self.entry(path)
        if known is not None and (known["directory"] or (known["readonly"] and readonly is None)):
            raise ServiceError(f"{path!r} can not be written", "readonly")
        # A change that this call made before would be known by its mark, and not compared again.
        if expected is not None and await self._hash(path) not in (expected, hashlib.sha256(raw).hexdigest()):
            raise ServiceError(f"The file {path!r} has changed", "conflict")
        await self.make_directory(path.rpartition("/")[0] or "/")
        entry = {
            "directory": False,
            "content": base64.b64encode(raw).decode(),
            "readonly": bool(known["readonly"] if known and readonly is None else readonly),
        }
        await self.kv.set(PREFIX + path, entry)
        info = await self.stat(path)
        assert info is not None
        return info

    async def _hash(self, path: str) -> str:
        info = await self.stat(path)
        return "" if info is None else info.hash or ""

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        yield await self.read_bytes(path)

    async def write_stream(self, path: str, content: AsyncIterable[bytes]) -> FileInfo:
        return await self.write(path, b"".join([piece async for piece in content]))

    async def make_directory(self, path: str) -> FileInfo:
        parts = clean(path).split("/")[1:]
        for depth in range(len(parts)):
            above = "/" + "/".join(parts[: depth + 1])
            if above != "/" and await self.entry(above) is None:
                await self.kv.set(PREFIX + above, {"directory": True})
        info = await self.stat(path)
        assert info is not None
        return info

    async def list(self, path: str = "/") -> builtins.list[FileInfo]:
        base = clean(path).rstrip("/") + "/"
        keys = [info.key.removeprefix(PREFIX) for info in await self.kv.list(PREFIX + base)]
        found = [await self.stat(key) for key in keys if "/" not in key.removeprefix(base)]
        return [info for info in found if info is not None]

    async def delete(self, path: str, recursive: bool = False) -> int:
        path = clean(path)
        below = [info.key for info in await self.kv.list(f"{PREFIX}{path.rstrip('/')}/")]
        if below and not recursive:
            raise ServiceError(f"The directory {path!r} is not empty", "not_empty")
        return sum([await self.kv.delete(key) for key in [*below, PREFIX + path]])

    async def grep(self, pattern: str, path: str = "/", *, limit: int = 1_000) -> builtins.list[GrepMatch]:
        base = clean(path).rstrip("/") + "/"
        found = []
        for info in await self.kv.list(PREFIX + base):
            key = info.key.removeprefix(PREFIX)
            if not (await self.stat(key)).directory:
                for number, line in enumerate((await self.read(key)).splitlines(), 1):
                    if re.search(pattern, line):
                        found.append(GrepMatch(key, number, line))
        return found[:limit]


def install() -> None:
    """Give every session these files, in this process."""
    SessionServices.files = property(lambda services: FakeFiles(services.kv))  # type: ignore[attr-defined]
