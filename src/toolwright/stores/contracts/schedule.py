"""A stored schedule. Owns its value, states and policies; does not own its instants, nor firing it."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Struct

from toolwright.clock import rfc3339
from toolwright.errors import ScheduleError
from toolwright.ids import uuid7
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.background_run import Options

PREFIX = "sch_"
"""The beginning of the id of a schedule, unless its starter chose one."""
_ID = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,127}")


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """When something is to be done: over and over by `cron`, or once `at` an instant (seconds since the epoch)."""

    cron: str | None = None
    at: float | None = None
    timezone: str = "UTC"


Misfire: TypeAlias = Literal["skip", "once", "all"]


MISFIRES: tuple[Misfire, ...] = get_args(Misfire)


State: TypeAlias = Literal["active", "paused", "ended", "cancelled"]
Overlap: TypeAlias = Literal["skip", "queue", "allow"]
"""The handling of an instant while a run of the same schedule is unfinished: skip it, queue its run, or allow it."""
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)


class Schedule(Struct, frozen=True, kw_only=True):
    """A tool that is to be started once or repeatedly, with its arguments. `next_at` only rises."""

    id: str
    session: str
    tool: str
    arguments: Any
    title: str
    options: Options
    timing: Timing
    misfire: Misfire = "once"
    overlap: Overlap = "skip"
    state: State = "active"
    next_at: float | None
    created_at: float
    provenance: Any = None
    authority: bytes = b""
    """JSON of the permissions of its runs, as far as its creator had them."""

    def same_as(self, other: Schedule) -> bool:
        """True when both start the same tool with the same content, by the same timing and policies."""
        return all(getattr(self, name) == getattr(other, name) for name in _CONTENT)

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain data."""
        return {
            "schedule_id": self.id,
            "session": self.session,
            "tool": self.tool,
            "title": self.title,
            "args": self.arguments,
            "schedule_type": "one_shot" if self.timing.cron is None else "recurring",
            "cron_expression": self.timing.cron,
            "scheduled_at": rfc3339(self.timing.at),
            "timezone": self.timing.timezone,
            "next_trigger_at": rfc3339(self.next_at) if self.state == "active" else None,
            "state": self.state,
            "enabled": self.state == "active",
            "misfire": self.misfire,
            "overlap": self.overlap,
            "signal_on_completion": self.options.signal_on_completion,
            "created_at": rfc3339(self.created_at),
        }


_CONTENT = ("session", "tool", "arguments", "title", "options", "timing", "misfire", "overlap")
"""The fields that its starter chose; the others change while it is there."""


class Fired(NamedTuple):
    """The record of an instant: "fired" or "now", with its run, "skipped", or "missed"."""

    instant: float
    at: float
    what: str
    run: str | None

    def to_json(self) -> dict[str, Any]:
        """The record as plain data; instants are RFC 3339 text."""
        return plain_data(self)


def new_schedule_id() -> str:
    """An id that no other schedule has, in the order of time."""
    return f"{PREFIX}{uuid7().replace('-', '')}"


def require_schedule_id(id: object) -> str:
    """An id that a caller chose.

    Raises:
        ScheduleError: it is not usable.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ScheduleError(
            f"The id {id!r:.200} of a schedule is not usable; use 1 to 128 letters, digits, or any of _ . : -, "
            "no dot first"
        )
    return str.__str__(id)  # of a subclass, which JSON does not know, the plain text


def read_overlap(value: object) -> Overlap:
    """Return the policy of this name.

    Raises:
        ScheduleError: there is none.
    """
    if value not in OVERLAPS:
        raise ScheduleError(f"overlap {value!r:.100} is not a policy; use {', '.join(map(repr, OVERLAPS))}")
    return OVERLAPS[OVERLAPS.index(value)]
