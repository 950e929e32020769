"""Clients of event streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx


class EventReader:
    """Reads one stream of server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.last_id: str | None = None
        self.heartbeats = 0
        self._arrived = asyncio.Event()
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, dict[str, Any]] | None:
        """The type and the data of the next event; None at the end."""
        kind, data = "message", ""
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
                self._arrived.set()
            elif name == "event":
                kind = value
            elif name == "data":
                data += value
            elif line.startswith(":"):
                self.heartbeats += 1
            elif line == "" and data:
                return kind, json.loads(data)
            elif line == "":
                kind = "message"
        return None

    async def reached(self, number: int) -> None:
        """Wait until the stream is at a number, while somebody reads it."""
        while int(self.last_id or -1) < number:
            self._arrived.clear()
            await self._arrived.wait()

    async def take(self, count: int) -> list[dict[str, Any]]:
        """The next events, so many of them."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = await self.next()
            assert event is not None, "the stream ended"
            found.append(event[1])
        return found


@asynccontextmanager
async def following(
    http: httpx.AsyncClient, address: str, after: str | int | None = None, path: str = "/v1/events", **query: str
) -> AsyncIterator[EventReader]:
    """A client that follows the events, from a number or from now on."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    async with http.stream("GET", f"{address}{path}", params=query, headers=headers, timeout=30) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream"
        yield EventReader(response)
