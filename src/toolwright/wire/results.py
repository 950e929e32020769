"""Outcomes as text, and text as outcomes. Owns pairing with calls and telling failures; knows no provider."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from toolwright.errors import ConversionError
from toolwright.jsonx import DecodeError, decode, encode
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Failure, Image, ToolOutcome, error_text
from toolwright.tools.tool import Tool
from toolwright.wire.payload_reader import Part

INTERRUPTED = "The call was interrupted and its result is not known; it may have had an effect."
"""The text that a model reads for a call that has no result in a history."""

INTERRUPTED_TEXT = error_text(INTERRUPTED)
"""The same in the form in which it stands in a history."""


def interrupted(call_id: str, tool: str) -> ToolOutcome:
    """The outcome of a call whose end is unknown."""
    failure = Failure(category="interrupted", code="result_unknown", message=INTERRUPTED, source="runtime")
    return ToolOutcome(call_id=call_id, tool=tool, status="failure", failure=failure, may_have_run=True)


def is_error(outcome: ToolOutcome) -> bool:
    """True for an outcome that a model should read as an error. A pending call is not one: it is still running."""
    return outcome.status not in ("success", "pending")


def in_call_order(outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None) -> list[ToolOutcome]:
    """The outcomes in the order of their calls, or as given when no calls are.

    Raises:
        ConversionError: a call has no outcome, or an outcome has no call.
    """
    if calls is None:
        return list(outcomes)
    waiting: dict[str | None, list[ToolOutcome]] = defaultdict(list)
    for outcome in outcomes:
        waiting[outcome.call_id].append(outcome)
    ordered = []
    for call in calls:
        if not waiting[call.id]:
            raise ConversionError(f"Call {call.id!r} to {call.name!r} has no outcome; give one for every call")
        ordered.append(waiting[call.id].pop(0))
    left = [outcome.call_id for rest in waiting.values() for outcome in rest]
    if left:
        raise ConversionError(f"The outcomes of {left!r} answer no call; leave them out, or give their calls too")
    return ordered


def from_text(
    part: Part, call_id: str, tool: str, text: str, *, images: Iterable[Image] = (), error: bool | None = None
) -> ToolOutcome:
    """The outcome that a result's text describes; its `text` is exactly that text.

    The value is the text read as JSON, or the text itself. `error` is the provider's error flag; if it has none (None),
    `{"error": "..."}` is a failure, because failures are written so.

    Raises:
        ConversionError: the text is not Unicode that could be sent anywhere.
    """
    try:
        value = _decoded(text)
        payload = encode(text) if isinstance(value, str) else text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise part.wrong("text without lone surrogates") from problem
    message = error_message(value)
    if error or (error is None and message is not None):
        said = message if message is not None else text or "The tool failed and said nothing."
        failure = Failure(message=said)
        return ToolOutcome(
            call_id=call_id,
            tool=tool,
            status="failure",
            failure=failure,
            images=tuple(images),
            model_text=text,
        )
    return ToolOutcome(
        call_id=call_id, tool=tool, status="success", payload=payload, images=tuple(images), model_text=text
    )


def error_message(value: object) -> str | None:
    """The message in the form that failures are written in, if the value has it."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("error"), str):
        return str(value["error"])
    return None


def _decoded(text: str) -> object:
    """The value of JSON text, or the text. Quotes around a string stay: strings are written without any."""
    try:
        return decode(text)
    except (DecodeError, RecursionError):
        return text


def definition_of(thing: ToolDefinition | Tool) -> ToolDefinition:
    """A tool's definition, of the tool or of the definition itself."""
    return thing.definition if isinstance(thing, Tool) else thing
