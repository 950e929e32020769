"""A server over streamable HTTP. Owns the limits of its answers, and that a request which fails alone does not end the
others; the protocol is the SDK's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from toolwright import jsonx

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

NOT_SENT = -32098
"""The code of a request that never reached the server, in place of an answer."""
_CONNECT_SECONDS = 10.0
_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)


@asynccontextmanager
async def http_transport(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, largest_message: int
) -> AsyncIterator[TransportStreams]:
    """A transport for `mcp.Client`: the connections are closed with the block. No time limit but that of a call."""
    client = httpx2.AsyncClient(
        headers=dict(headers),
        auth=auth,
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
        transport=_BoundedTransport(largest_message),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=largest_message) as streams:
        yield streams


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Answers of limited length. A request that fails becomes an answer that says so: to the SDK an exception would be
    the end of the whole connection, and of the other calls on it."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._inner = httpx2.AsyncHTTPTransport(limits=_CONNECTIONS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            if request.method != "POST":
                raise
            return _failed(503, NOT_SENT, f"the server cannot be reached: {error}", request)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            return _failed(502, CONNECTION_CLOSED, f"the connection broke: {type(error).__name__}", request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream, self._largest)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer that is not a stream of events: it ends where it breaks, or is too long, and what there is
    of it is no message."""

    def __init__(self, inner: httpx2.AsyncByteStream, largest: int) -> None:
        self._inner = inner
        self._left = largest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._left -= len(chunk)
                if self._left < 0:
                    yield b"\0 longer than largest_message"
                    return
                yield chunk
        except httpx2.TransportError:
            yield b"\0 broken"

    async def aclose(self) -> None:
        await self._inner.aclose()


def _failed(status: int, code: int, message: str, request: httpx2.Request) -> httpx2.Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(
        status, headers={"content-type": "application/json"}, content=jsonx.encode(body), request=request
    )
