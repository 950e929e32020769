"""Anthropic messages. Owns `tool_use` and `tool_result` blocks; does not own sending them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.ids import new_id
from toolwright.jsonx import encode
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, ToolOutcome
from toolwright.tools.tool import Tool
from toolwright.wire import images as pictures
from toolwright.wire.arguments import as_object, object_schema, read_object, read_tool_name
from toolwright.wire.other_shapes import read_own
from toolwright.wire.payload_reader import Part
from toolwright.wire.provider_fields import given_back, kept, unknown_fields
from toolwright.wire.results import definition_of, from_text, in_call_order, is_error

SHAPE = "Anthropic"
NAME = "anthropic"
_KNOWN = ("type", "id", "name", "input")
_CUT_OFF = ("max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence")
"""The reasons to stop in the middle of an answer. `input` is an object then, too, of as much as there was."""


def read_calls(payload: object) -> list[ToolCall]:
    """The calls in a response, a message, a list of messages or a list of content blocks.

    Tools that the provider runs itself (`server_tool_use`) are not calls of ours. The calls of an answer that was cut
    off (`stop_reason`) are marked as such, and are not run. A call whose `input` is no object, or
    that has no usable name, fails alone.

    Raises:
        ConversionError: the payload has another shape.
    """
    return read_own(
        Part(payload, SHAPE, "payload"),
        NAME,
        lambda part: [_read_call(block, cut_off) for block, cut_off in _blocks(part) if block.kind() == "tool_use"],
    )


def write_calls(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """The assistant message that makes these calls, in a list; an empty list for no calls.

    Raises:
        ConversionError: arguments are not an object, which is all that `input` may be.
    """
    blocks = [
        {
            **given_back(call, NAME),
            "type": "tool_use",
            "id": call.id or new_id("toolu"),
            "name": wire_name(call.name),
            "input": as_object(call, SHAPE),
        }
        for call in calls
    ]
    return [{"role": "assistant", "content": blocks}] if blocks else []


def write_results(outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None = None) -> list[dict[str, Any]]:
    """The one user message that answers an assistant message, in a list: every result, in call order.

    Raises:
        ConversionError: `calls` are given and do not match the outcomes.
    """
    blocks = [_write_result(outcome) for outcome in in_call_order(outcomes, calls)]
    return [{"role": "user", "content": blocks}] if blocks else []


def read_results(messages: object) -> list[ToolOutcome]:
    """The results in a message, a list of messages or a list of content blocks; all else is passed over.

    The name of a result's tool is taken from its call, when that is there too.

    Raises:
        ConversionError: a message or a block has another shape.
    """
    names: dict[str, str] = {}
    outcomes = []
    for block, _ in _blocks(Part(messages, SHAPE, "messages")):
        if block.kind() == "tool_use":
            names[block.field("id").name()] = read_tool_name(block.field("name"))
        elif block.kind() == "tool_result":
            call_id = block.field("tool_use_id").name("the id of the call it answers")
            content = block.field("content")
            text, images = _read_content(content)
            error = block.field("is_error").value is True
            outcomes.append(from_text(content, call_id, names.get(call_id, ""), text, images=images, error=error))
    return outcomes


def write_tools(definitions: Iterable[ToolDefinition | Tool]) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    return [
        {"name": wire_name(tool.name), "description": tool.description, "input_schema": object_schema(tool)}
        for tool in map(definition_of, definitions)
    ]


def _blocks(part: Part) -> list[tuple[Part, str | None]]:
    """The content blocks, each with the reason why the answer that it stands in was cut off, if it was."""
    if part.is_list:
        return [block for item in part.each() for block in _blocks(item)]
    part.object("a message, or a list of content blocks")
    cut_off: str | None = None
    if part.has("role"):
        stopped = part.field("stop_reason").value
        cut_off = stopped if stopped in _CUT_OFF else None
        content = part.field("content")
        if content.value is None or isinstance(content.value, str):
            return []
        blocks = content.each("text, or a list of content blocks")
    else:
        blocks = [part]
    for block in blocks:
        block.object("a content block")
        block.field("type").name("the type of a content block")
    return [(block, cut_off) for block in blocks]


def _read_call(block: Part, cut_off: str | None) -> ToolCall:
    return ToolCall(
        name=read_tool_name(block.field("name")),
        arguments=read_object(block.field("input")),
        id=block.field("id").name("the call's id"),
        cut_off=cut_off,
        meta=kept(NAME, unknown_fields(block, _KNOWN)),
    )


def _write_result(outcome: ToolOutcome) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.call_id}
    if outcome.images:
        # A blank text block makes the provider refuse the message.
        shown: list[dict[str, Any]] = [_text(outcome.text)] if outcome.text.strip() else []
        block["content"] = shown + [_write_image(image) for image in outcome.images]
    else:
        block["content"] = outcome.text
    if is_error(outcome):
        block["is_error"] = True
    return block


def _write_image(image: Image) -> dict[str, Any]:
    if not pictures.viewable(image):
        return _text(pictures.stand_in(image))
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _read_content(content: Part) -> tuple[str, list[Image]]:
    if content.value is None or isinstance(content.value, str):
        return content.value or "", []
    texts, images = [], []
    for block in content.each("text, or a list of text and images"):
        kind = block.kind()
        if kind == "text":
            texts.append(block.field("text").text())
        elif kind == "image" and block.field("source").kind() == "base64":
            source = block.field("source")
            images.append(Image(source.field("data").text("base64 data"), source.field("media_type").name()))
        else:
            texts.append(encode(block.value).decode("utf-8"))
    return "\n".join(texts), images
