"""Delivers events to subscribers. Owns bounded queues that never make a tool wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

from toolwright.argument_checks import require_count
from toolwright.events import AnyEvent, EventsDropped

Push = Callable[[AnyEvent], None]
"""Takes an event, at once."""


class Subscription:
    """A bounded queue of events: iterate over it, close it when done.

    A full queue drops its oldest progress or output event, and if it holds none of these its oldest event. It never
    makes a tool wait, and it reports how many events were dropped: in `dropped`, and by an `EventsDropped` in the
    stream.
    """

    __slots__ = (
        "_closed",
        "_hub",
        "_important",
        "_light",
        "_mixed",
        "_passed",
        "_told",
        "_waiter",
        "dropped",
        "limit",
        "session",
    )

    def __init__(self, hub: EventHub, session: str | None, limit: int) -> None:
        self._hub = hub
        self.session = session
        self.limit = limit
        self.dropped = 0
        self._told = 0
        self._important: deque[AnyEvent] = deque()
        # Each with the number of important events that came before it, which restores the order of the two queues.
        self._light: deque[tuple[int, AnyEvent]] = deque()
        self._passed = 0
        # True while there are light events, or dropped ones that the reader was not told of: else the next important
        # event is the next one.
        self._mixed = False
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def push(self, event: AnyEvent) -> None:
        """Queue an event; called by the hub."""
        if event.droppable:
            self._light.append((self._passed + len(self._important), event))
            self._mixed = True
        else:
            self._important.append(event)
        if self._mixed or len(self._important) > self.limit:
            self._keep_to_limit()
        if self._waiter is not None:
            # One tick of the loop later, so that events of this tick and the next wake the reader once.
            self._waiter.get_loop().call_soon(_wake, self._waiter)
            self._waiter = None

    def _keep_to_limit(self) -> None:
        if len(self._important) + len(self._light) <= self.limit:
            return
        self.dropped += 1
        self._mixed = True
        if self._light:
            self._light.popleft()
        else:
            self._important.popleft()
            self._passed += 1

    def take(self) -> AnyEvent | None:
        """The next event if there is one now."""
        if not self._important and not self._light:
            return None
        light_first = bool(self._light) and self._light[0][0] <= self._passed
        following = self._light[0][1] if light_first else self._important[0]
        if self.dropped > self._told:
            count, self._told = self.dropped - self._told, self.dropped
            return EventsDropped(following.session, following.batch, following.at, count)
        if light_first:
            self._light.popleft()
        else:
            self._important.popleft()
            self._passed += 1
        self._mixed = bool(self._light)
        return following

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self

    async def __anext__(self) -> AnyEvent:
        if self._important and not self._mixed:
            return self._important.popleft()  # Only light events are put in order by the number that passed.
        while True:
            if (self._important or self._light) and (event := self.take()) is not None:
                return event
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def close(self) -> None:
        """Stop receiving; an iteration ends once it has taken the queued events."""
        if self._closed:
            return
        self._closed = True
        self._hub.remove(self)
        if self._waiter is not None:
            _wake(self._waiter)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Channel:
    """The event channel of one session. `push` gives an event to every subscriber; it is None while there are none, so
    that a publisher need not make the event."""

    __slots__ = ("__weakref__", "_pushes", "_taps", "push", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self._taps: tuple[Push, ...] = ()
        self._pushes: tuple[Push, ...] = ()
        self.push: Push | None = None

    def publish(self, event: AnyEvent) -> None:
        """Queue an event for every subscriber. Never waits."""
        for push in self._pushes:
            push(event)

    def tap(self, push: Push) -> None:
        """Give every event to a function too, until `untap`."""
        self._taps += (push,)
        self._give_to((*self._pushes, push))

    def untap(self, push: Push) -> None:
        """Give the function no more events."""
        self._taps = tuple(each for each in self._taps if each is not push)
        self._give_to(tuple(each for each in self._pushes if each is not push))

    def connect(self, pushes: tuple[Push, ...]) -> None:
        """Give every event to these subscribers from now on."""
        self._give_to(pushes + self._taps)

    def _give_to(self, pushes: tuple[Push, ...]) -> None:
        self._pushes = pushes
        # Nearly always there is one: it is called as it is, twice for each call.
        self.push = pushes[0] if len(pushes) == 1 else self.publish if pushes else None


class EventHub:
    """Knows the subscribers of each session, and of all sessions."""

    __slots__ = ("_channels", "_subscriptions")

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()
        # Each lives as long as its session.
        self._channels: WeakValueDictionary[str, Channel] = WeakValueDictionary()

    def channel(self, session: str) -> Channel:
        """The channel of a session."""
        channel = self._channels.get(session)
        if channel is None:
            self._channels[session] = channel = Channel(session)
            self._connect(channel)
        return channel

    def subscribe(self, session: str | None, limit: int) -> Subscription:
        """Open a subscription to one session, or to all of them."""
        require_count("limit of a subscription", limit)
        subscription = Subscription(self, session, limit)
        self._change((*self._subscriptions, subscription))
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._change(tuple(item for item in self._subscriptions if item is not subscription))

    def close(self) -> None:
        """Close every subscription."""
        for subscription in self._subscriptions:
            subscription.close()

    def _change(self, subscriptions: tuple[Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        for channel in self._channels.values():
            self._connect(channel)

    def _connect(self, channel: Channel) -> None:
        channel.connect(
            tuple(item.push for item in self._subscriptions if item.session is None or item.session == channel.session)
        )
