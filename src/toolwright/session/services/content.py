"""Content on its way into a store. Owns its hash, its size and its pieces; large content waits on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterable

from toolwright.errors import ServiceError, StoreError
from toolwright.stores.contracts.sessions import PIECE, Content
from toolwright.tools.outcome import encodable


def to_bytes(path: str, content: object) -> bytes:
    """Text or bytes as the bytes that are stored.

    Raises:
        ServiceError: it is neither, or has no form in UTF-8.
    """
    if isinstance(content, str):
        if encodable(content) != content:
            raise ServiceError(f"The text for {path!r} has no form in UTF-8; write it as bytes")
        return content.encode()
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise ServiceError(f"The content for {path!r} is a {type(content).__name__}; use text or bytes")
    return bytes(content)


async def hold(path: str, data: bytes, limit: int) -> Content:
    """Content that is in memory already.

    Raises:
        ServiceError: it is larger than a file may be.
    """
    _require_size(path, len(data), limit)
    if len(data) <= PIECE:
        digest = hashlib.sha256(data).digest()
    else:
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).digest())
    return Content(data, None, digest, len(data))


async def spool(path: str, chunks: AsyncIterable[bytes], limit: int) -> Content:
    """Content that comes in pieces of any size, buffered until all of it is there.

    Raises:
        ServiceError: it is larger than a file may be, or not made of bytes.
        StoreError: the disk has no space to buffer it.
    """
    file = tempfile.SpooledTemporaryFile(max_size=PIECE)  # noqa: SIM115 (it is closed with the content)
    hasher, size, waiting = hashlib.sha256(), 0, bytearray()

    def put_aside(data: bytearray) -> None:
        hasher.update(data)
        file.write(data)

    try:
        async for chunk in chunks:
            if not isinstance(chunk, (bytes, bytearray, memoryview)):
                raise ServiceError(f"The stream for {path!r} gave a {type(chunk).__name__}; let it give bytes")
            view = memoryview(chunk).cast("B")
            size += len(view)
            _require_size(path, size, limit)
            waiting += view
            if len(waiting) >= PIECE:
                await asyncio.to_thread(put_aside, waiting)
                waiting = bytearray()
        put_aside(waiting)
    except OSError as error:
        file.close()
        raise StoreError(f"The stream for {path!r} cannot be kept aside: {error.strerror}; free some space") from error
    except BaseException:
        file.close()
        raise
    return Content(b"", file, hasher.digest(), size)


def _require_size(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise ServiceError(f"The file {path!r} may have at most {limit} bytes; write less, or several files", "quota")
