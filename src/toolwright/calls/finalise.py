"""Stage 5: finalise. Owns turning what a tool gave into an outcome: encoded, checked, bounded, projected."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.bounds import bound, within
from toolwright.calls.execute import Cancelled
from toolwright.calls.hooks import AfterHook, Answer, HookCall, Projector, ask
from toolwright.calls.policy import Policy
from toolwright.ids import new_id
from toolwright.tools.outcome import (
    ConnectionRequired,
    Failure,
    Pending,
    Success,
    ToolOutcome,
    error_text,
)
from toolwright.tools.schema import summarise
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def to_outcome(call_id: str, name: str, result: Any, *, attempts: int, decided_by: str | None) -> ToolOutcome:
    """Make the outcome of whatever a tool returned. A value without a JSON form is a failure."""
    kind = type(result)
    if kind is ToolOutcome:
        return result  # type: ignore[no-any-return]
    raw_output, images, attachments = None, (), ()
    if kind is Failure:
        if attempts > 1:
            result = replace(result, attempts=attempts, message=f"{result.message} (after {attempts} attempts)")
        return ToolOutcome(
            call_id=call_id, tool=name, status="failure", failure=result, attempts=attempts, decided_by=decided_by
        )
    if kind is Success:
        raw_output, images, attachments = result.raw_output, tuple(result.images), tuple(result.attachments)
        result = result.value
    elif kind is Answer:
        result = result.value
    elif kind is Cancelled:
        return ToolOutcome(
            call_id=call_id,
            tool=name,
            status="cancelled",
            reason=result.reason,
            may_have_run=result.may_have_run,
            attempts=attempts,
            decided_by=decided_by,
        )
    elif kind is ConnectionRequired:
        return ToolOutcome(
            call_id=call_id,
            tool=name,
            status="connection_required",
            provider=result.provider,
            attempts=attempts,
            decided_by=decided_by,
        )
    elif kind is Pending:
        return to_outcome(call_id, name, _PENDING, attempts=attempts, decided_by=decided_by)
    try:
        payload = jsonx.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return to_outcome(call_id, name, _unserialisable(result, error), attempts=attempts, decided_by=decided_by)
    return ToolOutcome(
        call_id=call_id,
        tool=name,
        status="success",
        payload=payload,
        raw_output=raw_output,
        images=images,
        attachments=attachments,
        attempts=attempts,
        decided_by=decided_by,
    )


_PENDING = Failure(
    category="unavailable",
    code="pending_without_key",
    message="The tool returned Pending without taking a completion key, so nothing could ever complete it",
    source="runtime",
)


def _unserialisable(result: Any, error: Exception) -> Failure:
    return Failure(
        category="execution",
        code="unserialisable_result",
        message=f"The tool returned a {type(result).__name__} that has no JSON form",
        source="tool",
        detail=str(error),
    )


def is_plain(outcome: ToolOutcome, tool: Tool | None, policy: Policy, projector: Projector | None) -> bool:
    """True when the outcome is done as it is: nothing to check, nothing to cut, nobody to ask."""
    if projector is not None:
        return False
    if outcome.failure is not None:
        # Escaped for JSON, a character takes at most six bytes.
        message = outcome.failure.message
        return len(message) * 6 + 16 <= policy.max_bytes and message.count("\n") < policy.max_lines
    if outcome.status != "success" or tool is None:
        return True
    payload = outcome.payload
    return (
        tool.check_output is None
        and len(payload) <= policy.max_bytes
        and (payload[:1] != b'"' or payload.count(b"\\n") < policy.max_lines)
    )


async def ask_after(hooks: tuple[AfterHook, ...], call: HookCall, outcome: ToolOutcome) -> ToolOutcome:
    """Let each after-hook see the outcome, and change it; one that breaks is a failure of its own kind."""
    for hook in hooks:
        try:
            changed = await ask(hook, call, outcome)
            if changed is not None and type(changed) is not ToolOutcome:
                raise TypeError(f"an after-hook returned a {type(changed).__name__}; use None or a ToolOutcome")
        except Exception as error:  # the host's code
            log.exception("A hook after call %r failed", outcome.call_id)
            failure = Failure(
                category="internal",
                code="hook_error",
                message="A hook failed after the tool ran; its details are in the log.",
                source="hook",
                detail=f"{type(error).__name__}: {error}",
            )
            return replace(outcome, status="failure", failure=failure, payload=b"null", may_have_run=True)
        outcome = outcome if changed is None else changed
    return outcome


async def finish(outcome: ToolOutcome, tool: Tool | None, policy: Policy, projector: Projector | None) -> ToolOutcome:
    """Check the value against the output schema, bound the text, and let the projector have the last word."""
    outcome = check_output(outcome, tool, policy)
    text = outcome.full_text()
    if not within(text, policy.max_lines, policy.max_bytes):
        outcome = await _bounded(outcome, text, policy)
    if projector is not None:
        outcome = _projected(outcome, policy, projector)
    return outcome


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
        problems = tool.check_output(outcome.payload)
        if problems:
            failure = Failure(
                category="execution",
                code="invalid_output",
                message=f"What {outcome.tool!r} returned does not fit its output schema:\n{summarise(problems)}",
                source="tool",
            )
    if failure is None:
        return outcome
    return ToolOutcome(
        call_id=outcome.call_id,
        tool=outcome.tool,
        status="failure",
        failure=failure,
        attempts=outcome.attempts,
        decided_by=outcome.decided_by,
        may_have_run=True,
    )


async def _bounded(outcome: ToolOutcome, text: str, policy: Policy) -> ToolOutcome:
    where: str | None = None
    if policy.spill_dir is not None and outcome.status == "success":
        where = await _spill(Path(policy.spill_dir), outcome.call_id, text)
    if outcome.failure is not None:
        # Bounded inside its JSON: escapes may grow it, so the message gives way until the whole fits.
        room = policy.max_bytes - 16
        message = bound(outcome.failure.message, policy.max_lines, room)
        while len((shown := error_text(message)).encode()) > policy.max_bytes and room > 64:
            room = room * 3 // 4
            message = bound(outcome.failure.message, policy.max_lines, room)
        return replace(outcome, model_text=shown)
    return replace(
        outcome, model_text=bound(text, policy.max_lines, policy.max_bytes, where=where), spilled_to=where
    )


async def _spill(folder: Path, call_id: str, text: str) -> str | None:
    """Write the whole text to a file named after the call; None when that fails, for the marker must not lie."""
    name = _UNSAFE.sub("_", call_id)[:100] or new_id("call")
    if name.strip(".") == "":
        name = new_id("call")
    target = folder / f"{name}.txt"

    def save() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.{new_id('part')}"
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(target)

    try:
        await asyncio.to_thread(save)
    except OSError:
        log.exception("The output of call %r could not be written to %s", call_id, target)
        return None
    return str(target)


def _projected(outcome: ToolOutcome, policy: Policy, projector: Projector) -> ToolOutcome:
    try:
        text = projector(outcome)
        if not isinstance(text, str):
            raise TypeError(f"the projector returned a {type(text).__name__} and not a string")
    except Exception as error:  # the host's code: the model reads that it failed, the outcome stays
        log.exception("The projector failed for call %r", outcome.call_id)
        text = error_text(f"The result could not be shown: {type(error).__name__}")
    return replace(outcome, model_text=bound(text, policy.max_lines, policy.max_bytes))
