"""The content of requests and calls, for those who want it in their traces. Owns its form, its bounds, and that secrets
are taken out of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolwright import jsonx
from toolwright.telemetry.conventions import finish_reason
from toolwright.tools.model import ModelAnswer, ModelRequest, ToolResults, UserMessage
from toolwright.tools.tracing import Redact

LONGEST = 16 * 1024
"""Characters of one attribute, and of one text among messages."""


def bounded(text: str, redact: Redact | None = None) -> str:
    """The beginning of a text, with a note about the rest."""
    if len(text) <= LONGEST:
        return text
    if redact is not None:  # before it is cut: the beginning of a secret is not known for one
        text = jsonx.decode(redact(jsonx.encode(text)))
        if len(text) <= LONGEST:
            return text
    return f"{text[:LONGEST]} [{len(text) - LONGEST} more characters]"


def request_messages(request: ModelRequest, redact: Redact | None) -> str:
    """The messages of a request, as JSON in the form of the conventions; only the last ones of a long conversation."""
    return _written(_messages(request.messages, redact), redact)


def answer_messages(answer: object, redact: Redact | None) -> str:
    """The answer of a model, in the same form."""
    return _written([_message(answer, redact)], redact)


def instructions(request: ModelRequest, redact: Redact | None) -> str:
    """The instructions of a request, in the same form."""
    return _written([_text(request.instructions, redact)], redact)


def _written(data: Sequence[Any], redact: Redact | None) -> str:
    kept: list[bytes] = []
    size = 0
    for item in reversed(data):  # the last ones are new
        written = jsonx.encode(item)
        if redact is not None:
            written = redact(written)
        size += len(written)
        if kept and size > 4 * LONGEST:
            break
        kept.append(written)
    return f"[{b','.join(reversed(kept)).decode()}]"


def _messages(items: Iterable[Any], redact: Redact | None) -> list[Any]:
    if isinstance(items, str):
        return [{"role": "user", "parts": [_text(items, redact)]}]
    return [
        message
        for item in items
        for message in (_results(item, redact) if isinstance(item, ToolResults) else [_message(item, redact)])
    ]


def _results(item: ToolResults, redact: Redact | None) -> list[dict[str, Any]]:
    """A message for each result: some backends show only one result of a message."""
    return [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": outcome.call_id, "response": bounded(outcome.text, redact)}],
        }
        for outcome in item.outcomes
    ]


def _message(item: object, redact: Redact | None) -> dict[str, Any]:
    if isinstance(item, UserMessage):
        return {"role": "user", "parts": [_text(item.text, redact)]}
    if isinstance(item, ModelAnswer):
        calls = [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _bounded_value(call.arguments, redact)}
            for call in item.calls
        ]
        texts = [_text(item.text, redact)] if item.text else []
        return {"role": "assistant", "parts": [*texts, *calls], "finish_reason": finish_reason(item.stop)}
    if isinstance(item, dict):
        role = item.get("role")
        return {
            "role": role if isinstance(role, str) else "user",
            "parts": [_text(_shown(item.get("content")), redact)],
        }
    return {"role": "assistant", "parts": [_text(_shown(item), redact)]}


def _text(text: str, redact: Redact | None) -> dict[str, str]:
    return {"type": "text", "content": bounded(text, redact)}


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return jsonx.encode(value).decode()
    except Exception:  # a value that a tool or a model made
        return f"a {type(value).__name__}"


def _bounded_value(value: object, redact: Redact | None) -> object:
    shown = _shown(value)
    return value if len(shown) <= LONGEST else bounded(shown, redact)
