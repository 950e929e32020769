"""What a tool sees of its session as a whole: the session, its tools, its model. Owns the protocols of these.

What the session keeps is in `services`, and what it starts in the background in `background`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from toolwright.plain_data import plain_data

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
    """A session that can only be read: what the prepare step of a tool sees of it, as `call.view`."""

    @property
    def id(self) -> str: ...

    @property
    def tools(self) -> builtins.list[str]:
        """The names of its tools, in order."""
        ...

    @property
    def definitions(self) -> builtins.list[ToolDefinition]:
        """What its tools say of themselves, by name."""
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
    """What a tool sees of a session: its own, and in the form of `ChildSessionClient` one that it opened."""

    id: str

    @property
    def tools(self) -> builtins.list[str]:
        """The names of its tools, in order."""
        ...

    @property
    def definitions(self) -> builtins.list[ToolDefinition]:
        """What its tools say of themselves, by name."""
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
    """A session that a call opened: what the call may do, it may do there, and no more."""

    async def run_batch(
        self, calls: Iterable[ToolCall | Mapping[str, Any]], *, scope: str = ""
    ) -> builtins.list[ToolOutcome]:
        """Run tools in it: one outcome each, in order."""
        ...

    async def call(self, name: str, /, **arguments: Any) -> ToolOutcome:
        """Run one tool in it."""
        ...

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing of it runs, or what runs only waits for something outside; False after `timeout` seconds.

        Raises:
            ToolwrightError: the call that waits is part of it, and would wait for itself.
        """
        ...

    async def close(self, reason: str = ...) -> None:
        """Cancel what runs in it, wait until that has stopped, and start nothing in it any more. What it keeps stays.

        Raises:
            ToolwrightError: the call that closes it is part of it.
        """
        ...


class CatalogueClient(Protocol):
    """The tools of the session. One that is deferred is shown to the model as a stub, until it is revealed."""

    async def list(self) -> builtins.list[ToolDefinition]:
        """All of them, by name."""
        ...

    async def deferred(self) -> builtins.list[ToolDefinition]:
        """Those that are or were deferred, by name, in full."""
        ...

    async def reveal(self, names: Iterable[str]) -> None:
        """Show the model these in full from now on, also after a restart."""
        ...


class ModelRequest(Struct, frozen=True):
    """What a tool asks the model of its session. `options` is what the tool gave beside the messages.

    `call_id` and `tool` say which call asks, so that its tokens can be counted as its own; `scope` is its batch's.
    """

    session: str
    messages: list[Any]
    options: dict[str, Any]
    call_id: str = ""
    tool: str = ""
    scope: str = ""

    def to_json(self) -> dict[str, Any]:
        """The request as plain data."""
        return plain_data(self)


class ModelClient(Protocol):
    """The model that tools may ask. What it raises as a `ToolError` with `retry` is not remembered; the rest is."""

    async def complete(self, request: ModelRequest) -> Any:
        """The answer, as something that has a JSON form."""
        ...
