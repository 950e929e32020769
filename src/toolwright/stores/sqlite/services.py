"""The rows of session services in SQLite, put together. Owns which there are; each has a file of its own."""

from __future__ import annotations

from toolwright.clock import Clock
from toolwright.stores.sqlite.attachments import SqliteAttachmentStore
from toolwright.stores.sqlite.changes import Changes
from toolwright.stores.sqlite.connections import SqliteConnectionStore
from toolwright.stores.sqlite.files import SqliteFilesStore
from toolwright.stores.sqlite.keyvalue import SqliteKeyValueStore
from toolwright.stores.sqlite.messages import SqliteMessageStore
from toolwright.stores.sqlite.place import StorePlace
from toolwright.stores.sqlite.processes import SqliteProcessStore
from toolwright.stores.sqlite.resources import SqliteResourceStore
from toolwright.stores.sqlite.schedules import SqliteScheduleStore
from toolwright.stores.sqlite.secrets import SqliteSecretStore
from toolwright.stores.sqlite.sessions import SqliteArchiveStore
from toolwright.stores.sqlite.triggers import SqliteTriggerStore


class SqliteServiceStores:
    """`ServiceStores` in SQLite."""

    def __init__(
        self, changes: Changes, place: StorePlace | None = None, owner: str | None = None, clock: Clock | None = None
    ) -> None:
        self._changes = changes
        self.files = SqliteFilesStore(changes)
        self.secrets = SqliteSecretStore(changes)
        self.archives = SqliteArchiveStore(changes, None if place is None else place.path)
        self.attachments = SqliteAttachmentStore(changes)
        self.connections = SqliteConnectionStore(changes)
        self.kv = SqliteKeyValueStore(changes)
        self.messages = SqliteMessageStore(changes)
        self.processes = SqliteProcessStore(changes, owner, place)
        self.resources = SqliteResourceStore(changes)
        self.schedules = SqliteScheduleStore(changes)
        self.triggers = SqliteTriggerStore(changes)

    @classmethod
    def in_memory(cls, clock: Clock | None = None) -> SqliteServiceStores:
        """For a runtime without a file; they end with the process."""
        return cls(Changes.in_memory(clock))

    async def close(self) -> None:
        """Close what they opened, and what is in memory."""
        await self._changes.close()
