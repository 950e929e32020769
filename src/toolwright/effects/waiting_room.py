"""The waits of this process. Owns waking them: by a resolution, by changes of other processes, and at deadlines, by
one timer for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from toolwright.clock import Clock
from toolwright.effects.alarms import Alarm, Alarms
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

RETRY = 1.0
"""Seconds after which the resolutions of other processes are read again, where they could not be read."""

Then = Callable[[Any, Resolution | Exception], None]
"""Tells a waiter how its wait ended, or why it cannot be waited for."""


class Watcher(Alarm):
    """One waiter, until it is told or leaves, and the alarm at its deadline: very many may wait at once, and as parts
    these would take twice the memory."""

    __slots__ = ("_room", "_then", "_waiter", "key")

    def __init__(self, room: WaitingRoom, key: WaitKey, waiter: object, then: Then) -> None:
        super().__init__()
        self._room = room
        self._waiter = waiter
        self._then: Then | None = then
        self.key = key

    def tell(self, news: Resolution | Exception) -> None:
        """Pass on how the wait ended, once."""
        waiter, then = self._waiter, self._then
        if then is not None:
            self.leave()
            then(waiter, news)

    @property
    def cancelled(self) -> bool:
        """True once it was told or left by itself."""
        return self._then is None

    def leave(self) -> None:
        """Wait no longer; the wait itself stays open."""
        self._then = self._waiter = None
        self._room.forget(self)

    def ring(self) -> None:
        """The deadline of the wait has come."""
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

    def watch(self, wait: Wait, waiter: object, then: Then, opened: Opened) -> Watcher:
        """Begin a wait; `opened` is called when it has begun, and `then` with the waiter and the end of the wait."""
        watcher = Watcher(self, wait.key, waiter, then)
        others = self._of(wait.key)
        self._watchers[wait.key] = [*others, watcher] if others else watcher
        self._go(watcher, self._open, wait, watcher, opened)
        return watcher

    async def wait(self, wait: Wait, opened: Opened) -> Resolution:
        """Begin a wait, or continue one that began before, until it is resolved."""
        answer: asyncio.Future[Resolution] = asyncio.get_running_loop().create_future()

        watcher = self.watch(wait, answer, _answer, opened)
        try:
            return await answer
        except asyncio.CancelledError:
            watcher.leave()
            raise

    def take_over(self, keys: Sequence[WaitKey], waiter: object, then: Then) -> list[Watcher] | None:
        """Tell another waiter of the ends of waits, in place of their waiters here, which are not told any more.

        None, and nothing changes, where one of the waits has not exactly one waiter here, as when that was told
        already.
        """
        before = [each for key in keys if isinstance(each := self._watchers.get(key), Watcher)]
        if len(before) < len(keys):
            return None
        taken: list[Watcher] = []
        for each in before:
            each.leave()
            self._watchers[each.key] = watcher = Watcher(self, each.key, waiter, then)
            if each.instant < math.inf:
                self.alarms.set(watcher, each.instant)
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
        elif not watcher.cancelled:
            if standing.deadline is not None:
                self.alarms.set(watcher, standing.deadline)
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

        def ended(_: object, how: Resolution | Exception) -> None:
            news.append(how)
            bell.set()

        alarm = None if deadline is None else self.alarms.call_at(deadline, give_up)
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
                    watcher = self.watch(Wait(key, self._clock.now()), None, ended, lambda _: opened(deadline))
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
            cursor = (await self._store.arrivals(None)).cursor
            if self._cursor is None:  # else another wait began meanwhile, and may be resolved before this position
                self._cursor = cursor

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


def _answer(waiter: asyncio.Future[Resolution], news: Resolution | Exception) -> None:
    if waiter.done():
        return
    if isinstance(news, Exception):
        waiter.set_exception(news)
    else:
        waiter.set_result(news)


def refusal(key: WaitKey, refused: Refused) -> KeyRefused:
    """The reason why a key cannot be used."""
    call = key.call
    told = {
        "unknown": f"The call {call.call_id!r} of session {call.session!r} is not known here; it may have been removed",
        "revoked": f"The session {call.session!r} was revoked; nothing of it can be resolved any more",
        "over": f"The call {call.call_id!r} is finished, and no longer waits for this",
    }
    return KeyRefused(told[refused.why], refused.why)
