"""The event log of a runtime without a store. Owns putting it together, of the events of its calls and the log of its
services in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec.structs import replace

from toolwright.event_bus import Subscription
from toolwright.stores.contracts.event_log import EventLogStore, EventPage, LoggedEvent

MOST = 10_000
"""How many events are remembered; older ones are gone."""


class MemoryRows(EventLogStore, Protocol):
    """The log of services in memory, which is written while somebody reads it."""

    async def begin(self) -> None:
        """Write a log from now on."""
        ...

    async def forget(self, number: int) -> None:
        """Remove the events up to a number, but not the newest."""
        ...


class MemoryEventLog:
    """`EventLogStore` of a runtime without a store. It begins with the first look at it, and has the latest events."""

    def __init__(self, subscribe: Callable[[], Subscription], open_rows: Callable[[], Awaitable[MemoryRows]]) -> None:
        self._subscribe = subscribe
        self._open_rows = open_rows
        self._calls: Subscription | None = None
        self._rows: MemoryRows | None = None
        self._seen = 0
        self._last = 0
        self._events: deque[LoggedEvent] = deque(maxlen=MOST)
        self._lock = asyncio.Lock()

    async def after(self, number: int | None, limit: int) -> EventPage:
        async with self._lock:
            await self._collect()
        first = self._events[0].number if self._events else self._last
        if number is None or number >= self._last:
            return EventPage([], self._last, first)
        skipped = max(0, number + 1 - first)
        found = list(itertools.islice(self._events, skipped, skipped + limit))
        return EventPage(found, found[-1].number if found else self._last, first)

    async def _collect(self) -> None:
        if self._calls is None:
            self._calls = self._subscribe()
        if self._rows is None:
            self._rows = await self._open_rows()
        page = await self._rows.after(self._seen, MOST)
        if page.last > self._seen:
            self._seen = page.last
            await self._rows.forget(page.last)
        new = page.events
        while (noticed := self._calls.take()) is not None:
            told = noticed.to_json()
            kind, session = told.pop("kind"), told.pop("session")
            told.pop("at")
            new.append(LoggedEvent(0, session, kind, noticed.at, told, told.get("call_id")))
        for event in sorted(new, key=lambda event: event.at):
            self._last += 1
            self._events.append(replace(event, number=self._last))
