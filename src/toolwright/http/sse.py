"""Streams of events (SSE). Owns how an event is written, and keeping a stream alive while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
    events: AsyncIterator[bytes], *, status: int = 200, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """A response that sends events as they come, with a sign of life between them."""
    return StreamingResponse(_alive(events), status, {**_HEADERS, **(headers or {})}, media_type=MEDIA_TYPE)


async def _alive(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY
    coming = asyncio.ensure_future(_next(events))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=HEARTBEAT)
            if not done:
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
        coming.cancel()
        await asyncio.wait({coming})
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)
