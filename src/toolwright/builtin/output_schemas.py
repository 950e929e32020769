"""The output schemas of the built-in tools. Owns the short way to write them."""

from __future__ import annotations

from typing import Any


def shape(fields: dict[str, str | dict[str, Any]]) -> dict[str, Any]:
    """The schema of an object with these fields and no others; one whose name ends in `?` may be missing.

    A field is a schema, or the name of a JSON type.
    """
    properties = {
        name.rstrip("?"): {"type": field} if isinstance(field, str) else field for name, field in fields.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def several(item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": item}


def one_of(*words: str) -> dict[str, Any]:
    """The schema of one of these words."""
    return {"type": "string", "enum": list(words)}
