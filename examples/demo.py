"""Fifteen calls on real tools: what overlaps, what waits and why, and what goes wrong without harm.

Run it with `make demo`. On a terminal the table moves; anywhere else only the last tables are printed.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from toolwright import Policy, Runtime, ToolCall, ToolRegistry
from toolwright.cli.live import live_table
from toolwright.cli.outcomes import outcome_table
from toolwright.cli.output import set_up_log
from toolwright.cli.running import Watch
from toolwright.cli.sources import load_tools
from toolwright.cli.timeline import timeline

HERE = Path(__file__).parent

CALLS = [
    ToolCall(id="primes", name="count_primes", arguments={"below": 20_000_000}),
    ToolCall(id="words", name="count_words", arguments={"package": "encodings"}),
    ToolCall(id="hash", name="hash_package", arguments={"package": "asyncio"}),
    ToolCall(id="ann-1", name="book", arguments={"account": "ann", "amount": 40}),
    ToolCall(id="ann-2", name="book", arguments={"account": "ann", "amount": -15}),
    ToolCall(id="ann-3", name="book", arguments={"account": "ann", "amount": 7}),
    ToolCall(id="bob-1", name="book", arguments={"account": "bob", "amount": 12}),
    ToolCall(id="write", name="write_note", arguments={"path": "note.txt", "package": "email"}),
    ToolCall(id="read", name="read_note", arguments={"path": "./note.txt"}),
    ToolCall(id="silent", name="ask_silent_service"),
    ToolCall(id="dump", name="dump_sources", arguments={"megabytes": 1}),
    ToolCall(id="wrong", name="count_words", arguments={"package": "json", "top": "three"}),
    ToolCall(id="typo", name="hash_pakage", arguments={"package": "json"}),
    ToolCall(id="audit", name="audit"),
    ToolCall(id="late", name="hash_package", arguments={"package": "json"}),
]


async def run(console: Console, tools: ToolRegistry, desk: Path, watch: Watch | None) -> None:
    """Run the batch and print what became of it."""
    policy = Policy(max_concurrency=6, spill_dir=desk / "spilled")
    async with Runtime.open(tools=tools.snapshot().values(), policy=policy) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("demo").start_batch(CALLS)
        if watch is not None:
            await watch(runtime, batch, events)
        outcomes = await batch
    heading(console, "When each call ran, and why it waited")
    console.print(timeline(runtime.log.query(session="demo")))
    heading(console, "One outcome for each call, in call order")
    console.print(outcome_table(outcomes))


def heading(console: Console, text: str) -> None:
    """Print the title of a table."""
    console.print(f"\n[bold]{text}[/]")


def main(console: Console | None = None, watch: Watch | None = None) -> None:
    """Run the demo in a directory of its own, which is gone afterwards."""
    console = console or Console()
    if watch is None and console.is_terminal:
        watch = live_table(console)
    set_up_log(verbose=False)
    with tempfile.TemporaryDirectory(prefix="toolwright-demo-") as desk:
        os.environ["TOOLWRIGHT_DEMO_DESK"] = desk
        tools = load_tools([str(HERE / "demo_tools.py")])
        console.print(
            f"[bold]{len(CALLS)} calls[/], as one answer of a model might hold them, at most 6 at once",
            highlight=False,
        )
        asyncio.run(run(console, tools, Path(desk), watch))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
