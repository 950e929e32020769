"""Stage 5: finalise. Owns turning what a tool gave into an outcome: encoded, checked, bounded, projected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.bounds import bound, bound_within, within
from toolwright.calls.hooks import AfterHook, Answer, HookCall, Projector, ask, ask_now
from toolwright.calls.mishaps import Cancelled
from toolwright.calls.policy import Policy
from toolwright.calls.spill import save_output
from toolwright.errors import ToolwrightError
from toolwright.tools.clients import AttachmentInfo
from toolwright.tools.outcome import (
    Attachment,
    ConnectionRequired,
    Failure,
    Image,
    Pending,
    Success,
    ToolOutcome,
    encodable,
    error_text,
    told,
)
from toolwright.tools.schema import OutputCheck, summarise
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")


def to_outcome(call_id: str, name: str, result: Any, attempts: int, decided_by: str | None) -> ToolOutcome:
    """Make the outcome of whatever a tool returned. A value without a JSON form is a failure."""
    kind = type(result)
    if kind not in SPECIAL:
        try:
            return ToolOutcome(call_id, name, "success", jsonx.encode(result), attempts, decided_by)
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
    images: list[Image] = []
    attachments: list[Attachment] = []
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


SPECIAL = frozenset((ToolOutcome, Failure, Success, Answer, Cancelled, ConnectionRequired, Pending))
"""What a tool may return instead of a value."""

_PENDING = Failure(
    category="unavailable",
    code="pending_without_key",
    message="The tool returned Pending without taking a completion key, so nothing could ever complete it",
    source="runtime",
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


def is_plain(outcome: ToolOutcome, tool: Tool | None, policy: Policy) -> bool:
    """True when the outcome is done as it is: nothing to check, nothing to cut."""
    if outcome.status == "success" and tool is not None:
        payload = outcome.payload
        return (
            tool.check_output is None
            and len(payload) <= policy.plain_bytes
            and (payload[0] != QUOTE or payload.count(b"\\n") < policy.max_lines)
        )
    # Escaped for JSON, a character takes at most six bytes.
    if outcome.failure is None:
        return len(f"{outcome.reason}{outcome.provider}") * 6 + 64 <= policy.max_bytes
    message = outcome.failure.message
    return len(message) * 6 + 16 <= policy.max_bytes and message.count("\n") < policy.max_lines


QUOTE = ord('"')
"""How the JSON of a string begins: only such a value can have lines."""


async def ask_after(hooks: tuple[AfterHook, ...], call: HookCall, outcome: ToolOutcome, seconds: float) -> ToolOutcome:
    """Let each after-hook see the outcome, and change it; one that breaks is a failure of its own kind."""
    for hook in hooks:
        try:
            async with asyncio.timeout(seconds):
                changed = await ask(hook, call, outcome)
            outcome = outcome if changed is None else _changed(outcome, changed)
        except Exception as error:  # the host's code
            log.exception("A hook after call %r failed", outcome.call_id)
            failure = Failure(
                category="internal",
                code="hook_error",
                message="A hook failed after the tool ran; its details are in the log.",
                source="hook",
                detail=told(error),
            )
            # Nothing of what the tool gave goes on: the hook may have been there to hold it back.
            return _failed(outcome, failure)
    return outcome


def _changed(outcome: ToolOutcome, changed: Any) -> ToolOutcome:
    """What a hook made of an outcome, without what was read of the old one and may be old too."""
    if type(changed) is not ToolOutcome:
        raise TypeError(f"an after-hook returned a {type(changed).__name__}; use None or a ToolOutcome")
    if (changed.call_id, changed.tool) != (outcome.call_id, outcome.tool):
        raise ValueError("an after-hook returned the outcome of another call; change the one it was given")
    if (changed.status == "failure") != (changed.failure is not None):
        raise ValueError("an after-hook returned a status that does not go with its failure; change both")
    renewed: ToolOutcome = replace(changed, cached_value=UNSET, model_text=None)
    _ = renewed.value  # raises for a payload that is not JSON
    return renewed


Keep = Callable[[str], Awaitable[str]]
"""Keeps the whole output of a call in a file of its session, and returns the path."""


async def finish(
    outcome: ToolOutcome, tool: Tool | None, policy: Policy, projector: Projector | None, keep: Keep
) -> ToolOutcome:
    """Check the value against the output schema, bound the text, and let the projector have the last word."""
    outcome = check_output(outcome, tool, policy)
    text = outcome.full_text()
    if not within(text, policy.max_lines, policy.max_bytes):
        outcome = await _bounded(outcome, text, policy, keep)
    return project(outcome, policy, projector)


def check_output(outcome: ToolOutcome, tool: Tool | None, policy: Policy) -> ToolOutcome:
    """Hold a value against the tool's output schema and the size limit; a mismatch is a failure, never silent."""
    if outcome.status != "success":
        return outcome
    failure: Failure | None = None
    if len(outcome.payload) > policy.max_output_bytes:
        failure = Failure(
            category="resource_limit",
            code="output_too_long",
            message=f"The tool returned {len(outcome.payload)} bytes and the limit is {policy.max_output_bytes}",
            source="runtime",
        )
    elif tool is not None and tool.check_output is not None:
        failure = _misfit(outcome, tool.check_output)
    return outcome if failure is None else _failed(outcome, failure)


def _misfit(outcome: ToolOutcome, check: OutputCheck) -> Failure | None:
    """What is wrong with a value by its schema; one that can not be checked does not fit either."""
    detail: str | None = None
    try:
        problems = check(outcome.payload)
        if not problems:
            return None
        wrong = f"does not fit its output schema:\n{summarise(problems)}"
    except Exception as error:  # the validator gives up on some values, such as very deep ones
        log.exception("The value of call %r could not be checked", outcome.call_id)
        wrong, detail = "could not be held against its output schema", told(error)
    return Failure(
        category="execution",
        code="invalid_output",
        message=f"What {outcome.tool!r} returned {wrong}",
        source="tool",
        detail=detail,
    )


def _failed(outcome: ToolOutcome, failure: Failure) -> ToolOutcome:
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


async def _bounded(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> ToolOutcome:
    """Cut what the model reads; the whole goes to a file first."""
    if outcome.status == "success":
        where = await _spill(outcome, text, policy, keep)
        shown = bound(text, policy.max_lines, policy.max_bytes, where=where)
    else:
        # An object with one text in it: the text is cut, and the object stays JSON.
        ((key, message),) = jsonx.decode(text).items()
        where = await _spill(outcome, message, policy, keep)
        shown = bound_within(
            message,
            lambda part: jsonx.encode({key: part}).decode(),
            policy.max_lines,
            policy.max_bytes,
            where,
        )
    return replace(outcome, model_text=shown, spilled_to=where)


async def _spill(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> str | None:
    """Write the whole text to a file named after the call; None when that fails, for the marker must not lie.

    The file is one of the session's, unless the policy names a directory of the host. What was written before, for an
    outcome that comes from the journal, is not written again.
    """
    if outcome.replayed and (outcome.spilled_to is not None or policy.spill_dir is None):
        return outcome.spilled_to
    try:
        if policy.spill_dir is None:
            return await keep(text)
        return await asyncio.to_thread(save_output, Path(policy.spill_dir), outcome.call_id, text.encode())
    except (OSError, ValueError, ToolwrightError):
        place = "a file of its session" if policy.spill_dir is None else policy.spill_dir
        log.exception("The output of call %r could not be written to %s", outcome.call_id, place)
        return None


def project(outcome: ToolOutcome, policy: Policy, projector: Projector | None) -> ToolOutcome:
    """Let the session's projector say what the model reads; if it fails, the model reads that."""
    if projector is None:
        return outcome
    try:
        text = ask_now(projector, outcome)
        if not isinstance(text, str):
            raise TypeError(f"the projector returned a {type(text).__name__} and not a string")
    except Exception as error:  # the host's code: the model reads that it failed, the outcome stays
        log.exception("The projector failed for call %r", outcome.call_id)
        text = error_text(f"The result could not be shown: {type(error).__name__}")
    return replace(outcome, model_text=bound(encodable(text), policy.max_lines, policy.max_bytes))
