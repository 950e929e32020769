"""The demo's last act: the page. A small shop's agent works, and one of its calls waits for you.

`demo.py` prints how to see it, and with `make demo ARGS=--page` runs it: it serves the agent of `page_agent.py` from a
store of its own, with a link that logs your browser in once, until you stop it.
"""

import asyncio
import signal
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn
from rich.console import Console

import page_agent
from toolwright import Runtime, ToolCall
from toolwright.http import create_app

PORT = 8700
WORK_EVERY = 6.0
"""Seconds between two batches that the demo runs, so that there is something to see."""


async def fill(runtime: Runtime) -> None:
    """Work that is done: a conversation, batches, files, a schedule. Work that runs, and some that waits for you."""
    desk = runtime.session("desk")
    await desk.details.set(title="The desk of the shop")
    await desk.ask("What is in stock?")
    await desk.files.write("/notes/monday.md", "# Monday\n\n- order milk\n- call the carrier about P-31\n")
    await desk.kv.set("opening_hours", {"from": "09:00", "until": "18:00", "closed": ["sunday"]})
    await desk.schedule(
        "take_inventory", {"shelves": 40}, cron="0 3 * * *", timezone="Europe/Prague", title="Inventory"
    )
    await runtime.session("orders").start_batch(page_agent.BATCH)
    await runtime.session("orders").start_batch(page_agent.BATCH[:6], scope="second")
    await desk.spawn("take_inventory", {"shelves": 400}, title="Count all shelves")
    await desk.spawn("take_inventory", {"shelves": 3}, title="Count the window")
    customer = runtime.session("customer-ann")
    await customer.details.set(title="Ann: broken honey")
    # Its outcome is "waiting": a person has to approve the refund.
    await (await customer.start_turn("The honey of order A-1007 broke on its way. Please pay it back."))
    asking = ToolCall(id="where", name="ask_clerk", arguments={"about": "the honey"})
    runtime.session("desk").start_batch([asking], scope="question")


async def work(runtime: Runtime) -> None:
    """Something happens now and then."""
    for number in range(1_000_000):
        await asyncio.sleep(WORK_EVERY)
        await runtime.session("orders").start_batch(page_agent.BATCH, scope=f"round-{number}")


def listen() -> socket.socket:
    """The usual port, or another one where that is taken; whoever reads the link can connect."""
    try:
        return socket.create_server(("127.0.0.1", PORT))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


async def serve(console: Console, desk: Path) -> None:
    """Serve the agent until somebody stops it."""
    listening = listen()
    port = listening.getsockname()[1]
    async with page_agent.app.open(desk / "shop.db", worker=True) as runtime:
        service = create_app(runtime)
        await fill(runtime)
        link = await (await service.sign_in.tokens()).link("you", ["admin"])
        console.print("\n[bold]The page[/] of an agent that works, with an approval that waits for you:")
        console.print(f"  http://127.0.0.1:{port}/login?link={link}", highlight=False, soft_wrap=True)
        console.print("The link works once, from this machine. Stop it with Ctrl-C.")
        server = uvicorn.Server(uvicorn.Config(service, log_level="warning", lifespan="off"))
        working = asyncio.ensure_future(work(runtime))
        try:
            await server.serve([listening])
        finally:
            working.cancel()
            await asyncio.wait({working})


def run(console: Console, desk: Path) -> None:
    """Run the act."""
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(console, desk))


def hint(console: Console) -> None:
    """Say how to see the page, at the end of the other acts."""
    console.print("\n[bold]Last act: the page[/]")
    console.print(
        "All of this is also a page, live: batches over time, calls, runs, schedules, an inbox for approvals. "
        "This serves an agent with an approval that waits for you, and prints the link:"
    )
    console.print("  make demo ARGS=--page", highlight=False)


if __name__ == "__main__":
    import tempfile

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="toolwright-page-") as folder:
        run(Console(), Path(folder))
