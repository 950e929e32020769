"""Arguments with many parts, and log messages as long as a tool likes: the loop keeps turning."""

import logging

import pytest

from tests.support import fail_after
from toolwright import Runtime, Tool, ToolCall, tool
from toolwright.builtin import default_tools

MIB = 1024 * 1024


@tool
async def take_texts(items: list[str]) -> int:
    return len(items)


@tool
async def take_anything(items: object) -> int:
    return 0


async def settled(session, loop_watch) -> None:
    """Make what the first use of a session makes, and measure from there on."""
    await session.call("take_texts", items=["a"])
    await session.run_batch([{"name": "take_texts", "arguments": {"items": [1]}}])
    loop_watch.restart()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.promise("SAFE-01", "RUN-02")
@pytest.mark.parametrize(
    "items",
    [
        "[" + ",".join(["[]"] * 300_000) + "]",
        "[" + ",".join([deep(100)] * 5_000) + "]",
        "[" + ",".join(["1"] * 500_000) + "]",
        "[" + ",".join(['{"a":1}'] * 100_000) + "]",
    ],
    ids=["lists", "deep lists", "numbers", "objects"],
)
@pytest.mark.parametrize("name", ["take_texts", "take_anything"])
async def test_arguments_with_too_many_parts_are_refused_before_they_are_decoded(loop_watch, name, items):
    async with fail_after(60), Runtime.open(tools=[take_texts, take_anything]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        (outcome,) = await session.run_batch([ToolCall(name=name, arguments=f'{{"items":{items}}}')])
        assert outcome.failure is not None
        assert outcome.failure.code == "arguments_too_long"
        assert "10000 lists and objects" in outcome.failure.message


@pytest.mark.promise("SAFE-01", "RUN-02")
@pytest.mark.parametrize(
    "items",
    [[1] * 49_000, [[]] * 9_500, [{"a": [1]}] * 4_900, [1.5] * 49_000],
    ids=["ints", "lists", "rows", "floats"],
)
async def test_many_parts_that_do_not_fit_leave_the_loop_alone(loop_watch, items):
    async def give(arguments: dict[str, object]) -> int:
        return 0

    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    }
    raw = Tool.from_schema(name="raw", input_schema=schema, handler=give)
    async with fail_after(60), Runtime.open(tools=[take_texts, take_anything, raw]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        for name in ("take_texts", "raw"):
            (outcome,) = await session.run_batch([ToolCall(name=name, arguments={"items": items})])
            assert outcome.failure is not None
            assert outcome.failure.code == "invalid_arguments"
            assert len(outcome.failure.message) < 10_000


@pytest.mark.promise("SAFE-01", "SES-03")
async def test_a_very_long_log_message_is_cut_before_it_is_searched(loop_watch, caplog):
    @tool
    async def fail() -> None:
        raise ValueError("hunter2-and-more " + "x" * (8 * MIB))

    async with fail_after(60), Runtime.open(tools=[fail, *default_tools()]) as runtime:
        session = runtime.session("s")
        await session.secrets.set("key", "hunter2-and-more")
        loop_watch.restart()
        with caplog.at_level(logging.ERROR):
            outcome = await session.call("fail")
        assert outcome.failure is not None
        assert "hunter2" not in caplog.text
        assert "characters omitted" in caplog.text
