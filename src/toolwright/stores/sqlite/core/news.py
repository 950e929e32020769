"""News of other programs on one file. Owns noticing that another connection has committed, or that an owner has died.

SQLite does not notify. While there is a waiter in this process, the thread of the writer looks from time to time at
`PRAGMA data_version`, which costs microseconds and reads no table, and at the locks of the other owners.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

import apsw

from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.sql.codec import one
from toolwright.stores.sqlite.core.connection import SqliteConnection
from toolwright.stores.sqlite.core.owners import is_alive, owner_numbers
from toolwright.stores.sqlite.core.store_file import StorePlace

PAUSE = 0.025
"""Seconds between two looks at the version of the data, while there is a waiter."""
OWNERS_PAUSE = 0.5
"""Seconds between two looks at the locks of the other owners, while there is a waiter."""


class _Waiter:
    """Somebody who waits for news after a position; without one, for the present position."""

    __slots__ = ("after", "future", "loop", "own")

    def __init__(self, after: tuple[int, int] | None, own: bool) -> None:
        self.after = after
        self.own = own
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Cursor] = self.loop.create_future()


class News:
    """The news of one open store. `add` is called on event loops, and all else on the thread of the writer."""

    def __init__(self, place: StorePlace | None, connection: SqliteConnection, commits: Callable[[], int]) -> None:
        """`commits` gives how often this owner has written."""
        self._place = place
        self._connection = connection
        self._commits = commits
        self._new: deque[_Waiter] = deque()
        self._waiters: list[_Waiter] = []
        self._version: int | None = None
        self._others = 0
        self._next = 0.0
        self._owners: set[int] = set()
        self._owners_of: int | None = None
        self._owners_next = 0.0

    def add(self, after: Cursor | None, own: bool) -> asyncio.Future[Cursor]:
        """Wait for news. The thread of the writer is to be woken after this."""
        others, _, commits = (after or "0 0").partition(" ")
        waiter = _Waiter(None if after is None else (int(others), int(commits)), own)
        self._new.append(waiter)
        return waiter.future

    def due(self) -> float | None:
        """Seconds until the next look; None without a waiter."""
        if not (self._new or self._waiters):
            return None
        if any(waiter.after is None for waiter in self._new):
            return 0.0
        return max(0.0, self._next - time.monotonic())

    def look(self) -> None:
        """Look for news if it is time, and answer those who wait."""
        while self._new:
            self._waiters.append(self._new.popleft())
        if not self._waiters:
            return
        now = time.monotonic()
        if now < self._next and all(waiter.after is not None for waiter in self._waiters):
            return
        self._next = now + PAUSE
        try:
            version: int | None = one(self._connection, "PRAGMA data_version")
        except apsw.Error:
            version = None  # The waiter that is told reads the store, and gets the error.
        if version != self._version or version is None:
            self._others += 1
            self._version = version
        if self._place is not None and now >= self._owners_next:
            self._owners_next = now + OWNERS_PAUSE
            self._look_at_owners(self._place)
        left: list[_Waiter] = []
        commits = self._commits()
        for waiter in self._waiters:
            after = waiter.after
            if after is None or self._others > after[0] or (waiter.own and commits > after[1]):
                self._answer(waiter, commits)
            elif not waiter.future.done():
                left.append(waiter)
        self._waiters = left

    def end(self) -> None:
        """Answer all waiters: there is no more news."""
        self._waiters += self._new
        self._new.clear()
        for waiter in self._waiters:
            self._answer(waiter, 0, closed=True)
        self._waiters.clear()

    def _look_at_owners(self, place: StorePlace) -> None:
        with contextlib.suppress(OSError):  # such as a directory that is gone; the next write tells it
            if self._owners_of != self._version:
                # A new owner writes its name, so that only then there may be a new one.
                self._owners_of = self._version
                self._owners |= owner_numbers(place)
            dead = {number for number in self._owners if not is_alive(place, number)}
            self._owners -= dead
            self._others += bool(dead)

    def _answer(self, waiter: _Waiter, commits: int, closed: bool = False) -> None:
        answer: Cursor | None = None if closed else f"{self._others} {commits}"
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            waiter.loop.call_soon_threadsafe(_set_answer, waiter.future, answer)


def _set_answer(future: asyncio.Future[Cursor], answer: Cursor | None) -> None:
    if future.done():
        return
    if answer is None:
        future.cancel()
    else:
        future.set_result(answer)
