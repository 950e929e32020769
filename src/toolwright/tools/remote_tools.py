"""Tools that come from another program while a runtime is open, such as those of an MCP server. Owns the contract
between them and the runtime; does not own any protocol by which they are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from toolwright.clock import Clock
from toolwright.plain_data import plain_data
from toolwright.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from toolwright.tools.service_protocols import KeyValueClient, SecretsClient


class RemoteStatus(Struct, frozen=True, kw_only=True):
    """How it stands with remote tools, such as those of an MCP server."""

    name: str
    """The name of the server."""
    state: Literal["connecting", "connected", "waiting", "closed"]
    """"waiting" while the next attempt to connect is put off."""
    error: str | None = None
    """Why it is not connected, or was not the last time."""
    protocol: str | None = None
    """The revision of the protocol that was agreed on."""
    tools: tuple[str, ...] = ()
    """The names of its tools in the registry."""
    left_out: dict[str, str] = {}
    """Its tools that are not in the registry, each with the reason."""
    changed: tuple[str, ...] = ()
    """Tools whose description, schema or hints are not what they were when they were first seen."""
    pins: dict[str, str] = {}
    """A hash of each tool as the server describes it, by the server's names."""
    connected: int = 0
    """How often it was connected."""

    def to_json(self) -> dict[str, Any]:
        """The status as plain data."""
        return plain_data(self)


class RemoteHost(Protocol):
    """What a runtime gives to remote tools while it is open."""

    @property
    def registry(self) -> ToolRegistry:
        """The registry of the runtime. Remote tools add theirs here, and take them away again."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def durable(self) -> bool:
        """Whether what is stored outlives the process."""
        ...

    def secrets(self, session: str) -> SecretsClient:
        """The secrets of a session."""
        ...

    def key_values(self, session: str) -> KeyValueClient:
        """The named values of a session."""
        ...


class OpenRemoteTools(Protocol):
    """Remote tools whose runtime is open."""

    @property
    def status(self) -> RemoteStatus: ...

    async def ready(self) -> None:
        """Wait until their tools are registered, or until it is known that this takes longer. Never raises."""
        ...

    async def close(self) -> None:
        """End the connection, and everything that was started for it."""
        ...


@runtime_checkable
class RemoteTools(Protocol):
    """An object that may stand among the tools of an app: its tools are there while it is connected."""

    @property
    def name(self) -> str: ...

    def open_tools(self, host: RemoteHost) -> OpenRemoteTools:
        """Begin to connect, on the running loop, and return at once.

        Raises:
            MissingRequirement: a library is not installed.
        """
        ...
