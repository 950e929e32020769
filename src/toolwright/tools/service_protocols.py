"""The services of a session for its tools. Owns their protocols, and the values they return.

They are the same for tools (`ctx.files`) and for the host (`session.files`). Instants are seconds since the epoch. A
refusal is a `ServiceError`; a change by a call is made once, across attempts and crashes.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from toolwright.plain_data import plain_data

Sender = Literal["user", "assistant", "tool", "runtime"]


class FileInfo(Struct, frozen=True, gc=False):
    """A file or directory. `hash` is the SHA-256 of a file's content, in hexadecimal."""

    path: str
    directory: bool
    size: int
    hash: str | None
    readonly: bool
    created_at: float
    updated_at: float

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def to_json(self) -> dict[str, Any]:
        """The file as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class GrepMatch(Struct, frozen=True):
    """A line that matches: its number, from 1, and its text."""

    path: str
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        """The line as plain data."""
        return plain_data(self)


class FilesReader(Protocol):
    """The files of a session, to be read: absolute paths, of which `/workspace` is another name for the root."""

    async def read(self, path: str) -> str:
        """The text of a file; a file that is not UTF-8 is refused, and `read_bytes` reads it."""
        ...

    async def read_bytes(self, path: str) -> bytes: ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """The content in pieces, for files that are too large to hold in memory."""
        ...

    async def list(self, path: str = "/") -> builtins.list[FileInfo]:
        """The entries of a directory, by name."""
        ...

    async def stat(self, path: str) -> FileInfo | None: ...

    async def grep(
        self, pattern: str, path: str = "/", *, glob: str | None = None, limit: int = 1_000
    ) -> builtins.list[GrepMatch]:
        """The lines that match a regular expression, in the files below a path."""
        ...


class FilesClient(FilesReader, Protocol):
    """The files of a session."""

    async def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo:
        """Write a file, and make the directories above it.

        With `expected`, only if its content has this hash now; "" stands for a missing file. `readonly` sets the flag
        that prevents tools from changing it.
        """
        ...

    async def write_stream(self, path: str, content: AsyncIterable[bytes]) -> FileInfo: ...

    async def make_directory(self, path: str) -> FileInfo: ...

    async def delete(self, path: str, recursive: bool = False) -> int:
        """Remove a file or directory, and return how many entries that were; 0 when there was none."""
        ...


class SessionDetails(Struct, frozen=True):
    """The title of a session, and its language tag, such as "pt-BR"; None where not set."""

    title: str | None = None
    locale: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The details as plain data."""
        return plain_data(self)


class DetailsReader(Protocol):
    """The title and the locale of a session, to be read."""

    async def get(self) -> SessionDetails: ...


class DetailsClient(DetailsReader, Protocol):
    """The title and the locale of a session."""

    async def set(self, *, title: str | None = None, locale: str | None = None) -> SessionDetails:
        """Set the given fields; empty text removes one."""
        ...


class KeyInfo(Struct, frozen=True):
    """A key or the name of a secret, and when it was first and last written."""

    key: str
    created_at: float
    updated_at: float

    def to_json(self) -> dict[str, Any]:
        """The key as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class KeyValueReader(Protocol):
    """Named values of the session, to be read."""

    async def get(self, key: str, default: object = None) -> Any: ...

    async def list(self, prefix: str = "") -> builtins.list[KeyInfo]: ...


class KeyValueClient(KeyValueReader, Protocol):
    """Named values of the session, as JSON."""

    async def set(self, key: str, value: object) -> None: ...

    async def delete(self, key: str) -> bool: ...


class SecretsClient(Protocol):
    """Values that tools may use and models never see. They are redacted from whatever a tool gives."""

    async def get(self, name: str) -> str | None: ...

    async def set(self, name: str, value: str) -> None: ...

    async def delete(self, name: str) -> bool: ...

    async def list(self) -> builtins.list[KeyInfo]:
        """Names and instants, never values."""
        ...

    async def hides(self, text: str) -> bool:
        """True when a text has a secret of the session in it, in any of its usual encodings."""
        ...


class Message(Struct, frozen=True):
    """One message of a session. `number` rises by one from each to the next, from 1."""

    number: int
    sender: Sender
    content: Any
    metadata: dict[str, Any]
    at: float

    def to_json(self) -> dict[str, Any]:
        """The message as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class MessagesReader(Protocol):
    """The conversation of a session, to be read."""

    async def list(self, *, after: int = 0, limit: int | None = None) -> builtins.list[Message]: ...


class MessagesClient(MessagesReader, Protocol):
    """The conversation of a session."""

    async def append(
        self, content: object, *, sender: Sender = "tool", metadata: Mapping[str, Any] | None = None
    ) -> Message: ...

    async def extend(self, messages: Iterable[Mapping[str, Any]]) -> builtins.list[Message]:
        """Add several messages: all of them, or none. Each has `content`, and optionally `sender` and `metadata`."""
        ...


class AttachmentInfo(Struct, frozen=True):
    """Content stored under its SHA-256."""

    hash: str
    name: str
    media_type: str
    size: int
    at: float

    def to_json(self) -> dict[str, Any]:
        """The facts about the content as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class AttachmentsClient(Protocol):
    """Content that travels with messages and outcomes."""

    async def put(self, content: bytes, *, name: str, media_type: str) -> AttachmentInfo: ...

    async def get(self, hash: str) -> bytes | None: ...

    async def list(self) -> builtins.list[AttachmentInfo]: ...

    async def delete(self, hash: str) -> bool: ...


class Resource(Struct, frozen=True):
    """Something outside that the session uses or made: a browser, a run, a deployment."""

    id: str
    kind: str
    name: str
    status: str
    metadata: dict[str, Any]
    created_at: float
    updated_at: float

    def to_json(self) -> dict[str, Any]:
        """The resource as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class ResourcesClient(Protocol):
    """The resources that the session uses or made outside."""

    async def upsert(
        self, id: str, *, kind: str, name: str, status: str, metadata: Mapping[str, Any] | None = None
    ) -> Resource: ...

    async def update_status(self, id: str, status: str) -> Resource | None:
        """Change the status of a resource, and nothing else. None when there is no such resource."""
        ...

    async def get(self, id: str) -> Resource | None: ...

    async def list(self, *, kind: str | None = None, status: str | None = None) -> builtins.list[Resource]: ...

    async def delete(self, id: str) -> bool: ...


class Connection(Struct, frozen=True):
    """A provider that the session is connected to. `detail` is data that tools may read; it holds no secret."""

    provider: str
    detail: Any
    connected_at: float

    def to_json(self) -> dict[str, Any]:
        """The connection as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class ConnectionsClient(Protocol):
    """The providers that the session is connected to. Tools read them; the host connects."""

    async def get(self, provider: str) -> Connection | None: ...

    async def list(self) -> builtins.list[Connection]: ...
