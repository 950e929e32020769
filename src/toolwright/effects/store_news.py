"""News of other processes, for all parts of a runtime. Owns the one task that waits for them, and who is told.

The store knows when another process has written (`Store.news`). No other part of a process looks at the store from
time to time: a waiter for something of another process listens here, and looks at the store when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol

from toolwright.clock import Clock, SystemClock, Timer
from toolwright.errors import StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Cursor

log = logging.getLogger("toolwright.effects")

FIRST_LOOK = 0.1
"""Seconds after which a new listener is told for the first time: most waits are over by then, and cost nothing."""
PATIENCE = 60.0
"""Seconds that the store is asked to wait for news."""
RETRY = 1.0
"""Seconds between two attempts, where the store cannot be asked."""
OWN_PAUSE = 0.25
"""Seconds between two tellings, where only this process itself has written: most of that its parts know already."""
POLL_OWN = 0.1
"""Seconds between two looks of a reader of all changes, where no store tells any news."""
OTHER_CLOCK = 0.25
"""Seconds between two tellings by a clock that is not the machine's, such as one of a test."""
POLL = 0.2
"""Seconds between two looks of somebody who waits, where no store tells any news."""


class NewsSource(Protocol):
    """The verb of a store that is used here."""

    async def news(self, after: Cursor | None, patience: float, *, own: bool = False) -> Cursor:
        """See `Store.news`."""
        ...


class Listening:
    """One listener, until it stops. `then` is called on the event loop; it may be called without need, and is called
    at least once."""

    __slots__ = ("_news", "then", "timer")

    def __init__(self, news: StoreNews, then: Callable[[], None]) -> None:
        self._news = news
        self.then = then
        self.timer: Timer | None = None

    def stop(self) -> None:
        """Be told no more."""
        self._news.ignore(self)


class StoreNews:
    """Tells its listeners that another process has written something, or has died; and some time after this process
    itself has written, however often it does.

    `source` is None where there is no store: then no listener is ever told.
    """

    def __init__(self, source: NewsSource | None, clock: Clock) -> None:
        self._source = source
        self.clock = clock
        self._listeners: dict[Listening, None] = {}
        self._new: list[Listening] = []
        self._cursor: Cursor | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # it, and those that were cancelled and are not over yet
        self._closed = False

    @property
    def comes(self) -> bool:
        """True where there may be news."""
        return self._source is not None and not self._closed

    def listen(self, then: Callable[[], None]) -> Listening:
        """Call `then` soon, and whenever something came from then on.

        The first call is a little later than this: it is for changes that came before.
        """
        listening = Listening(self, then)
        self._listeners[listening] = None
        if self.comes:
            when = self.clock.monotonic() + FIRST_LOOK
            listening.timer = self.clock.call_at(when, self._begin, listening)
        return listening

    def ignore(self, listening: Listening) -> None:
        """Tell a listener no more."""
        if listening.timer is not None:
            listening.timer.cancel()
            listening.timer = None
        self._listeners.pop(listening, None)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    def bell(self) -> Bell:
        """Something to wait for news with, as a context manager."""
        return Bell(self)

    async def written(self, after: Cursor | None, patience: float) -> Cursor | None:
        """Wait until anything was written since a position, here or by another process, as `Store.news` does."""
        if self._source is None:
            await self.clock.sleep(min(patience, POLL_OWN))
            return None
        return await self._source.news(after, patience, own=True)

    async def close(self) -> None:
        """Stop telling listeners."""
        self._closed = True
        for listening in list(self._listeners):
            if listening.timer is not None:
                listening.timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, listening: Listening) -> None:
        listening.timer = None
        if self._closed:
            return
        if self._task is None:
            self._cursor = None
            self._task = self._go(self._wait() if isinstance(self.clock, SystemClock) else self._wait_by_clock())
        if self._cursor is None:
            self._new.append(listening)  # told when it is known from where on there are news
        else:
            listening.then()

    def _go(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _wait(self) -> None:
        assert self._source is not None
        failing, own_at, loop = False, 0.0, asyncio.get_running_loop()
        while True:
            try:
                if self._cursor is None:
                    self._cursor = await self._source.news(None, 0.0)
                    new, self._new = self._new, []
                    if failing:
                        new = list(self._listeners)
                    self._tell(new)
                pause = own_at - loop.time()
                patience = PATIENCE if pause <= 0 else pause
                cursor = await self._source.news(self._cursor, patience, own=pause <= 0)
            except StoreError as error:
                if not failing:
                    log.warning(
                        "The news of other processes cannot be waited for: %s",
                        error,
                        extra=log_fields("news.not_read"),
                    )
                failing, self._cursor = True, None
                await self.clock.sleep(RETRY)
                continue
            failing = False
            if cursor != self._cursor:
                self._cursor = cursor
                own_at = loop.time() + OWN_PAUSE
                self._tell(list(self._listeners))

    async def _wait_by_clock(self) -> None:
        """As `_wait`, for a clock that is not the machine's: a store waits in real time, and would be behind it."""
        assert self._source is not None
        while True:
            if self._cursor is None:
                with contextlib.suppress(StoreError):
                    self._cursor = await self._source.news(None, 0.0)
            self._new.clear()
            self._tell(list(self._listeners))
            await self.clock.sleep(OTHER_CLOCK)

    def _tell(self, listeners: list[Listening]) -> None:
        for listening in listeners:
            if listening in self._listeners and listening.timer is None:
                listening.then()


class Bell:
    """Rings when there are news. Used as a context manager: while it is open, no news are missed between two waits."""

    __slots__ = ("_listening", "_news", "_rung")

    def __init__(self, news: StoreNews) -> None:
        self._news = news
        self._rung = asyncio.Event()
        self._listening: Listening | None = None

    def __enter__(self) -> Bell:
        self._listening = self._news.listen(self.ring)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            self._listening.stop()

    def ring(self) -> None:
        """Ring now, for something that this process knows before there are news of it."""
        self._rung.set()

    def rung(self) -> bool:
        """True when it has rung since the last time; it is silent again from then on."""
        rung = self._rung.is_set()
        self._rung.clear()
        return rung

    async def wait(self, patience: float, *others: asyncio.Future[None]) -> None:
        """Wait until it has rung since the last wait, one of the others is done, or some seconds have passed."""
        if self._rung.is_set():
            self._rung.clear()
            return
        if not self._news.comes:
            patience = min(patience, POLL)
        ring = asyncio.ensure_future(self._rung.wait())
        late = asyncio.ensure_future(self._news.clock.sleep(patience))
        try:
            waits: set[asyncio.Future[Any]] = {ring, late, *others}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            late.cancel()
        self._rung.clear()
