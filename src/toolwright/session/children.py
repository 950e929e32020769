"""A tool's access to sessions: its own, and those it opened. Owns that it reaches no other, and no way around its
policy.

A child session belongs to the tool, as a session belongs to the host: the tool runs tools and stores data there. It is
named by the call that opened it, so that the call finds it again after a crash, and no other call does. It has the
permissions of that call's batch, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.session.services.quotas import require_name
from toolwright.session.services.session_services import SessionServices
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition

Calls = Iterable[ToolCall | Mapping[str, Any]]
MOST = 100
"""How many child sessions one call may open: each has quotas of its own."""
AGENT = "@agent"
"""The name of the child session of a call that is a sub-agent."""
SENDERS = ("user", "assistant", "tool")
"""The senders that a tool may use in a session that it opened; "runtime" is reserved for the runtime."""


class SessionState:
    """A session as a tool sees it: its id, its tools, and its services."""

    def __init__(
        self, session_id: str, definitions: Callable[[], list[ToolDefinition]], services: SessionServices
    ) -> None:
        self.id = session_id
        self._definitions = definitions
        self._services = services

    @property
    def tools(self) -> list[str]:
        """The names of its tools, in order."""
        return [definition.name for definition in self.definitions]

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The definitions of its tools, by name."""
        return self._definitions()

    def __getattr__(self, name: str) -> Any:
        """A service of the session: `files`, `kv` and the others, as on `ToolContext`."""
        if name.startswith("_") or name == "session":
            raise AttributeError(f"A session has no {name!r}")
        return getattr(self._services, name)


def is_of_agent(session: str) -> bool:
    """True for the session of a sub-agent, and for sessions below it: only its app has its tools."""
    return f"/{AGENT}-" in session


def child_id(call: CallKey, name: str, opened: int) -> str:
    """The id of the child session that a call opens under a name: the same each time, and no other call's.

    Raises:
        ServiceError: the name is not usable, or the call has opened as many as it may.
    """
    require_name("name of a child session", name, 64)
    if opened >= MOST:
        raise ServiceError(f"A call may open {MOST} child sessions, and this one has; use those it has", "quota")
    return f"{call.session}/{name}-{jsonx.digest(jsonx.encode([*call, name]))[:24]}"
