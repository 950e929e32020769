"""The rows of session services in SQLite, put together. Owns which there are; each has a file of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from toolwright.stores.sql.background.runs import SqlRunStore
from toolwright.stores.sql.background.schedules import SqlScheduleStore
from toolwright.stores.sql.background.triggers import SqlTriggerStore
from toolwright.stores.sql.calls.history import SqlCallHistory
from toolwright.stores.sql.changes import Changes
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.jobs import Read
from toolwright.stores.sql.liveness import Liveness
from toolwright.stores.sql.requests import SqlRequestStore
from toolwright.stores.sql.sessions.attachments import SqlAttachmentStore
from toolwright.stores.sql.sessions.connections import SqlConnectionStore
from toolwright.stores.sql.sessions.event_log import SqlEventLog
from toolwright.stores.sql.sessions.files import SqlFilesStore
from toolwright.stores.sql.sessions.keyvalue import SqlKeyValueStore
from toolwright.stores.sql.sessions.messages import SqlMessageStore
from toolwright.stores.sql.sessions.resources import SqlResourceStore
from toolwright.stores.sql.sessions.secrets import SqlSecretStore
from toolwright.stores.sql.sessions.sessions import Snapshot, SqlArchiveStore
from toolwright.stores.sql.sessions.turns import SqlTurnStore
from toolwright.stores.sql.tokens import SqlTokenStore

_FILL = "INSERT INTO messages (session, number, sender, content, metadata, at) VALUES (?, ?, ?, ?, ?, ?)"


class SqlServiceStores:
    """`BackgroundStores` in a SQL store. One that is in memory has neither `liveness` nor `owner` nor `snapshot`."""

    def __init__(
        self,
        changes: Changes,
        liveness: Liveness | None = None,
        owner: str | None = None,
        snapshot: Snapshot | None = None,
        write_log: Callable[[Connection], None] | None = None,
        read_settled: Read | None = None,
    ) -> None:
        self._changes = changes
        self._filling: set[asyncio.Future[Any]] = set()
        self.events = SqlEventLog(changes, write_log, read_settled)
        self.files = SqlFilesStore(changes)
        self.secrets = SqlSecretStore(changes)
        self.archives = SqlArchiveStore(changes, snapshot)
        self.attachments = SqlAttachmentStore(changes)
        self.connections = SqlConnectionStore(changes)
        self.kv = SqlKeyValueStore(changes)
        self.messages = SqlMessageStore(changes)
        self.runs = SqlRunStore(changes, owner, liveness)
        self.resources = SqlResourceStore(changes)
        self.schedules = SqlScheduleStore(changes)
        self.triggers = SqlTriggerStore(changes)
        self.turns = SqlTurnStore(changes, owner, liveness)
        self.tokens = SqlTokenStore(changes, alone=liveness is None)
        self.history = SqlCallHistory(changes, liveness)
        self.requests = SqlRequestStore(changes, owner, liveness)

    def fill_messages(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write messages, each as its session, number, sender, content, metadata and instant, before all that is asked
        for later."""
        new = list(rows)
        if new:
            filled = asyncio.ensure_future(self._changes.submit(lambda connection: connection.executemany(_FILL, new)))
            self._filling.add(filled)
            filled.add_done_callback(self._filling.discard)

    async def close(self) -> None:
        """Close the connections they opened, and a store in memory."""
        await self._changes.close()
