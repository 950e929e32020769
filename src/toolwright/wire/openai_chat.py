"""OpenAI chat completions. Owns `tool_calls` and tool messages; does not own sending them.

A tool message carries text only. Images therefore follow in one user message after all tool messages of the
batch, each call's behind a line that names the call, and `read_results` gives them back to their outcomes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from toolwright.ids import new_id
from toolwright.jsonx import DecodeError, decode, encode
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, ToolOutcome
from toolwright.tools.tool import Tool
from toolwright.wire import images as pictures
from toolwright.wire.arguments import (
    FREE,
    as_text,
    free_text,
    object_schema,
    read_arguments,
    read_tool_name,
    takes_free_text,
)
from toolwright.wire.other_shapes import read_own
from toolwright.wire.payload_reader import Part
from toolwright.wire.provider_fields import given_back, kept, unknown_fields
from toolwright.wire.results import definition_of, from_text, in_call_order

SHAPE = "OpenAI chat"
NAME = "openai-chat"
_KNOWN = ("id", "type", "function", "custom")
_WITHIN = "function"
"""The key that holds the fields which stood inside the function or custom call."""
_CUT_OFF = ("length", "content_filter")
"""The stop reasons of an answer that was cut off. The format does not say which of its calls are complete."""
_CAPTION = re.compile(r'Images from call (".*"):')


def read_calls(payload: object) -> list[ToolCall]:
    """The calls in a completion (its first choice), a message, a list of messages or a list of calls.

    A call without an id gets one, and so does a legacy `function_call`. The history must then hold
    `write_calls` of the calls in place of the model's own message, or their results would answer nothing.
    The calls of an answer that was cut off (`finish_reason`) are marked as such, and are not run. A call without a
    usable name or arguments fails alone, when it is run.

    Raises:
        ConversionError: the payload has another shape.
    """
    return read_own(Part(payload, SHAPE, "payload"), NAME, lambda part: _calls(part, None))


def write_calls(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """The assistant message that makes these calls, in a list; an empty list for no calls."""
    written = [_write_call(call) for call in calls]
    return [{"role": "assistant", "content": None, "tool_calls": written}] if written else []


def write_results(outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None = None) -> list[dict[str, Any]]:
    """The messages to append: one tool message for each outcome, in call order, then the images if any.

    Raises:
        ConversionError: `calls` are given and do not match the outcomes.
    """
    ordered = in_call_order(outcomes, calls)
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": outcome.call_id, "content": outcome.text} for outcome in ordered
    ]
    content = [part for outcome in ordered if outcome.images for part in _write_images(outcome)]
    if content:
        messages.append({"role": "user", "content": content})
    return messages


def read_results(messages: object) -> list[ToolOutcome]:
    """The results in a message or a list of them; all else is passed over.

    A result carries no tool name and no status: the name is taken from the call, when that is among the
    messages, and `{"error": "..."}` reads as a failure.

    Raises:
        ConversionError: a message has another shape.
    """
    part = Part(messages, SHAPE, "messages")
    names: dict[str, str] = {}
    outcomes: list[ToolOutcome] = []
    for message in part.each() if part.is_list else [part]:
        message.object("a message")
        role = message.field("role").value
        if role == "tool":
            call_id = message.field("tool_call_id").name("the id of the call it answers")
            content = message.field("content")
            outcomes.append(from_text(content, call_id, names.get(call_id, ""), _text(content)))
        elif role == "assistant":
            names.update((call.id, call.name) for call in _calls(message, None) if call.id)
        elif role == "user" and message.field("content").is_list:
            _attach(message.field("content"), outcomes)
    return outcomes


def write_tools(definitions: Iterable[ToolDefinition | Tool]) -> list[dict[str, Any]]:
    """The `tools` of a request. A custom tool with the string `input` as its one parameter gets free text."""
    written: list[dict[str, Any]] = []
    for tool in map(definition_of, definitions):
        about = {"name": wire_name(tool.name), "description": tool.description}
        if takes_free_text(tool):
            written.append({"type": "custom", "custom": about})
        else:
            written.append({"type": "function", "function": {**about, "parameters": object_schema(tool)}})
    return written


def _calls(part: Part, cut_off: str | None) -> list[ToolCall]:
    if part.is_list:
        return [call for item in part.each() for call in _calls(item, cut_off)]
    part.object("a completion, a message, or a list of tool calls")
    if part.has("choices"):
        choices = part.field("choices").each("a list of choices")
        if not choices:
            raise part.field("choices").wrong("at least one choice")
        finished = choices[0].field("finish_reason").value
        return _calls(choices[0].field("message"), finished if finished in _CUT_OFF else None)
    if part.has("tool_calls"):
        return [_read_call(item, cut_off) for item in part.field("tool_calls").each("a list of tool calls")]
    if part.has("function_call"):
        return [_function(part.field("function_call"), None, {}, cut_off)]
    if part.has("function", "custom"):
        return [_read_call(part, cut_off)]
    if part.has("role"):
        return []
    raise part.wrong("a completion, a message, or a list of tool calls")


def _read_call(part: Part, cut_off: str | None) -> ToolCall:
    if not isinstance(part.value, dict):
        return ToolCall(name="", arguments=read_arguments(part), id=new_id("call"), cut_off=cut_off)
    given = part.field("id")
    call_id = given.text() if given.value else None
    beside = unknown_fields(part, _KNOWN)
    custom = part.field("custom")
    if isinstance(custom.value, dict) and part.kind() in ("custom", None):
        return ToolCall(
            name=read_tool_name(custom.field("name")),
            arguments={FREE: custom.field("input").value},
            id=call_id or new_id("call"),
            kind="custom",
            cut_off=cut_off,
            meta=_meta(beside, custom),
        )
    return _function(part.field("function"), call_id, beside, cut_off)


def _function(part: Part, call_id: str | None, beside: dict[str, Any], cut_off: str | None) -> ToolCall:
    if not isinstance(part.value, dict):
        return ToolCall(
            name="",
            arguments=read_arguments(part),
            id=call_id or new_id("call"),
            cut_off=cut_off,
            meta=kept(NAME, beside),
        )
    return ToolCall(
        name=read_tool_name(part.field("name")),
        arguments=read_arguments(part.field("arguments")),
        id=call_id or new_id("call"),
        cut_off=cut_off,
        meta=_meta(beside, part),
    )


def _meta(beside: dict[str, Any], called: Part) -> dict[str, Any] | None:
    within = unknown_fields(called, ("name", "arguments", "input"))
    return kept(NAME, {**beside, **({_WITHIN: within} if within else {})})


def _write_call(call: ToolCall) -> dict[str, Any]:
    call_id = call.id or new_id("call")
    beside = given_back(call, NAME)
    called = {**beside.pop(_WITHIN, {}), "name": wire_name(call.name)}
    text = free_text(call, SHAPE)
    if text is not None:
        return {**beside, "id": call_id, "type": "custom", "custom": {**called, "input": text}}
    return {**beside, "id": call_id, "type": "function", "function": {**called, "arguments": as_text(call, SHAPE)}}


def _write_images(outcome: ToolOutcome) -> list[dict[str, Any]]:
    caption = f"Images from call {encode(outcome.call_id).decode('utf-8')}:"
    content: list[dict[str, Any]] = [{"type": "text", "text": caption}]
    for image in outcome.images:
        if pictures.viewable(image):
            content.append({"type": "image_url", "image_url": {"url": pictures.to_url(image)}})
        else:
            content.append({"type": "text", "text": pictures.stand_in(image)})
    return content


def _text(content: Part) -> str:
    if content.value is None or isinstance(content.value, str):
        return content.value or ""
    parts = content.each("text, or a list of text parts")
    return "\n".join(part.field("text").text() for part in parts)


def _attach(content: Part, outcomes: list[ToolOutcome]) -> None:
    """Give images back to the latest outcome of the call that their caption names."""
    found: dict[str, list[Image]] = {}
    owner: str | None = None
    for part in content.each():
        if part.kind() == "text":
            owner = _captioned(part.field("text").text()) or owner
        elif owner is not None and part.kind() == "image_url":
            image = pictures.from_url(part.field("image_url").field("url").text())
            if image is not None:
                found.setdefault(owner, []).append(image)
    for index in reversed(range(len(outcomes))):
        given = found.pop(outcomes[index].call_id, None)
        if given:
            outcomes[index] = replace(outcomes[index], images=tuple(given))


def _captioned(text: str) -> str | None:
    match = _CAPTION.fullmatch(text)
    try:
        return decode(match.group(1), type=str) if match else None
    except DecodeError:
        return None
