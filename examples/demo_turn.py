"""The demo's fifth act: an agent works through a task, is killed in the middle of its turn, and continues.

`till_agent.py` is the agent. The model follows a script here; `real_agent.py` runs the same act with a real one.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from toolwright.cli.display.styles import new_table, readable

HERE = Path(__file__).parent
PATIENCE = 60
"""Seconds that a process of the scripted act may take."""
SCRIPTED = "scripted"
WHY = {
    (1, 0): "done before the kill, and not again",
    (0, 1): "still to be done, and done by the second process",
}
"""What to say of an effect: how often it happened before and after the kill."""


def run(console: Console, desk: Path, model: str = SCRIPTED, patience: float = PATIENCE) -> None:
    """Run the act, and print what each process did, and how often each effect happened."""
    console.print("\n[bold]Fifth act: an agent is killed in the middle of a turn[/]")
    console.print(
        f"The model ({model}) is asked to mend the project of the third act, with the built-in tools for files and "
        "scripts. Each request to it, and each receipt that it prints, adds a line to a ledger.",
        highlight=False,
    )
    killed, _ = start("run", desk, model, patience, expected=-signal.SIGKILL)
    before = ledger(desk)
    console.print(f"[bold]Process {killed}[/] was killed with SIGKILL while the third receipt was to be printed.")
    process, said = start("again", desk, model, patience, expected=0)
    told: dict[str, Any] = json.loads(said)
    console.print(f"[bold]Process {process}[/] asked with the id of the turn, and so continued it:")
    console.print(ledger_table(before, ledger(desk)))
    calls = Counter(told["calls"])
    done = ", ".join(f"{times} x {call}" if times > 1 else call for call, times in calls.items())
    console.print(
        escape(
            readable(f"The turn is {told['status']} after {told['model_calls']} model calls ({done}): {told['text']}")
        ),
        highlight=False,
    )


def start(mode: str, desk: Path, model: str, patience: float, *, expected: int) -> tuple[int, str]:
    """Run the agent to its end, or until it is killed; return its number and what it said."""
    words = [sys.executable, str(HERE / "till_agent.py"), mode, str(desk), model]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        said, _ = child.communicate(timeout=patience)
    if child.returncode != expected:
        raise SystemExit(f"The fifth act failed: {mode!r} ended with {child.returncode}")
    return child.pid, said


def ledger(desk: Path) -> Counter[str]:
    """How often each effect happened."""
    return Counter((desk / "turn-ledger.txt").read_text().splitlines())


def ledger_table(before: Counter[str], after: Counter[str]) -> Table:
    """A line for each effect: how often it happened before the kill, and how often after it."""
    table = new_table(expand=True)
    table.add_column("effect", no_wrap=True, min_width=16)
    table.add_column("before + after", no_wrap=True)
    table.add_column("", ratio=1)
    for line, times in after.items():
        first, second = before[line], times - before[line]
        why = WHY.get((first, second), "more than once")
        table.add_row(readable(line), Text(f"{first} + {second}", style="bold" if times == 1 else "bold red"), why)
    return table
