"""The common parts of a session's services: marks of changes, quotas, names. Owns no service."""

from __future__ import annotations

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.sessions import Mark
from toolwright.tools.outcome import encodable


class Marks:
    """Names the changes of one attempt of a call: another attempt that makes the same changes gives the same names.

    A change is named by its content. Only changes that are equal in everything have an order among each other.
    """

    def __init__(self, call: CallKey, within: str = "") -> None:
        """`within` is the session that is changed, where that is not the call's own."""
        self._call = call
        self._within = within
        self._counts: dict[str, int] = {}

    def mark(self, verb: str, *what: object) -> Mark | None:
        """The mark of a change: its verb, such as "kv.set", and all its arguments."""
        what = (self._within, *what) if self._within else what
        stem = f"{verb}:{jsonx.digest(jsonx.canonical(what))[:32]}"
        self._counts[stem] = count = self._counts.get(stem, 0) + 1
        return Mark(self._call, f"{stem}:{count}")


class Unmarked:
    """For the host, each of whose changes is made separately."""

    def mark(self, verb: str, *what: object) -> Mark | None:
        """There is nothing to remember it by."""
        return None


Marker = Marks | Unmarked


def require_name(what: str, name: object, most_bytes: int = 255) -> str:
    """A name that a caller chose: some text of at most so many bytes, without control characters.

    Raises:
        ServiceError: it is not usable.
    """
    if not isinstance(name, str) or not name.strip() or encodable(name) != name:
        raise ServiceError(f"The {what} {name!r:.200} is not usable; use some text")
    if len(name.encode()) > most_bytes or not name.isprintable():
        raise ServiceError(f"The {what} {name!r:.300} is not usable; use at most {most_bytes} printable bytes")
    return encodable(name)


def to_json(what: str, value: object) -> bytes:
    """A value as JSON.

    Raises:
        ServiceError: it has no JSON form.
    """
    try:
        return jsonx.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ServiceError(f"The {what} has no JSON form: {error}") from error
