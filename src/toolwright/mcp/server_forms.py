"""Forms of MCP for questions of tools. Owns which schemas a form can show, and the answer in a filled form.

A form of MCP is a flat object of plain fields. A question whose schema is more than that has no form, and is answered
in the inbox. The answer is checked against the schema of the question there, not against the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolwright.tools.outcome import ToolError

ANSWER = "answer"
"""The field of a form whose question is not itself an object."""
_COMMON = ("title", "description", "default")
_KEPT: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems", "items"),
}
_FORMATS = ("email", "uri", "date", "date-time")


def form_of(schema: Mapping[str, Any] | None) -> tuple[dict[str, Any], bool] | None:
    """The form for a schema, and whether the answer is its one field; None where a form cannot show it."""
    if schema is None:
        schema = {"type": "string"}
    if schema.get("type") != "object":
        field = _field(schema)
        if field is None:
            return None
        return {"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]}, True
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or "$ref" in schema:
        return None
    fields = {str(name): _field(one) for name, one in properties.items()}
    if None in fields.values():
        return None
    required = [name for name in schema.get("required") or () if name in fields]
    return {"type": "object", "properties": fields, "required": required}, False


def answer_in(content: object, wrapped: bool) -> object:
    """The answer in a filled form.

    Raises:
        ToolError: there is none.
    """
    if not isinstance(content, Mapping) or (wrapped and ANSWER not in content):
        raise ToolError("The form was sent back without an answer; fill it in")
    return content[ANSWER] if wrapped else dict(content)


def _field(schema: object) -> dict[str, Any] | None:
    """One field of a form; None where its schema is more than that."""
    if not isinstance(schema, Mapping):
        return None
    either = schema.get("anyOf")
    if isinstance(either, list):  # such as an optional text
        plain = [one for one in either if isinstance(one, Mapping) and one.get("type") != "null"]
        if len(plain) != 1:
            return None
        schema = {**plain[0], **{name: schema[name] for name in _COMMON if schema.get(name) is not None}}
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KEPT or "$ref" in schema:
        return None
    if kind == "array" and not _is_choice(schema.get("items")):
        return None
    field = {name: schema[name] for name in (*_COMMON, *_KEPT[kind]) if schema.get(name) is not None}
    if field.get("format") not in (None, *_FORMATS):
        del field["format"]
    return {"type": kind, **field}


def _is_choice(items: object) -> bool:
    """True for the items of a list of choices."""
    if not isinstance(items, Mapping):
        return False
    return (items.get("type") == "string" and isinstance(items.get("enum"), list)) or isinstance(
        items.get("anyOf"), list
    )
