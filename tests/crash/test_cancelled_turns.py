"""Turns that are cancelled after their process was killed: their calls say whether they may have had an effect."""

from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolContext, tool
from toolwright.testing import ScriptedModel

PROGRAM = """
from toolwright.testing import ScriptedModel

async def end_here():
    note("ran")
    die()

tools = [
    tool(name="plain")(end_here),
    tool(name="reading", readonly=True)(end_here),
    tool(name="repeatable", on_crash="rerun")(end_here),
]

@tool
async def outer(ctx: ToolContext, name: str) -> str:
    return (await ctx.call(name)).text

@tool(approval="required", on_crash="rerun")
async def approved() -> None:
    note("ran")

async def main():
    calls = [ToolCall(id=name, name=name, arguments=arguments) for name, arguments in wanted]
    async with Runtime.open(store, tools=[*tools, outer, approved], model=ScriptedModel([calls])) as runtime:
        await runtime.session("s").ask("Go.", id="t")
        die()
"""


@tool
async def plain() -> None:
    """Act."""


@tool(readonly=True)
async def reading() -> None:
    """Read."""


@tool(on_crash="rerun")
async def repeatable() -> None:
    """Act, perhaps twice."""


@tool
async def outer(ctx: ToolContext, name: str) -> None:
    """Call another tool."""


@tool(approval="required", on_crash="rerun")
async def approved() -> None:
    """Act, if a person says so."""


HERE = (plain, reading, repeatable, outer, approved)


def call(name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return name, arguments


@pytest.mark.promise("CANCEL-01", "TURN-03")
@pytest.mark.parametrize(
    ("calls", "tools", "expected"),
    [
        ([call("plain")], HERE, {"plain": True}),
        ([call("reading")], HERE, {"reading": False}),
        ([call("repeatable")], HERE, {"repeatable": True}),
        ([call("outer", name="plain")], HERE, {"outer": True}),
        # The second one is exclusive, and had not begun.
        ([call("plain"), call("outer", name="plain")], HERE, {"plain": True, "outer": False}),
        ([call("approved")], HERE, {"approved": False}),
        # What the tools do is not known where they are not.
        ([call("plain")], (), {"plain": True}),
        ([call("repeatable")], (), {"repeatable": True}),
        ([call("approved")], (), {"approved": False}),
    ],
)
async def test_a_call_of_a_cancelled_turn_says_whether_it_may_have_run_before_the_crash(
    crashes, calls, tools, expected
):
    crashes.crash(PROGRAM, wanted=calls)
    ran = "approved" not in expected
    assert crashes.ledger == ["ran"] * ran
    async with fail_after(20), Runtime.open(crashes.store, tools=tools, model=ScriptedModel([])) as runtime:
        turn = await runtime.turn("t")
        assert await turn.cancel("enough")
        outcome = await turn
        assert outcome.status == "cancelled"
        assert {each.call_id: each.may_have_run for each in outcome.calls} == expected
        for each in outcome.calls:
            assert each.reason is not None
            assert each.reason.startswith("enough")
            told = each.call_id == "reading"
            assert ("it may have had an effect" in each.text) == each.may_have_run
            assert ("it did not run" in each.text) == (not each.may_have_run and not told)
    assert crashes.ledger == ["ran"] * ran
