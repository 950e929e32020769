"""LangChain's messages. Owns the conversion of its calls and of our outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome
from toolwright.wire.images import stand_in, viewable
from toolwright.wire.results import is_error

_CUT_OFF = frozenset(
    {
        "length",
        "max_tokens",
        "MAX_TOKENS",
        "max_output_tokens",
        "content_filter",
        "model_context_window_exceeded",
        "incomplete",
    }
)
"""The reasons that chat models give for an answer that is not complete."""
_RARE = ("attachments", "decided_by", "decision", "metadata", "provider", "raw_output", "reason", "spilled_to")
"""What few successes have beside their value."""
_REASONS = ("finish_reason", "stop_reason", "done_reason", "status")


def calls_of(message: AIMessage) -> list[ToolCall]:
    """The calls of an answer, in its order; after them those whose arguments are not JSON, which fail alone."""
    reason = cut_off(message)
    given: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
    return [to_call(call, index, reason) for index, call in enumerate(given)]


def to_call(call: Mapping[str, Any], index: int, reason: str | None = None) -> ToolCall:
    """One call; `reason` is why its answer is not complete. A call without an id is named by its index."""
    return ToolCall(
        name=call.get("name") or "", arguments=call.get("args"), id=call.get("id") or f"call-{index}", cut_off=reason
    )


def cut_off(message: AIMessage) -> str | None:
    """The reason why an answer is not complete: its arguments may be cut, although they are JSON."""
    metadata = message.response_metadata
    for name in _REASONS:
        reason = metadata.get(name)
        if isinstance(reason, str) and reason in _CUT_OFF:
            return reason
    return None


def answer_with(messages: Sequence[object], call_id: str | None) -> AIMessage | None:
    """The last answer that has this call, or with None the last answer."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and (
            call_id is None
            or any(call["id"] == call_id for call in message.tool_calls)
            or any(call["id"] == call_id for call in message.invalid_tool_calls)
        ):
            return message
    return None


def answered(messages: Iterable[object]) -> set[str]:
    """The ids of the calls that have a result among the messages."""
    return {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}


def to_message(outcome: ToolOutcome, call_id: str, name: str) -> ToolMessage:
    """The outcome as the result of a call: its text and images for the model, the rest as the artifact."""
    content: str | list[str | dict[str, Any]] = outcome.text
    if outcome.images:
        content = [{"type": "text", "text": outcome.text}] if outcome.text else []
        for image in outcome.images:
            if viewable(image):
                content.append({"type": "image", "base64": image.data, "mime_type": image.media_type})
            else:
                content.append({"type": "text", "text": stand_in(image)})
    return ToolMessage(
        content=content,
        artifact=_artifact(outcome),
        name=name,
        tool_call_id=call_id,
        status="error" if is_error(outcome) else "success",
    )


def _artifact(outcome: ToolOutcome) -> dict[str, Any]:
    """The outcome as plain data, without the text and the images, which the content has."""
    if outcome.status == "success" and not any(getattr(outcome, name) for name in _RARE):
        # The same, for most of them, in a fraction of the time.
        return {
            "call_id": outcome.call_id,
            "tool": outcome.tool,
            "status": outcome.status,
            "value": outcome.value,
            "attempts": outcome.attempts,
            "replayed": outcome.replayed,
        }
    artifact = outcome.to_json()
    del artifact["text"]
    artifact.pop("images", None)
    return artifact
