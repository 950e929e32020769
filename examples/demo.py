"""Five acts. Fifteen calls on real tools: what overlaps, what waits and why, and what goes wrong without harm. Then a
process that is killed in the middle of a batch, and another that goes on where it was. Then the tools in the box. Then
work in the background, whose worker is killed, and a night of schedules in seconds. Then an agent that is killed in the
middle of a turn, and continues. At the end, how to see the page of an agent; `make demo ARGS=--page` serves it.
`make demo ARGS=--postgres` shows three workers on a PostgreSQL, of which one is killed, and then the database.

Run it with `make demo`. On a terminal the first table moves; anywhere else only the last tables are printed.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import demo_background
import demo_page
import demo_project
import demo_turn
from toolwright import Policy, Runtime, ToolCall, ToolRegistry
from toolwright.cli.display.live import live_table
from toolwright.cli.display.outcome_table import outcome_table
from toolwright.cli.display.output import set_up_log
from toolwright.cli.display.styles import look_of
from toolwright.cli.display.timeline import timeline
from toolwright.cli.input.sources import load_tools
from toolwright.cli.run_calls import Watch

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

STORIES = {
    "pay": "done",
    "rates": "running, readonly",
    "upload": "running, idempotent",
    "trip": "between two steps",
    "mail-1": "running",
    "mail-2": "behind mail-1",
}
"""Where each call of the second act was when its process was killed."""
LOOKS = {"replayed": "green", "rerun": "cyan", "run": "cyan", "interrupted": "bold red"}
"""What the next process did with a call, and its colour."""


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


def crash(console: Console, desk: Path) -> None:
    """Let a process be killed in the middle of a batch, and another go on; print what became of each call."""
    heading(console, "Second act: the process is killed in the middle of a batch")
    console.print(
        "Six calls, with their journal in a file. Each effect adds a line to a ledger beside it, as it happens."
    )
    killed, _ = start("run", desk, expected=-signal.SIGKILL)
    before = ledger(desk)
    console.print(
        f"[bold]Process {killed}[/] ran them and was killed with SIGKILL. The ledger had {before.total()} lines."
    )
    process, said = start("again", desk, expected=0)
    console.print(f"[bold]Process {process}[/] opened the same file, recovered, and was given the same batch:")
    console.print(crash_table(json.loads(said)["calls"], before, ledger(desk)))
    console.print(
        "Only what says that twice does no harm happened twice. The flight is a durable step: its call was rerun, the "
        "step was not. Whether mail-1 went out nobody can know: it is not sent again, and the model is told so."
    )


def start(mode: str, desk: Path, *, expected: int) -> tuple[int, str]:
    """Run the program of the second act to its end; return its number and what it said."""
    words = [sys.executable, str(HERE / "demo_crash.py"), mode, str(desk)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        said, _ = child.communicate(timeout=60)
    if child.returncode != expected:
        raise SystemExit(f"The second act failed: {mode!r} ended with {child.returncode}")
    return child.pid, said


def ledger(desk: Path) -> Counter[str]:
    """How often each effect happened."""
    return Counter((desk / "ledger.txt").read_text().splitlines())


def crash_table(calls: list[dict[str, Any]], before: Counter[str], after: Counter[str]) -> Table:
    """A line for each call: where it was, what the next process did, and how often its effects happened."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True, header_style="bold")
    table.add_column("call", no_wrap=True, min_width=6)
    table.add_column("when it was killed", no_wrap=True)
    table.add_column("then", no_wrap=True, min_width=11)
    table.add_column("ledger: before + after", no_wrap=True, min_width=20)
    table.add_column("what the model reads", ratio=1, no_wrap=True, overflow="ellipsis")
    for call in calls:
        lines = [line for line in after if line.startswith(f"{call['call']}: ")]
        table.add_row(
            call["call"],
            STORIES[call["call"]],
            Text(call["action"], style=LOOKS[call["action"]]),
            Text("\n").join(effect(line, before[line], after[line]) for line in lines),
            Text.assemble((look_of(call["status"]).sign, look_of(call["status"]).style), f" {call['text']}"),
        )
    return table


def effect(line: str, before: int, after: int) -> Text:
    """How often an effect happened before the kill, and how often after it."""
    name = line.partition(": ")[2]
    return Text.assemble((f"{before} + {after - before}", "bold" if after == 1 else "yellow"), f"  {name}")


def heading(console: Console, text: str) -> None:
    """Print the title of a table."""
    console.print(f"\n[bold]{text}[/]")


def main(
    console: Console | None = None,
    watch: Watch | None = None,
    second: Console | None = None,
    third: Console | None = None,
    fourth: Console | None = None,
    fifth: Console | None = None,
) -> None:
    """Run the demo in a directory of its own, which is gone afterwards; each act on a console of its own if given."""
    console = console or Console()
    if watch is None and console.is_terminal:
        watch = live_table(console)
    set_up_log(verbose=False)
    with tempfile.TemporaryDirectory(prefix="toolwright-demo-") as desk:
        os.environ["TOOLWRIGHT_DEMO_DESK"] = desk
        tools = load_tools([str(HERE / "demo_tools.py")]).tools
        console.print(
            f"[bold]{len(CALLS)} calls[/], as one answer of a model might hold them, at most 6 at once",
            highlight=False,
        )
        asyncio.run(run(console, tools, Path(desk), watch))
        crash(second or console, Path(desk))
        asyncio.run(demo_project.run(third or console, Path(desk)))
        demo_background.run(fourth or console, Path(desk))
        demo_turn.run(fifth or console, Path(desk))
    demo_page.hint(console)


def show_postgres() -> None:
    """Kill a worker and the database of several workers; end with 1 if anything was lost or happened twice."""
    import demo_postgres  # the others need no PostgreSQL

    set_up_log(verbose=False)
    with tempfile.TemporaryDirectory(prefix="toolwright-demo-") as desk:
        os.environ["TOOLWRIGHT_DEMO_DESK"] = desk
        if not demo_postgres.run(Console(), Path(desk)):
            sys.exit(1)


def show_page() -> None:
    """Serve an agent with an approval that waits, until somebody stops it."""
    set_up_log(verbose=False)
    with tempfile.TemporaryDirectory(prefix="toolwright-demo-") as desk:
        demo_page.run(Console(), Path(desk))


def read_act() -> str | None:
    """Which act alone is asked for; None for the five of the demo."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="Five acts, or one of these alone, as in ARGS=--page."
    )
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--page", dest="act", action="store_const", const="page", help="serve the page of an agent")
    postgres = "kill a worker and its PostgreSQL server"
    acts.add_argument("--postgres", dest="act", action="store_const", const="postgres", help=postgres)
    act: str | None = parser.parse_args().act
    return act


if __name__ == "__main__":
    act = read_act()
    # So that being stopped also clears away what is on the desk.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if act == "page":
            show_page()
        elif act == "postgres":
            show_postgres()
        else:
            main()
    except KeyboardInterrupt:
        sys.exit(130)
