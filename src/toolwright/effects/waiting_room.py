"""The waits of this process. Owns waking them: by a resolution, by deadlines, and by changes of other processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from toolwright.clock import Clock, Timer
from toolwright.effects.alarms import Alarm, Alarms
from toolwright.effects.controller import Opened
from toolwright.effects.wait_keys import was_answered
from toolwright.errors import KeyRefused, StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.waits import Refused, Remembered, Resolution, Standing, Wait, WaitKey, WaitStore

log = logging.getLogger("toolwright.effects")

POLL = 0.1
"""Seconds between two looks at the resolutions of other processes, while there are waits here."""

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

    def expire(self) -> None:
        """The deadline of the wait has come."""
        self._room.expire(self)


class WaitingRoom:
    """All waiters of this process, in one store.

    `alone` means that no other process can resolve anything, so that no look is needed.
    """

    def __init__(self, store: WaitStore, clock: Clock, *, alone: bool) -> None:
        self._store = store
        self._clock = clock
        self._alone = alone
        self.alarms = Alarms(clock)
        # One, or a list where several wait for the same: nearly always it is one, of very many.
        self._watchers: dict[WaitKey, Watcher | list[Watcher]] = {}
        self._listeners: dict[WaitKey, asyncio.Event] = {}
        self._cursor: Cursor | None = None
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    # --- waits

    def watch(self, wait: Wait, then: Then, opened: Opened) -> Watcher:
        """Begin a wait; `opened` is called when it has begun, and `then` with its end."""
        watcher = Watcher(self, wait.key, then)
        others = self._of(wait.key)
        self._watchers[wait.key] = [*others, watcher] if others else watcher
        self._go(self._open(wait, watcher, opened), watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        others = [other for other in self._of(watcher.key) if other is not watcher]
        if others:
            self._watchers[watcher.key] = others
        else:
            self._watchers.pop(watcher.key, None)

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
                watcher.alarm = self.alarms.set(standing.deadline, watcher.expire)
            self._keep_looking()
            opened(standing.deadline)

    def expire(self, watcher: Watcher) -> None:
        resolution = Resolution("expired", self._clock.now())
        self._go(self._settle(watcher.key, resolution), watcher)

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
        if not was_answered(standing.resolution):
            raise refusal(key, Refused("over"))
        self._tell(key, standing.resolution)
        return standing

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

    def _ring(self, key: WaitKey) -> None:
        bell = self._listeners.get(key)
        if bell is not None:
            bell.set()

    # --- other processes

    async def _look_from_here(self) -> None:
        """Note where to look from, before anything that is waited for could be resolved elsewhere."""
        if self._cursor is None and not self._alone:
            self._cursor = (await self._store.arrivals(None)).cursor

    def _keep_looking(self) -> None:
        if self._timer is None and not self._alone and not self._closed and (self._watchers or self._listeners):
            self._timer = self._clock.call_at(self._clock.monotonic() + POLL, self._look_soon)

    def _look_soon(self) -> None:
        self._go(self._look(), None)

    async def _look(self) -> None:
        try:
            arrivals = await self._store.arrivals(self._cursor)
            self._cursor = arrivals.cursor
            for wait in arrivals.resolved:
                if wait.resolution is not None:
                    self._tell(wait.key, wait.resolution)
            for key in arrivals.signals:
                self._ring(key)
        finally:
            self._timer = None
            self._keep_looking()

    # --- its own work

    def _go(self, work: Coroutine[Any, Any, None], watcher: Watcher | None) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            fault = task.exception()
            if isinstance(fault, Exception):
                if watcher is not None:
                    watcher.tell(fault)
                else:
                    log.error(
                        "The resolutions of other processes could not be read",
                        exc_info=fault,
                        extra=log_fields("waits.not_read"),
                    )

        task.add_done_callback(done)

    def open_waits(self) -> list[object]:
        """The keys that somebody in this process waits for, and the tasks that wait for the store."""
        return [*self._watchers, *self._listeners, *self._tasks]

    async def close(self) -> None:
        """Stop waiting. The waits stay open in the store."""
        self._closed = True
        self.alarms.close()
        if self._timer is not None:
            self._timer.cancel()
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
