"""A history split into messages with calls, messages with results, and the rest. Owns these types; knows no
provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from toolwright.wire.payload_reader import Part


class AskedCall(Struct, frozen=True):
    """A call in a history: its id (empty when it has none), its tool, and whether it takes free text."""

    id: str
    name: str
    custom: bool = False


class Asking(Struct, frozen=True, eq=False):
    """A message that makes calls. `home` is its position; `message` holds the fields that its layout needs again."""

    home: int
    message: Any
    calls: tuple[AskedCall, ...]


class Result(Struct, frozen=True, eq=False):
    """One result, the id of the call it claims to answer, and the message it stood in: None for a new one."""

    home: int | None
    id: str
    content: Any
    synthetic: bool = False


class Other(Struct, frozen=True, eq=False):
    """A message, or the rest of one, that has neither calls nor results."""

    home: int
    message: Any


Entry = Asking | Result | Other


class Layout(Protocol):
    """How one provider lays out calls and results. Nothing that is handed in is changed."""

    together: bool
    """True when all results of a message stand in one message."""

    def split(self, messages: Sequence[Any]) -> list[Entry]:
        """Take a history apart, in order."""
        ...

    def renamed(self, asking: Asking, ids: Sequence[str]) -> object:
        """The message of `asking`, with these ids for its calls."""
        ...

    def addressed(self, result: Result, call_id: str) -> object:
        """The content of a result, as the answer to this call."""
        ...

    def interrupted(self, call_id: str, call: AskedCall) -> object:
        """The content of a result for a call whose outcome is unknown."""
        ...

    def join(self, entries: Sequence[Entry], messages: Sequence[Any]) -> list[Any]:
        """Make a history of entries in their final order; `messages` is the history that they were split from."""
        ...


def id_of(part: Part) -> str:
    """An id as written; empty for a value that no provider accepts as an id."""
    return part.value if isinstance(part.value, str) and part.value.strip() else ""


def name_of(part: Part) -> str:
    """A tool's name as written, or nothing: a history is not refused for one."""
    return part.value if isinstance(part.value, str) else ""
