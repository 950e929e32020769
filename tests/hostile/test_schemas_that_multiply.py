"""Short schemas that mean very many checks: they are refused when a tool is defined, no matter who wrote them."""

from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, Tool, ToolDefinitionError


def made(schema: dict[str, Any], **options: Any) -> Tool:
    return Tool.from_schema(
        name="take", description="Take it.", input_schema=schema, handler=lambda arguments, ctx: "taken", **options
    )


def doubling(reference: str, keyword: str, *, inside: bool, levels: int = 30, **own: str) -> dict[str, Any]:
    """A schema of which each part refers twice to the next one, for the same value or for a field of it."""
    parts: dict[str, Any] = {}
    for number in range(levels):
        target: dict[str, Any] = {"$ref": reference.format(number + 1)}
        form = {"properties": {"a": target}} if inside else target
        parts[f"d{number}"] = {keyword: [form, form], **{key: text.format(number) for key, text in own.items()}}
    parts[f"d{levels}"] = {"type": "string", **{key: text.format(levels) for key, text in own.items()}}
    return {
        "$id": "https://example.com/s",
        "type": "object",
        "properties": {"a": {"$ref": reference.format(0)}},
        "$defs": parts,
    }


BOMBS = {
    "the same value": doubling("#/$defs/d{}", "anyOf", inside=False),
    "a field of it": doubling("#/$defs/d{}", "anyOf", inside=True),
    "all of them": doubling("#/$defs/d{}", "allOf", inside=True),
    "by anchors": doubling("#d{}", "oneOf", inside=True, **{"$anchor": "d{}"}),
    "by addresses": doubling("d{}", "anyOf", inside=True, **{"$id": "d{}"}),
    "by whole addresses": doubling("https://example.com/s#/$defs/d{}", "anyOf", inside=False),
    "hidden in data": {
        "type": "object",
        "default": doubling("#/default/$defs/d{}", "anyOf", inside=False),
        "properties": {"a": {"$ref": "#/default/$defs/d0"}},
    },
    "in a ring": {
        **doubling("#/$defs/d{}", "anyOf", inside=True),
        "patternProperties": {"^b": {"$ref": "#"}},
    },
}


@pytest.mark.promise("SAFE-01")
@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_multiplies_is_refused(name):
    with pytest.raises(ToolDefinitionError, match="checks one part of a value more than 5000 times"):
        made(BOMBS[name])
    with pytest.raises(ToolDefinitionError, match="checks one part of a value more than 5000 times"):
        made({"type": "object"}, output_schema=BOMBS[name])


async def test_schemas_that_people_write_are_taken():
    """Forms that contain themselves, and definitions that are used in many places."""
    condition = {
        "anyOf": [
            {"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/condition"}}}},
            {"type": "object", "properties": {"none": {"type": "array", "items": {"$ref": "#/$defs/condition"}}}},
            {"type": "object", "properties": {"is": {"type": "string"}}, "required": ["is"]},
        ]
    }
    defs: dict[str, Any] = {"condition": condition}
    for number in range(12):  # as a type with many fields is: 3 to the 12th parts, each for another part of a value
        fields = {name: {"$ref": f"#/$defs/d{number + 1}"} for name in ("a", "b", "c")}
        defs[f"d{number}"] = {"type": "object", "properties": fields}
    defs["d12"] = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/condition"}, "row": {"$ref": "#/$defs/d0"}},
        "$defs": defs,
    }
    arguments = {"where": {"all": [{"none": [{"is": "x"}]}]}, "row": {"a": {"b": {"c": {}}}}}
    async with fail_after(5), Runtime.open(tools=[made(schema)]) as runtime:
        [outcome] = await runtime.session("s").run_batch([{"name": "take", "arguments": arguments}])
    assert outcome.value == "taken"


async def test_a_value_of_many_parts_is_refused_where_each_is_checked_very_often():
    forms = [{"type": "object", "required": [f"f{number}"]} for number in range(2_000)]
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"anyOf": forms}}}}
    async with fail_after(5), Runtime.open(tools=[made(schema)]) as runtime:
        calls = [{"name": "take", "arguments": {"items": [{"f7": 1}] * count}} for count in (5, 5_000)]
        few, many = await runtime.session("s").run_batch(calls)
    assert few.value == "taken"
    assert many.failure.category == "invalid_arguments"
    assert "too many parts" in many.text
