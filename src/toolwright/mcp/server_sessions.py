"""Which session the calls of an MCP client belong to. Owns that choice, and opening the app that is served.

A session is the border between clients: what belongs to it, such as its files, its secrets and its idempotency keys, is
shared by every client that has it. By default, clients share a session unless the server knows by their tokens that
they are different.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from mcp.server.auth.middleware.auth_context import get_access_token

from toolwright.app import App
from toolwright.errors import ToolwrightError
from toolwright.mcp.server_request import Client, ClientRequest
from toolwright.runtime.runtime import Runtime, runtime_of
from toolwright.runtime.used_sessions import used_session
from toolwright.session.session import Session
from toolwright.stores.contracts.store import Store

ChooseSession: TypeAlias = Callable[[Client], str]
"""Gives the id of the session for a client."""


class NoSession(ToolwrightError):
    """A client has no session on this server; the message says why, and is for the client."""


SHARED = "mcp"
"""The session of all clients that nothing tells apart."""


def per_principal(client: Client) -> str:
    """A session for each client and user that the tokens of the server tell apart, and one for all others.

    It is the same after a new connection and after a restart, so that idempotency keys continue to work.
    """
    return SHARED if client.principal is None else f"{SHARED}:{client.principal}"


def per_connection(client: Client) -> str:
    """A session for each connection: clients share nothing, and a key works until the connection ends.

    Raises:
        NoSession: there are no connections over HTTP at 2026-07-28.
    """
    if client.connection is None:
        raise NoSession(
            f"This server has a session for each connection, and revision {client.revision} has no connections over "
            "HTTP; connect with revision 2025-11-25, or over stdio"
        )
    return f"{SHARED}:{client.connection}"


class ServedSessions:
    """The runtime and the sessions of a server. An app is opened with the first connection, and closed after the
    last."""

    def __init__(
        self, target: App | Runtime | Session, choose: str | ChooseSession | None, store: str | Path | Store
    ) -> None:
        if isinstance(target, Session) and choose is not None:
            raise ToolwrightError("server(session) serves that session; leave out session=, or give the runtime")
        self._target = target
        self._store = store
        self._choose = _chooser(choose)
        self._runtime: Runtime | None = None
        self._last: Session | None = None
        self._users = 0
        self._lock = asyncio.Lock()
        if isinstance(target, Runtime):
            self._runtime = target
        elif isinstance(target, Session):
            self._runtime = runtime_of(target)
        elif not isinstance(target, App):
            raise ToolwrightError(f"server({target!r:.100}) cannot be served; give an App, a Runtime or a Session")

    @property
    def runtime(self) -> Runtime:
        """The runtime that is served."""
        if self._runtime is None:
            raise ToolwrightError("The server does not run; its app is opened when it does")
        return self._runtime

    async def enter(self) -> Runtime:
        """Open the app, unless it is open already."""
        async with self._lock:
            self._users += 1
            if self._runtime is None:
                assert isinstance(self._target, App)
                try:
                    self._runtime = await open_served(self._target, self._store)
                except BaseException:
                    self._users -= 1
                    raise
            return self._runtime

    async def leave(self) -> None:
        """Close the app after its last user. A runtime that was given stays open."""
        async with self._lock:
            self._users -= 1
            if self._users == 0 and isinstance(self._target, App) and self._runtime is not None:
                runtime, self._runtime, self._last = self._runtime, None, None
                await runtime.close()

    def session_of(self, request: ClientRequest) -> Session:
        """The session of the client of a request.

        Raises:
            NoSession: it has none.
        """
        if isinstance(self._target, Session):
            return self._target
        choose = self._choose
        if isinstance(choose, str):
            id = choose
        elif choose is per_principal and get_access_token() is None:  # Most servers check no tokens.
            id = SHARED
        else:
            id = choose(request.client)
        # Most requests are for the same session as the one before.
        if self._last is None or self._last.id != id:
            self._last = used_session(self.runtime, id)
        return self._last

    @property
    def any_session(self) -> Session | None:
        """The session of all clients, where there is one."""
        if isinstance(self._target, Session):
            return self._target
        return self.runtime.session(self._choose) if isinstance(self._choose, str) else None


async def open_served(app: App, store: str | Path | Store) -> Runtime:
    """Open an app for a server: with a worker if it has tools for the background, so that tasks which a crash cut off
    continue before a client asks for them."""
    background = any(tool.definition.hints.supports_background for tool in app.catalogue().snapshot().values())
    return await app.open(store, worker=True) if background else await app.open(store)


def _chooser(choose: str | ChooseSession | None) -> str | ChooseSession:
    if choose is None:
        return per_principal
    if isinstance(choose, str) or callable(choose):
        return choose
    raise ToolwrightError(f"session={choose!r:.100} is not usable; give an id, or a function from a Client to an id")
