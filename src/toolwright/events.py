"""What can be watched while calls run. Owns events and their delivery; does not own what causes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from msgspec import Raw, Struct


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened in a session, at an instant in seconds since the epoch."""

    kind: ClassVar[str] = "event"
    droppable: ClassVar[bool] = False

    session: str
    batch: str
    at: float


class BatchStarted(Event, frozen=True, kw_only=True, tag="batch.started", tag_field="kind"):
    """A batch was taken on."""

    kind: ClassVar[str] = "batch.started"
    calls: tuple[tuple[str, str], ...]
    parent: str | None = None


class BatchFinished(Event, frozen=True, kw_only=True, tag="batch.finished", tag_field="kind"):
    """Every call of a batch has its outcome."""

    kind: ClassVar[str] = "batch.finished"
    statuses: dict[str, int]


class CallEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one call."""

    call_id: str
    tool: str


class CallStarted(CallEvent, frozen=True, kw_only=True, tag="call.started", tag_field="kind"):
    """A call begins. Each has exactly one `CallFinished`, also where the tool never ran."""

    kind: ClassVar[str] = "call.started"
    arguments: Raw
    source: str
    parent: str | None = None


class CallFinished(CallEvent, frozen=True, kw_only=True, tag="call.finished", tag_field="kind"):
    """A call has its outcome."""

    kind: ClassVar[str] = "call.finished"
    status: str
    category: str | None = None
    code: str | None = None
    attempts: int = 0
    queue_time: float = 0.0
    run_time: float = 0.0
    replayed: bool = False


class CallProgress(CallEvent, frozen=True, kw_only=True, tag="call.progress", tag_field="kind"):
    """A running call says how far it is."""

    kind: ClassVar[str] = "call.progress"
    droppable: ClassVar[bool] = True
    current: float
    total: float | None = None
    label: str | None = None


class CallOutput(CallEvent, frozen=True, kw_only=True, tag="call.output", tag_field="kind"):
    """A running call sent a piece of output."""

    kind: ClassVar[str] = "call.output"
    droppable: ClassVar[bool] = True
    stream: str
    text: str


class CallRetrying(CallEvent, frozen=True, kw_only=True, tag="call.retrying", tag_field="kind"):
    """An attempt failed and another will follow after `delay` seconds."""

    kind: ClassVar[str] = "call.retrying"
    attempt: int
    delay: float
    code: str


class CallWarning(CallEvent, frozen=True, kw_only=True, tag="call.warning", tag_field="kind"):
    """Something about a call that its owner should look at, such as a loop."""

    kind: ClassVar[str] = "call.warning"
    code: str
    message: str


class EventsDropped(Event, frozen=True, kw_only=True, tag="events.dropped", tag_field="kind"):
    """The subscriber was too slow: this many events before the next one were dropped."""

    kind: ClassVar[str] = "events.dropped"
    count: int


class Subscription:
    """A bounded queue of events: iterate over it, close it when done.

    A full queue drops its oldest progress or output, and only when it holds none of these its oldest event. It never
    makes a tool wait, and it says how many events were dropped: in `dropped`, and by an `EventsDropped` in the stream.
    """

    __slots__ = ("_closed", "_hub", "_important", "_light", "_order", "_told", "_waiter", "dropped", "limit", "session")

    def __init__(self, hub: EventHub, session: str | None, limit: int) -> None:
        self._hub = hub
        self.session = session
        self.limit = limit
        self.dropped = 0
        self._told = 0
        self._order = 0
        self._important: deque[tuple[int, Event]] = deque()
        self._light: deque[tuple[int, Event]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def push(self, event: Event) -> None:
        """Queue an event; called by the hub."""
        self._order = order = self._order + 1
        (self._light if event.droppable else self._important).append((order, event))
        if len(self._important) + len(self._light) > self.limit:
            (self._light or self._important).popleft()
            self.dropped += 1
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def take(self) -> Event | None:
        """The next event if there is one now."""
        important, light = self._important, self._light
        if light and (not important or light[0][0] < important[0][0]):
            queue = light
        elif important:
            queue = important
        else:
            return None
        if self.dropped > self._told:
            following = queue[0][1]
            count, self._told = self.dropped - self._told, self.dropped
            return EventsDropped(session=following.session, batch=following.batch, at=following.at, count=count)
        return queue.popleft()[1]

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while (event := self.take()) is None:
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return event

    def close(self) -> None:
        """Stop receiving; an iteration ends once it has taken what is queued."""
        if self._closed:
            return
        self._closed = True
        self._hub.remove(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class EventHub:
    """Hands each event to everyone who subscribed to its session or to all."""

    __slots__ = ("_subscriptions",)

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def watched(self) -> bool:
        """False when nobody would see an event, so that it need not be made."""
        return bool(self._subscriptions)

    def subscribe(self, session: str | None, limit: int) -> Subscription:
        """Open a subscription to one session, or to all of them."""
        if limit < 1:
            raise ValueError(f"a subscription's limit is {limit!r}; use at least 1")
        subscription = Subscription(self, session, limit)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def publish(self, event: Event) -> None:
        """Queue an event for every subscriber it concerns. Never waits."""
        for subscription in self._subscriptions:
            if subscription.session is None or subscription.session == event.session:
                subscription.push(event)

    def remove(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(item for item in self._subscriptions if item is not subscription)

    def close(self) -> None:
        """Close every subscription."""
        for subscription in self._subscriptions:
            subscription.close()
