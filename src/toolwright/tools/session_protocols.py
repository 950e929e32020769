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
    from toolwright.tools.model import ModelClient
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
    from toolwright.tools.turn_protocols import Budget, TurnOutcome


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

    async def ask(
        self,
        message: str,
        *,
        tools: Iterable[Any] | None = None,
        model: str | ModelClient | None = None,
        budget: Budget | None = None,
        answer: object = None,
    ) -> TurnOutcome:
        """Run a turn in it, as a sub-agent of the call, and return its outcome once it has ended.

        The same question of a call that is run again after a crash is the same turn: it continues, and no model call
        is paid for twice. While the turn waits for something outside, so does the call.

        Args:
            message: the message to the model.
            tools: tools that the child session has from now on, in place of those of the session.
            model: the model that answers; by default that of the turn which the call is part of, or the app's.
            budget: how much the turn may use. It never uses more than the turn above has left.
            answer: a type for the `value` of the outcome, as for `session.ask`.

        Raises:
            TurnError: there is no model, sub-agents are nested too deeply, or something is not usable.
        """
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
