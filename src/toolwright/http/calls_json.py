"""Calls of the history as JSON. Owns their form over HTTP."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.http.outcome_json import outcome_json
from toolwright.plain_data import instant_text
from toolwright.stores.contracts.call_history import CallDetail, PastStep, PastWait
from toolwright.stores.contracts.inspection import PastCall
from toolwright.tools.outcome import ToolOutcome


class CallShown(Struct, frozen=True, kw_only=True):
    """A call: when it came, ran and ended, and its outcome."""

    session: str
    scope: str
    call_id: str
    batch: str
    tool: str
    status: str
    """The status of its outcome, or "running", "waiting" or "cut off"."""
    arguments: Any
    attempts: int
    source: str
    parent: str | None
    """The call or run that made it."""
    queued_at: float
    started_at: float | None
    finished_at: float | None
    cut_off: bool
    """True when its process is gone, and it was not continued yet."""
    waits_for: list[str]
    """What it waits for, such as "approval" or "event:paid"."""
    outcome: ToolOutcome | None


class CallWithParts(CallShown, frozen=True, kw_only=True):
    """A call with its steps and waits, in the order in which they began."""

    steps: list[PastStep]
    waits: list[PastWait]


def call_json(call: PastCall) -> dict[str, Any]:
    """A call as `CallShown`."""
    return {
        "session": call.key.session,
        "scope": call.key.scope,
        "call_id": call.key.call_id,
        "batch": call.batch,
        "tool": call.tool,
        "status": call.status,
        "arguments": jsonx.decode(call.arguments),
        "attempts": call.attempts,
        "source": call.source,
        "parent": call.parent,
        "queued_at": _instant(call.queued_at),
        "started_at": _instant(call.started_at),
        "finished_at": _instant(call.finished_at),
        "cut_off": call.cut_off,
        "waits_for": list(call.waits_for),
        "outcome": None if call.outcome is None else outcome_json(call.outcome),
    }


def detail_json(detail: CallDetail) -> dict[str, Any]:
    """A call as `CallWithParts`."""
    return {
        **call_json(detail.call),
        "steps": [
            {"kind": one.kind, "name": one.name, "at": _instant(one.at), "done": one.done, "failed": one.failed}
            for one in detail.steps
        ],
        "waits": [
            {
                "kind": one.kind,
                "name": one.name,
                "opened_at": _instant(one.opened_at),
                "deadline": _instant(one.deadline),
                "open": one.open,
                "status": one.status,
                "resolved_at": _instant(one.resolved_at),
                "by": one.by,
                "reason": one.reason,
            }
            for one in detail.waits
        ],
    }


def _instant(seconds: float | None) -> str | float | None:
    return None if seconds is None else instant_text(seconds)
