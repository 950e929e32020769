"""The services of a session, put together. Owns which there are; each has a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

from toolwright.clock import Clock
from toolwright.session.keyvalue import KeyValue, KeyValueStore
from toolwright.session.store import Marker, Quotas
from toolwright.tools.clients import CatalogueClient


class ServiceStores(Protocol):
    """The rows of every service, in one database."""

    @property
    def kv(self) -> KeyValueStore: ...


class SessionServices:
    """The clients of one session, for its host or for one attempt of a call, each made when it is first asked for.

    `guard` wraps the stores: for a call, so that a fault of the store stops it and is never taken for the tool's.
    """

    def __init__(
        self,
        stores: ServiceStores,
        session: str,
        marker: Marker,
        clock: Clock,
        quotas: Quotas,
        guard: Callable[[Any], Any] = lambda store: store,
        catalogue: Callable[[KeyValue], CatalogueClient] | None = None,
    ) -> None:
        self._stores = stores
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quotas = quotas
        self._guard = guard
        self._catalogue = catalogue

    @cached_property
    def kv(self) -> KeyValue:
        """What the session keeps under names it chose."""
        return KeyValue(self._guard(self._stores.kv), self._session, self._marker, self._clock, self._quotas.key_values)

    @cached_property
    def catalogue(self) -> CatalogueClient:
        """The tools of the session, and which of them the model sees in full."""
        assert self._catalogue is not None
        return self._catalogue(self.kv)
