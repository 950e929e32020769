"""Connections of clients, as uvicorn has them. Owns the settings of its server: what a connection may hold up, and for
how long, before a request is there."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolwright.http.access.limits import Limits


def server_config(app: ASGIApp, limits: Limits | None = None, **options: Any) -> uvicorn.Config:
    """The settings of a uvicorn server under limits. `options` are others of `uvicorn.Config`."""
    limits = limits or Limits()
    settings: dict[str, Any] = {
        "http": _protocol(limits),
        "ws": "none",
        "h11_max_incomplete_event_size": limits.header_bytes,
        "limit_concurrency": limits.connections,
        "timeout_keep_alive": limits.idle_seconds,
        "backlog": 2048,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # anybody could say in them to come from elsewhere
        "log_config": None,
    }
    return uvicorn.Config(app, **{**settings, **options})


def _protocol(limits: Limits) -> type[H11Protocol]:
    class BoundedConnection(H11Protocol):
        """A connection that is closed when the headers of a request do not come. uvicorn alone would wait for ever for
        a client that connects and says nothing, or that sends a header now and then."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()

        def _watch(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()  # a request is here: from now on the service has its own limits
            elif self._waiting is None and not self.transport.is_closing():
                self._waiting = self.loop.call_later(limits.header_seconds, self._give_up)

        def _give_up(self) -> None:
            self._waiting = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _stop(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    return BoundedConnection
