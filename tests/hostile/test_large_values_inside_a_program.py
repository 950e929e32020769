"""Large arguments, steps, models and secrets that a tool gives to the runtime: the loop keeps turning."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, ToolError, tool
from toolwright.builtin import default_tools

MIB = 1024 * 1024


@tool
async def take(value: object) -> int:
    return 0


@tool(secret="value")
async def take_secret(value: str) -> str:
    return "taken"


class Row(BaseModel):
    id: int
    name: str
    size: float


class Table(BaseModel):
    rows: list[Row]


async def settled(session, loop_watch) -> None:
    await session.files.write("/settled", "x")
    await session.call("take", value=[1])
    loop_watch.restart()


# Made by the test that takes it: each process of the test run imports this file.
HUGE: dict[str, Callable[[], object]] = {
    "text": lambda: "x" * (200 * MIB),
    "numbers": lambda: [1.5] * (5 * MIB),
    "lists": lambda: [[]] * (4 * MIB),
    "rows": lambda: [{"id": 1, "name": "some name"}] * MIB,
    "fields": lambda: {f"field {number}": number for number in range(MIB)},
}


@pytest.mark.promise("SAFE-01", "RUN-02")
@pytest.mark.parametrize("with_secret", [False, True], ids=["plain", "with a secret"])
@pytest.mark.parametrize("name", HUGE)
async def test_huge_arguments_of_a_program_or_a_tool_are_refused_before_they_are_encoded(loop_watch, name, with_secret):
    value = HUGE[name]()

    @tool
    async def forward(ctx: ToolContext) -> str | None:
        outcome = await ctx.call("take", value=value)
        return outcome.failure.code if outcome.failure else None

    async with fail_after(60), Runtime.open(tools=[take, forward, *default_tools()]) as runtime:
        session = runtime.session("s")
        if with_secret:
            await session.secrets.set("key", "a value that stands nowhere")
        await settled(session, loop_watch)
        outcome = await session.call("take", value=value)
        assert outcome.failure is not None
        assert outcome.failure.code == "arguments_too_long"
        await asyncio.sleep(0)
        assert (await session.call("forward")).value == "arguments_too_long"


@pytest.mark.promise("SAFE-01", "EFF-01")
@pytest.mark.parametrize(
    ("make", "fits"),
    [
        (lambda: "\n" * (3 * MIB), True),
        (lambda: [1.5] * 190_000, True),
        (lambda: [{"id": 1, "name": "some name"}] * 19_000, True),
        (lambda: [1.5] * (5 * MIB), False),
        (lambda: [[]] * MIB, False),
        (lambda: {"text": "x" * (23 * MIB)}, True),
        (lambda: {"text": "x" * (100 * MIB)}, False),
        (lambda: {"text": "\n" * (10 * MIB)}, False),
    ],
    ids=["text", "numbers", "rows", "too many numbers", "too many lists", "long text", "too long a text", "escapes"],
)
async def test_a_large_result_of_a_step_leaves_the_loop_alone(loop_watch, tmp_path, make, fits):
    value = make()

    @tool
    async def work(ctx: ToolContext) -> str:
        try:
            result = await ctx.step("make", lambda: value)
        except ToolError as error:
            return str(error)
        return f"{len(result)} are back"

    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=[take, work, *default_tools()]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("work")
        assert outcome.ok
        assert outcome.value == f"{len(value)} are back" if fits else "more than a step may return" in outcome.value


@pytest.mark.promise("SAFE-01", "EFF-01")
async def test_huge_inputs_of_a_step_are_refused_before_they_are_encoded(loop_watch):
    ran: list[object] = []
    value = [1.5] * (5 * MIB)

    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.step("make", ran.append, value)

    async with fail_after(60), Runtime.open(tools=[take, work]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("work")
        assert outcome.failure is not None
        assert not ran


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize(("count", "fits"), [(40_000, True), (400_000, False)])
async def test_a_large_pydantic_model_is_measured_before_its_own_dump(loop_watch, count, fits):
    row = Row(id=1, name="some name", size=1.5)
    table = Table.model_construct(rows=[row] * count)

    @tool
    async def give() -> object:
        return table

    async with fail_after(60), Runtime.open(tools=[take, give, *default_tools()]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("give")
        assert outcome.ok is fits
        if not fits:
            assert outcome.failure is not None
            assert outcome.failure.code == "output_too_long"


@pytest.mark.promise("SAFE-01", "OUT-05")
@pytest.mark.parametrize(
    ("make", "items", "fits"),
    [
        (lambda: list(range(490_000)), {"uniqueItems": True}, False),
        (lambda: list(range(50_000)), {"uniqueItems": True}, True),
        (lambda: list(range(490_000)), {"items": {"type": "integer"}}, True),
        (lambda: [{"id": 1, "name": "some name"}] * 49_000, {"items": {"type": "object", "required": ["id"]}}, True),
    ],
    ids=["too many different numbers", "different numbers", "numbers", "rows"],
)
async def test_a_large_value_is_held_against_its_output_schema_without_holding_up_the_loop(
    loop_watch, make, items, fits
):
    value = make()

    @tool(output_schema={"type": "array", **items})
    async def give() -> object:
        return value

    async with fail_after(60), Runtime.open(tools=[take, give, *default_tools()]) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        outcome = await session.call("give")
        assert outcome.ok is fits
        if not fits:
            assert outcome.failure is not None
            assert outcome.failure.code == "invalid_output"
            assert "too many parts" in outcome.failure.message


@pytest.mark.promise("SAFE-01", "SES-03")
async def test_many_secrets_that_a_tool_gives_at_once_are_refused_and_one_that_waits_may_give_them(loop_watch):
    values = [f"{number:03d}" + "secret and long " * 250 for number in range(40)]

    @tool
    async def start(ctx: ToolContext) -> list[str]:
        calls = [ToolCall(name="take_secret", arguments={"value": value}) for value in values]
        return [outcome.failure.code if outcome.failure else "ok" for outcome in await session.start_batch(calls)]

    @tool
    async def run(ctx: ToolContext) -> list[str]:
        calls = [{"name": "take_secret", "arguments": {"value": value}} for value in values]
        return [outcome.failure.code if outcome.failure else "ok" for outcome in await session.run_batch(calls)]

    async with fail_after(60), Runtime.open(tools=[take, take_secret, start, run, *default_tools()]) as runtime:
        session = runtime.session("s")
        await session.call("take_secret", value="a first one, for what is made once")
        await settled(session, loop_watch)
        assert (await session.call("start")).value == ["ok"] * 4 + ["secret_too_long"] * 36
        assert (await session.call("run")).value == ["ok"] * 40
