"""Whoever waits for something of a batch. Owns waking them; what a batch is and does is in `batch`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Watchers:
    """Those that wait for the end of a batch, for its quiet, or for its next change; most batches have none."""

    __slots__ = ("_ends", "_is_quiet", "_loop", "changes", "quiets")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_quiet: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_quiet = is_quiet
        self._ends: list[asyncio.Future[None]] = []
        self.quiets: list[asyncio.Future[None]] = []
        self.changes: list[asyncio.Future[None]] = []

    def until_end(self) -> asyncio.Future[None]:
        """Done when every call has its outcome."""
        return self._join(self._ends)

    def until_quiet(self) -> asyncio.Future[None]:
        """Done when the batch is quiet, as it may be now."""
        watcher = self._join(self.quiets)
        self._look_soon()
        return watcher

    def until_change(self) -> asyncio.Future[None]:
        """Done when the next call has its outcome, or begins or ends to wait."""
        return self._join(self.changes)

    def tell_change(self) -> None:
        """A call has its outcome, or begins or ends to wait."""
        if self.quiets:
            self._look_soon()
        if self.changes:
            _wake(self.changes)

    def tell_end(self) -> None:
        """Every call has its outcome."""
        _wake(self._ends)

    def _join(self, line: list[asyncio.Future[None]]) -> asyncio.Future[None]:
        watcher: asyncio.Future[None] = self._loop.create_future()
        line.append(watcher)
        return watcher

    def _look_soon(self) -> None:
        # Not at once: what a call that ends held up is about to start.
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._is_quiet():
            _wake(self.quiets)


def _wake(line: list[asyncio.Future[None]]) -> None:
    for watcher in line:
        if not watcher.done():
            watcher.set_result(None)
    line.clear()
