"""Streams of events (SSE). Owns how an event is written, and a stream of them: keeping it alive while nothing happens,
and ending it when its client leaves or the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from toolwright import jsonx
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.http.answers import StreamAnswer

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy takes the stream for dead."""
PATIENCE = 30.0
"""Seconds that a client may take to read what it was sent."""
STREAM_HEADERS = (
    (b"content-type", MEDIA_TYPE.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect them
)


def sse_event(data: object, *, id: int | None = None, event: str | None = None) -> bytes:
    """One event with JSON as its data, which has no line breaks."""
    head = b"" if id is None else b"id: %d\n" % id
    head += b"" if event is None else b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (head, jsonx.encode_unchecked(data))


def sse_control(kind: str, data: Mapping[str, object]) -> bytes:
    """An event about the stream itself. It has no number."""
    return sse_event({"kind": kind, **data}, event=kind)


def sse_retry() -> bytes:
    """How long a client waits before it comes back: not all clients of a server that ends at the same moment."""
    return b"retry: %d\n" % random.randint(500, 1_500)


class FollowStream(StreamAnswer):
    """Events as they come, until they end, the client leaves, or the service stops.

    `stopping` is done when the service stops.
    """

    def __init__(
        self, events: AsyncIterator[bytes], stopping: asyncio.Future[None], headers: Mapping[str, str] | None = None
    ) -> None:
        self._events = events
        self._stopping = stopping
        self._headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        left, stopping = asyncio.ensure_future(disconnected(receive)), self._stopping
        coming: asyncio.Future[bytes | None] | None = None
        try:
            headers = [*STREAM_HEADERS, *self._headers]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send_piece(send, sse_retry() + b"\n")
            while not left.done():
                coming = coming or asyncio.ensure_future(_next(self._events))
                either: set[asyncio.Future[Any]] = {coming, left, stopping}
                await asyncio.wait(either, timeout=HEARTBEAT, return_when="FIRST_COMPLETED")
                if coming.done():
                    event, coming = coming.result(), None
                    await send_piece(send, event or b"", last=event is None)
                    if event is None:
                        return
                elif stopping.done():
                    await send_piece(send, sse_control("reconnect", {"reason": "stopping"}), last=True)
                    return
                elif not left.done():
                    await send_piece(send, b": heartbeat\n\n")
        except TimeoutError:
            pass  # the client does not read
        except (RuntimeClosed, StoreError):
            with contextlib.suppress(TimeoutError):
                await send_piece(send, sse_control("reconnect", {"reason": "unavailable"}), last=True)
        finally:
            for task in (left, stopping, coming):
                if task is not None:
                    task.cancel()
            if coming is not None:
                await asyncio.wait({coming})
            if isinstance(self._events, AsyncGenerator):
                await self._events.aclose()


async def send_piece(send: Send, data: bytes, *, last: bool = False) -> None:
    """Send a piece of a stream.

    Raises:
        TimeoutError: the client does not read.
    """
    async with asyncio.timeout(PATIENCE):
        await send({"type": "http.response.body", "body": data, "more_body": not last})


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)
