"""Where a runtime keeps what happens: in memory, or in a store. Owns opening the store of a place and wiring it in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolwright.calls.journal.memory import MemoryJournal
from toolwright.calls.journal.store import StoreJournal
from toolwright.clock import Clock
from toolwright.effects.journal_controller import JournaledController
from toolwright.effects.memory import MemoryStore
from toolwright.session.parts import Shared
from toolwright.session.secrets.master_keys import KeyProvider, default_keys
from toolwright.session.secrets.secrets import rotate
from toolwright.session.secrets.vault import Vault
from toolwright.stores.contracts.store import ServiceStores, Store
from toolwright.stores.opening import open_store

if TYPE_CHECKING:
    from toolwright.stores.sqlite.sessions.services import SqliteServiceStores


class Keeping:
    """The part of a runtime that has a store, or does without."""

    clock: Clock
    _shared: Shared
    _master_key: KeyProvider | None
    _store: Store | None = None
    _journal: StoreJournal | None = None
    _memory_stores: SqliteServiceStores | None = None

    def _use_memory(self) -> None:
        """Keep what happens for the life of the runtime."""
        shared, memory = self._shared, MemoryStore()
        shared.effects = JournaledController(memory, memory, self.clock, alone=True)
        shared.journal = lambda: MemoryJournal(memory)
        shared.stores = self._stores_in_memory
        self._keep_secrets(None)

    async def _use(self, place: str | Path | Store, sync: Literal["full", "normal"]) -> None:
        """Keep what happens in the store that a place names."""
        shared = self._shared
        self._store = store = await open_store(place, sync, self.clock)
        self._journal = journal = StoreJournal(store.journal, self.clock)
        shared.effects = JournaledController(store.journal, store.waits, self.clock)
        shared.journal = lambda: journal
        # A store that keeps only calls leaves the services of its sessions in memory.
        services: ServiceStores | None = getattr(store, "services", None)
        shared.stores = self._stores_in_memory if services is None else lambda: services
        self._keep_secrets(None if services is None else getattr(store, "path", None))
        if services is not None and (kept := getattr(store, "fingerprints", None)) is not None:
            shared.vault = Vault(self._master_key or default_keys(getattr(store, "path", None)), kept)
        shared.kept_before = services is not None

    def _keep_secrets(self, path: Path | None) -> None:
        self._shared.vault = Vault(self._master_key or default_keys(path))
        self._shared.kept_before = False

    def _stores_in_memory(self) -> ServiceStores:
        """The services of a runtime without a file: made when one is first used, for most never are."""
        if self._memory_stores is None:
            from toolwright.stores.sqlite.sessions.services import SqliteServiceStores

            self._memory_stores = SqliteServiceStores.in_memory(self.clock)
        return self._memory_stores

    async def rotate_secrets(self) -> int:
        """Move the secrets of every session to the current master key, and return how many that were.

        It may be stopped and done again; values are not decrypted for it, only their keys.

        Raises:
            SecretsError: some are sealed with a key that is not known; all others were moved.
        """
        self._shared.require_open()
        return await rotate(self._shared.stores().secrets, self._shared.vault)

    async def _close_stores(self) -> None:
        if self._memory_stores is not None:
            await self._memory_stores.close()
        if self._store is not None:
            await self._store.close()
