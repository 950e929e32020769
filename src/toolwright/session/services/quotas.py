"""What the services of a session have in common: marks of changes, quotas, names. Owns no service."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.argument_checks import require_count, unusable
from toolwright.effects.effect import CallKey
from toolwright.errors import ServiceError
from toolwright.tools.outcome import encodable


class Mark(Struct, frozen=True, gc=False):
    """What names a change that a call makes, so that it is made once, across attempts and crashes.

    A store keeps the result of a marked change with its mark, in the same transaction: asked for it again, it gives
    that result and changes nothing.
    """

    call: CallKey
    label: str


class Marks:
    """Names the changes of one attempt of a call: another attempt that makes the same changes gives the same names.

    A change is named by what it does. Only changes that are alike in everything have an order among each other.
    """

    def __init__(self, call: CallKey, within: str = "") -> None:
        """`within` is the session that is changed, where that is not the call's own."""
        self._call = call
        self._within = within
        self._counts: dict[str, int] = {}

    def mark(self, verb: str, *what: Any) -> Mark | None:
        """The mark of a change: its verb, such as "kv.set", and everything that decides what it does."""
        what = (self._within, *what) if self._within else what
        stem = f"{verb}:{jsonx.digest(jsonx.canonical(what))[:32]}"
        self._counts[stem] = count = self._counts.get(stem, 0) + 1
        return Mark(self._call, f"{stem}:{count}")


class Unmarked:
    """For the host, each of whose changes is made for itself."""

    def mark(self, verb: str, *what: Any) -> Mark | None:
        """There is nothing to remember it by."""
        return None


Marker = Marks | Unmarked


class Room(Struct, frozen=True, gc=False):
    """How much a session may keep in one service. A store checks it in the transaction that would add to it.

    Raises:
        ToolwrightError: a number is no whole number, or less than 0.
    """

    entries: int
    bytes: int

    def __post_init__(self) -> None:
        require_count("room for entries", self.entries, 0)
        require_count("room for bytes", self.bytes, 0)

    def require(self, what: str, entries: int, size: int) -> None:
        """Refuse what would not fit; the numbers are those after the change.

        Raises:
            ServiceError: it would not, with code "quota".
        """
        if entries > self.entries:
            raise ServiceError(f"The session may keep {self.entries} {what}, and has as many; delete some", "quota")
        if size > self.bytes:
            raise ServiceError(
                f"The session may keep {self.bytes} bytes of {what}, and this would make {size}; delete some", "quota"
            )


class Quotas(Struct, frozen=True, kw_only=True):
    """How much each session may keep. Sizes in bytes.

    Raises:
        ToolwrightError: a value is no `Room`, or `file_bytes` is no whole number from 0.
    """

    files: Room = Room(20_000, 512 * 1024 * 1024)
    file_bytes: int = 64 * 1024 * 1024
    key_values: Room = Room(10_000, 16 * 1024 * 1024)
    secrets: Room = Room(500, 1024 * 1024)
    messages: Room = Room(100_000, 256 * 1024 * 1024)
    attachments: Room = Room(5_000, 512 * 1024 * 1024)
    resources: Room = Room(5_000, 16 * 1024 * 1024)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given = getattr(self, name)
            if name == "file_bytes":
                require_count("quota file_bytes", given, 0)
            elif not isinstance(given, Room):
                raise unusable(f"quota {name}", given, "Room(entries=…, bytes=…)")


def require_name(what: str, name: Any, most_bytes: int = 255) -> str:
    """A name that a caller chose: some text of at most so many bytes, without control characters.

    Raises:
        ServiceError: it is not usable.
    """
    if not isinstance(name, str) or not name.strip() or encodable(name) != name:
        raise ServiceError(f"The {what} {name!r:.200} is not usable; use some text")
    if len(name.encode()) > most_bytes or not name.isprintable():
        raise ServiceError(f"The {what} {name!r:.300} is not usable; use at most {most_bytes} printable bytes")
    return name


def to_json(what: str, value: Any) -> bytes:
    """A value as JSON.

    Raises:
        ServiceError: it has no JSON form.
    """
    try:
        return jsonx.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ServiceError(f"The {what} has no JSON form: {error}") from error
