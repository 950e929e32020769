"""A tool's return value, as an outcome. Owns the special return values, and their meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.failures import Cancelled
from toolwright.calls.hooks import Answer
from toolwright.calls.returned_json import Encoded, encode_result, unserialisable
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending, Success, ToolOutcome, encodable

SPECIAL = frozenset((ToolOutcome, Failure, Success, Encoded, Answer, Cancelled, ConnectionRequired, Pending))
"""Types of results that are not encoded: special return values, and values that a child process encoded."""

_PENDING = Failure(
    category="unavailable",
    code="pending_without_key",
    message="The tool returned Pending without taking a completion key, so nothing could ever complete it",
    source="runtime",
)


def to_outcome(
    call_id: str,
    name: str,
    result: Any,
    attempts: int,
    decided_by: str | None,
    encode: Callable[[Any], bytes] = jsonx.encode,
) -> ToolOutcome:
    """Make the outcome of whatever a tool returned. A value without a JSON form is a failure.

    Raises:
        TooLong: by an `encode` that has a limit.
    """
    kind = type(result)
    if kind is ToolOutcome:
        return _passed_on(result, call_id, name, attempts, decided_by)
    if kind is Failure:
        if attempts > 1:
            result = replace(result, attempts=attempts, message=f"{result.message} (after {attempts} attempts)")
        return ToolOutcome(
            call_id=call_id,
            tool=name,
            status="failure",
            failure=result,
            attempts=attempts,
            decided_by=decided_by,
        )
    if kind is Cancelled:
        return ToolOutcome(
            call_id,
            name,
            "cancelled",
            attempts=attempts,
            decided_by=decided_by,
            reason=result.reason,
            may_have_run=result.may_have_run,
        )
    if kind is ConnectionRequired:
        if not isinstance(result.provider, str):
            failure = unserialisable(result, TypeError(f"its provider is {result.provider!r:.200}; use a string"))
            return to_outcome(call_id, name, failure, attempts, decided_by)
        return ToolOutcome(
            call_id,
            name,
            "connection_required",
            attempts=attempts,
            decided_by=decided_by,
            provider=encodable(result.provider),
        )
    if kind is Pending:
        return to_outcome(call_id, name, _PENDING, attempts, decided_by)
    if kind is Answer:
        return to_outcome(call_id, name, result.value, attempts, decided_by, encode)
    encoded = result if kind is Encoded else encode_result(result, encode)
    if isinstance(encoded, Failure):
        return to_outcome(call_id, name, encoded, attempts, decided_by)
    return ToolOutcome(
        call_id,
        name,
        "success",
        encoded.payload,
        attempts,
        decided_by,
        raw_output=encoded.raw_output,
        images=encoded.images,
        attachments=encoded.attachments,
        metadata=encoded.metadata,
        given_text=encoded.text,
    )


def _passed_on(outcome: ToolOutcome, call_id: str, name: str, attempts: int, decided_by: str | None) -> ToolOutcome:
    """The outcome of a call that has one; an outcome that a tool got from another call and returns becomes its own."""
    if outcome.call_id == call_id and outcome.tool == name:
        return outcome
    return replace(
        outcome,
        call_id=call_id,
        tool=name,
        attempts=attempts,
        decided_by=decided_by,
        replayed=False,
        model_text=None,
        spilled_to=None,
        decision=None,
    )


def failed_after(outcome: ToolOutcome, failure: Failure) -> ToolOutcome:
    """The outcome of a tool that ran, with a failure in the place of all it gave."""
    return ToolOutcome(
        outcome.call_id,
        outcome.tool,
        "failure",
        attempts=outcome.attempts,
        decided_by=outcome.decided_by,
        failure=failure,
        may_have_run=True,
        decision=outcome.decision,
    )
