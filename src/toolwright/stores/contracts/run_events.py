"""Events of background runs. Owns their types and payloads; does not own storing them."""

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
    """A worker began the run, or took it over from a dead one."""

    worker: str
    attempt: int
    taken_over_from: str | None = None


class StatusText(Struct, frozen=True, forbid_unknown_fields=True):
    """Its present activity, in words."""

    text: str


class Output(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of its output. Pieces in the middle of very long output are dropped."""

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
    """A person decided that an abandoned run continues: the step in doubt may happen again."""

    by: str | None = None


class Ended(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The run is finished. `evidence` has the known facts about an abandoned run.

    The errors say why its artifacts were not written, or no message was added to its session.
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
"""The event types of every run, each with the type of its payload."""


class RunEvent(NamedTuple):
    """An event of a run. Numbers rise; some are missing where events were replaced or dropped."""

    run: str
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


def checked(type: str, payload: object) -> bytes:
    """The JSON of an event's payload.

    Raises:
        RunError: the type is not declared, or the payload does not fit its schema.
    """
    declared = TYPES.get(type)
    if declared is None:
        raise RunError(f"The event type {type!r} is not declared; use one of {', '.join(TYPES)}")
    try:
        value = msgspec.convert(msgspec.to_builtins(payload), declared)
    except (msgspec.ValidationError, TypeError) as error:
        raise RunError(f"The payload of a {type!r} event is not usable: {error}") from error
    return msgspec.json.encode(value)
