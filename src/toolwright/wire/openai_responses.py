"""OpenAI responses. Owns `function_call`, `custom_tool_call` and their outputs; does not own sending them."""

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

SHAPE = "OpenAI responses"
NAME = "openai-responses"
# The id of an item names it in the provider's store. Sent back without the reasoning that it came with, it is refused.
_KNOWN = ("type", "id", "status", "call_id", "name", "arguments", "input")
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def read_calls(payload: object) -> list[ToolCall]:
    """The calls in a response, its `output`, or one item. The text for a custom tool is the argument `input`.

    The items of tools that the provider runs itself, such as `web_search_call`, are passed over. A call that is not
    completed, or stands in a response that was cut off and does not say that it is whole, is marked as cut off and is
    not run. A call without a usable name or arguments fails alone, when it is run.

    Raises:
        ConversionError: the payload has another shape.
    """
    return read_own(
        Part(payload, SHAPE, "payload"),
        NAME,
        lambda part: [_read_call(item, cut_off) for item, cut_off in _items(part) if item.kind() in CALLS],
    )


def write_calls(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """The items that make these calls."""
    items = []
    for call in calls:
        item: dict[str, Any] = {
            **given_back(call, NAME),
            "type": "function_call",
            "call_id": call.id or new_id("call"),
            "name": wire_name(call.name),
        }
        text = free_text(call, SHAPE)
        if text is None:
            item["arguments"] = as_text(call, SHAPE)
        else:
            item |= {"type": "custom_tool_call", "input": text}
        items.append(item)
    return items


def write_results(outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None = None) -> list[dict[str, Any]]:
    """The items to append, in call order; with images, an output is a list of text and images.

    An outcome does not say how its tool was called. With custom calls in a batch give `calls`, or their
    results are written as those of functions. The `caller` of a call, where it has one, goes back with its result.

    Raises:
        ConversionError: `calls` are given and do not match the outcomes.
    """
    asked = None if calls is None else list(calls)
    custom = {call.id for call in asked or () if free_text(call, SHAPE) is not None}
    callers = {call.id: fields for call in asked or () if (fields := _caller(call))}
    return [
        {
            **callers.get(outcome.call_id, {}),
            "type": "custom_tool_call_output" if outcome.call_id in custom else "function_call_output",
            "call_id": outcome.call_id,
            "output": _output(outcome),
        }
        for outcome in in_call_order(outcomes, asked)
    ]


def read_results(messages: object) -> list[ToolOutcome]:
    """The results in a list of items; all else is passed over.

    A result carries no tool name and no status: the name is taken from the call, when that is among the
    items, and `{"error": "..."}` reads as a failure.

    Raises:
        ConversionError: an item has another shape.
    """
    names: dict[str, str] = {}
    outcomes = []
    for item, _ in _items(Part(messages, SHAPE, "messages")):
        if item.kind() in CALLS:
            names[item.field("call_id").name()] = read_tool_name(item.field("name"))
        elif item.kind() in OUTPUTS:
            call_id = item.field("call_id").name("the id of the call it answers")
            output = item.field("output")
            text, images = _read_output(output)
            outcomes.append(from_text(output, call_id, names.get(call_id, ""), text, images=images))
    return outcomes


def write_tools(definitions: Iterable[ToolDefinition | Tool]) -> list[dict[str, Any]]:
    """The `tools` of a request. A custom tool with the string `input` as its one parameter gets free text."""
    written: list[dict[str, Any]] = []
    for tool in map(definition_of, definitions):
        about = {"name": wire_name(tool.name), "description": tool.description}
        if takes_free_text(tool):
            written.append({"type": "custom", **about})
        else:
            # Left unsaid, this API takes `strict` as true and refuses schemas with optional fields.
            written.append({"type": "function", **about, "parameters": object_schema(tool), "strict": False})
    return written


def _items(part: Part) -> list[tuple[Part, str | None]]:
    """The items, each with the reason why the response that it stands in was cut off, if it was."""
    if part.is_list:
        return [item for each in part.each() for item in _items(each)]
    part.object("a response, or a list of its output items")
    if part.has("type", "role"):  # items of other tools have an `output`, too
        return [(part, None)]
    if part.has("output"):
        cut_off = _cut_off(part)
        return [(item, cut_off) for item in part.field("output").each("a list of output items")]
    raise part.wrong("a response, or an item with a type")


def _cut_off(response: Part) -> str | None:
    status = response.field("status").value
    if status in (None, "completed"):
        return None
    why = response.field("incomplete_details")
    reason = why.field("reason").value if isinstance(why.value, dict) else None
    return str(reason or status)


def _read_call(item: Part, cut_off: str | None) -> ToolCall:
    name, call_id = read_tool_name(item.field("name")), item.field("call_id").name("the call's id")
    status = item.field("status").value
    if status is not None:
        cut_off = None if status == "completed" else cut_off or str(status)
    custom = item.kind() == "custom_tool_call"
    if custom:
        arguments: Any = {FREE: item.field("input").value}
    else:
        arguments = read_arguments(item.field("arguments"))
    return ToolCall(
        name=name,
        arguments=arguments,
        id=call_id,
        kind="custom" if custom else None,
        cut_off=cut_off,
        meta=kept(NAME, unknown_fields(item, _KNOWN)),
    )


def _caller(call: ToolCall) -> dict[str, Any]:
    fields = given_back(call, NAME)
    return {"caller": fields["caller"]} if "caller" in fields else {}


def _output(outcome: ToolOutcome) -> str | list[dict[str, Any]]:
    if not outcome.images:
        return outcome.text
    output: list[dict[str, Any]] = [{"type": "input_text", "text": outcome.text}] if outcome.text else []
    for image in outcome.images:
        if pictures.viewable(image):
            output.append({"type": "input_image", "image_url": pictures.to_url(image), "detail": "auto"})
        else:
            output.append({"type": "input_text", "text": pictures.stand_in(image)})
    return output


def _read_output(output: Part) -> tuple[str, list[Image]]:
    if isinstance(output.value, str):
        return output.value, []
    texts, images = [], []
    for part in output.each("text, or a list of text and images"):
        kind = part.kind()
        url = part.field("image_url").value
        image = pictures.from_url(url) if kind == "input_image" and isinstance(url, str) else None
        if image is not None:
            images.append(image)
        elif kind in ("input_text", "output_text", "text"):
            texts.append(part.field("text").text())
        else:
            texts.append(encode(part.value).decode("utf-8"))
    return "\n".join(texts), images
