"""The contract of archives: whole sessions, to be read, filled, listed and deleted. Owns the rows of each service.

The format of an archive file is in `session/archive/format.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Raw, Struct

from toolwright.plain_data import plain_data
from toolwright.tools.service_protocols import Sender, SessionDetails

T = TypeVar("T")


class FileRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A file or directory; `hash` names its content."""

    path: str
    directory: bool
    hash: str | None
    size: int
    readonly: bool
    created_at: float
    updated_at: float


class KeyValueRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A key and its value."""

    key: str
    value: Raw
    created_at: float
    updated_at: float


class SecretRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed secret: it can be read only with the master key that `master` names."""

    name: str
    master: str
    wrapped: bytes
    sealed: bytes
    created_at: float
    updated_at: float


class MessageRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A message."""

    number: int
    sender: Sender
    content: Raw
    metadata: Raw
    at: float


class AttachmentRow(Struct, frozen=True, forbid_unknown_fields=True):
    """An attachment; `hash` names its content."""

    hash: str
    name: str
    media_type: str
    size: int
    at: float


class ResourceRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A resource."""

    id: str
    kind: str
    name: str
    status: str
    metadata: Raw
    created_at: float
    updated_at: float


class ConnectionRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A provider that the session is connected to."""

    provider: str
    detail: Raw
    connected_at: float


Row = FileRow | KeyValueRow | SecretRow | MessageRow | AttachmentRow | ResourceRow | ConnectionRow
Table = Literal["files", "key_values", "secrets", "messages", "attachments", "resources", "connections"]
TABLES: dict[Table, type[Row]] = {
    "files": FileRow,
    "key_values": KeyValueRow,
    "secrets": SecretRow,
    "messages": MessageRow,
    "attachments": AttachmentRow,
    "resources": ResourceRow,
    "connections": ConnectionRow,
}
"""The services and their records. The fields of a row are the columns of its table."""


class Usage(Struct, frozen=True):
    """How much a session stores in one service."""

    entries: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data."""
        return plain_data(self)


TITLE_KEY = "toolwright:title"
LOCALE_KEY = "toolwright:locale"
"""The keys under which a session stores its title and its locale."""
LONGEST_TITLE = 200
LOCALE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,7}")


def details_of(found: Mapping[str, Any]) -> SessionDetails:
    """The details under the reserved keys of a session; an archive may hold an unusable value there."""
    title, locale = found.get(TITLE_KEY), found.get(LOCALE_KEY)
    return SessionDetails(
        title[:LONGEST_TITLE] if isinstance(title, str) else None,
        locale if isinstance(locale, str) and LOCALE.fullmatch(locale) else None,
    )


class SessionInfo(Struct, frozen=True):
    """A session that a store knows: how many calls and turns it has, how many of them are unfinished, and its number
    of records."""

    id: str
    calls: int
    unfinished: int
    usage: dict[str, Usage]
    title: str | None = None
    locale: str | None = None
    turns: int = 0
    unfinished_turns: int = 0

    def to_json(self) -> dict[str, Any]:
        """The facts about the session as plain data."""
        return plain_data(self)


class SessionName(NamedTuple):
    """A session by its id, and the title that it has for people."""

    id: str
    title: str | None


class SessionRows(Protocol):
    """All records of one session, at one moment. Used on a thread.

    Implemented in `stores/sql/sessions/sessions.py`.
    """

    def rows(self, table: Table) -> Iterator[Row]: ...

    def blob(self, hash: str) -> Iterator[bytes]:
        """Content in pieces."""
        ...


class SessionWriter(Protocol):
    """A session that is being filled, inside one transaction. Used on a thread.

    Implemented in `stores/sql/sessions/sessions.py`.
    """

    def add(self, table: Table, row: Row) -> None: ...

    def add_blob(self, hash: str, pieces: Iterable[bytes]) -> None: ...

    def usage(self, table: Table) -> Usage: ...

    def knows_master(self, master: str) -> bool:
        """True when secrets of this store are sealed by the same master key."""
        ...


class ArchiveStore(Protocol):
    """The contract of a database for whole sessions.

    Implemented by `stores/sql/sessions/sessions.py`.
    """

    async def read_session(self, session: str, take: Callable[[SessionRows], T]) -> T:
        """Let `take` read a session, off the event loop.

        Raises:
            ServiceError: there is no such session, with code "not_found".
        """
        ...

    async def fill_session(self, session: str, fill: Callable[[SessionWriter], T], replace: bool) -> T:
        """Let `fill` write a session that is new, or that is removed before; all of it or nothing.

        Raises:
            ServiceError: it exists and is not to be replaced, or has calls or turns that are unfinished.
        """
        ...

    async def list_sessions(
        self, only: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[SessionInfo]:
        """Every session that has calls, turns or other records, by id; or `only` the one of this id, if there is one.

        With a `limit`, the next ones after an id. That, and `only` one, cost no more when there are many.
        """
        ...

    async def find_sessions(self, text: str) -> list[SessionName]:
        """The sessions that have records, runs or turns, and a text in their id or title, in any case, by id."""
        ...

    async def delete_session(self, session: str) -> bool:
        """Remove a session with its calls, its turns and all its records; False when there is none.

        Raises:
            ServiceError: it has calls or turns that are unfinished, with code "unfinished".
        """
        ...
