"""An app whose server kills itself: after so many effects as the file `kill-after` says, in the middle of the last."""

import itertools
import os
import signal
from pathlib import Path

from toolwright import App, Policy, ToolContext, tool

FOLDER = Path(os.environ["FOLDER"])
KILL_AFTER = int((FOLDER / "kill-after").read_text())
"""0 means never."""
_next = itertools.count(1).__next__


def effect(line: str) -> None:
    """Have an effect that survives a kill; perhaps the server dies before anybody learns of it."""
    with (FOLDER / "effects.txt").open("a") as file:
        file.write(f"{line}\n")
    if _next() == KILL_AFTER:
        with (FOLDER / "kills.txt").open("a") as file:
            file.write(f"{line}\n")
        os.kill(os.getpid(), signal.SIGKILL)


@tool
def pay(order: str) -> str:
    """Pay an order, once."""
    effect(order)
    return f"paid {order}"


@tool(supports_background=True, on_crash="rerun")
async def build(ctx: ToolContext, name: str) -> str:
    """Build something in steps, each at most once."""
    for number in range(4):
        await ctx.step(f"step {number}", effect, f"{name} step {number}", on_crash="fail")
        await ctx.progress(number + 1, 4)
    return f"built {name}"


app = App(tools=[pay, build], policy=Policy(on_background_limit="queue"))
