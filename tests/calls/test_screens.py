"""A tool may refuse arguments before anything of the call is recorded."""

import json

import pytest

from tests.session.leaks import files_beside
from toolwright import Failure, Runtime, Screened, Tool, ToolCall, tool

PIN = "pin-4711"


def no_pin(arguments: bytes) -> Screened | None:
    """Refuses what has the pin in it."""
    if PIN.encode() not in arguments:
        return None
    return Screened(b'{"account":"[pin]"}', Failure(message="Keep your pin", code="has_pin"))


@tool(screen=no_pin)
async def pay(account: str) -> str:
    return f"paid {account}"


RAW = Tool.from_schema(
    name="pay",
    input_schema={"type": "object", "properties": {"account": {"type": "string"}}},
    handler=lambda arguments: f"paid {arguments['account']}",
    screen=no_pin,
)


@pytest.mark.promise("RUN-09")
@pytest.mark.parametrize(
    "made", [pay, RAW, pay.with_definition(description="another")], ids=["@tool", "raw", "changed"]
)
async def test_what_a_tool_screens_out_is_refused_and_written_nowhere(tmp_path, made):
    store = tmp_path / "agent.db"
    async with Runtime.open(store, tools=[made]) as runtime:
        outcomes = await runtime.session("s").run_batch(
            [
                ToolCall(id="c1", name="pay", arguments={"account": PIN}),
                ToolCall(id="c2", name="pay", arguments=json.dumps({"account": PIN, "more": 1})),
                ToolCall(id="c3", name="pay", arguments=f'{{"account": "{PIN}"'),
                ToolCall(id="c4", name="pay", arguments={"account": "ann"}),
            ]
        )
        records = list(runtime.log)
    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == ["has_pin"] * 3 + [None]
    assert outcomes[3].value == "paid ann"
    assert [record.arguments for record in records] == [{"account": "[pin]"}] * 3 + [{"account": "ann"}]
    for name, content in files_beside(store):
        assert PIN.encode() not in content, name


async def test_a_screen_that_breaks_lets_nothing_through_and_nothing_be_recorded(tmp_path):
    def broken(arguments: bytes) -> None:
        raise KeyError("lost")

    ran = []

    @tool(screen=broken)
    async def charge(account: str) -> None:
        ran.append(account)

    async with Runtime.open(tmp_path / "agent.db", tools=[charge]) as runtime:
        outcome = await runtime.session("s").call("charge", account=PIN)
        (record,) = runtime.log
    assert (outcome.failure.category, outcome.failure.code) == ("internal", "validation_error")
    assert (ran, record.arguments) == ([], {})
