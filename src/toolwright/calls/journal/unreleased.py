"""Calls that could not be written about. Owns letting go of them once the store works again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolwright.clock import Clock, Timer
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import CallKey, JournalStore

RETRY = 1.0
"""Seconds between two attempts."""


class Adrift:
    """Calls that this process owns and does not run: as long as it lives, every other one would wait for it.

    `runs` says that a call runs here again, and that whoever runs it will write about it.
    """

    def __init__(self, store: JournalStore, clock: Clock, runs: Callable[[CallKey], bool]) -> None:
        self._store = store
        self._clock = clock
        self._runs = runs
        self._keys: dict[CallKey, None] = {}
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, key: CallKey) -> None:
        """Let go of a call as soon as that can be written."""
        self._keys[key] = None
        if self._timer is None and not self._closed:
            self._timer = self._clock.call_at(self._clock.monotonic() + RETRY, self._try)

    def close(self) -> None:
        """Try no more: with its owner gone, the call is anybody's."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        self._task = asyncio.ensure_future(self._let_go())

    async def _let_go(self) -> None:
        try:
            for key in list(self._keys):
                if not self._runs(key):
                    await self._store.release(key)
                del self._keys[key]
        except StoreError:
            pass  # not yet
        finally:
            self._timer = None
        for key in list(self._keys):
            self.add(key)
