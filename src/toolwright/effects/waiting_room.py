"""The waits of this process. Owns waking them: by a resolution, by changes of other processes, and at deadlines, by
one timer for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from toolwright.clock import Clock, Timer
from toolwright.effects.controller import Opened
from toolwright.effects.store_news import Listening, StoreNews
from toolwright.errors import KeyRefused, StoreError, ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.waits import (
    BY_CALL,
    Refused,
    Remembered,
    Resolution,
    Standing,
    Wait,
    WaitKey,
    WaitStore,
)

log = logging.getLogger("toolwright.effects")

LONGEST_NAP = 60.0
"""Seconds after which the wall clock is read again: it may have been set meanwhile."""
TOLERANCE = 0.001
"""Seconds that an alarm may ring early: two clocks never agree to the last digit."""
RETRY = 1.0
"""Seconds after which the resolutions of other processes are read again, where they could not be read."""

Then = Callable[[Resolution | Exception], None]


class Watcher:
    """One waiter, until it is told or leaves."""

    __slots__ = ("_room", "_then", "alarm", "key")

    def __init__(self, room: WaitingRoom, key: WaitKey, then: Then) -> None:
        self._room = room
        self._then: Then | None = then
        self.key = key
        self.alarm: Alarm | None = None

    def tell(self, news: Resolution | Exception) -> None:
        """Pass on how the wait ended, once."""
        then = self._then
        if then is not None:
            self.leave()
            then(news)

    @property
    def left(self) -> bool:
        """True once it was told or left by itself."""
        return self._then is None

    def leave(self) -> None:
        """Wait no longer; the wait itself stays open."""
        self._then = None
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        self._room.forget(self)

    def __call__(self) -> None:
        """The deadline of the wait has come. It is its own alarm bell: a bound method for each would take memory."""
        self._room.expire(self)


class WaitingRoom:
    """All waiters of this process, in one store.

    `news` tell that another process may have resolved something; without them none can.
    """

    def __init__(self, store: WaitStore, clock: Clock, news: StoreNews | None) -> None:
        self._store = store
        self._clock = clock
        self._news = news
        self.alarms = Alarms(clock)
        # One, or a list where several wait for the same: nearly always it is one, of very many.
        self._watchers: dict[WaitKey, Watcher | list[Watcher]] = {}
        self._listeners: dict[WaitKey, asyncio.Event] = {}
        self._cursor: Cursor | None = None
        self._listening: Listening | None = None
        self._looking = False
        self._look_again = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # --- waits

    def watch(self, wait: Wait, then: Then, opened: Opened) -> Watcher:
        """Begin a wait; `opened` is called when it has begun, and `then` with its end."""
        watcher = Watcher(self, wait.key, then)
        others = self._of(wait.key)
        self._watchers[wait.key] = [*others, watcher] if others else watcher
        self._go(watcher, self._open, wait, watcher, opened)
        return watcher

    async def wait(self, wait: Wait, opened: Opened) -> Resolution:
        """Begin a wait, or continue one that began before, until it is resolved."""
        answer: asyncio.Future[Resolution] = asyncio.get_running_loop().create_future()

        def told(news: Resolution | Exception) -> None:
            if answer.done():
                return
            if isinstance(news, Exception):
                answer.set_exception(news)
            else:
                answer.set_result(news)

        watcher = self.watch(wait, told, opened)
        try:
            return await answer
        except asyncio.CancelledError:
            watcher.leave()
            raise

    def take_over(self, keys: Sequence[WaitKey], then: Then) -> list[Watcher] | None:
        """Be told of the ends of waits in place of their waiters here, which are not told any more.

        None, and nothing changes, where one of the waits has not exactly one waiter here, as when that was told
        already.
        """
        before = [each for key in keys if isinstance(each := self._watchers.get(key), Watcher)]
        if len(before) < len(keys):
            return None
        taken: list[Watcher] = []
        for each in before:
            alarm, each.alarm = each.alarm, None
            each.leave()
            self._watchers[each.key] = watcher = Watcher(self, each.key, then)
            if alarm is not None:
                watcher.alarm, alarm.ring = alarm, watcher
            taken.append(watcher)
        self._keep_looking()
        return taken

    def forget(self, watcher: Watcher) -> None:
        known = self._watchers.get(watcher.key)
        if known is watcher:
            del self._watchers[watcher.key]
        elif isinstance(known, list):
            others = [other for other in known if other is not watcher]
            self._watchers[watcher.key] = others if len(others) > 1 else others[0]
        self._stop_looking()

    def _of(self, key: WaitKey) -> list[Watcher]:
        found = self._watchers.get(key, [])
        return found if isinstance(found, list) else [found]

    async def _open(self, wait: Wait, watcher: Watcher, opened: Opened) -> None:
        await self._look_from_here()
        standing = await self._store.open_wait(wait)
        if standing is None:
            raise StoreError(
                f"The call {wait.key.call.call_id!r} was taken over by another process, which believes that this one "
                "is gone: it stood still for longer than its lease, or a file beside the store was removed"
            )
        if standing.resolution is not None:
            watcher.tell(standing.resolution)
        elif not watcher.left:
            if standing.deadline is not None:
                watcher.alarm = self.alarms.set(standing.deadline, watcher)
            self._keep_looking()
            opened(standing.deadline)

    def expire(self, watcher: Watcher) -> None:
        resolution = Resolution("expired", self._clock.now())
        self._go(watcher, self._settle, watcher.key, resolution)

    async def _settle(self, key: WaitKey, resolution: Resolution) -> None:
        with contextlib.suppress(KeyRefused):  # its call ended meanwhile, and has told the waiters
            await self.resolve(key, resolution)

    async def resolve(self, key: WaitKey, resolution: Resolution, remember: Remembered | None = None) -> Standing:
        """Resolve a wait, and tell its waiters here.

        Raises:
            KeyRefused: the store does not take it.
        """
        standing = await self._store.resolve(key, resolution, remember)
        if isinstance(standing, Refused):
            raise refusal(key, standing)
        if standing.resolution.by == BY_CALL:
            raise refusal(key, Refused("over"))
        self._tell(key, standing.resolution)
        return standing

    async def end_wait(self, key: WaitKey, reason: str) -> Resolution | None:
        """End a wait whose call ends without it; an earlier resolution is returned."""
        return await self._store.end_wait(key, Resolution("cancelled", self._clock.now(), reason=reason, by=BY_CALL))

    async def cancel_all(self, session: str, reason: str, *, revoke: bool) -> int:
        """Cancel the waits of a session, and refuse later ones if it is revoked; return how many there were."""
        resolution = Resolution("cancelled", self._clock.now(), reason=reason)
        cancelled = await self._store.cancel_waits(session, resolution, revoke=revoke)
        for key in cancelled:
            self._tell(key, resolution)
        return len(cancelled)

    def _tell(self, key: WaitKey, resolution: Resolution) -> None:
        for watcher in tuple(self._of(key)):
            watcher.tell(resolution)

    # --- signals

    async def signal(self, key: WaitKey, payload: bytes) -> int:
        """Send a signal.

        Raises:
            KeyRefused: the store does not take it.
        """
        sent = await self._store.signal(key, payload, self._clock.now())
        if isinstance(sent, Refused):
            raise refusal(key, sent)
        self._ring(key)
        return sent

    async def next_signal(
        self, key: WaitKey, after: int, deadline: float | None, opened: Opened
    ) -> bytes | Resolution | None:
        """The first signal beyond `after`; None when there is none at the deadline.

        A waiter for a signal is entered among the waits, by the name of the signal: the resolution is the end of that
        wait.
        """
        await self._look_from_here()
        bell = self._listeners.setdefault(key, asyncio.Event())
        late = asyncio.Event()
        news: list[Resolution | Exception] = []
        watcher: Watcher | None = None

        def give_up() -> None:
            late.set()
            bell.set()

        def ended(how: Resolution | Exception) -> None:
            news.append(how)
            bell.set()

        alarm = None if deadline is None else self.alarms.set(deadline, give_up)
        try:
            while True:
                bell.clear()
                came = await self._store.signals(key, after)
                if came:
                    return came[0]
                if late.is_set():
                    return None
                if news:
                    if isinstance(news[0], Exception):
                        raise news[0]
                    return news[0]
                self._keep_looking()
                if watcher is None:
                    watcher = self.watch(Wait(key, self._clock.now()), ended, lambda _: opened(deadline))
                await bell.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
            if watcher is not None:
                watcher.leave()
            self._listeners.pop(key, None)
            self._stop_looking()

    def _ring(self, key: WaitKey) -> None:
        bell = self._listeners.get(key)
        if bell is not None:
            bell.set()

    # --- other processes

    async def _look_from_here(self) -> None:
        """Note where to look from, before anything that is waited for could be resolved elsewhere."""
        if self._cursor is None and self._news is not None:
            self._cursor = (await self._store.arrivals(None)).cursor

    def _keep_looking(self) -> None:
        if self._news is None or self._closed or self._listening is not None:
            return
        if self._watchers or self._listeners:
            self._listening = self._news.listen(self._look_soon)

    def _stop_looking(self) -> None:
        if self._listening is not None and not self._watchers and not self._listeners:
            self._listening.stop()
            self._listening = None

    def _look_soon(self) -> None:
        if self._looking:
            self._look_again = True
        else:
            self._looking = True
            self._go(None, self._look)

    async def _look(self) -> None:
        try:
            while True:
                self._look_again = False
                arrivals = await self._store.arrivals(self._cursor)
                self._cursor = arrivals.cursor
                for wait in arrivals.resolved:
                    if wait.resolution is not None:
                        self._tell(wait.key, wait.resolution)
                for key in arrivals.signals:
                    self._ring(key)
                if not self._look_again:
                    return
        except StoreError:
            self._clock.call_at(self._clock.monotonic() + RETRY, self._look_soon)
            raise
        finally:
            self._looking = False

    # --- its own work

    def _go(self, watcher: Watcher | None, work: Callable[..., Awaitable[None]], *args: object) -> None:
        if not self._closed:
            task = asyncio.get_running_loop().create_task(self._do(watcher, work, args))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _do(
        self, watcher: Watcher | None, work: Callable[..., Awaitable[None]], args: tuple[object, ...]
    ) -> None:
        """Do something, and tell its fault to the waiter that it is done for, or log it."""
        try:
            await work(*args)
        except Exception as fault:
            if watcher is not None:
                watcher.tell(fault)
            else:
                # The reason that a store gives is enough; anything else is a fault of the code.
                log.error(
                    "The resolutions of other processes could not be read: %s",
                    fault,
                    exc_info=None if isinstance(fault, ToolwrightError) else fault,
                    extra=log_fields("waits.not_read"),
                )

    def open_waits(self) -> list[object]:
        """The keys that somebody in this process waits for, and the tasks that wait for the store."""
        return [*self._watchers, *self._listeners, *self._tasks]

    async def close(self) -> None:
        """Stop waiting. The waits stay open in the store."""
        self._closed = True
        self.alarms.close()
        if self._listening is not None:
            self._listening.stop()
            self._listening = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def refusal(key: WaitKey, refused: Refused) -> KeyRefused:
    """The reason why a key cannot be used."""
    call = key.call
    told = {
        "unknown": f"The call {call.call_id!r} of session {call.session!r} is not known here; it may have been removed",
        "revoked": f"The session {call.session!r} was revoked; nothing of it can be resolved any more",
        "over": f"The call {call.call_id!r} is finished, and no longer waits for this",
    }
    return KeyRefused(told[refused.why], refused.why)


# --- instants to wake at


class Alarm:
    """One instant, in seconds since the epoch. Those of one instant ring in the order in which they were set."""

    __slots__ = ("instant", "number", "ring")

    def __init__(self, instant: float, number: int, ring: Callable[[], None]) -> None:
        self.instant = instant
        self.number = number
        self.ring: Callable[[], None] | None = ring

    def __lt__(self, other: Alarm) -> bool:
        return (self.instant, self.number) < (other.instant, other.number)

    def cancel(self) -> None:
        """It never rings."""
        self.ring = None


class Alarms:
    """Alarms at absolute instants, behind a single timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Alarm] = []
        self._number = count().__next__
        self._timer: Timer | None = None
        self._due = float("inf")

    def set(self, instant: float, ring: Callable[[], None]) -> Alarm:
        """Call `ring` at an instant, or soon if that is past."""
        alarm = Alarm(instant, self._number(), ring)
        heapq.heappush(self._heap, alarm)
        self._arm()
        return alarm

    def close(self) -> None:
        """Forget them all."""
        self._heap.clear()
        self._stop()

    def _arm(self) -> None:
        while self._heap and self._heap[0].ring is None:
            heapq.heappop(self._heap)
        if not self._heap:
            self._stop()
            return
        first = self._heap[0].instant
        if self._timer is None or first < self._due:
            self._stop()
            self._due = first
            nap = min(max(0.0, first - self._clock.now()), LONGEST_NAP)
            self._timer = self._clock.call_at(self._clock.monotonic() + nap, self._wake)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.now()
        while self._heap and self._heap[0].instant <= now + TOLERANCE:
            ring = heapq.heappop(self._heap).ring
            if ring is not None:
                ring()
        self._arm()
