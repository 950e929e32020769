"""The program of the demo's second act: six calls with their journal in a file, and a kill in the middle.

`demo.py` starts it twice, on the same directory. As `run` it kills itself once everything is where it should be. As
`again` it opens what is left, finishes it, and says on stdout what it did. Every effect writes a line to a ledger, a
plain file that the store knows nothing of.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from toolwright import Recovered, Runtime, ToolCall, ToolContext, tool
from toolwright.events import CallFinished

MODE, DESK = sys.argv[1], Path(sys.argv[2])

CALLS = [
    ToolCall(id="pay", name="pay", arguments={"account": "ann", "amount": 40}),
    ToolCall(id="rates", name="get_rates"),
    ToolCall(id="upload", name="upload", arguments={"file": "receipt.pdf"}),
    ToolCall(id="trip", name="book_trip", arguments={"city": "Oslo"}),
    ToolCall(id="mail-1", name="send_mail", arguments={"to": "ann"}),
    ToolCall(id="mail-2", name="send_mail", arguments={"to": "ann"}),
]
IN_THE_MIDDLE = {"rates", "upload", "trip", "mail-1"}

there: set[str] = set()
all_there = asyncio.Event()


def note(line: str) -> None:
    """Write down an effect at the moment it happens."""
    with (DESK / "ledger.txt").open("a") as ledger:
        ledger.write(f"{line}\n")


async def reach(call: str) -> None:
    """In the first process, never come back from here: wait for the kill."""
    if MODE == "run":
        there.add(call)
        if there == IN_THE_MIDDLE:
            all_there.set()
        await asyncio.Event().wait()


@tool(key="{account}")
async def pay(account: str, amount: int) -> str:
    """Says nothing about being repeatable."""
    note("pay: paid")
    return f"{amount} paid to {account}"


@tool(readonly=True)
async def get_rates() -> dict[str, float]:
    """Reading again does no harm."""
    note("rates: read")
    await reach("rates")
    return {"EUR": 1.0, "NOK": 11.6}


@tool(idempotent=True, parallel=True)
async def upload(ctx: ToolContext, file: str) -> str:
    """The other side knows the key of a call that it has seen before."""
    note(f"upload: sent as #{ctx.idempotency_key[:4]}")
    await reach("upload")
    return f"{file} is there"


@tool(parallel=True, on_crash="rerun")
async def book_trip(ctx: ToolContext, city: str) -> str:
    """Runs again from its beginning, but a step that is done is not repeated."""
    await ctx.step("flight", lambda: note("trip: flight"))
    await reach("trip")
    await ctx.step("hotel", lambda: note("trip: hotel"))
    return f"flight and hotel for {city}"


@tool(key="{to}")
async def send_mail(ctx: ToolContext, to: str) -> str:
    """Says nothing about being repeatable, and goes to each person one at a time."""
    note(f"{ctx.call_id}: sent")
    if ctx.call_id == "mail-1":
        await reach("mail-1")
    return f"mail sent to {to}"


TOOLS = [pay, get_rates, upload, book_trip, send_mail]


async def run() -> None:
    """Run the batch until the kill."""
    async with Runtime.open(DESK / "agent.db", tools=TOOLS) as runtime:
        events = runtime.subscribe()
        runtime.session("demo").start_batch(CALLS)
        async for event in events:
            if isinstance(event, CallFinished) and event.call_id == "pay":
                break
        await all_there.wait()
        os.kill(os.getpid(), signal.SIGKILL)


async def again() -> None:
    """Finish what was cut off, run the same batch, and say what happened to each call."""
    async with Runtime.open(DESK / "agent.db", tools=TOOLS) as runtime:
        recovered: dict[str, Recovered] = {one.call_id: one for one in await runtime.recover()}
        outcomes = await runtime.session("demo").run_batch(CALLS)
    done = [
        {
            "call": outcome.call_id,
            "tool": outcome.tool,
            "action": recovered[outcome.call_id].action if outcome.call_id in recovered else "replayed",
            "status": outcome.status,
            "text": outcome.text,
        }
        for outcome in outcomes
    ]
    print(json.dumps({"process": os.getpid(), "calls": done}))


if __name__ == "__main__":
    asyncio.run(run() if MODE == "run" else again())
