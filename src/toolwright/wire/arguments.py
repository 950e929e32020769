"""The arguments of a call as providers carry them. Owns text and object forms; does not own validation."""

from __future__ import annotations

from typing import Any

from toolwright.errors import ConversionError
from toolwright.jsonx import DecodeError, decode, encode
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.wire.payload_reader import Part

FREE = "input"
"""The one argument of a custom tool, which a model calls with free text instead of JSON."""
_LONGEST_WRONG_NAME = 64


def read_tool_name(part: Part) -> str:
    """The name of the tool that a model calls: the JSON text of a value that is not a name, and "" if it is missing.

    No tool has such a name, so the call fails when it is run, alone.
    """
    if part.value is None or isinstance(part.value, str):
        return part.value or ""
    return str(read_object(part))[:_LONGEST_WRONG_NAME]


def read_arguments(part: Part) -> object:
    """Arguments exactly as given. If they are neither text nor an object, their call fails when it is run, alone."""
    return part.value


def read_object(part: Part) -> object:
    """The same for a provider that sends objects only. Any other value becomes JSON text, with which its call fails."""
    if isinstance(part.value, dict):
        return part.value
    try:
        return encode(part.value).decode("utf-8")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "null"


def as_text(call: ToolCall, shape: str) -> str:
    """The arguments as JSON text; text that the model wrote is returned unchanged.

    Raises:
        ConversionError: they have no JSON form.
    """
    given = call.arguments
    if given is None:
        return "{}"
    if isinstance(given, str):
        return given
    try:
        return (bytes(given) if isinstance(given, (bytes, bytearray)) else encode(given)).decode("utf-8")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConversionError(
            f"{shape}: the arguments of call {call.id!r} to {call.name!r} have no JSON form ({error}); use plain values"
        ) from error


def as_object(call: ToolCall, shape: str) -> dict[str, Any]:
    """The arguments as an object, for the providers that take nothing else.

    Raises:
        ConversionError: they are not an object, nor the JSON text of one.
    """
    given = call.arguments
    if isinstance(given, dict):
        return given
    text = as_text(call, shape)
    try:
        found = decode(text) if text.strip() else {}
    except (DecodeError, RecursionError, ValueError) as error:
        raise ConversionError(
            f"{shape}: the arguments of call {call.id!r} to {call.name!r} are not JSON ({error}); "
            "this shape carries objects only"
        ) from error
    if not isinstance(found, dict):
        raise ConversionError(
            f"{shape}: the arguments of call {call.id!r} to {call.name!r} are a {type(found).__name__}; "
            "this shape carries objects only"
        )
    return found


def free_text(call: ToolCall, shape: str) -> str | None:
    """The text that a model wrote for a custom tool; None for a call that has JSON arguments."""
    if call.kind != "custom":
        return None
    try:
        found = as_object(call, shape)
    except ConversionError:
        return None
    text = found.get(FREE)
    return text if len(found) == 1 and isinstance(text, str) else None


def object_schema(definition: ToolDefinition) -> dict[str, Any]:
    """The input schema as providers want it: the schema of an object, with its properties, also where it has none."""
    schema = definition.input_schema
    if schema.get("type") == "object" and "properties" in schema:
        return schema
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def takes_free_text(definition: ToolDefinition) -> bool:
    """True for a custom tool whose one parameter is a string named `input`."""
    properties = definition.input_schema.get("properties")
    if definition.kind != "custom" or not isinstance(properties, dict) or set(properties) != {FREE}:
        return False
    parameter = properties[FREE]
    return isinstance(parameter, dict) and parameter.get("type") == "string"
