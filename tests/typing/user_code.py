"""A program as users write it, for mypy and pyright. Each line that must be an error says so in a comment; every other
line must be accepted, and `assert_type` says which type a checker must see."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from toolwright import App, Policy, Runtime, Session, Tool, ToolContext, ToolOutcome, tool, tools_of


class Database:
    def read(self, key: str) -> str:
        return key


@dataclass
class Receipt:
    flight: str
    seats: int


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(readonly=True, timeout=3.0)
async def look_up(key: str, ctx: ToolContext[Database]) -> str:
    """Look something up."""
    assert_type(ctx.deps, Database)
    return ctx.deps.read(key)


@tool(readonly="yes")  # error
def misspelt(key: str) -> str:
    return key


@tool(read_only=True)  # error
def unknown(key: str) -> str:
    return key


def pay(flight: str, seats: int) -> Receipt:
    return Receipt(flight, seats)


async def refund(receipt: Receipt) -> float:
    return 1.5 * receipt.seats


@tool
async def book(flight: str, ctx: ToolContext) -> str:
    """Book a flight."""
    receipt = await ctx.step("pay", pay, flight, 2)
    assert_type(receipt, Receipt)
    assert_type(await ctx.step("refund", refund, receipt, on_crash="ask"), float)
    assert_type(await ctx.step("later", lambda: 3), int)
    await ctx.step("pay", pay, flight, "two")  # error
    await ctx.step("pay", pay, flight)  # error
    await ctx.step("pay", pay, flight, 2, on_crash="perhaps")  # error
    await ctx.progress(1, 2, label="half")
    run = await ctx.runs.spawn("add", {"a": 1}, title="sum")
    assert_type(await run.wait(), ToolOutcome)
    await ctx.runs.spawn("add", titel="sum")  # error
    return receipt.flight


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    def price(self, item: str) -> float:
        """The price of an item."""
        return 1.0

    @tool(idempotent=True)
    async def order(self, item: str, ctx: ToolContext) -> str:
        """Order an item."""
        return item

    @tool
    @classmethod
    def open_at(cls, hour: int) -> bool:
        """Whether shops are open."""
        return hour > 8

    @tool
    @staticmethod
    def convert(amount: float) -> float:
        """Convert an amount."""
        return amount


def typed_calls(ctx: ToolContext, database: ToolContext[Database]) -> None:
    assert_type(add(1), int)
    assert_type(add(1, b=2), int)
    assert_type(add.name, str)
    add("one")  # error
    add()  # error
    add(1, c=2)  # error
    assert_type(asyncio.run(look_up("a", database)), str)
    look_up("a")  # error
    renamed = tool(pay, name="payment", on_crash="ask")
    assert_type(renamed("LH1", 2), Receipt)
    tool(pay, nam="payment")  # error
    again = add.with_definition(name="plus", timeout=2.0)
    assert_type(again(1), int)
    add.with_definition(nome="plus")  # error


def typed_methods(ctx: ToolContext) -> None:
    shop = Shop("corner")
    assert_type(shop.price("tea"), float)
    assert_type(shop.price.name, str)
    shop.price(3)  # error
    assert_type(asyncio.run(shop.order("tea", ctx)), str)
    assert_type(Shop.price(shop, "tea"), float)
    assert_type(Shop.open_at(9), bool)
    assert_type(shop.open_at(9), bool)
    assert_type(Shop.convert(2.0), float)
    assert_type(shop.convert(2.0), float)
    every: list[Tool] = [add, look_up, shop.price, *tools_of(shop)]
    every.append("add")  # error


def takes_a_tool(item: Tool[[int, int], int]) -> int:
    return item(1, 2)


def takes_any_tool(item: Tool) -> Tool[..., Any]:
    return item


takes_a_tool(tool(lambda a, b: a + b, name="sum"))
takes_a_tool(look_up)  # error
takes_any_tool(look_up)

app = App(tools=[add, look_up, book], policy=Policy(timeout=3.0), capabilities=["files"])
App(tool=[add])  # error
app.but(policy=Policy())
app.but(polices=Policy())  # error
Policy().but(read_only=True)
Policy().but(readonly=True)  # error


async def with_a_runtime() -> None:
    async with app.open("store.db", sync="normal") as runtime:
        assert_type(runtime, Runtime)
        session = runtime.session("s1")
        assert_type(session, Session)
        outcomes = await session.run_batch([{"name": "add", "arguments": {"a": 1}}], read_only=True)
        assert_type(outcomes, list[ToolOutcome])
        assert_type(await session.call("add", a=1), ToolOutcome)
        await session.run_batch([], readonly=True)  # error
        await session.run_batch([], timeout="long")  # error
        run = await session.spawn("add", {"a": 1}, title="sum", disposition="rerun")
        assert_type(await run.wait(timeout=3.0), ToolOutcome)
        await session.spawn("add", {"a": 1}, disposition="again")  # error
        await session.schedule("add", {"a": 1}, cron="* * * * *", overlap="queue")
        await session.schedule("add", {"a": 1}, corn="* * * * *")  # error
        await session.on("order", "add", match={"a": 1}, payload_as="a")
        await session.on("order", "add", matches={"a": 1})  # error
        batch = session.start_batch([], continue_on_failure=False)
        assert_type(await batch, list[ToolOutcome])
    await Runtime.open(":memory:", tools=[add], worker=False)
    Runtime.open(":memory:", tool=[add])  # error


def without_async() -> None:
    with app.open_blocking("store.db", sync="normal") as runtime:
        session = runtime.session("s1")
        assert_type(session.call("add", a=1), ToolOutcome)
        assert_type(session.run_batch([], read_only=True), list[ToolOutcome])
        session.run_batch([], readonly=True)  # error
        assert_type(session.files.read("/a"), str)
        session.files.raed("/a")  # error
        run = session.spawn("add", {"a": 1}, title="sum")
        assert_type(run.wait(timeout=3.0), ToolOutcome)
        for event in run.follow():
            print(event.type)
        batch = session.start_batch([])
        assert_type(batch.wait(), list[ToolOutcome])
        runtime.sesion("s1")  # error
    Runtime.open_blocking(tools=[add]).close()
    Runtime.open_blocking(tool=[add])  # error


def returns_a_coroutine() -> Coroutine[Any, Any, str]:
    return look_up("a", ctx=1)  # error
