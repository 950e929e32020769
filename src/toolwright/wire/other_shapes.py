"""Calls in the shape of another provider. Owns telling a caller which reader to use; reads no call itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolwright.errors import ConversionError
from toolwright.tools.call import ToolCall
from toolwright.wire.payload_reader import Part, plain

_CHAT, _RESPONSES, _ANTHROPIC, _MCP = "openai-chat", "openai-responses", "anthropic", "mcp"
_RESPONSES_CALLS = ("function_call", "custom_tool_call")


def read_own(part: Part, own: str, read: Callable[[Part], list[ToolCall]]) -> list[ToolCall]:
    """Read a payload of the format `own` with `read`.

    Raises:
        ConversionError: `read` refuses the payload, or a message of it has calls in another shape and none in this one.
    """
    try:
        found = read(part)
    except ConversionError:
        _refuse_other_shapes(part, own)
        raise
    _refuse_other_shapes(part, own)
    return found


def _refuse_other_shapes(part: Part, own: str) -> None:
    for item in part.each() if part.is_list else [part]:
        shapes = _shapes(item.value)
        if shapes and own not in shapes:
            reader = min(shapes).replace("-", "_")
            raise ConversionError(
                f"{part.shape}: {item.path} has calls in the shape {min(shapes)!r}; "
                f"use toolwright.wire.{reader}.read_calls"
            )


def _shapes(value: object) -> set[str]:
    """The shapes of the calls in a response, a message or an item; empty if there are no calls."""
    if not isinstance(value, dict):
        return set()
    found: set[str] = set()
    kind = value.get("type")
    if value.get("method") == "tools/call":
        found.add(_MCP)
    if value.get("tool_calls") or isinstance(plain(value.get("function_call")), dict):
        found.add(_CHAT)
    if "name" not in value and isinstance(plain(value.get("function")), dict):
        found.add(_CHAT)
    for choice in map(plain, _list(value, "choices")[:1]):
        if isinstance(choice, dict):
            found |= _shapes(plain(choice.get("message")))
    if kind == "tool_use" or any(_kind(block) == "tool_use" for block in _list(value, "content")):
        found.add(_ANTHROPIC)
    if kind in _RESPONSES_CALLS or any(_kind(item) in _RESPONSES_CALLS for item in _list(value, "output")):
        found.add(_RESPONSES)
    return found


def _list(value: dict[str, Any], name: str) -> list[Any]:
    given = value.get(name)
    return list(given) if isinstance(given, (list, tuple)) else []


def _kind(item: object) -> object:
    value = plain(item)
    return value.get("type") if isinstance(value, dict) else None
