"""Bodies of web responses. Owns reading them within a bound, and telling text from pictures and other bytes; does not
own HTML.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct

from toolwright.tools.outcome import ToolError

_MEDIA_TYPE = re.compile(r"\s*([a-z0-9.+-]{1,40}/[a-z0-9.+_-]{1,80})\s*(?:;|$)", re.ASCII | re.IGNORECASE)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_:.-]{1,40})", re.ASCII | re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([a-z0-9_:.-]{1,40})", re.IGNORECASE)
_MARKUP = re.compile(rb"\s{0,200}(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_TEXTUAL = re.compile(
    r"text/.+|.+\+(?:json|xml|yaml)|application/(?:.*json.*|xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|"
    r"x-sh|sql|graphql|x-www-form-urlencoded|x-tex|x-httpd-php|rtf)"
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
# Only encodings of the web. Python knows others, such as "punycode", that take quadratic time or are none at all.
_CHARSETS = {"utf-8", "utf-16-le", "utf-16-be", "cp1252", "gbk", "gb18030", "big5", "big5hkscs"} | {
    *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
    *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
    *(f"cp{number}" for number in (866, 874, 1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)),
}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PICTURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class Body(Struct, frozen=True):
    """What was read: the bytes as the server meant them, and whether there was more."""

    content: bytes
    truncated: bool


async def read_body(chunks: AsyncIterator[bytes], headers: Mapping[str, str], limit: int) -> Body:
    """Read a body up to a limit, which holds for what came over the wire and for what it unpacks to.

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
    unpacker: Any = zlib.decompressobj(16 + zlib.MAX_WBITS) if packing.endswith("gzip") else None
    content = bytearray()
    received = 0
    # The generator is ours to close: with it goes the connection, and with that an endless body.
    async with aclosing(chunks):  # type: ignore[type-var]
        async for chunk in chunks:
            received += len(chunk)
            room = limit + 1 - len(content)
            if unpacker is None:
                content += chunk[:room]
            else:
                try:
                    content += unpacker.decompress(chunk, room)
                except zlib.error as error:
                    raise ToolError(
                        "The page is damaged: it can not be unpacked; try again later.",
                        category="external",
                        code="bad_encoding",
                        detail=str(error)[:500],
                    ) from None
            # Packed data that unpacks to nothing must end as well.
            if len(content) > limit or received > limit:
                return Body(bytes(content[:limit]), True)
    cut_short = unpacker is not None and received > 0 and not unpacker.eof
    return Body(bytes(content), cut_short)


def media_type_of(headers: Mapping[str, str]) -> str | None:
    """The media type that the server claims, without parameters; None when it claims none that can be read."""
    found = _MEDIA_TYPE.match(headers.get("content-type", ""))
    return found[1].lower() if found else None


def kind_of(headers: Mapping[str, str], content: bytes) -> Literal["html", "text", "image", "binary"]:
    """What a body is. A server's claim is believed only as far as the bytes bear it out."""
    media_type = media_type_of(headers)
    if media_type in _PICTURES:
        right = content.startswith(_PICTURES[media_type])
        if media_type == "image/webp":
            right = right and content[8:12] == b"WEBP"
        return "image" if right else "binary"
    # No text has NULs, but for UTF-16, which says so at its start or in its header.
    marked = any(content.startswith(mark) for mark, _ in _MARKS) or (_claimed(headers) or "").startswith("utf-16")
    if b"\0" in content[:4_096] and not marked:
        return "binary"
    if media_type in _HTML:
        return "html"
    if media_type is None or media_type == "application/octet-stream":
        if _MARKUP.match(content):
            return "html"
        return "text" if marked or _is_utf8(content) else "binary"
    return "text" if _TEXTUAL.fullmatch(media_type) else "binary"


def is_image(media_type: str | None) -> bool:
    """True for the pictures that models take."""
    return media_type in _PICTURES


def decode(body: Body, headers: Mapping[str, str], html: bool) -> str:
    """The text of a body by its mark, its header or its own word; what no encoding explains becomes U+FFFD."""
    content = body.content
    for mark, marked in _MARKS:
        if content.startswith(mark):
            return _decode(content[len(mark) :], marked, body.truncated)
    name = _claimed(headers)
    if name is None and html:
        said = _META.search(content[:4_096])
        name = _charset(said[1].decode("ascii")) if said else None
        if name is not None and name.startswith("utf-16"):
            name = "utf-8"  # or its own word could not have been read
    if name is None:
        name = "utf-8" if _is_utf8(content) else "cp1252"
    return _decode(content, name, body.truncated)


def _decode(content: bytes, name: str, truncated: bool) -> str:
    # Where the body was cut, half a character is left out and not replaced.
    return codecs.getincrementaldecoder(name)("replace").decode(content, not truncated)


def _claimed(headers: Mapping[str, str]) -> str | None:
    found = _CHARSET.search(headers.get("content-type", ""))
    return _charset(found[1]) if found else None


def _charset(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    if name in ("ascii", "iso8859-1"):
        return "cp1252"  # as every browser reads it
    if name == "gb2312":
        return "gbk"
    if name == "utf-16":
        return "utf-16-le"  # without a mark, as every browser reads it
    return name if name in _CHARSETS else None


def _is_utf8(content: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(content, False)
    except UnicodeDecodeError:
        return False
    return True
