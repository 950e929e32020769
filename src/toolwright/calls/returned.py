"""What a tool returned, as an outcome. Owns what may be returned in the place of a value, and what it becomes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.hooks import Answer
from toolwright.calls.media import MARK, take_media
from toolwright.calls.mishaps import Cancelled
from toolwright.tools.outcome import (
    Attachment,
    ConnectionRequired,
    Failure,
    Image,
    Pending,
    Success,
    ToolOutcome,
    encodable,
    told,
)
from toolwright.tools.services import AttachmentInfo

SPECIAL = frozenset((ToolOutcome, Failure, Success, Answer, Cancelled, ConnectionRequired, Pending))
"""What a tool may return instead of a value."""

_PENDING = Failure(
    category="unavailable",
    code="pending_without_key",
    message="The tool returned Pending without taking a completion key, so nothing could ever complete it",
    source="runtime",
)


def to_outcome(call_id: str, name: str, result: Any, attempts: int, decided_by: str | None) -> ToolOutcome:
    """Make the outcome of whatever a tool returned. A value without a JSON form is a failure."""
    kind = type(result)
    if kind not in SPECIAL:
        try:
            payload = jsonx.encode(result)
            if MARK not in payload:
                return ToolOutcome(call_id, name, "success", payload, attempts, decided_by)
            value, images, attachments = take_media(result)
            return ToolOutcome(
                call_id,
                name,
                "success",
                payload if value is result else jsonx.encode(value),
                attempts,
                decided_by,
                images=images,
                attachments=attachments,
            )
        except BaseException as error:  # a value may have code of its own for its JSON form
            result, kind = unserialisable(result, error), Failure
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
    outcome = to_outcome(call_id, name, result.value, attempts, decided_by)
    if kind is Answer or outcome.status != "success":
        return outcome
    try:
        return _with_extras(outcome, result)
    except TypeError as error:
        return to_outcome(call_id, name, unserialisable(result, error), attempts, decided_by)


def _with_extras(outcome: ToolOutcome, result: Success) -> ToolOutcome:
    raw_output = result.raw_output
    images: list[Image] = [*outcome.images]
    attachments: list[Attachment] = [*outcome.attachments]
    for image in result.images:
        if isinstance(image, AttachmentInfo):
            image = Image.from_attachment(image)
        if not isinstance(image, Image):
            raise TypeError(f"a Success has a {type(image).__name__} among its images; use Image")
        images.append(image)
    for item in result.attachments:
        if isinstance(item, AttachmentInfo) and item.media_type.startswith("image/"):
            images.append(Image.from_attachment(item))
            continue
        if isinstance(item, AttachmentInfo):
            item = Attachment.from_attachment(item)
        if not isinstance(item, Attachment):
            raise TypeError(f"a Success has a {type(item).__name__} as an attachment; use Attachment")
        attachments.append(item)
    if raw_output is not None:
        if not isinstance(raw_output, str):
            raise TypeError(f"a Success has a {type(raw_output).__name__} as its raw_output; use a string")
        raw_output = encodable(raw_output)
    return replace(outcome, raw_output=raw_output, images=tuple(images), attachments=tuple(attachments))


def _passed_on(outcome: ToolOutcome, call_id: str, name: str, attempts: int, decided_by: str | None) -> ToolOutcome:
    """The outcome of a call that has one; one that a tool got from another call and returns becomes its own."""
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
    )


def unserialisable(result: Any, error: BaseException) -> Failure:
    """The failure of a tool whose value has no JSON form."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    return Failure(
        category="execution",
        code="unserialisable_result",
        message=f"The tool returned a {type(result).__name__} that has no JSON form",
        source="tool",
        detail=told(error),
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
    )
