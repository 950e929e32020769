"""The code of a tool. Owns `Body`, the part of a tool that is called, and that two bodies of it take the same input.

A tool has one body, or a second one for its background runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from toolwright.errors import ToolDefinitionError

Mode = Literal["async", "thread", "process"]
Validate = Callable[[bytes], dict[str, Any]]
Invoke = Callable[[dict[str, Any], Any], Any]

_ANNOTATIONS = frozenset({"title", "description", "examples"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keywords whose keys are names that somebody chose, not keywords."""


class Body(NamedTuple):
    """Code that a tool runs, and how it is called: see the fields of `Tool`."""

    validate: Validate
    invoke: Invoke
    mode: Mode
    needs_context: bool
    function: Callable[..., Any]
    direct: Callable[..., Any] | None = None
    needs: frozenset[str] = frozenset()


MakeBody = Callable[[Callable[..., Any]], Body]
"""Makes the body of a function that takes the same input as a tool.

Raises:
    ToolDefinitionError: it takes another input, or cannot be a tool.
"""


def require_same_input(name: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Refuse a function for the background whose parameters are not those of its tool; descriptions may differ.

    Raises:
        ToolDefinitionError: they differ.
    """
    if _shape(own) != _shape(other):
        mine, theirs = own.get("properties", {}), other.get("properties", {})
        differing = sorted(
            key for key in mine.keys() | theirs.keys() if _shape(mine.get(key)) != _shape(theirs.get(key))
        ) or sorted(set(own.get("required", ())) ^ set(other.get("required", ())))
        raise ToolDefinitionError(
            f"Tool {name!r} has a function for the background with another input schema"
            f"{f' (it differs in {differing})' if differing else ''}; give it the same parameters, types and defaults"
        )


def _shape(schema: object) -> object:
    """A schema without its descriptions."""
    if isinstance(schema, list):
        return [_shape(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: _shape(item) for name, item in value.items()}
        if key in _NAMED and isinstance(value, Mapping)
        else sorted(value)
        if key == "required" and isinstance(value, list)
        else _shape(value)
        for key, value in schema.items()
        if key not in _ANNOTATIONS
    }
