"""A tool's view of its session as a whole: the session and its tools. Owns the protocols of these.

The stored data of a session is in `service_protocols`, and its background work in `background_protocols`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolwright.tools.call import ToolCall
    from toolwright.tools.definition import ToolDefinition
    from toolwright.tools.outcome import ToolOutcome
    from toolwright.tools.service_protocols import (
        AttachmentsClient,
        ConnectionsClient,
        DetailsClient,
        DetailsReader,
        FilesClient,
        FilesReader,
        KeyValueClient,
        KeyValueReader,
        MessagesClient,
        MessagesReader,
        ResourcesClient,
        SecretsClient,
    )


class SessionView(Protocol):
    """A session that can only be read: the prepare step of a tool sees it as `call.view`."""

    @property
    def id(self) -> str: ...

    @property
    def tools(self) -> builtins.list[str]:
        """The names of its tools, in order."""
        ...

    @property
    def definitions(self) -> builtins.list[ToolDefinition]:
        """The definitions of its tools, by name."""
        ...

    @property
    def details(self) -> DetailsReader:
        """Its title and its locale."""
        ...

    @property
    def files(self) -> FilesReader: ...

    @property
    def kv(self) -> KeyValueReader: ...

    @property
    def messages(self) -> MessagesReader: ...


class SessionClient(Protocol):
    """A tool's view of a session: its own, and in the form of `ChildSessionClient` one that it opened."""

    id: str

    @property
    def tools(self) -> builtins.list[str]:
        """The names of its tools, in order."""
        ...

    @property
    def definitions(self) -> builtins.list[ToolDefinition]:
        """The definitions of its tools, by name."""
        ...

    @property
    def details(self) -> DetailsClient:
        """Its title and its locale."""
        ...

    @property
    def files(self) -> FilesClient: ...

    @property
    def kv(self) -> KeyValueClient: ...

    @property
    def secrets(self) -> SecretsClient: ...

    @property
    def messages(self) -> MessagesClient: ...

    @property
    def attachments(self) -> AttachmentsClient: ...

    @property
    def resources(self) -> ResourcesClient: ...

    @property
    def connections(self) -> ConnectionsClient: ...


class ChildSessionClient(SessionClient, Protocol):
    """A session that a call opened; it has at most the permissions of the call."""

    async def run_batch(
        self, calls: Iterable[ToolCall | Mapping[str, Any]], *, scope: str = ""
    ) -> builtins.list[ToolOutcome]:
        """Run tools in it: one outcome each, in order."""
        ...

    async def call(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Run one tool in it."""
        ...

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing in it runs, or only waits for something outside; False after `timeout` seconds.

        Raises:
            ToolwrightError: the call that waits is part of it, and would wait for itself.
        """
        ...

    async def close(self, reason: str = ...) -> None:
        """Cancel its running work, wait until that has stopped, and start nothing in it any more. Its stored data
        stays.

        Raises:
            ToolwrightError: the call that closes it is part of it.
        """
        ...


class CatalogueClient(Protocol):
    """The tools of the session. A deferred tool is shown to the model as a stub, until it is revealed."""

    async def list(self) -> builtins.list[ToolDefinition]:
        """All of them, by name."""
        ...

    async def deferred(self) -> builtins.list[ToolDefinition]:
        """Tools that are or were deferred, by name, in full."""
        ...

    async def reveal(self, names: Iterable[str]) -> None:
        """Show the model these in full from now on, also after a restart."""
        ...
