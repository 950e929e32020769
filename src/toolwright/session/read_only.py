"""A session that can only be read. Owns which verbs a tool's prepare step has; it has none that changes anything.

A prepare step runs before the policy decides about its call, so it must not be able to do what the policy may refuse.
Secrets are not part of it.
"""

from __future__ import annotations

from typing import Protocol

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


class ReadableSession(Protocol):
    """What a read-only view needs of its session."""

    @property
    def id(self) -> str: ...

    @property
    def details(self) -> DetailsClient: ...

    @property
    def files(self) -> FilesClient: ...

    @property
    def kv(self) -> KeyValueClient: ...

    @property
    def messages(self) -> MessagesClient: ...

    def definitions(self) -> list[ToolDefinition]: ...


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

    __slots__ = ("_session",)

    def __init__(self, session: ReadableSession) -> None:
        self._session = session

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._session.id

    @property
    def tools(self) -> list[str]:
        """The names of its tools, in order."""
        return [definition.name for definition in self.definitions]

    @property
    def definitions(self) -> list[ToolDefinition]:
        """What its tools say of themselves, by name."""
        return self._session.definitions()

    @property
    def details(self) -> DetailsReader:
        """Its title and locale, to be read."""
        return ReadOnlyDetails(self._session.details)

    @property
    def files(self) -> FilesReader:
        """Its files, to be read."""
        return ReadOnlyFiles(self._session.files)

    @property
    def kv(self) -> KeyValueReader:
        """What it keeps under names, to be read."""
        return ReadOnlyKeyValue(self._session.kv)

    @property
    def messages(self) -> MessagesReader:
        """Its conversation, to be read."""
        return ReadOnlyMessages(self._session.messages)
