"""What is told of a process. Owns the types of its events and what each says; does not own keeping them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from toolwright.errors import RunError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.background_run import OVER, Progress


class Queued(Struct, frozen=True, forbid_unknown_fields=True):
    """It was registered, and waits for a worker."""


class Tracked(Struct, frozen=True, forbid_unknown_fields=True):
    """It was registered, and happens elsewhere: its host reports on it."""


class Started(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker began it, or took it over from one that is gone."""

    worker: str
    attempt: int
    taken_over_from: str | None = None


class StatusText(Struct, frozen=True, forbid_unknown_fields=True):
    """What it is doing, in words."""

    text: str


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of what it prints. Pieces in the middle of very much output are dropped."""

    stream: str
    text: str


class Waiting(Struct, frozen=True, forbid_unknown_fields=True):
    """It waits for something outside."""

    what: str
    name: str = ""


class HandedBack(Struct, frozen=True, forbid_unknown_fields=True):
    """Its worker stops, and leaves it to another."""

    worker: str


class CancelAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody wants it to stop."""

    reason: str


class Reopened(Struct, frozen=True, forbid_unknown_fields=True):
    """A person decided that an abandoned run continues: what was in doubt may happen again."""

    by: str | None = None


class Ended(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """It is over. `evidence` is what is known of a process that was abandoned.

    The errors say why its artifacts were not written, or its session not told.
    """

    summary: str
    artifact_error: str | None = None
    message_error: str | None = None
    evidence: dict[str, Any] | None = None


TYPES: dict[str, type[Struct]] = {
    "queued": Queued,
    "tracked": Tracked,
    "started": Started,
    "status": StatusText,
    "progress": Progress,
    "output": Output,
    "waiting": Waiting,
    "resumed": Queued,
    "handed_back": HandedBack,
    "cancel_asked": CancelAsked,
    "reopened": Reopened,
    **dict.fromkeys(OVER, Ended),
}
"""The events that every process may have, each with what its payload must be."""


class RunEvent(NamedTuple):
    """Something that happened to a process. Numbers rise; some are missing where events were replaced or dropped."""

    process: str
    number: int
    type: str
    at: float
    payload: Any

    @property
    def last(self) -> bool:
        """True when nothing follows, unless a person lets an abandoned run continue."""
        return self.type in OVER

    def to_json(self) -> dict[str, Any]:
        """The event as plain data; instants are RFC 3339 text."""
        return plain_data(self)


def checked(type: str, payload: Any) -> bytes:
    """The JSON of an event's payload.

    Raises:
        RunError: the type is not declared, or the payload is not what it declares.
    """
    declared = TYPES.get(type)
    if declared is None:
        raise RunError(f"The event type {type!r} is not declared; use one of {', '.join(TYPES)}")
    try:
        value = msgspec.convert(msgspec.to_builtins(payload), declared)
    except (msgspec.ValidationError, TypeError) as error:
        raise RunError(f"The payload of a {type!r} event is not usable: {error}") from error
    return msgspec.json.encode(value)
