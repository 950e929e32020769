"""Where a runtime stores its records: in memory, or in a store. Owns the parts of the store that a runtime uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.journal.memory import MemoryJournal
from toolwright.calls.journal.store import StoreJournal
from toolwright.calls.journal_contract import CallJournal
from toolwright.clock import Clock
from toolwright.crash_seams import crash_seams
from toolwright.effects.memory import MemoryStore
from toolwright.effects.step_replay import JournaledController
from toolwright.effects.store_news import StoreNews
from toolwright.runtime.event_log import MemoryRows
from toolwright.session.secrets.master_keys import KeyProvider, default_keys
from toolwright.session.secrets.vault import Vault
from toolwright.stores.contracts.sessions import MessageStore
from toolwright.stores.contracts.store import BackgroundStores, Store
from toolwright.stores.opening import open_store
from toolwright.turns.memory_messages import MemoryMessages


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Storage:
    """The parts of a store that a runtime uses, or their replacements in memory."""

    effects: JournaledController
    new_journal: Callable[[], CallJournal[ActiveCall]]
    stores: Callable[[], BackgroundStores]
    durable: bool
    vault: Vault
    memory: MemoryServices
    forget_session: Callable[[str], None] = lambda session: None
    """Removes what is not in these stores but in memory about a session that is deleted."""
    news: StoreNews
    """Tells that another process has written to the store."""
    store: Store | None = None
    journal: StoreJournal | None = None

    async def close(self) -> None:
        """Close the store, and the services that are in memory."""
        await self.news.close()
        await self.memory.close()
        if self.store is not None:
            await self.store.close()


class MemoryServices:
    """The services and the background work of a runtime without a file: made at the first use, for most never are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stores: Any = None
        self._messages = MemoryMessages()

    def get(self) -> BackgroundStores:
        """The stores, which last as long as the runtime."""
        if self._stores is None:
            from toolwright.stores.sqlite.services import services_in_memory

            self._stores = services_in_memory(self._clock)
            self._stores.fill_messages(self._messages.take())
        stores: BackgroundStores = self._stores
        return stores

    async def event_log(self) -> MemoryRows:
        """The event log of the stores, which is written from now on."""
        self.get()
        rows: MemoryRows = self._stores.events
        await rows.begin()
        return rows

    def messages(self) -> MessageStore:
        """The messages of sessions, for turns: the stores are not made for them, as long as nothing else needs them."""
        return self._messages if self._stores is None else self.get().messages

    async def close(self) -> None:
        """Forget all that they hold."""
        if self._stores is not None:
            await self._stores.close()


async def open_storage(
    location: str | Path | Store, sync: Literal["full", "normal"], clock: Clock, master_key: KeyProvider | None
) -> Storage:
    """Open the store of a location, ":memory:" for none.

    Raises:
        StoreError: the location is not usable, or the store cannot be opened.
    """
    in_memory = MemoryServices(clock)
    if str(location) == ":memory:":
        memory = MemoryStore()
        return Storage(
            effects=JournaledController(memory, memory, clock),
            news=StoreNews(None, clock),
            new_journal=lambda: MemoryJournal(memory),
            stores=in_memory.get,
            durable=False,
            vault=Vault(master_key or default_keys(None)),
            memory=in_memory,
            forget_session=memory.forget_session,
        )
    store = await open_store(location, sync, clock)
    if crash_seams.store is not None:
        store = crash_seams.store(store)
    news = StoreNews(store, clock)
    journal = StoreJournal(store.journal, clock, news)
    # With a store for calls only, the services of sessions are in memory.
    services = store.services
    if master_key is not None:
        keys = master_key
    elif services is None:
        keys = default_keys(None)
    else:
        keys = default_keys(store.path, lasting=True)
    return Storage(
        effects=JournaledController(store.journal, store.waits, clock, news=news),
        news=news,
        new_journal=lambda: journal,
        stores=in_memory.get if services is None else lambda: services,
        durable=services is not None,
        vault=Vault(keys, None if services is None else store.fingerprints),
        memory=in_memory,
        store=store,
        journal=journal,
    )
