"""Futures of those who wait for a change. Owns keeping each only for as long as somebody waits."""

from __future__ import annotations

import asyncio


class Waiters:
    """Those who wait until something is told."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self) -> asyncio.Future[None]:
        """Done with the next `wake`. Who waits no longer cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        waiter.add_done_callback(self._drop)
        return waiter

    def _drop(self, waiter: asyncio.Future[None]) -> None:
        self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """Wake all of them, in the order in which they came."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
