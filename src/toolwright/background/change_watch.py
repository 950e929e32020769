"""The watchers of runs in this process. Owns waking them: by changes of this process, and by those of others in the
store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

from toolwright.clock import Clock, Timer
from toolwright.effects.store_news import Listening, StoreNews
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.run_store import RunStore

log = logging.getLogger("toolwright.background")

RETRY = 1.0
"""Seconds after which the changes of other processes are read again, where they could not be read."""


class Watcher:
    """A watcher of one run."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ChangeWatch:
    """All watchers of runs of one store, which `news` tell of the changes of other processes."""

    def __init__(self, store: RunStore, clock: Clock, news: StoreNews) -> None:
        self._store = store
        self._clock = clock
        self._news = news
        self._watchers: dict[str, list[Watcher]] = {}
        self._cursor: Cursor | None = None
        self._listening: Listening | None = None
        self._timer: Timer | None = None
        self._look_again = False
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
        if self._news.comes and not self._watchers:
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
            if not self._watchers:
                self._stop_listening()

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
        self._stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        self.ring(list(self._watchers))

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("The runtime is closed; open another")

    def _arm(self) -> None:
        if self._listening is None and self._watchers and not self._closed:
            self._listening = self._news.listen(self._look_soon)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.stop()
            self._listening = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_soon(self) -> None:
        if self._looking is not None:
            self._look_again = True
            return
        self._look_again = False
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
            if self._look_again and not self._closed:
                self._look_soon()

    async def _look(self) -> None:
        since = self._cursor
        try:
            self._cursor, ids = await self._store.changed(since)
        except StoreError:  # it is tried again
            if self._listening is not None and self._timer is None:
                self._timer = self._clock.call_at(self._clock.monotonic() + RETRY, self._try_again)
            return
        # Where the first look could not be made, any run that is watched may have changed since its watcher read it.
        self.ring(list(self._watchers) if since is None else ids)

    def _try_again(self) -> None:
        self._timer = None
        self._look_soon()
