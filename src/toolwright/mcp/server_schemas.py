"""Schemas that a server wrote. Owns refusing those that are too large or refer to themselves without end; what a schema
means, and how often it checks one value, is looked at by `toolwright.tools.raw_schema`."""

from __future__ import annotations

from toolwright import jsonx
from toolwright.errors import ToolDefinitionError
from toolwright.large_json import has_few_parts
from toolwright.tools.repeated_checks import has_circles

LARGEST = 256 * 1024
"""Bytes of the JSON of one schema."""
MOST_PARTS = 10_000
"""Lists and objects of one schema."""


def require_usable(schema: object, *, tool: str) -> None:
    """Refuse a schema that is too large, or a part of which applies to the same value again and again.

    Raises:
        ToolDefinitionError: it is one of these.
    """
    try:
        encoded = jsonx.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"Tool {tool!r} has a schema that is not plain JSON ({error})") from None
    if len(encoded) > LARGEST or not has_few_parts(encoded, MOST_PARTS, 10 * MOST_PARTS):
        raise ToolDefinitionError(
            f"Tool {tool!r} has a schema of {len(encoded)} bytes, and may have one of {LARGEST} bytes in {MOST_PARTS} "
            "parts"
        )
    if has_circles(schema):
        raise ToolDefinitionError(f"Tool {tool!r} has a schema with parts that refer to each other in a circle")
