"""Streams of events (SSE). Owns how an event is written, and keeping a stream alive while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from toolwright import jsonx
from toolwright.errors import RuntimeClosed

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy takes the stream for dead."""
RETRY = 1_000
"""Milliseconds after which a client that was cut off connects again."""
_ALIVE = b": alive\n\n"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def sse_event(data: object, *, id: int | str | None = None, event: str | None = None) -> bytes:
    """One event with JSON as its data, which has no line breaks."""
    head = b"" if id is None else b"id: %s\n" % str(id).encode()
    head += b"" if event is None else b"event: %s\n" % event.encode()
    return head + b"data: " + jsonx.encode_unchecked(data) + b"\n\n"


def sse_response(
    events: AsyncIterator[bytes], stopping: asyncio.Event, *, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """A response that sends events as they come, with a sign of life between them, until the service is `stopping`."""
    return StreamingResponse(_alive(events, stopping), 200, {**_HEADERS, **(headers or {})}, media_type=MEDIA_TYPE)


async def _alive(events: AsyncIterator[bytes], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY
    coming = asyncio.ensure_future(_next(events))
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            either: set[asyncio.Future[Any]] = {coming, stop}
            await asyncio.wait(either, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                if stop.done():
                    return  # the client connects again, to a service that goes on where this one was
                yield _ALIVE
                continue
            event = coming.result()
            if event is None:
                return
            yield event
            coming = asyncio.ensure_future(_next(events))
    except RuntimeClosed:
        return  # the client connects again, and goes on where it was
    finally:
        stop.cancel()
        coming.cancel()
        await asyncio.wait({coming})
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)
