"""Events for many clients. Owns the one reader of the event log that feeds all of them, and the stream of server-sent
events that each gets; does not own who may see which event.

The latest events are remembered as they are sent, once for all clients: a client has nothing but its place among them.
One that comes back after a while reads the store until it is there. One that reads so slowly that events it has not got
are forgotten is sent away with a hint to come back, and misses nothing when it does.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from starlette.types import Receive, Scope, Send

from toolwright.errors import RuntimeClosed, StoreError
from toolwright.http import sse
from toolwright.http.answers import StreamAnswer
from toolwright.http.sse import STREAM_HEADERS, disconnected, send_piece, sse_control, sse_event, sse_retry
from toolwright.log_fields import log_fields
from toolwright.runtime.runtime import Runtime, news_of
from toolwright.stores.contracts.event_log import LoggedEvent
from toolwright.stores.contracts.journal import Cursor

log = logging.getLogger("toolwright.http")

RETRY = 1.0
"""Seconds until the next look at a store that could not be read."""
MOST_EVENTS = 10_000
"""How many events are remembered for all clients."""
MOST_BYTES = 16 * 1024 * 1024
"""Bytes of the events that are remembered for all clients."""
PIECE = 32 * 1024
"""Bytes that a client is sent at once, unless one event is longer."""
MOST_PIECES = 100
"""How many pieces are kept for further clients at the same place that want the same."""
PAGE = 500
"""How many events are read from the store at once."""
CATCHING_UP = 4
"""How many clients read the store at the same time."""


class Shown(NamedTuple):
    """An event as clients are sent it, with what they may filter it by."""

    number: int
    session: str
    kind: str
    call_id: str | None
    frame: bytes

    @classmethod
    def of(cls, event: LoggedEvent) -> Shown:
        """The event with its frame, which is written once for all clients."""
        frame = sse_event(event.to_json(), id=event.number)
        return cls(event.number, event.session, event.kind, event.call_id, frame)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The events that a client wants: of a session, of some kinds, of a call, and of sessions that its caller sees.

    `sees` is the same for two callers that are equal in `viewers`.
    """

    sees: Callable[[str], bool] = field(compare=False)
    viewers: tuple[str, ...]
    session: str | None = None
    kinds: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    """Beginnings of kinds, such as "run."."""
    call: str | None = None

    def takes(self, event: Shown) -> bool:
        """True for an event that the client gets."""
        if self.session is not None and event.session != self.session:
            return False
        if self.call is not None and event.call_id != self.call:
            return False
        if (self.kinds or self.groups) and event.kind not in self.kinds and not event.kind.startswith(self.groups):
            return False
        return self.sees(event.session)


class EventFeed:
    """The events of a runtime's store for its clients. It reads the store while there is at least one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._shown: list[Shown] = []
        self._numbers: list[int] = []
        self._bytes = 0
        self._pieces: dict[tuple[Wanted, int], tuple[bytes, int]] = {}
        self.floor = 0
        """Every event beyond this number, up to `last`, is remembered."""
        self.last = 0
        self.ending: str | None = None
        """Why streams end: "stopping" once the service stops."""
        self.beats = 0
        """How many heartbeats there were."""
        self.clients = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._until_stop: set[asyncio.Future[None]] = set()
        self._pump: asyncio.Task[None] | None = None
        self._position: Cursor | None = None
        self._begun: asyncio.Future[None] | None = None
        self._catching_up = asyncio.Semaphore(CATCHING_UP)

    # --- clients

    async def join(self) -> None:
        """Count a client; returns when the feed knows the number of the latest event.

        Raises:
            StoreError: the store cannot be read.
        """
        self.clients += 1
        try:
            if self._begun is None or (self._begun.done() and self._begun.exception() is not None):
                self._begun = asyncio.ensure_future(self._begin())
            await asyncio.shield(self._begun)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Count a client no more; without any, the store is not read."""
        self.clients -= 1
        if not self.clients and self._pump is not None:
            self._pump.cancel()
            self._pump = self._begun = None

    def stop(self, reason: str = "stopping") -> None:
        """End all streams with a hint to come back, to another server or to the next one here."""
        self.ending = reason
        self._wake()
        for waiter in list(self._until_stop):
            if not waiter.done():
                waiter.set_result(None)

    def stopped(self) -> asyncio.Future[None]:
        """Done when streams are to end."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ending is not None:
            waiter.set_result(None)
        self._until_stop.add(waiter)
        waiter.add_done_callback(self._until_stop.discard)
        return waiter

    def changed(self) -> asyncio.Future[None]:
        """Done when there is something to send, a heartbeat, or the end."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def piece(self, wanted: Wanted, after: int) -> tuple[bytes, int]:
        """The next frames beyond a number that is not below `floor`, and the number up to which they are all."""
        key = (wanted, after)
        known = self._pieces.get(key)
        if known is None:
            if len(self._pieces) >= MOST_PIECES:
                self._pieces.clear()
            known = self._pieces[key] = self._piece(wanted, after)
        return known

    def _piece(self, wanted: Wanted, after: int) -> tuple[bytes, int]:
        frames: list[bytes] = []
        size = 0
        for place in range(bisect.bisect_right(self._numbers, after), len(self._shown)):
            event = self._shown[place]
            if not wanted.takes(event):
                continue
            if size and size + len(event.frame) > PIECE:
                return b"".join(frames), event.number - 1
            frames.append(event.frame)
            size += len(event.frame)
        # A client that read the store may be ahead of what the feed has seen.
        return b"".join(frames), max(after, self.last)

    async def from_store(self, wanted: Wanted, after: int) -> tuple[bytes, int, int]:
        """The same out of the store, for a number below `floor`; also the number of the store's oldest event."""
        async with self._catching_up:
            page = await self._runtime.event_log(after, limit=PAGE)
            frames = [shown.frame for shown in map(Shown.of, page.events) if wanted.takes(shown)]
        return b"".join(frames), page.last, page.first

    async def newest(self) -> int:
        """The number of the newest event of the store, as it is now."""
        return (await self._runtime.event_log()).last

    # --- reading the log

    async def _begin(self) -> None:
        page = await self._runtime.event_log()
        if not self.clients:  # all were cancelled meanwhile
            self._begun = None
            return
        self._shown, self._numbers, self._bytes = [], [], 0
        self._pieces.clear()
        self.floor = self.last = page.last
        self._pump = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + sse.HEARTBEAT
        failing = False
        while True:
            more, read = False, 0
            try:
                page = await self._runtime.event_log(self.last, limit=PAGE)
            except RuntimeClosed:
                self.stop()
                return
            except StoreError as error:
                if not failing:
                    log.warning("The events cannot be read: %s", error, extra=log_fields("http.events_not_read"))
                failing = True
            else:
                failing, read = False, len(page.events)
                more = page.last > self.last
                if more:
                    self._remember([Shown.of(event) for event in page.events], page.last)
            if loop.time() >= beat:
                beat = loop.time() + sse.HEARTBEAT
                self.beats += 1
                more = True
            if more:
                self._wake()
            if failing:
                await asyncio.sleep(RETRY)
            elif read < PAGE:
                await self._wait_for_more(beat - loop.time())

    async def _wait_for_more(self, patience: float) -> None:
        """Wait until something was written, here or by another process, or some seconds have passed."""
        with contextlib.suppress(StoreError):  # reading the log tells what is wrong
            self._position = await news_of(self._runtime).written(self._position, max(0.0, patience))

    def _remember(self, shown: list[Shown], last: int) -> None:
        self._pieces.clear()
        self._shown += shown
        self._numbers += [event.number for event in shown]
        self._bytes += sum(len(event.frame) for event in shown)
        self.last = last
        if len(self._shown) <= MOST_EVENTS and self._bytes <= MOST_BYTES:
            return
        # A tenth more than needed, so that it is not done for each event.
        dropped = max(0, len(self._shown) - MOST_EVENTS * 9 // 10)
        self._bytes -= sum(len(event.frame) for event in self._shown[:dropped])
        while self._bytes > MOST_BYTES * 9 // 10:
            self._bytes -= len(self._shown[dropped].frame)
            dropped += 1
        self.floor = self._shown[dropped - 1].number
        del self._shown[:dropped], self._numbers[:dropped]

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


_FEEDS: WeakKeyDictionary[Runtime, EventFeed] = WeakKeyDictionary()


def feed_of(runtime: Runtime) -> EventFeed:
    """The feed of a runtime, which all its clients share."""
    feed = _FEEDS.get(runtime)
    if feed is None:
        feed = _FEEDS[runtime] = EventFeed(runtime)
    return feed


class EventStream(StreamAnswer):
    """The answer to one client, as an ASGI application: events beyond a number, or from now on, until it leaves."""

    def __init__(self, feed: EventFeed, wanted: Wanted, after: int | None) -> None:
        self._feed = feed
        self._wanted = wanted
        self._after = after
        self._changed: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client leaves, is too slow, or the service stops."""
        feed = self._feed
        left = asyncio.ensure_future(disconnected(receive))
        left.add_done_callback(self._notice)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            with contextlib.suppress(TimeoutError):  # the client does not read
                try:
                    await self._send_all(send, left)
                except (RuntimeClosed, StoreError):
                    await send_piece(send, sse_control("reconnect", {"reason": "unavailable"}), last=True)
        finally:
            left.cancel()
            feed.leave()

    def _notice(self, left: asyncio.Future[None]) -> None:
        """Wake the stream of a client that left."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _send_all(self, send: Send, left: asyncio.Future[None]) -> None:
        feed, wanted = self._feed, self._wanted
        position = feed.last if self._after is None else self._after
        hello = sse_retry()
        if position > feed.last:
            # It may come from another server that has seen more, or with the number of another store.
            newest = await feed.newest()
            if position > newest:
                hello += sse_control("events.reset", {"last": newest})
                position = newest
        # Without data this is no event, but the client knows where to continue from.
        await send_piece(send, hello + b"id: %d\n\n" % position)
        live, beats = False, feed.beats
        while not left.done():
            if feed.ending is not None:
                await send_piece(send, sse_control("reconnect", {"reason": feed.ending}), last=True)
                return
            if position < feed.floor:
                if live:
                    await send_piece(send, sse_control("reconnect", {"reason": "too_slow"}), last=True)
                    return
                piece, reached, first = await feed.from_store(wanted, position)
                if 0 < position < first - 1 and position == self._after:
                    piece = sse_control("events.removed", {"after": position, "first": first}) + piece
                reached = feed.floor if reached <= position else reached
            else:
                live = True
                piece, reached = feed.piece(wanted, position)
                if not piece and reached == position and beats == feed.beats:
                    self._changed = feed.changed()
                    await self._changed
                    continue
            if beats != feed.beats:
                beats = feed.beats
                piece += b": heartbeat\nid: %d\n\n" % reached
            position = reached
            if piece:
                await send_piece(send, piece)
