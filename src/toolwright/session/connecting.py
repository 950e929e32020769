"""Connecting a session to providers. Owns what its host says of that, and telling the calls that wait for it."""

from __future__ import annotations

import contextlib
from typing import Any

from toolwright import jsonx
from toolwright.calls.suspend.connection_wait import provider_of
from toolwright.errors import KeyRefused
from toolwright.session.core import Belongings
from toolwright.session.services.connections import MOST, require_provider, to_detail
from toolwright.stores.contracts.waits import Resolution
from toolwright.tools.service_protocols import Connection


class Connecting(Belongings):
    """The part of a session that is connected."""

    async def connect(self, provider: str, *, detail: Any = None) -> Connection:
        """Say that the session is connected to a provider. Calls that wait for it go on, in every process.

        A call that ended for want of the connection is run again when it is asked for again.

        Args:
            provider: its name, as tools give it in `ConnectionRequired`.
            detail: what tools may read of the connection, as JSON. A token belongs among the secrets.

        Raises:
            ServiceError: one of the two is not usable.
        """
        self._shared.require_open()
        data, now = to_detail(require_provider(provider), detail), self._shared.clock.now()
        await self._shared.stores().connections.set_connection(self.id, provider, data, now, MOST)
        await self._tell_connected(provider)
        return Connection(provider, jsonx.decode(data), now)

    async def disconnect(self, provider: str) -> bool:
        """Say that the session is no longer connected to a provider; False when it was not."""
        self._shared.require_open()
        require_provider(provider)
        return await self._shared.stores().connections.delete_connection(self.id, provider)

    async def connections(self) -> list[Connection]:
        """The providers that the session is connected to, by name."""
        return await self._services.connections.list()

    async def connections_changed(self) -> None:
        """Look at the connections anew: they came, or went, with the session as a whole."""
        connected = {connection.provider for connection in await self.connections()}
        for provider in connected:
            await self._tell_connected(provider)

    async def _tell_connected(self, provider: str) -> None:
        effects = self._shared.effects
        for wait in await effects.waits.waiting(self.id, ("connection",)):
            if provider_of(wait.key) == provider:
                with contextlib.suppress(KeyRefused):  # its call ended meanwhile
                    await effects.resolve(wait.key, Resolution("ok", self._shared.clock.now()))

    async def _connected_since(self, provider: str) -> float | None:
        found = await self._shared.stores().connections.get_connection(self.id, provider)
        return None if found is None else found[1]
