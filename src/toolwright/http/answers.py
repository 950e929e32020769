"""Answers in JSON. Owns their bytes and headers; streams and files are Starlette's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive, Scope, Send

from toolwright import jsonx

JSON: Final = "application/json"


class StreamAnswer:
    """An answer that is sent piece by piece, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        raise NotImplementedError


class JsonAnswer:
    """An answer whose bytes are known: what a handler returns becomes one, and an `Idempotency-Key` keeps it."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, media_type: str = JSON
    ) -> None:
        self.body = body
        self.status = status
        self.headers: dict[str, str] = dict(headers) if headers else {}
        self.media_type = media_type

    @classmethod
    def of(
        cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None, *, media_type: str = JSON
    ) -> JsonAnswer:
        """The answer that has a value as JSON."""
        return cls(jsonx.encode_unchecked(value), status, headers, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, as an ASGI application."""
        has_body = self.status != 204
        headers: list[tuple[bytes, bytes]] = []
        if has_body:
            headers = [
                (b"content-type", self.media_type.encode("latin-1")),
                (b"content-length", b"%d" % len(self.body)),
            ]
        headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = b"" if not has_body or scope["method"] == "HEAD" else self.body
        await send({"type": "http.response.body", "body": body})
