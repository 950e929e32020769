"""Connections. Owns which providers a session is connected to, and the verbs a store must offer for it.

What a connection needs to be used, a token for one, is a secret and kept there; `detail` is what tools and models may
read of it.
"""

from __future__ import annotations

import builtins
from typing import Any, Protocol

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.session.services.quotas import require_name, to_json
from toolwright.tools.service_protocols import Connection

MOST = 1_000
"""How many providers a session may be connected to."""
DETAIL_BYTES = 64 * 1024


class ConnectionStore(Protocol):
    """What a database must offer."""

    async def set_connection(self, session: str, provider: str, detail: bytes, at: float, most: int) -> None:
        """Connect, in place of a connection that was there.

        Raises:
            ServiceError: there are `most` others, with code "quota".
        """
        ...

    async def get_connection(self, session: str, provider: str) -> tuple[bytes, float] | None: ...

    async def list_connections(self, session: str) -> list[tuple[str, bytes, float]]:
        """In the order of their providers."""
        ...

    async def delete_connection(self, session: str, provider: str) -> bool: ...


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


def require_provider(provider: Any) -> str:
    """The name of a provider.

    Raises:
        ServiceError: it is not usable.
    """
    return require_name("provider", provider)


def to_detail(provider: str, detail: Any) -> bytes:
    """What is kept of a connection, as JSON.

    Raises:
        ServiceError: it has no JSON form, or is too long.
    """
    data = to_json(f"detail of the connection to {provider!r}", detail)
    if len(data) > DETAIL_BYTES:
        raise ServiceError(
            f"The detail of the connection to {provider!r} has {len(data)} bytes; use at most {DETAIL_BYTES}", "quota"
        )
    return data
