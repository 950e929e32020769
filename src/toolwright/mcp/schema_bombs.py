"""Schemas that a server wrote. Owns refusing those whose check could hold up the program; what a schema means is
checked by `toolwright.tools.raw_schema`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from toolwright import jsonx
from toolwright.errors import ToolDefinitionError
from toolwright.large_json import has_few_parts

LARGEST = 256 * 1024
"""Bytes of the JSON of one schema."""
MOST_PARTS = 10_000
"""Lists and objects of one schema."""
MOST_CHECKS = 5_000
"""How many parts of a schema may apply to one value."""
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_ONE_IN_PLACE = ("not", "if", "then", "else")


def require_cheap(schema: Any, *, tool: str) -> None:
    """Refuse a schema that is too large, or whose parts refer to each other so that checking one value takes for ever.

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
    counts: dict[int, int] = {}
    for part in _parts(schema):
        if _checks(schema, part, counts, set()) > MOST_CHECKS:
            raise ToolDefinitionError(
                f"Tool {tool!r} has a schema of which more than {MOST_CHECKS} parts apply to one value; it is refused, "
                "for checking a value by it could take for ever"
            )


def _checks(root: Any, part: Any, counts: dict[int, int], above: set[int]) -> int:
    """How many parts of the schema apply to a value that this part applies to, itself among them."""
    if not isinstance(part, dict):
        return 1
    known = counts.get(id(part))
    if known is not None:
        return known
    if id(part) in above or len(above) > 500:
        return MOST_CHECKS + 1  # it applies to the same value again and again
    above.add(id(part))
    total = 1
    for inner in _applied(root, part):
        total += _checks(root, inner, counts, above)
        if total > MOST_CHECKS:
            break
    above.discard(id(part))
    counts[id(part)] = total
    return total


def _applied(root: Any, part: dict[str, Any]) -> Iterator[Any]:
    for key in _IN_PLACE:
        if isinstance(part.get(key), list):
            yield from part[key]
    for key in _ONE_IN_PLACE:
        if key in part:
            yield part[key]
    if isinstance(part.get("dependentSchemas"), dict):
        yield from part["dependentSchemas"].values()
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(part.get(key), str):
            yield _target(root, part[key])


def _target(root: Any, reference: str) -> Any:
    """The part that a pointer such as `#/$defs/a` leads to; None for another kind of reference."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in filter(None, unquote(reference[1:]).split("/")):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
