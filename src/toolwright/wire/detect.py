"""Which shape a payload has. Owns the registry of shapes and telling them apart; converts nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from toolwright.errors import ConversionError
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain
from toolwright.wire.payload_reader import plain as as_plain


class Provider(Protocol):
    """The functions of every wire format. A payload that was written can be read back, and appended to a history."""

    def read_calls(self, payload: object) -> list[ToolCall]:
        """The calls in a response, a message, or a list of either or of calls."""
        ...

    def write_calls(self, calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
        """The messages that make the calls."""
        ...

    def write_results(
        self, outcomes: Iterable[ToolOutcome], calls: Iterable[ToolCall] | None = None
    ) -> list[dict[str, Any]]:
        """The messages that answer them, in call order."""
        ...

    def read_results(self, messages: object) -> list[ToolOutcome]:
        """Read the outcomes in these messages."""
        ...

    def write_tools(self, definitions: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
        """The tools of a request."""
        ...


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "openai-chat": openai_chat,
        "openai-responses": openai_responses,
        "anthropic": anthropic,
        "mcp": mcp,
        "plain": plain,
    }
)
"""Every shape by its name."""

_BY_TYPE = {
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "server_tool_use": "anthropic",
    "function_call": "openai-responses",
    "function_call_output": "openai-responses",
    "custom_tool_call": "openai-responses",
    "custom_tool_call_output": "openai-responses",
    "reasoning": "openai-responses",
    "output_text": "openai-responses",
    "input_text": "openai-responses",
    "input_image": "openai-responses",
    "image_url": "openai-chat",
}
"""The types of items, blocks and parts that only one provider has."""


def detect(payload: object) -> str:
    """The name of the shape of a payload: a response, a message, a history, or a list of calls.

    An empty list is plain, and messages of text alone count as chat: they hold no calls in any shape.

    Raises:
        ConversionError: the payload has none of the shapes.
    """
    found = _shape(payload)
    if found is not None:
        return found
    value = as_plain(payload)
    if isinstance(value, (list, tuple)):
        if not value:
            return "plain"
        if all(_is_message(item) for item in value):
            return "openai-chat"
    elif _is_message(value):
        return "openai-chat"
    raise ConversionError(
        f"The payload {value!r:.120} has no shape that is known; give a response or messages of OpenAI chat, "
        "OpenAI responses or Anthropic, an MCP request, or a list of calls with id, name and arguments"
    )


def _shape(payload: object) -> str | None:
    """The format that a payload shows; None if it would fit several."""
    value = as_plain(payload)
    if isinstance(value, (list, tuple)):
        return next((shape for item in value if (shape := _shape(item)) is not None), None)
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if isinstance(kind, str) and kind.endswith(("_call", "_call_output")):  # of a tool that the provider runs itself
        return "openai-responses"
    if "jsonrpc" in value or "method" in value or "structuredContent" in value or "isError" in value:
        return "mcp"
    if isinstance(value.get("choices"), list) or value.get("tool_calls") or value.get("function_call"):
        return "openai-chat"
    if value.get("role") in ("tool", "function") or _is_chat_call(value):
        return "openai-chat"
    if isinstance(value.get("output"), list) or value.get("object") == "response":
        return "openai-responses"
    if "role" in value:
        if "stop_reason" in value:
            return "anthropic"
        return _shape(value["content"]) if isinstance(value.get("content"), (list, tuple)) else None
    return "plain" if isinstance(value.get("name"), str) and kind is None else None


def _is_chat_call(value: dict[str, Any]) -> bool:
    return any(value.get(name) is not None for name in ("function", "custom")) and "name" not in value


def _is_message(item: object) -> bool:
    value = as_plain(item)
    return isinstance(value, dict) and "role" in value
