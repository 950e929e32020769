"""The structured fields of log lines. Owns their names; does not own the lines, nor keeping secrets out of them.

Every line of the library has an `action`, a stable word such as "call.waiting", and the ids of its objects. The names
are those of events: a program finds the events and the log lines of a call by the same `session` and `call_id`.
Arguments and output of tools are never fields.
"""

from __future__ import annotations

from typing import Final, TypeAlias

FIELDS: Final = (
    "action",
    "session",
    "batch",
    "call_id",
    "tool",
    "rule",
    "waits_for",
    "run_id",
    "turn_id",
    "schedule_id",
    "worker",
    "path",
    "method",
    "route",
    "status",
    "seconds",
    "caller",
    "address",
)

LogFields: TypeAlias = dict[str, str | int | float]
"""The fields of one line."""


def log_fields(
    action: str,
    *,
    session: str | None = None,
    batch: str | None = None,
    call_id: str | None = None,
    tool: str | None = None,
    rule: str | None = None,
    waits_for: str | None = None,
    run_id: str | None = None,
    turn_id: str | None = None,
    schedule_id: str | None = None,
    worker: str | None = None,
    path: str | None = None,
    method: str | None = None,
    route: str | None = None,
    status: int | None = None,
    seconds: float | None = None,
    caller: str | None = None,
    address: str | None = None,
) -> LogFields:
    """The fields of one log line, for the `extra=` of a logger; a missing field is left out."""
    given = {
        "action": action,
        "session": session,
        "batch": batch,
        "call_id": call_id,
        "tool": tool,
        "rule": rule,
        "waits_for": waits_for,
        "run_id": run_id,
        "turn_id": turn_id,
        "schedule_id": schedule_id,
        "worker": worker,
        "path": path,
        "method": method,
        "route": route,
        "status": status,
        "seconds": seconds,
        "caller": caller,
        "address": address,
    }
    return {name: value for name, value in given.items() if value is not None}
