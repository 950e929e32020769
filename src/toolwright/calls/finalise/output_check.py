"""The checks of a value. Owns the tool's output schema and the limits of size."""

from __future__ import annotations

import logging
from typing import Any

from toolwright.calls.finalise.to_outcome import failed_after
from toolwright.calls.finalise.truncate import within
from toolwright.calls.policy import Policy
from toolwright.large_json import MOST_CONTAINERS, MOST_DUMPED, MOST_ITEMS
from toolwright.log_fields import log_fields
from toolwright.tools.outcome import Attachment, Failure, Image, ToolOutcome, told
from toolwright.tools.raw_schema import OutputCheck, summarise
from toolwright.tools.tool import Tool
from toolwright.tools.validation_messages import as_data

log = logging.getLogger("toolwright.calls")

QUOTE = ord('"')
"""How the JSON of a string begins: only such a value can have lines."""


def is_plain(outcome: ToolOutcome, tool: Tool | None, policy: Policy) -> bool:
    """True when the outcome is done as it is: nothing to check, nothing to cut."""
    if outcome.decision is not None and outcome.decision.edited:
        return False  # the model reads more than the value
    if outcome.status == "success" and tool is not None:
        payload = outcome.payload
        return (
            (outcome.replayed or fits(payload, tool))
            and len(payload) <= policy.plain_bytes
            and (
                not has_many_lines(payload, policy)
                if outcome.given_text is None
                else within(outcome.given_text, policy.max_lines, policy.plain_bytes)
            )
        )
    # Escaped for JSON, a character takes at most six bytes.
    if outcome.failure is None:
        return len(f"{outcome.reason}{outcome.provider}") * 6 + 64 <= policy.max_bytes
    message = outcome.failure.message
    return len(message) * 6 + 16 <= policy.max_bytes and message.count("\n") < policy.max_lines


def has_many_lines(payload: bytes, policy: Policy) -> bool:
    """True when a value is a text of so many lines that some must be cut."""
    return payload[0] == QUOTE and payload.count(b"\\n") >= policy.max_lines


def fits(payload: bytes, tool: Tool) -> bool:
    """True when a short value fits the tool's output schema; for one that does not, `check_output` says why."""
    if tool.check_output is None:
        return True
    if tool.definition.hints.persist_output:
        return False  # it goes to a file, which takes time
    try:
        return not tool.check_output(payload)
    except Exception:  # the validator gives up on some values, such as very deep ones
        return False


def check_output(outcome: ToolOutcome, tool: Tool | None, policy: Policy) -> ToolOutcome:
    """Hold a value against the tool's output schema and the size limit; a mismatch is a failure, never silent."""
    if outcome.status != "success":
        return outcome
    failure: Failure | None = None
    if len(outcome.payload) > policy.max_output_bytes:
        failure = output_too_long(len(outcome.payload), policy)
    elif tool is not None and tool.check_output is not None and not outcome.replayed:  # a recorded outcome is final
        failure = _misfit(outcome, tool.check_output)
    return outcome if failure is None else failed_after(outcome, failure)


def output_too_long(size: int, policy: Policy, *, at_least: bool = False, what: str = "") -> Failure:
    """The failure of a tool that gives more than the policy lets it."""
    return Failure(
        category="resource_limit",
        code="output_too_long",
        message=f"The tool returned {'at least ' if at_least else ''}{size} bytes{what} and the limit is "
        f"{policy.max_output_bytes}; return less, or write it to a file",
        source="runtime",
        data={"bytes": size, "limit": policy.max_output_bytes},
    )


def too_many_parts() -> Failure:
    """The failure of a tool whose value has more lists, objects or items than can be read in a short time."""
    return Failure(
        category="resource_limit",
        code="output_too_long",
        message=f"The tool returned a value with more than {MOST_CONTAINERS} lists and objects, or more than "
        f"{MOST_ITEMS} items ({MOST_DUMPED} in a pydantic model); return less, or write it to a file",
        source="runtime",
        data={"most_lists_and_objects": MOST_CONTAINERS, "most_items": MOST_ITEMS},
    )


def size_beside(result: Any) -> int:
    """The length of a result beside its value, in characters: text, raw output, images, attachments."""
    size = sum([len(text) for text in (result.raw_output, result.text) if isinstance(text, str)])
    for items in (result.images, result.attachments):
        if isinstance(items, list | tuple):
            data = [item.data for item in items if isinstance(item, Image | Attachment)]
            size += sum([len(text) for text in data if isinstance(text, str)])
    return size


def too_much_beside(result: object, policy: Policy) -> Failure | None:
    """The failure of a tool whose text, raw output, images and attachments are longer than the policy allows."""
    size = size_beside(result)
    if size <= policy.max_output_bytes:
        return None
    return output_too_long(size, policy, what=" of text, raw output, images and attachments")


def _misfit(outcome: ToolOutcome, check: OutputCheck) -> Failure | None:
    """The problem of a value by its schema; a value that cannot be checked does not fit either."""
    detail: str | None = None
    data: dict[str, Any] | None = None
    try:
        problems = check(outcome.payload)
        if not problems:
            return None
        wrong, data = f"does not fit its output schema:\n{summarise(problems)}", as_data(problems)
    except Exception as error:  # the validator gives up on some values, such as very deep ones
        log.exception(
            "The value of call %r could not be checked",
            outcome.call_id,
            extra=log_fields("call.output_not_checked", call_id=outcome.call_id, tool=outcome.tool),
        )
        wrong, detail = "could not be held against its output schema", told(error)
    return Failure(
        category="execution",
        code="invalid_output",
        message=f"The return value of {outcome.tool!r} {wrong}",
        source="tool",
        detail=detail,
        data=data,
    )
