"""Named values. Owns the key-values of a session, as JSON, and the verbs a store must offer for them."""

from __future__ import annotations

from typing import Any

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.session.services.quotas import Marker, require_name, to_json
from toolwright.stores.contracts.sessions import KeyValueStore, Quota
from toolwright.tools.service_protocols import KeyInfo


class KeyValue:
    """The key-value client of one session, for its host or for one attempt of a call."""

    def __init__(self, store: KeyValueStore, session: str, marker: Marker, clock: Clock, quota: Quota) -> None:
        self._store = store
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quota

    async def get(self, key: str, default: object = None) -> Any:
        """The value of a key, or `default`."""
        value = await self._store.get_value(self._session, require_name("key", key))
        return default if value is None else jsonx.decode(value)

    async def set(self, key: str, value: object) -> None:
        """Write a value that has a JSON form, replacing the old one.

        Raises:
            ServiceError: the key or the value is not usable, or the session's quota is used up.
        """
        require_name("key", key)
        data = to_json(f"value of key {key!r}", value)
        mark = self._marker.mark("kv.set", key, jsonx.digest(data))
        await self._store.set_value(self._session, key, data, self._clock.now(), self._quota, mark)

    async def delete(self, key: str) -> bool:
        """Remove a key; False when there was none."""
        mark = self._marker.mark("kv.delete", require_name("key", key))
        return await self._store.delete_value(self._session, key, mark)

    async def list(self, prefix: str = "") -> list[KeyInfo]:
        """The keys that begin with `prefix`, in order."""
        return await self._store.list_keys(self._session, prefix)
