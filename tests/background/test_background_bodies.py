"""Tools with a function of their own for background runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.background.conftest import Stage
from toolwright import Arguments, Policy, Rule, Tool, ToolContext, ToolDefinition, ToolRegistry, tool
from toolwright.errors import RunRefused, ToolDefinitionError
from toolwright.tools.registry_views import renamed


@pytest.mark.promise("PROC-12")
async def test_a_background_run_uses_the_tools_own_function_for_it(stage: Stage, place: str | Path):
    @tool
    async def report(ctx: ToolContext, city: str, days: int = 1) -> str:
        """Report.

        Args:
            city: where.
        """
        return f"short {city} {days}"

    @report.background
    def report_in_full(city: str, days: int = 1) -> str:
        return f"long {city} {days}"

    @tool(supports_background=True)
    async def wrapper(ctx: ToolContext) -> Any:
        """Call the other."""
        return (await ctx.call("report", city="Oslo")).value

    assert report.definition.hints.supports_background
    assert report_in_full("x") == "long x 1"
    session = (await stage.open(place, report, wrapper)).session("s")
    assert (await session.call("report", city="Rome")).value == "short Rome 1"
    run = await session.spawn("report", {"city": "Rome", "days": 2})
    assert (await stage.until(run.wait())).value == "long Rome 2"
    assert run.record.tool == "report"
    # A call that a run makes is no run of its own.
    run = await session.spawn("wrapper")
    assert (await stage.until(run.wait())).value == "short Oslo 1"


@pytest.mark.promise("PROC-12")
async def test_methods_raw_schemas_and_objects_have_a_function_for_the_background(stage: Stage, place: str | Path):
    class Reports:
        def __init__(self, name: str) -> None:
            self.name = name

        @tool
        async def method(self, city: str) -> str:
            """Report."""
            return f"short {self.name} {city}"

        @method.background
        async def method_in_full(self, city: str) -> str:
            return f"long {self.name} {city}"

    class Thing:
        definition = ToolDefinition(name="thing", id="thing", input_schema={"type": "object"})

        async def run(self, arguments: Arguments, context: ToolContext) -> str:
            return "short"

        async def run_background(self, arguments: Arguments, context: ToolContext) -> str:
            return f"long {arguments['city']} {context.runs.current is not None}"

    raw = Tool.from_schema(
        name="raw",
        input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
        handler=lambda arguments: "short",
        background=lambda arguments: f"long {arguments['city']}",
    )
    session = (await stage.open(place, Reports("r").method, Thing(), raw)).session("s")
    found = {}
    for name in ("method", "thing", "raw"):
        now = await session.call(name, city="Rome")
        run = await session.spawn(name, {"city": "Rome"})
        found[name] = (now.value, (await stage.until(run.wait())).value)
    assert found == {
        "method": ("short r Rome", "long r Rome"),
        "thing": ("short", "long Rome True"),
        "raw": ("short", "long Rome"),
    }


@pytest.mark.promise("PROC-12")
async def test_a_renamed_tool_keeps_its_function_for_the_background_and_the_policy_sees_one_tool(stage: Stage):
    async def in_full(city: str) -> str:
        return f"long {city}"

    @tool(background=in_full)
    async def report(city: str) -> str:
        """Report."""
        return f"short {city}"

    session = (await stage.open(":memory:", report, policy=Policy(rules=[Rule("deny", "secret_*")]))).session("s")
    session.tools.push(renamed(ToolRegistry([report]), {"report": "tell"}))
    run = await session.spawn("tell", {"city": "Rome"})
    assert (await stage.until(run.wait())).value == "long Rome"
    session.tools.push(renamed(ToolRegistry([report]), {"report": "secret_report"}))
    with pytest.raises(RunRefused, match="secret_report"):
        await session.spawn("secret_report", {"city": "Rome"})


@pytest.mark.promise("PROC-12")
def test_a_function_for_the_background_has_the_parameters_of_its_tool():
    @tool
    async def report(city: str, days: int = 1) -> str:
        """Report."""
        return city

    with pytest.raises(ToolDefinitionError, match=r"'report' .* another input schema \(it differs in \['days'\]\)"):

        @report.background
        async def wrong_type(city: str, days: str = "1") -> str:
            return city

    with pytest.raises(ToolDefinitionError, match="give it the same parameters, types and defaults"):

        @report.background
        async def required(city: str, days: int) -> str:
            return city

    assert not report.definition.hints.supports_background

    @report.background
    async def right(city: str, days: int = 1) -> str:
        return city

    with pytest.raises(ToolDefinitionError, match="'report' has two functions for the background"):
        report.background(right)
    with pytest.raises(ToolDefinitionError, match="supports_background=False"):
        tool(background=right, supports_background=False)(right)
    with pytest.raises(ToolDefinitionError, match="has background=3; use a function"):

        @tool(background=3)  # type: ignore[call-overload]
        async def other() -> None: ...
