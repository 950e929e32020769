"""Bodies of web responses. Owns reading them within a bound, and telling text from pictures and other bytes; does not
own HTML.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct

from toolwright.builtin.web.page_child import MARKS, claimed_charset, is_utf8
from toolwright.tools.outcome import ToolError

_MEDIA_TYPE = re.compile(r"\s*([a-z0-9.+-]{1,40}/[a-z0-9.+_-]{1,80})\s*(?:;|$)", re.ASCII | re.IGNORECASE)
_MARKUP = re.compile(rb"\s{0,200}(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TEXTUAL = re.compile(
    r"text/.+|.+\+(?:json|xml|yaml)|application/(?:.*json.*|xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|"
    r"x-sh|sql|graphql|x-www-form-urlencoded|x-tex|x-httpd-php|rtf)"
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_ENOUGH = 64 * 1024  # bytes that are enough to distinguish text from other content
_GZIP = b"\x1f\x8b\x08"
_PICTURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class Body(Struct, frozen=True):
    """The bytes that were read, unpacked, and whether there was more."""

    content: bytes
    truncated: bool


async def read_body(chunks: AsyncGenerator[bytes, None], headers: Mapping[str, str], limit: int) -> Body:
    """Read a body up to a limit, which holds for the bytes on the wire and for the unpacked bytes.

    Raises:
        ToolError: it is packed in a way that was not asked for, or is damaged.
    """
    packing = headers.get("content-encoding", "").strip().lower()
    if packing not in ("", "identity", "gzip", "x-gzip"):
        raise ToolError(
            "The page is packed in a way that was not asked for, and is not read; try another page.",
            category="external",
            code="bad_encoding",
            detail=f"content-encoding {packing[:100]!r}",
        )
    unpacker = _Unpacker() if packing.endswith("gzip") else None
    content = bytearray()
    received = 0
    # The generator is ours to close: with it goes the connection, and with that an endless body.
    async with aclosing(chunks):
        async for chunk in chunks:
            received += len(chunk)
            room = limit + 1 - len(content)
            if unpacker is None:
                content += chunk[:room]
            else:
                try:
                    content += unpacker.unpack(chunk, room)
                except zlib.error as error:
                    raise ToolError(
                        "The page is damaged: it cannot be unpacked; try again later.",
                        category="external",
                        code="bad_encoding",
                        detail=str(error)[:500],
                    ) from None
            # Packed data that unpacks to nothing must end as well.
            if len(content) > limit or received > limit:
                return Body(bytes(content[:limit]), True)
    cut_short = unpacker is not None and received > 0 and not unpacker.ended
    return Body(bytes(content), cut_short)


class _Unpacker:
    """Unpacks gzip: one member after the other, as RFC 1952 has them, and nothing of what stands after the last."""

    def __init__(self) -> None:
        self._member = _new_member()
        self._rest = b""  # after a whole member, until it is known for the beginning of another
        self._over = False

    @property
    def ended(self) -> bool:
        """True when the last member is whole."""
        return bool(self._member.eof)

    def unpack(self, data: bytes, most: int) -> bytes:
        """The bytes that come of these, `most` of them."""
        unpacked = b""
        while data and len(unpacked) < most and not self._over:
            if self._member.eof:
                data, self._rest = self._rest + data, b""
                if len(data) < len(_GZIP):
                    self._rest = data
                    break
                if not data.startswith(_GZIP):
                    self._over = True
                    break
                self._member = _new_member()
            unpacked += self._member.decompress(data, most - len(unpacked))
            data = self._member.unused_data
        return unpacked


def _new_member() -> Any:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def media_type_of(headers: Mapping[str, str]) -> str | None:
    """The media type that the server claims, without parameters; None when it claims none that can be read."""
    found = _MEDIA_TYPE.match(headers.get("content-type", ""))
    return found[1].lower() if found else None


def kind_of(headers: Mapping[str, str], content: bytes) -> Literal["html", "text", "image", "binary"]:
    """The kind of a body. A server's claim is used only as far as the bytes confirm it."""
    media_type = media_type_of(headers)
    if media_type in _PICTURES:
        right = content.startswith(_PICTURES[media_type])
        if media_type == "image/webp":
            right = right and content[8:12] == b"WEBP"
        return "image" if right else "binary"
    # No text has NULs, but for UTF-16, which says so at its start or in its header.
    marked = any(content.startswith(mark) for mark, _ in MARKS) or (
        claimed_charset(headers.get("content-type", "")) or ""
    ).startswith("utf-16")
    if b"\0" in content[:4_096] and not marked:
        return "binary"
    if media_type in _HTML:
        return "html"
    if media_type is None or media_type == "application/octet-stream":
        if _MARKUP.match(content):
            return "html"
        return "text" if marked or is_utf8(content[:_ENOUGH]) else "binary"
    return "text" if _TEXTUAL.fullmatch(media_type) else "binary"


def is_image(media_type: str | None) -> bool:
    """True for the pictures that models take."""
    return media_type in _PICTURES
