"""A session that can only be read. Owns which verbs a tool's prepare step has; it has none that changes anything.

A prepare step runs before the policy decides about its call, so it must not be able to do anything that the policy may
refuse. Secrets are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable

from toolwright.session.services.session_services import SessionServices
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.service_protocols import (
    DetailsClient,
    DetailsReader,
    FilesClient,
    FilesReader,
    KeyValueClient,
    KeyValueReader,
    MessagesClient,
    MessagesReader,
)


class ReadOnlyFiles:
    """The verbs of `FilesReader` over the files of a session."""

    __slots__ = ("grep", "list", "read", "read_bytes", "stat", "stream")

    def __init__(self, files: FilesClient) -> None:
        self.grep = files.grep
        self.list = files.list
        self.read = files.read
        self.read_bytes = files.read_bytes
        self.stat = files.stat
        self.stream = files.stream


class ReadOnlyDetails:
    """The verb of `DetailsReader` over the details of a session."""

    __slots__ = ("get",)

    def __init__(self, details: DetailsClient) -> None:
        self.get = details.get


class ReadOnlyKeyValue:
    """The verbs of `KeyValueReader` over the keys of a session."""

    __slots__ = ("get", "list")

    def __init__(self, kv: KeyValueClient) -> None:
        self.get = kv.get
        self.list = kv.list


class ReadOnlyMessages:
    """The verbs of `MessagesReader` over the messages of a session."""

    __slots__ = ("list",)

    def __init__(self, messages: MessagesClient) -> None:
        self.list = messages.list


class ReadOnlySession:
    """`SessionView` of a session. Its parts are made when they are asked for: most prepare steps ask for none."""

    __slots__ = ("_definitions", "_services", "id")

    def __init__(
        self, session_id: str, definitions: Callable[[], list[ToolDefinition]], services: Callable[[], SessionServices]
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

    @property
    def details(self) -> DetailsReader:
        """Its title and locale, to be read."""
        return ReadOnlyDetails(self._services().details)

    @property
    def files(self) -> FilesReader:
        """Its files, to be read."""
        return ReadOnlyFiles(self._services().files)

    @property
    def kv(self) -> KeyValueReader:
        """Its named values, to be read."""
        return ReadOnlyKeyValue(self._services().kv)

    @property
    def messages(self) -> MessagesReader:
        """Its conversation, to be read."""
        return ReadOnlyMessages(self._services().messages)
