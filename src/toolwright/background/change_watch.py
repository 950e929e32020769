"""The watchers of runs in this process. Owns waking them: by changes of this process, and by those of others in the
store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

from toolwright.clock import Clock, Timer
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.run_store import RunStore

log = logging.getLogger("toolwright.background")

POLL = 0.2
"""Seconds between two looks at the changes of other processes, while there are watchers here."""


class Watcher:
    """A watcher of one run."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ChangeWatch:
    """All watchers of runs of one store. `alone` means that no other process can change any."""

    def __init__(self, store: RunStore, clock: Clock, *, alone: bool) -> None:
        self._store = store
        self._clock = clock
        self._alone = alone
        self._watchers: dict[str, list[Watcher]] = {}
        self._cursor: Cursor | None = None
        self._timer: Timer | None = None
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def ring(self, ids: Iterable[str]) -> None:
        """These runs have changed."""
        for id in ids:
            for watcher in self._watchers.get(id, ()):
                if not watcher.changed.done():
                    watcher.changed.set_result(None)

    @contextlib.asynccontextmanager
    async def watching(self, id: str) -> AsyncIterator[Watcher]:
        """Watch a run from here on: `changed` is done when something of it changes.

        A change while the body reads the store is not missed.

        Raises:
            RuntimeClosed: watchers are not told any more.
        """
        self._require_open()
        if not self._alone and not self._watchers:
            await self._look()
            self._require_open()
        watcher = Watcher()
        self._watchers.setdefault(id, []).append(watcher)
        self._arm()
        try:
            yield watcher
        except StoreError:
            self._require_open()  # else the store was closed with the runtime, while the body looked at it
            raise
        finally:
            watchers = self._watchers[id]
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[id]

    def rearm(self, watcher: Watcher) -> None:
        """Watch for the next change. The store is to be read after this, and not before.

        Raises:
            RuntimeClosed: watchers are not told any more.
        """
        if self._closed:
            self._require_open()
        watcher.changed = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Look no more; remaining watchers are woken, and may watch no longer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            self._looking.cancel()
        self.ring(list(self._watchers))

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("The runtime is closed; open another")

    def _arm(self) -> None:
        if not self._alone and not self._closed and self._timer is None and self._looking is None and self._watchers:
            self._timer = self._clock.call_at(self._clock.monotonic() + POLL, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._looking = asyncio.ensure_future(self._look())
        self._looking.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled():
            if task.exception() is not None:
                log.warning(
                    "The changes of other processes cannot be read: %s",
                    task.exception(),
                    extra=log_fields("runs.not_read"),
                )
            self._arm()

    async def _look(self) -> None:
        with contextlib.suppress(StoreError):  # it is tried again
            self._cursor, ids = await self._store.changed(self._cursor)
            self.ring(ids)
