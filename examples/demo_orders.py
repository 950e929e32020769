"""The app of the demo's PostgreSQL act: orders that are delivered in steps, and labels that are printed.

`demo_postgres.py` starts `toolwright worker` with it three times. Every effect writes a line to a ledger, a plain file
that the database knows nothing of, at the moment it happens. No worker outlives the demo.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from toolwright import App, Policy, ToolContext, tool

DEMO = "TOOLWRIGHT_DEMO_PROCESS"
"""The variable that tells a worker the number of its demo."""
STEPS = ("reserve", "charge", "pack", "ship")
PACE = 0.5
"""Seconds between two steps of a delivery."""


def desk() -> Path:
    """Where the files of the demo are."""
    return Path(os.environ["TOOLWRIGHT_DEMO_DESK"])


def note(effect: str) -> None:
    """Write down an effect, and the process that it happens in: one write, which is there whole or not at all."""
    ledger = os.open(desk() / "orders.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{os.getpid()} {effect}\n".encode())
    finally:
        os.close(ledger)


@tool(supports_background=True, on_crash="rerun", parallel=True)
async def deliver(ctx: ToolContext, order: int) -> str:
    """Deliver an order. Whoever continues it begins at the first step that was not done."""
    for step in STEPS:
        # A step that was cut off is not repeated: its order fails as interrupted, for somebody to look into.
        await ctx.step(step, note, f"{step} {order}")
        await asyncio.sleep(PACE)
    return f"order {order} is on its way"


@tool(parallel=True)
async def print_label(parcel: str) -> str:
    """Print the label of a parcel, which must not be printed twice."""
    note(f"label {parcel}")
    await asyncio.sleep(0.02)
    return f"label {parcel}"


@contextlib.asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """End a worker whose demo is gone, however that ended."""

    async def watch() -> None:
        while os.getppid() == demo:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    demo = int(os.environ.get(DEMO, "0"))
    watching = asyncio.ensure_future(watch()) if demo else None
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()


app = App(tools=[deliver, print_label], policy=Policy(on_background_limit="queue"), lifespan=lifespan)
