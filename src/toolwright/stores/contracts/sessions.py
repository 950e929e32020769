"""The contracts of session services: files, keys, secrets, messages, attachments, resources, connections.

Owns the verbs that a store must offer for each service and the values they take and give: marks, quotas, content. The
clients that a session hands out are in `session/services`; the sealing of secrets is in `session/secrets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, NamedTuple, Protocol

from msgspec import Struct

from toolwright.argument_checks import require_count, unusable
from toolwright.errors import ServiceError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.service_protocols import AttachmentInfo, FileInfo, KeyInfo, Sender


class Mark(Struct, frozen=True, gc=False):
    """The identity of a change by a call, so that it is made once, across attempts and crashes.

    A store writes the result of a marked change with its mark, in the same transaction: if the change is requested
    again, it returns that result and changes nothing.
    """

    call: CallKey
    label: str


class Quota(Struct, frozen=True, gc=False):
    """How much a session may store in one service. A store checks it in the transaction that would add to it.

    Raises:
        ToolwrightError: a number is no whole number, or less than 0.
    """

    entries: int
    bytes: int

    def __post_init__(self) -> None:
        require_count("entries of a quota", self.entries, 0)
        require_count("bytes of a quota", self.bytes, 0)

    def require(self, what: str, entries: int, size: int) -> None:
        """Refuse a change that would not fit; the numbers are those after the change.

        Raises:
            ServiceError: it would not, with code "quota".
        """
        if entries > self.entries:
            raise ServiceError(
                f"The session already has {self.entries} {what}, the maximum; delete some first", "quota"
            )
        if size > self.bytes:
            raise ServiceError(
                f"The session may store {self.bytes} bytes of {what}, and this would make {size}; delete some first",
                "quota",
            )

    def to_json(self) -> dict[str, Any]:
        """The quota as plain data."""
        return plain_data(self)


class Quotas(Struct, frozen=True, kw_only=True):
    """How much each session may store. Sizes in bytes.

    Raises:
        ToolwrightError: a value is no `Quota`, or `file_bytes` is no whole number from 0.
    """

    files: Quota = Quota(20_000, 512 * 1024 * 1024)
    file_bytes: int = 64 * 1024 * 1024
    key_values: Quota = Quota(10_000, 16 * 1024 * 1024)
    secrets: Quota = Quota(500, 1024 * 1024)
    messages: Quota = Quota(100_000, 256 * 1024 * 1024)
    attachments: Quota = Quota(5_000, 512 * 1024 * 1024)
    resources: Quota = Quota(5_000, 16 * 1024 * 1024)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given = getattr(self, name)
            if name == "file_bytes":
                require_count("quota file_bytes", given, 0)
            elif not isinstance(given, Quota):
                raise unusable(f"quota {name}", given, "Quota(entries=…, bytes=…)")

    def to_json(self) -> dict[str, Any]:
        """The quotas as plain data."""
        return plain_data(self)


PIECE = 1024 * 1024
"""The size of a piece in bytes: content is stored, read and passed on in pieces of this size."""


class Content:
    """Bytes that are to be written: in memory, or in a file that ends with it. Close it when it is written."""

    __slots__ = ("_file", "_memory", "digest", "size")

    def __init__(self, memory: bytes, file: IO[bytes] | None, digest: bytes, size: int) -> None:
        self._memory = memory
        self._file = file
        self.digest = digest
        self.size = size

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The content in pieces, from its beginning each time it is asked for; called on the thread of a store."""
        if self._file is None:
            if self.size <= PIECE:
                return iter((self._memory,) if self.size else ())
            view = memoryview(self._memory)
            return (view[start : start + PIECE] for start in range(0, self.size, PIECE))
        self._file.seek(0)
        return iter(partial(self._file.read, PIECE), b"")

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()


class Piece(Struct, frozen=True, gc=False):
    """A piece of a file, counted from 0, and whether it is the last of it."""

    path: str
    number: int
    last: bool
    content: bytes


class Portion(Struct, frozen=True):
    """The content that is read at once. `hash` is that of the file whose piece comes last."""

    pieces: Sequence[Piece]
    hash: str | None
    final: bool


class Writing(Struct, frozen=True, gc=False):
    """How a file is to be written, beside its path and content."""

    at: float
    quota: Quota
    expected: str | None = None
    readonly: bool | None = None
    host: bool = False
    """True for the host, which may change files that tools may not."""


class FilesStore(Protocol):
    """The contract of files in a database; paths are clean. A marked change is made once, see `Mark`.

    A directory has an entry of its own, but for the root. A change makes the directories above an entry.

    Implemented by `stores/sql/sessions/files.py`.
    """

    async def find_file(self, session: str, path: str) -> FileInfo | None: ...

    async def read_file(self, session: str, path: str) -> tuple[FileInfo, bytes] | None: ...

    async def read_piece(self, session: str, file: FileInfo, number: int) -> bytes | None:
        """A piece of a file, counted from 0; None when the file has other content now."""
        ...

    async def write_file(
        self, session: str, path: str, content: Content, writing: Writing, mark: Mark | None
    ) -> FileInfo: ...

    async def make_directory(self, session: str, path: str, at: float, quota: Quota, mark: Mark | None) -> FileInfo: ...

    async def list_files(self, session: str, path: str) -> list[FileInfo]:
        """The entries of a directory, by name; empty when there is no directory of this path."""
        ...

    async def delete_file(
        self, session: str, path: str, recursive: bool, host: bool, mark: Mark | None, expected: str | None = None
    ) -> int:
        """Remove a file or directory, and return how many entries that were. With `expected`, only a file that has this
        hash."""
        ...

    async def scan_files(self, session: str, path: str, after: Portion | None) -> Portion:
        """Some of the content at and below a path, in the order of paths, that follows a portion."""
        ...


class KeyValueStore(Protocol):
    """The contract of named values in a database. A marked change is made once, see `Mark`.

    Implemented by `stores/sql/sessions/keyvalue.py`.
    """

    async def get_value(self, session: str, key: str) -> bytes | None: ...

    async def set_value(
        self, session: str, key: str, value: bytes, at: float, quota: Quota, mark: Mark | None
    ) -> None: ...

    async def delete_value(self, session: str, key: str, mark: Mark | None) -> bool: ...

    async def list_keys(self, session: str, prefix: str) -> list[KeyInfo]: ...


class NewMessage(NamedTuple):
    """A message before it has a number. Content and metadata are JSON."""

    sender: Sender
    content: bytes
    metadata: bytes


class MessageStore(Protocol):
    """The contract of messages in a database. A marked change is made once, see `Mark`.

    Implemented by `stores/sql/sessions/messages.py`.
    """

    async def append_messages(
        self, session: str, messages: Sequence[NewMessage], at: float, quota: Quota, mark: Mark | None
    ) -> tuple[int, float]:
        """Append all messages with the next numbers, or none; return the first number and the instant.

        For a mark that is known already, these are the number and the instant of the first time.
        """
        ...

    async def list_messages(
        self, session: str, after: int, limit: int
    ) -> list[tuple[int, Sender, bytes, bytes, float]]:
        """Number, sender, content, metadata and instant of those beyond `after`, in order."""
        ...


class AttachmentStore(Protocol):
    """The contract of attachments in a database. A marked change is made once, see `Mark`.

    Implemented by `stores/sql/sessions/attachments.py`.
    """

    async def put_attachment(
        self, session: str, content: bytes, name: str, media_type: str, at: float, quota: Quota, mark: Mark | None
    ) -> float:
        """Store content under its hash, and return since when it is stored; existing content gets this name and
        type."""
        ...

    async def get_attachment(self, session: str, digest: bytes) -> bytes | None: ...

    async def list_attachments(self, session: str) -> list[AttachmentInfo]:
        """The oldest first."""
        ...

    async def delete_attachment(self, session: str, digest: bytes, mark: Mark | None) -> bool: ...


ResourceRow = tuple[str, str, str, str, bytes, float, float]
"""Id, kind, name, status, metadata, and the instants of the first and the last change."""


class ResourceStore(Protocol):
    """The contract of resources in a database. A marked change is made once, see `Mark`.

    Implemented by `stores/sql/sessions/resources.py`.
    """

    async def upsert_resource(
        self,
        session: str,
        id: str,
        kind: str,
        name: str,
        status: str,
        metadata: bytes,
        at: float,
        quota: Quota,
        mark: Mark | None,
    ) -> tuple[float, float]:
        """Write all of a resource, and return the instants of its first and its last change."""
        ...

    async def set_resource_status(
        self, session: str, id: str, status: str, at: float, quota: Quota, mark: Mark | None
    ) -> ResourceRow | None:
        """Change the status of a resource and nothing else; None when there is no such resource."""
        ...

    async def get_resource(self, session: str, id: str) -> ResourceRow | None: ...

    async def list_resources(self, session: str, kind: str | None, status: str | None) -> list[ResourceRow]:
        """In the order of their ids."""
        ...

    async def delete_resource(self, session: str, id: str, mark: Mark | None) -> bool: ...


class ConnectionStore(Protocol):
    """The contract of connections in a database.

    Implemented by `stores/sql/sessions/connections.py`.
    """

    async def set_connection(self, session: str, provider: str, detail: bytes, at: float, most: int) -> None:
        """Connect, in place of a connection that was there.

        Raises:
            ServiceError: there are `most` others, with code "quota".
        """
        ...

    async def get_connection(self, session: str, provider: str) -> tuple[bytes, float] | None: ...

    async def list_connections(self, session: str) -> list[tuple[str, bytes, float]]:
        """In the order of their providers."""
        ...

    async def delete_connection(self, session: str, provider: str) -> bool: ...


class Sealed(Struct, frozen=True, gc=False):
    """A value that only its master key opens: the id of that key, the value's own key sealed by it, and the value."""

    master: str
    wrapped: bytes
    sealed: bytes


StepKey = tuple[str, str, str, str]
"""Session, scope, call and label of a step."""


class SecretStore(Protocol):
    """The contract of secrets in a database; it sees sealed values only. A marked change is made once, see `Mark`.

    Implemented by `stores/sql/sessions/secrets.py`.
    """

    async def get_secret(self, session: str, name: str) -> Sealed | None: ...

    async def set_secret(
        self, session: str, name: str, row: Sealed, at: float, quota: Quota, mark: Mark | None
    ) -> None: ...

    async def delete_secret(self, session: str, name: str, mark: Mark | None) -> bool: ...

    async def list_secrets(self, session: str) -> list[KeyInfo]: ...

    async def all_secrets(self, session: str) -> list[tuple[str, Sealed]]: ...

    async def secrets_after(self, after: tuple[str, str], limit: int) -> list[tuple[str, str, Sealed]]:
        """Of every session, in the order of session and name, those after the given ones."""
        ...

    async def rewrap_secrets(self, changes: list[tuple[str, str, Sealed, Sealed]]) -> int:
        """Put new rows in the place of old ones, where these still stand, and return how many did."""
        ...

    async def keep_fingerprints(self, before: Sealed | None, row: Sealed) -> Sealed:
        """Replace the stored key of fingerprints `before` by `row`, and return the one that is stored then."""
        ...

    async def sealed_steps_after(self, after: StepKey, limit: int) -> list[tuple[StepKey, bytes]]:
        """The results of steps that are sealed, of every session, in the order of their keys, after a key."""
        ...

    async def rewrap_steps(self, changes: list[tuple[StepKey, bytes, bytes]]) -> int:
        """Put new results in the place of old ones, where these still stand, and return how many did."""
        ...
