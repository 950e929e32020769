"""Types with several forms that contain each other: what a model nests in them does not hold up the loop."""

import asyncio
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from tests.support import fail_after
from toolwright import Runtime, Tool, tool


class Group(BaseModel):
    kind: Literal["group"]
    parts: list["Group | Item"] = []


class Item(BaseModel):
    kind: Literal["item"]
    parts: list["Group | Item"] = []


class Named(BaseModel):
    parts: list[Annotated["Named | Counted", Field(discriminator="kind")]] = []
    kind: Literal["named"]


class Counted(BaseModel):
    parts: list[Annotated["Named | Counted", Field(discriminator="kind")]] = []
    kind: Literal["counted"]


class Short(BaseModel):
    kind: Literal["short"]


class Long(BaseModel):
    kind: Literal["long"]
    size: int = 0


@tool
async def count_parts(root: Group | Item) -> int:
    return 0


@tool
async def count_named(root: Annotated[Named | Counted, Field(discriminator="kind")]) -> int:
    return 0


def nested(levels: int, kind: str, innermost: str) -> dict[str, object]:
    value: dict[str, object] = {"kind": innermost}
    for _ in range(levels):
        value = {"kind": kind, "parts": [value]}
    return value


async def settled(session, loop_watch) -> None:
    await session.call("count_parts", root={"kind": "item"})
    await session.call("count_parts", root={"kind": "x"})
    loop_watch.restart()


@pytest.mark.promise("SAFE-01", "RUN-02")
@pytest.mark.parametrize("innermost", ["item", "neither"])
@pytest.mark.parametrize("levels", [14, 30, 60])
async def test_arguments_nested_in_a_union_without_discriminator_are_refused_before_they_are_checked(
    loop_watch, levels, innermost
):
    async with fail_after(60), Runtime.open(tools=[count_parts]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("count_parts", root=nested(levels, "group", innermost))
        assert outcome.failure is not None
        assert outcome.failure.code == "invalid_arguments"
        assert "nested too deeply" in outcome.failure.message
        assert "fewer levels of nesting" in outcome.failure.message


@pytest.mark.promise("RUN-02")
async def test_a_union_that_contains_itself_takes_some_levels_and_one_with_a_discriminator_takes_many():
    async with fail_after(60), Runtime.open(tools=[count_parts, count_named]) as runtime:
        session = runtime.session("s")
        assert (await session.call("count_parts", root=nested(7, "group", "item"))).ok
        many = {"kind": "group", "parts": [nested(1, "group", "item")] * 350}
        assert (await session.call("count_parts", root=many)).ok
        assert (await session.call("count_named", root=nested(55, "named", "counted"))).ok


@pytest.mark.promise("SAFE-01", "RUN-02")
async def test_many_parts_of_several_forms_are_refused_before_they_are_checked(loop_watch):
    @tool
    async def take(parts: list[Short | Long]) -> int:
        return len(parts)

    async with fail_after(60), Runtime.open(tools=[count_parts, take]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        for kind in ("long", "neither"):
            outcome = await session.call("take", parts=[{"kind": kind, "size": 1}] * 6_000)
            assert outcome.failure is not None
            assert "in too many parts" in outcome.failure.message
            await asyncio.sleep(0)
        assert (await session.call("take", parts=[{"kind": "long", "size": 1}] * 2_000)).ok


FORMS = {
    "$defs": {
        "part": {
            "oneOf": [
                {"type": "object", "properties": {"part": {"$ref": "#/$defs/part"}}, "required": ["a"]},
                {"type": "object", "properties": {"part": {"$ref": "#/$defs/part"}}, "required": ["b"]},
            ]
        }
    },
    "type": "object",
    "properties": {"part": {"$ref": "#/$defs/part"}},
}


@pytest.mark.promise("SAFE-01", "RUN-02")
@pytest.mark.parametrize("levels", [14, 60])
async def test_the_problems_of_a_value_that_is_nested_in_forms_of_a_schema_are_not_listed(loop_watch, levels):
    async def give(arguments: dict[str, object]) -> int:
        return 0

    given: dict[str, object] = {"a": 1, "part": 3}
    fitting: dict[str, object] = {"a": 1}
    for _ in range(levels):
        given, fitting = {"a": 1, "part": given}, {"a": 1, "part": fitting}

    @tool(output_schema=FORMS)
    async def answer() -> object:
        return {"part": given}

    raw = Tool.from_schema(name="raw", input_schema=FORMS, handler=give)
    async with fail_after(60), Runtime.open(tools=[count_parts, raw, answer]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        for outcome in (await session.call("raw", part=given), await session.call("answer")):
            assert outcome.failure is not None
            assert outcome.failure.code in ("invalid_arguments", "invalid_output")
            assert "nested too deeply" in outcome.failure.message
        assert (await session.call("raw", part=fitting)).ok


PART = {"$ref": "#/$defs/part"}
FIELDS = {"properties": {"a": PART}}


@pytest.mark.parametrize(
    "part",
    [
        {**FIELDS, "patternProperties": {"a": PART}},
        {"patternProperties": {"^a": PART, "a$": PART}},
        {**FIELDS, "dependentSchemas": {"a": FIELDS}},
        {**FIELDS, "$ref": "#/$defs/fields"},
        {**FIELDS, "allOf": [FIELDS]},
        {**FIELDS, "anyOf": [FIELDS]},
        {"additionalProperties": PART, "allOf": [{"additionalProperties": PART}]},
        {**FIELDS, "if": FIELDS, "then": FIELDS},
    ],
    ids=["field and pattern", "patterns", "dependent", "reference", "all of", "any of", "additional", "condition"],
)
async def test_a_schema_that_describes_a_field_several_times_does_not_list_its_problems_at_any_depth(loop_watch, part):
    async def give(arguments: dict[str, object]) -> int:
        return 0

    definitions = {"part": {"type": "object", **part}, "fields": FIELDS}
    schema = {"type": "object", "properties": {"a": PART}, "$defs": definitions}
    value: object = 3
    for _ in range(18):
        value = {"a": value}
    async with (
        fail_after(60),
        Runtime.open(tools=[Tool.from_schema(name="give", input_schema=schema, handler=give)]) as runtime,
    ):
        session = runtime.session("s")
        await session.call("give", a=3)
        loop_watch.restart()
        outcome = await session.call("give", a=value)
        assert outcome.failure.code == "invalid_arguments"
        assert "nested too deeply" in outcome.text
        short = await session.call("give", a={"a": {"a": 3}})
        assert "$.a.a.a: " in short.text
