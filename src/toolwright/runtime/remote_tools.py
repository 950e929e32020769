"""The remote tools of an opened app and of its sub-agents. Owns opening them with the runtime and closing them with it;
does not own how they are reached."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from toolwright.app_options import AppSettings
from toolwright.clock import Clock
from toolwright.log_fields import log_fields
from toolwright.runtime.capabilities import Arranged
from toolwright.session.open_sessions import OpenSessions
from toolwright.tools.registry import ToolRegistry
from toolwright.tools.remote_tools import OpenRemoteTools, RemoteStatus
from toolwright.tools.service_protocols import KeyValueClient, SecretsClient

log = logging.getLogger("toolwright.runtime")


@dataclass(frozen=True, slots=True)
class SessionsHost:
    """`RemoteHost` over the sessions of a runtime."""

    registry: ToolRegistry
    clock: Clock
    durable: bool
    sessions: OpenSessions

    def secrets(self, session: str) -> SecretsClient:
        return self.sessions.session(session, None, None, None).secrets

    def key_values(self, session: str) -> KeyValueClient:
        return self.sessions.session(session, None, None, None).kv


class RemoteConnections:
    """The connections of a runtime to its remote tools."""

    def __init__(self, clock: Clock, durable: bool) -> None:
        self._clock = clock
        self._durable = durable
        self._open: list[OpenRemoteTools] = []

    async def open(self, app: AppSettings, arranged: Arranged, sessions: OpenSessions) -> None:
        """Connect to the remote tools of an app, all at once. One that cannot be reached does not prevent the opening:
        its tools come when it does.

        Raises:
            MissingRequirement: a library is not installed.
        """
        if not app.remote_tools:
            return
        host = SessionsHost(arranged.own, self._clock, self._durable, sessions)
        opened = []
        for remote in app.remote_tools:
            opened.append(remote.open_tools(host))
            self._open.append(opened[-1])  # noted at once: what was begun is closed, also when the next one is refused
        await asyncio.gather(*(one.ready() for one in opened))

    def status(self) -> list[RemoteStatus]:
        """How it stands with each of them, in the order of the app."""
        return [one.status for one in self._open]

    async def close(self) -> None:
        """Close all of them. An error of one is logged."""
        closing, self._open = self._open, []
        for result in await asyncio.gather(*(one.close() for one in closing), return_exceptions=True):
            if isinstance(result, Exception):
                log.error(
                    "Remote tools could not be closed", exc_info=result, extra=log_fields("remote_tools.not_closed")
                )
