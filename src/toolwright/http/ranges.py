"""Parts of content. Owns reading a `Range` header, comparing entity tags, and answering with bytes or with a part of
them, piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from toolwright.http.answers import StreamAnswer
from toolwright.http.problems import Problem

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TAG = re.compile(r'(?:W/)?"[^"]*"')
PIECE = 64 * 1024
"""Bytes that are sent at once."""


class Part(NamedTuple):
    """Bytes from `first` up to, and without, `end`."""

    first: int
    end: int


def read_range(header: str | None, size: int) -> Part | None:
    """The part that a `Range` header asks for; None for all of it, also where it asks for several parts.

    Raises:
        Problem: there is no such part.
    """
    found = None if header is None else _RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        part = Part(max(0, size - int(found[2])), size)
    else:
        part = Part(int(found[1]), size if not found[2] else min(size, int(found[2]) + 1))
    if part.first >= part.end:
        if found[1] and found[2] and int(found[2]) < int(found[1]):
            return None  # it is no range at all
        raise Problem(
            416,
            "range_not_satisfiable",
            f"There are only {size} bytes; ask for others",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return part


def matches(header: str, tag: str, *, weak: bool) -> bool:
    """True when a list of entity tags, or `*`, has a tag. A weak tag counts only with `weak`."""
    if header.strip() == "*":
        return True
    given = _TAG.findall(header)
    return tag in given or (weak and f"W/{tag}" in given)


class ContentAnswer(StreamAnswer):
    """Bytes, or a part of them. `open` gives them in pieces, from a byte on."""

    def __init__(
        self,
        open: Callable[[int], AsyncIterator[bytes]],
        size: int,
        part: Part | None,
        headers: Mapping[str, str],
    ) -> None:
        self._open = open
        self._part = part or Part(0, size)
        self._status = 200 if part is None else 206
        self._headers = {**headers, "accept-ranges": "bytes", "content-length": str(self._part.end - self._part.first)}
        if part is not None:
            self._headers["content-range"] = f"bytes {part.first}-{part.end - 1}/{size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Content that is changed meanwhile ends the connection: a part of each would be of no use."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        left = 0 if scope["method"] == "HEAD" else self._part.end - self._part.first
        if left:
            async for piece in self._open(self._part.first):
                for first in range(0, min(left, len(piece)), PIECE):
                    await send(
                        {
                            "type": "http.response.body",
                            "body": piece[first : first + min(PIECE, left - first)],
                            "more_body": True,
                        }
                    )
                left -= min(left, len(piece))
                if not left:
                    break
        await send({"type": "http.response.body", "body": b""})


def bytes_answer(data: bytes, header: str | None, headers: Mapping[str, str]) -> ContentAnswer:
    """The answer of bytes that are in memory.

    Raises:
        Problem: there is no such part of them.
    """

    async def open(start: int) -> AsyncIterator[bytes]:
        yield data[start:]

    return ContentAnswer(open, len(data), read_range(header, len(data)), headers)
