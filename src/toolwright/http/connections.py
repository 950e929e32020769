"""Connections of clients, as uvicorn has them. Owns the settings of its server: what a connection may hold up, and for
how long, before a request is there and after its answer is written."""

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
        """A connection that is closed when the headers of a request do not come, or its client does not take what it
        was sent. uvicorn alone would wait for ever for a client that connects and says nothing, or that sends a header
        now and then, and would keep an answer for ever that nobody reads."""

        _waiting: asyncio.TimerHandle | None = None
        _looking: asyncio.TimerHandle | None = None
        _unsent = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()
            self._looking = self.loop.call_later(limits.send_seconds, self._look)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()
            if self._looking is not None:
                self._looking.cancel()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._unsent = 0

        def _look(self) -> None:
            """Give the connection up where its client took too little since the last look. Only bytes that no others
            are added to are compared: those of an answer that waits for the client, or of a connection that closes."""
            unsent = self.transport.get_write_buffer_size()
            if not self.flow.write_paused and not self.transport.is_closing():
                unsent = 0
            if unsent and self._unsent and self._unsent - unsent < limits.send_seconds * limits.body_rate:
                self.transport.abort()
                return
            self._unsent = unsent
            self._looking = self.loop.call_later(limits.send_seconds, self._look)

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
