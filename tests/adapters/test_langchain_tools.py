"""Tools of LangChain as tools of ours, and the adapter where its framework is missing."""

import subprocess
import sys
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.types import Command
from pydantic import BaseModel, Field

from toolwright import Image, Runtime, ToolDefinitionError
from toolwright.adapters.langchain import session_tools, tools_from

MISSING = """
import sys
sys.modules["langchain"] = None
try:
    import toolwright.adapters.langchain
except Exception as error:
    print(type(error).__name__, error)
"""


async def run(made: Any, **arguments: Any) -> Any:
    async with Runtime.open(tools=[made]) as runtime:
        return await runtime.session("s").call(made.name, **arguments)


@pytest.mark.promise("ADP-02")
async def test_a_tool_of_langchain_is_a_tool_of_ours_with_its_schema():
    class Order(BaseModel):
        item: str = Field(description="What to order")
        count: int = Field(1, ge=1)

    @langchain_tool(args_schema=Order)
    async def order(item: str, count: int = 1) -> str:
        """Order an item."""
        return f"{count} x {item}"

    made = tools_from([order], readonly=True)[0]
    assert made.definition.description == "Order an item."
    assert made.definition.input_schema["required"] == ["item"]
    assert made.definition.hints.readonly
    assert (await run(made, item="tea", count=2)).value == "2 x tea"
    assert (await run(made, item="tea", count=0)).failure.category == "invalid_arguments"
    assert (await run(made, count=1)).failure.category == "invalid_arguments"


@pytest.mark.promise("ADP-02")
async def test_a_sync_tool_and_one_of_a_raw_schema_run_too():
    @langchain_tool
    def double(number: int) -> int:
        """Twice the number."""
        return number * 2

    assert (await run(tools_from([double])[0], number=4)).text == "8"

    async def echo(**arguments: Any) -> str:
        return str(arguments)

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    raw = StructuredTool(name="echo", description="Say it.", args_schema=schema, coroutine=echo)
    assert (await run(tools_from([raw])[0], text="ho")).value == "{'text': 'ho'}"


@pytest.mark.promise("ADP-02")
async def test_a_tool_exception_is_a_failure_that_the_model_reads_and_others_are_not_told():
    @langchain_tool
    async def refuse() -> str:
        """Refuse."""
        raise ToolException("Not on a Sunday")

    @langchain_tool
    async def break_down() -> str:
        """Break down."""
        raise RuntimeError("password=hunter2")

    refused, broken = await run(tools_from([refuse])[0]), await run(tools_from([break_down])[0])
    assert refused.failure.message == "Not on a Sunday"
    assert broken.status == "failure"
    assert "hunter2" not in broken.text


@pytest.mark.promise("ADP-02")
async def test_images_and_the_artifact_of_a_result_are_kept():
    @langchain_tool(response_format="content_and_artifact")
    async def draw() -> Any:
        """Draw."""
        content = [
            {"type": "text", "text": "a cat"},
            {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGVsbG8="}},
        ]
        return content, {"rows": 3}

    outcome = await run(tools_from([draw])[0])
    assert outcome.value == "a cat"
    assert outcome.images == (Image("aGVsbG8=", "image/png"), Image("aGVsbG8=", "image/jpeg"))
    assert outcome.metadata == {"artifact": {"rows": 3}}


@pytest.mark.promise("ADP-02")
async def test_the_id_of_the_call_is_given_and_what_only_a_graph_has_is_refused():
    @langchain_tool
    async def name_it(text: str, call: Annotated[str, InjectedToolCallId]) -> str:
        """Name it."""
        return f"{text} {call}"

    outcome = await run(tools_from([name_it])[0], text="x")
    assert outcome.value == f"x {outcome.call_id}"

    @langchain_tool
    async def look_around(text: str, runtime: ToolRuntime) -> str:
        """Look around."""
        return text

    with pytest.raises(ToolDefinitionError, match="runtime"):
        tools_from([look_around])[0]
    with pytest.raises(ToolDefinitionError, match="decorate"):
        tools_from([lambda: None])  # type: ignore[list-item]

    @langchain_tool
    async def steer() -> Any:
        """Steer the graph."""
        return Command(goto="elsewhere")

    assert (await run(tools_from([steer])[0])).failure.code == "langgraph_command"


@pytest.mark.promise("ADP-02")
async def test_tools_for_a_model_do_not_run_themselves():
    @langchain_tool
    async def order(item: str) -> str:
        """Order an item."""
        return item

    async with Runtime.open(tools=tools_from([order])) as runtime:
        (bound,) = session_tools(runtime.session("s"))
        schema: Any = bound.tool_call_schema
        assert schema["required"] == ["item"]
        with pytest.raises(Exception, match="ToolwrightMiddleware"):
            await bound.ainvoke({"item": "tea"})


@pytest.mark.promise("ADP-02")
def test_without_the_framework_the_error_says_how_to_install_it():
    ended = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert "MissingRequirement" in ended.stdout
    assert "pip install 'toolwright[langchain]'" in ended.stdout


@pytest.mark.promise("ADP-02", "ADP-04")
@pytest.mark.parametrize(
    ("adapter", "framework"),
    [("langchain", "langchain.agents, langgraph.prebuilt"), ("claude_agent", "claude_agent_sdk")],
)
def test_importing_the_adapter_imports_little_beside_its_framework(adapter: str, framework: str):
    program = f"""
import sys, {framework}
before = set(sys.modules)
import toolwright.adapters.{adapter}
print(*sorted(set(sys.modules) - before))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in ended.stdout.split() if name.startswith("toolwright.")}
    assert rooms <= {"adapters", "errors", "extras", "log_fields"}
