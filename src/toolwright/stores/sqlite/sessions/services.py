"""The rows of session services in SQLite, put together. Owns which there are; each has a file of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from toolwright.clock import Clock
from toolwright.stores.sqlite.background.runs import SqliteRunStore
from toolwright.stores.sqlite.background.schedules import SqliteScheduleStore
from toolwright.stores.sqlite.background.triggers import SqliteTriggerStore
from toolwright.stores.sqlite.calls.history import SqliteCallHistory
from toolwright.stores.sqlite.core.idempotent_writes import Changes, JobsAtOnce
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.requests import SqliteRequestStore
from toolwright.stores.sqlite.sessions.attachments import SqliteAttachmentStore
from toolwright.stores.sqlite.sessions.connections import SqliteConnectionStore
from toolwright.stores.sqlite.sessions.event_log import SqliteEventLog
from toolwright.stores.sqlite.sessions.files import SqliteFilesStore
from toolwright.stores.sqlite.sessions.keyvalue import SqliteKeyValueStore
from toolwright.stores.sqlite.sessions.messages import SqliteMessageStore
from toolwright.stores.sqlite.sessions.resources import SqliteResourceStore
from toolwright.stores.sqlite.sessions.secrets import SqliteSecretStore
from toolwright.stores.sqlite.sessions.sessions import SqliteArchiveStore
from toolwright.stores.sqlite.sessions.turns import SqliteTurnStore
from toolwright.stores.sqlite.tokens import SqliteTokenStore

_FILL = "INSERT INTO messages (session, number, sender, content, metadata, at) VALUES (?, ?, ?, ?, ?, ?)"


class SqliteServiceStores:
    """`ServiceStores` in SQLite."""

    def __init__(
        self, changes: Changes, place: StorePlace | None = None, owner: str | None = None, clock: Clock | None = None
    ) -> None:
        self._changes = changes
        self._filling: set[asyncio.Future[Any]] = set()
        self.events = SqliteEventLog(changes)
        self.files = SqliteFilesStore(changes)
        self.secrets = SqliteSecretStore(changes)
        self.archives = SqliteArchiveStore(changes, None if place is None else place.path)
        self.attachments = SqliteAttachmentStore(changes)
        self.connections = SqliteConnectionStore(changes)
        self.kv = SqliteKeyValueStore(changes)
        self.messages = SqliteMessageStore(changes)
        self.runs = SqliteRunStore(changes, owner, place)
        self.resources = SqliteResourceStore(changes)
        self.schedules = SqliteScheduleStore(changes)
        self.triggers = SqliteTriggerStore(changes)
        self.turns = SqliteTurnStore(changes, owner, place)
        self.tokens = SqliteTokenStore(changes, alone=place is None)
        self.history = SqliteCallHistory(changes, place)
        self.requests = SqliteRequestStore(changes, owner, place)

    @classmethod
    def in_memory(cls, clock: Clock | None = None) -> SqliteServiceStores:
        """For a runtime without a file; they end with the process."""
        return cls(Changes.in_memory(clock))

    @classmethod
    def at_once(cls, clock: Clock | None = None) -> SqliteServiceStores:
        """The same without a thread, for a test of one call: a change is made on the thread that asks for it."""
        return cls(Changes(JobsAtOnce(), None, clock=clock))

    def fill_messages(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write messages, each as its session, number, sender, content, metadata and instant, before all that is asked
        for later."""
        new = list(rows)
        if new:
            filled = asyncio.ensure_future(
                self._changes.submit(lambda connection: connection.executemany(_FILL, new).fetchall())
            )
            self._filling.add(filled)
            filled.add_done_callback(self._filling.discard)

    async def close(self) -> None:
        """Close the connections they opened, and a store in memory."""
        await self._changes.close()
