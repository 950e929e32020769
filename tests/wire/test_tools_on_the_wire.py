"""Tool definitions in the shapes of the providers."""

import re

import pytest

from tests.wire.shapes import dumped
from toolwright import Runtime, Tool, ToolCall
from toolwright.errors import ConversionError, ToolDefinitionError
from toolwright.tools.definition import Hints, ToolDefinition
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

pytestmark = pytest.mark.promise("OUT-08")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDefinition(
    name="weather",
    id="weather",
    description="The weather of a city.",
    display_name="Weather",
    input_schema=SCHEMA,
    output_schema={"type": "object"},
    hints=Hints(readonly=True, idempotent=True, destructive=False, open_world=True),
)
FREE = ToolDefinition(
    name="run",
    id="run",
    description="Run code.",
    kind="custom",
    input_schema={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
)
ABOUT = {"name": "weather", "description": "The weather of a city."}


def test_each_provider_gets_tools_in_its_own_shape():
    assert openai_chat.write_tools([WEATHER]) == [{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}]
    assert openai_responses.write_tools([WEATHER]) == [
        {"type": "function", **ABOUT, "parameters": SCHEMA, "strict": False}
    ]
    assert anthropic.write_tools([WEATHER]) == [{**ABOUT, "input_schema": SCHEMA}]
    assert plain.write_tools([WEATHER]) == [{**ABOUT, "input_schema": SCHEMA, "output_schema": {"type": "object"}}]


def test_a_custom_tool_that_takes_one_text_is_offered_as_such_where_that_exists():
    about = {"name": "run", "description": "Run code."}
    assert openai_chat.write_tools([FREE]) == [{"type": "custom", "custom": about}]
    assert openai_responses.write_tools([FREE]) == [{"type": "custom", **about}]


def test_an_mcp_listing_carries_the_hints_and_leaves_out_what_was_not_said():
    silent = ToolDefinition(name="t", id="t", input_schema={"type": "object"}, output_schema={"type": "array"})
    assert mcp.write_tools([WEATHER, silent]) == [
        {
            **ABOUT,
            "title": "Weather",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "object"},
            "annotations": {
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": True,
            },
        },
        {
            "name": "t",
            "description": "",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": False, "idempotentHint": False},
        },
    ]


def test_an_mcp_listing_is_read_into_definitions():
    listing = {"tools": dumped(mcp.write_tools([WEATHER]))}
    [read] = mcp.read_tools(listing)
    assert (read.name, read.id, read.kind, read.display_name) == ("weather", "weather", "mcp", "Weather")
    assert (read.input_schema, read.output_schema) == (SCHEMA, {"type": "object"})
    assert read.hints == WEATHER.hints
    [silent] = mcp.read_tools([{"name": "t", "inputSchema": {"type": "object"}}])
    assert silent.hints == Hints()


def test_an_mcp_listing_of_another_shape_is_refused_with_the_place():
    with pytest.raises(ConversionError, match=r"listing\[0\]\.inputSchema is nothing; expected a JSON schema"):
        mcp.read_tools([{"name": "t"}])


@pytest.mark.parametrize(
    "schema", [None, {}, {"type": "object"}, {"description": "Anything."}, {"type": ["object", "null"]}]
)
def test_a_schema_without_fields_is_written_with_an_empty_list_of_them(schema):
    anything = Tool.from_schema(name="t", input_schema=schema, handler=lambda args: None)
    written = [
        openai_chat.write_tools([anything])[0]["function"]["parameters"],
        openai_responses.write_tools([anything])[0]["parameters"],
        anthropic.write_tools([anything])[0]["input_schema"],
        mcp.write_tools([anything])[0]["inputSchema"],
    ]
    for parameters in written:
        assert parameters["type"] == "object"
        assert parameters["properties"] == {}


ODD = ["files.read", "a/b:c", "x" * 65, f"{'y' * 100}.{'z' * 27}", "files_read", "files:read"]


@pytest.mark.parametrize("module", [openai_chat, openai_responses, anthropic])
async def test_a_name_that_a_provider_refuses_is_mapped_and_mapped_back(module):
    ran = []

    def named(name):
        return Tool.from_schema(name=name, handler=lambda args: ran.append(name), readonly=True)

    tools = [named(name) for name in ODD]
    written = [item.get("function", item)["name"] for item in module.write_tools(tools)]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in written)
    assert len(set(written)) == len(ODD)
    assert written[ODD.index("files_read")] == "files_read"
    answer = module.write_calls([ToolCall(name=name, arguments={}, id=name[:30]) for name in ODD])
    calls = module.read_calls(answer)
    assert [call.name for call in calls] == written
    async with Runtime.open(tools=tools) as runtime:
        outcomes = await runtime.session("s").run_batch(calls, max_concurrency=1)
    assert [outcome.tool for outcome in outcomes] == ODD
    assert ran == ODD
    assert module.write_calls(calls) == answer


def test_no_tool_may_take_the_name_that_another_one_has_on_the_wire():
    [item] = anthropic.write_tools([Tool.from_schema(name="files.read", handler=lambda args: None)])
    with pytest.raises(ToolDefinitionError, match="made for a provider"):
        Tool.from_schema(name=item["name"], handler=lambda args: None)
