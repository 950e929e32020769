"""Connections. Owns which providers a session is connected to, and the verbs a store must offer for it.

The credentials of a connection, such as a token, are secrets and stored there; `detail` is data that tools and models
may read.
"""

from __future__ import annotations

import builtins

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.session.services.quotas import require_name, to_json
from toolwright.stores.contracts.sessions import ConnectionStore
from toolwright.tools.service_protocols import Connection

MOST = 1_000
"""How many providers a session may be connected to."""
DETAIL_BYTES = 64 * 1024


class Connections:
    """The connections of one session, to be read; its host alone connects."""

    def __init__(self, store: ConnectionStore, session: str) -> None:
        self._store = store
        self._session = session

    async def get(self, provider: str) -> Connection | None:
        """The connection to a provider, if there is one."""
        row = await self._store.get_connection(self._session, require_provider(provider))
        return None if row is None else Connection(provider, jsonx.decode(row[0]), row[1])

    async def list(self) -> builtins.list[Connection]:
        """All of them, by provider."""
        rows = await self._store.list_connections(self._session)
        return [Connection(provider, jsonx.decode(detail), at) for provider, detail, at in rows]


def require_provider(provider: object) -> str:
    """The name of a provider.

    Raises:
        ServiceError: it is not usable.
    """
    return require_name("provider", provider)


def to_detail(provider: str, detail: object) -> bytes:
    """The stored detail of a connection, as JSON.

    Raises:
        ServiceError: it has no JSON form, or is too long.
    """
    data = to_json(f"detail of the connection to {provider!r}", detail)
    if len(data) > DETAIL_BYTES:
        raise ServiceError(
            f"The detail of the connection to {provider!r} has {len(data)} bytes; use at most {DETAIL_BYTES}", "quota"
        )
    return data
