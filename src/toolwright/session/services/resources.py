"""Resources. Owns the records of things that a session uses or made outside, by id, and the verbs a store must offer
for them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.errors import ServiceError
from toolwright.session.services.quotas import Marker, require_name, to_json
from toolwright.stores.contracts.sessions import Quota, ResourceRow, ResourceStore
from toolwright.tools.service_protocols import Resource


class Resources:
    """The resources client of one session, for its host or for one attempt of a call."""

    def __init__(self, store: ResourceStore, session: str, marker: Marker, clock: Clock, quota: Quota) -> None:
        self._store = store
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quota

    async def upsert(
        self, id: str, *, kind: str, name: str, status: str, metadata: Mapping[str, Any] | None = None
    ) -> Resource:
        """Write all of a resource, replacing the old one of its id.

        Raises:
            ServiceError: something of it is not usable, or the session's quota is used up.
        """
        for what, text in (("id", id), ("kind", kind), ("name", name), ("status", status)):
            require_name(f"{what} of a resource", text)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ServiceError(f"The metadata {metadata!r:.200} of resource {id!r} is not usable; use a mapping")
        data = to_json(f"metadata of resource {id!r}", {} if metadata is None else dict(metadata))
        mark = self._marker.mark("resources.upsert", id, kind, name, status, jsonx.digest(data))
        created, updated = await self._store.upsert_resource(
            self._session, id, kind, name, status, data, self._clock.now(), self._quota, mark
        )
        return Resource(id, kind, name, status, jsonx.decode(data), created, updated)

    async def update_status(self, id: str, status: str) -> Resource | None:
        """Change the status of a resource, and not its kind, name and metadata. None when there is no such resource.

        Raises:
            ServiceError: the status is not usable, or the session's quota is used up.
        """
        require_name("id of a resource", id)
        require_name("status of a resource", status)
        mark = self._marker.mark("resources.update_status", id, status)
        now = self._clock.now()
        row = await self._store.set_resource_status(self._session, id, status, now, self._quota, mark)
        return None if row is None else _resource(row)

    async def get(self, id: str) -> Resource | None:
        """The resource of an id, if there is one."""
        row = await self._store.get_resource(self._session, require_name("id of a resource", id))
        return None if row is None else _resource(row)

    async def list(self, *, kind: str | None = None, status: str | None = None) -> builtins.list[Resource]:
        """The resources of a kind and a status, or of any, by id."""
        for what, text in (("kind", kind), ("status", status)):
            if text is not None:
                require_name(f"{what} of a resource", text)
        return [_resource(row) for row in await self._store.list_resources(self._session, kind, status)]

    async def delete(self, id: str) -> bool:
        """Forget a resource; False when there was none."""
        mark = self._marker.mark("resources.delete", require_name("id of a resource", id))
        return await self._store.delete_resource(self._session, id, mark)


def _resource(row: ResourceRow) -> Resource:
    id, kind, name, status, metadata, created, updated = row
    return Resource(id, kind, name, status, jsonx.decode(metadata), created, updated)
