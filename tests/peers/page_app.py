"""An app for the tests of the page, served in a process of its own that a test may kill.

Run as `python -m tests.peers.page_app STORE PORT`: it prints a token and a link that logs a browser in once, and serves
until it is killed. With `--fill N` it first runs a batch of N calls, and prints its id.
"""

import argparse
import asyncio
import socket
from pathlib import Path
from typing import Any

import uvicorn

from toolwright import App, Policy, Rule, ToolCall, ToolContext, ToolError, tool
from toolwright.http import create_app
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelRequest, ToolResults, UserMessage

HOSTILE = (
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'><svg onload='window.broken = 1'>"
    "</textarea></style></title>{{7*7}}${7*7}javascript:alert(1)"
    " \x1b[31mred\x1b[0m\x07\x00 \u202eback\u202c \u2066x\u2069"
    " \u200bzero\ufeff 👩‍👩‍👧 \ud7ff"
)
"""What nobody should show as anything but text."""
LONG_LINE = 1024 * 1024


@tool(readonly=True)
async def echo(text: str) -> str:
    """Say it again.

    Args:
        text: what to say.
    """
    return text


@tool(readonly=True)
async def add(one: int, other: int = 1, unit: str | None = None) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": one + other, "unit": unit}


@tool(readonly=True)
async def fail(why: str = "it had to") -> None:
    """Fail."""
    raise ToolError(why, code="had_to")


@tool(readonly=True, timeout=60)
async def hang(ctx: ToolContext) -> None:
    """Run until it is stopped."""
    ctx.progress(3, total=10, unit="parts")
    await asyncio.Event().wait()


@tool(key="{account}")
async def book(account: str, amount: float) -> dict[str, Any]:
    """Book an amount; one after the other for each account."""
    await asyncio.sleep(0.05)
    return {"account": account, "amount": amount}


@tool
async def pay(to: str, amount: float, note: str = "", currency: str = "EUR") -> dict[str, Any]:
    """Pay somebody.

    Args:
        to: who gets it.
        amount: how much.
    """
    return {"paid": amount, "to": to, "note": note, "currency": currency}


@tool(readonly=True)
async def hostile() -> dict[str, Any]:
    """Give back what attacks a page."""
    return {"text": HOSTILE, HOSTILE: [HOSTILE], "long": "x" * LONG_LINE, "__proto__": {"polluted": True}}


@tool
async def ask_person(ctx: ToolContext) -> object:
    """Ask which colour."""
    colour = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    return await ctx.ask("colour", f"Which colour? {HOSTILE}", colour)


@tool(supports_background=True)
async def count_up(ctx: ToolContext, until: int = 3) -> int:
    """Count, with a line of log for each number, and wait for a signal at the end."""
    for number in range(1, until + 1):
        ctx.output("stdout", f"number {number}\n")
        ctx.progress(number, total=until, unit="numbers")
    await ctx.receive("go")
    return until


def answer(request: ModelRequest) -> str | list[ToolCall]:
    """What the model says to a message: it pays where it is asked to, and echoes otherwise."""
    last = max(place for place, item in enumerate(request.messages) if isinstance(item, UserMessage))
    asked = request.messages[last].text
    if any(isinstance(item, ToolResults) for item in request.messages[last:]):
        return "It is done."
    if "pay" in asked:
        return [ToolCall(id=f"pay-{last}", name="pay", arguments={"to": "ann", "amount": 12.5, "note": "for tea"})]
    return [ToolCall(id=f"echo-{last}", name="echo", arguments={"text": asked})]


app = App(
    tools=[echo, add, fail, hang, book, pay, hostile, ask_person, count_up],
    policy=Policy(rules=[Rule("ask", "pay", name="payments need a person", reason="Money leaves.")]),
    model=FunctionModel(answer, name="test"),
)


async def serve(store: str, port: int, fill: int) -> None:
    """Serve until the process is killed."""
    async with app.open(store, worker=True) as runtime:
        listening = socket.create_server(("127.0.0.1", port))  # whoever reads the link can connect
        service = create_app(runtime)
        if fill:
            kinds: list[tuple[str, dict[str, Any]]] = [("fail", {}), ("book", {"account": "ann", "amount": 1})]
            kinds += [("echo", {"text": "x"})] * 98
            calls = [
                ToolCall(id=f"c{number}", name=kinds[number % 100][0], arguments=kinds[number % 100][1])
                for number in range(fill)
            ]
            batch = runtime.session("many").start_batch(calls)
            await batch
            print(f"batch {batch.id}", flush=True)
        tokens = await service.sign_in.tokens()
        print(f"token {(await tokens.create('program', ['admin'])).value}", flush=True)
        print(f"link http://127.0.0.1:{port}/login?link={await tokens.link('tester', ['admin'])}", flush=True)
        await uvicorn.Server(uvicorn.Config(service, log_level="warning", lifespan="off")).serve([listening])


def main() -> None:
    """Read the arguments, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--fill", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(serve(str(given.store), given.port, given.fill))


if __name__ == "__main__":
    main()
