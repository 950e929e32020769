"""The contract of a store: a runtime opens and closes it, with its parts for calls, sessions and runs."""

from __future__ import annotations

from typing import Protocol

from toolwright.stores.contracts.archives import ArchiveStore
from toolwright.stores.contracts.journal import JournalStore
from toolwright.stores.contracts.run_store import RunStore
from toolwright.stores.contracts.schedule_store import ScheduleStore
from toolwright.stores.contracts.sessions import (
    AttachmentStore,
    ConnectionStore,
    FilesStore,
    KeyValueStore,
    MessageStore,
    ResourceStore,
    SecretStore,
)
from toolwright.stores.contracts.triggers import TriggerStore
from toolwright.stores.contracts.waits import WaitStore


class Store(Protocol):
    """One database as one owner has it open. Its journal and its waits see each other's writes at once."""

    @property
    def journal(self) -> JournalStore:
        """The records of calls."""
        ...

    @property
    def waits(self) -> WaitStore:
        """The records of their waits."""
        ...

    async def close(self) -> None:
        """Write the queued changes and close the store: the unfinished calls of its owner are free from then on.

        A store that is closed already stays so.
        """
        ...


class ServiceStores(Protocol):
    """The rows of every service, in one database."""

    @property
    def files(self) -> FilesStore: ...

    @property
    def archives(self) -> ArchiveStore: ...

    @property
    def attachments(self) -> AttachmentStore: ...

    @property
    def connections(self) -> ConnectionStore: ...

    @property
    def kv(self) -> KeyValueStore: ...

    @property
    def secrets(self) -> SecretStore: ...

    @property
    def messages(self) -> MessageStore: ...

    @property
    def resources(self) -> ResourceStore: ...


class BackgroundStores(ServiceStores, Protocol):
    """The rows of the services of sessions, and of their work in the background. They see each other's at once."""

    @property
    def processes(self) -> RunStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def triggers(self) -> TriggerStore: ...
