"""The contract of a store: a runtime opens and closes it, with its parts for calls, sessions and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from toolwright.stores.contracts.archives import ArchiveStore
from toolwright.stores.contracts.call_history import CallHistory
from toolwright.stores.contracts.event_log import EventLogStore
from toolwright.stores.contracts.journal import Cursor, JournalStore
from toolwright.stores.contracts.requests import RequestStore
from toolwright.stores.contracts.run_store import RunStore
from toolwright.stores.contracts.schedule_store import ScheduleStore
from toolwright.stores.contracts.sessions import (
    AttachmentStore,
    ConnectionStore,
    FilesStore,
    KeyValueStore,
    MessageStore,
    ResourceStore,
    Sealed,
    SecretStore,
)
from toolwright.stores.contracts.tokens import TokenStore
from toolwright.stores.contracts.triggers import TriggerStore
from toolwright.stores.contracts.turns import TurnStore
from toolwright.stores.contracts.waits import WaitStore


class Store(Protocol):
    """One database as one owner has it open. Its journal and its waits see each other's writes at once.

    Implemented by `SqliteStore` in `stores/sqlite/store.py` and, for calls only, by `MemoryStore` in
    `effects/memory.py`. A scheme opens it (`stores/contracts/scheme.py`), so that opening may wait for a network.

    The store knows which owners are alive: no other part of the package compares owners, clocks or files. Instants that
    a verb gets, called `at` or `…_at`, are for people and for order. A lease is a duration on a clock of the store.

    A refusal of a store is a `StoreError`, and nothing was written. `StoreUnavailable` means that it did not answer:
    whether it wrote is not known, and its owner may repeat the verb.
    """

    @property
    def journal(self) -> JournalStore:
        """The records of calls."""
        ...

    @property
    def waits(self) -> WaitStore:
        """The records of their waits."""
        ...

    @property
    def services(self) -> BackgroundStores | None:
        """Its records beside calls. Without it, each runtime holds sessions and background runs in memory."""
        ...

    @property
    def path(self) -> Path | None:
        """The file of a store that is one: the default master key lies beside it. Any other needs a `KeyProvider`."""
        ...

    @property
    def fingerprints(self) -> Sealed | None:
        """The sealed key of fingerprints, as the secrets of the store had it when it was opened."""
        ...

    async def news(self, after: Cursor | None, patience: float, *, own: bool = False) -> Cursor:
        """Wait until another owner has written something since the position `after`, or an owner has died or closed the
        store, for at most `patience` seconds; return the position to continue from.

        It is `after` itself where nothing came. Without `after` the present position is returned at once. With `own`
        the writes of this owner count, too. It does not say what came: a waiter looks for it, and may find that it was
        not for it. But nothing is missed: all that was written before a position is visible to those who read after
        they were given it. A position holds for this opened store only.

        A store that cannot know may return another position again and again, not too often.

        Raises:
            StoreError: the store is closed, or is closed meanwhile.
        """
        ...

    async def close(self) -> None:
        """Write the queued changes and close the store: the unfinished calls of its owner are free from then on.

        A store that is closed already stays so.
        """
        ...


class ServiceStores(Protocol):
    """The rows of every service, in one database. Implemented by `stores/sql/sessions/services.py`."""

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
    """The rows of session services and of background runs, which see each other's writes at once.

    Implemented by `SqlServiceStores` in `stores/sql/sessions/services.py`, in a file or in memory.
    """

    @property
    def events(self) -> EventLogStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def triggers(self) -> TriggerStore: ...

    @property
    def turns(self) -> TurnStore: ...

    @property
    def tokens(self) -> TokenStore: ...

    @property
    def history(self) -> CallHistory: ...

    @property
    def requests(self) -> RequestStore: ...
