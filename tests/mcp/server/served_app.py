"""An app that the tests serve in a process of its own. Its effects go to a file, one line each."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from toolwright import App, ToolContext, ToolError, tool

EFFECTS = Path(os.environ.get("EFFECTS", "effects.txt"))


class Sum(BaseModel):
    total: int


def effect(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(f"{line}\n")


@tool(readonly=True)
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@tool(readonly=True)
def words(count: int) -> list[str]:
    """Give some words."""
    return ["word"] * count


@tool
def charge(order: str) -> str:
    """Charge an order, once."""
    print("a tool prints", flush=True)
    os.system("echo a program of a tool prints")
    effect(order)
    return f"charged {order}"


@tool
async def count(ctx: ToolContext, to: int) -> int:
    """Count, and say how far."""
    for number in range(1, to + 1):
        await ctx.progress(number, to, label=f"at {number}")
    return to


CANCELLED = asyncio.Event()


@tool
async def hang(ctx: ToolContext, order: str) -> str:
    """Begin, and never end by itself."""
    effect(f"begin {order}")
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.set()
        raise
    return "never"


@tool(readonly=True)
async def wait_for_cancelled() -> str:
    """Wait until a call that hangs was cancelled."""
    await CANCELLED.wait()
    return "cancelled"


@tool
def refuse() -> str:
    """Fail in an expected way."""
    raise ToolError("Nothing doing", code="refused")


@tool
def crash() -> str:
    """Fail in an unexpected way."""
    raise KeyError("a secret of the program")


@tool(approval="required")
def launch(rocket: str) -> str:
    """Do something grave."""
    effect(f"launch {rocket}")
    return f"launched {rocket}"


@tool(supports_background=True, on_crash="rerun")
async def build(ctx: ToolContext, name: str, steps: int = 3) -> str:
    """Build something in steps, each once."""
    for number in range(steps):
        await ctx.step(f"step {number}", effect, f"{name} {number}")
        await ctx.progress(number + 1, steps, label=f"step {number}")
    return f"built {name}"


app = App(tools=[add, words, charge, count, hang, wait_for_cancelled, refuse, crash, launch, build])
