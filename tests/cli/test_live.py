"""The table that moves while a batch runs."""

import asyncio
import io
import os
import pty
import select
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.support import fail_after
from toolwright import Runtime, ToolContext, ToolError, jsonx, tool
from toolwright.cli.display.batch_progress import Board
from toolwright.cli.display.blocked_by import Waits
from toolwright.cli.display.live import draw, live_table
from toolwright.event_bus import Subscription


class Gates:
    """Tools that run until the test lets them go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()

    @tool(key="{key}")
    async def hold(self, ctx: ToolContext, key: str) -> str:
        await ctx.progress(1, total=4, label="a quarter")
        self.reached.set()
        await self.open.wait()
        return key

    @tool(parallel=True)
    async def fail(self) -> None:
        raise ToolError("no", code="said_no")

    @tool(parallel=True)
    async def nest(self, ctx: ToolContext) -> str:
        outcome = await ctx.call("hold", key="inner")
        return outcome.text


class Watched:
    """A runtime with one batch, and the lines of the table at any moment."""

    def __init__(self, runtime: Runtime, gates: Gates, events: Subscription) -> None:
        self.runtime, self.gates, self._events = runtime, gates, events
        self._board = Board()
        self._waits: Waits | None = None

    def start(self, *calls: dict) -> asyncio.Future:
        batch = self.runtime.session("s").start_batch(calls)
        self._waits = Waits(self.runtime.log.query(batch=batch.id), self.runtime.tools.snapshot())
        return asyncio.ensure_future(batch.wait())

    def lines(self, height: int = 50) -> list[str]:
        while (event := self._events.take()) is not None:
            self._board.follow(event)
        assert self._waits is not None
        # In colour, where a bar without progress is drawn too.
        console = Console(file=io.StringIO(), width=110, force_terminal=True, color_system="standard")
        with console.capture() as captured:
            console.print(draw(self._board, self._waits, height=height, now=time.time()))
        plain = Text.from_ansi(captured.get()).plain
        return [line.strip() for line in plain.splitlines() if line.strip()]

    def line(self, call_id: str) -> str:
        return next(line for line in self.lines() if line.removeprefix("└ ").startswith(call_id))


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    gates = Gates()
    async with Runtime.open(tools=[gates.hold, gates.fail, gates.nest]) as runtime:
        with runtime.subscribe() as events:
            yield Watched(runtime, gates, events)


def hold(call_id: str, key: str) -> dict:
    return {"id": call_id, "name": "hold", "arguments": {"key": key}}


async def test_a_row_tells_state_progress_and_what_is_waited_for() -> None:
    async with watched() as table, fail_after(5):
        ended = table.start(hold("first", "a"), hold("second", "a"), {"id": "third", "name": "fail"})
        await table.gates.reached.wait()
        assert "● running" in table.line("first")
        assert "a quarter" in table.line("first")
        assert "○ waiting" in table.line("second")
        assert "waits for first" in table.line("second")
        table.gates.open.set()
        await ended
        assert "✓ success" in table.line("first")
        assert "✓ success" in table.line("second")
        assert "✗ failure" in table.line("third")
        assert "said_no" in table.line("third")
        assert table.lines()[-1] == "2 success · 1 failure"


async def test_a_call_that_conflicts_with_none_waits_for_a_slot() -> None:
    async with watched() as table, fail_after(5):
        ended = table.start(*(hold(f"c{number}", f"k{number}") for number in range(9)))
        await table.gates.reached.wait()
        assert "waits for a slot" in table.line("c8")
        table.gates.open.set()
        await ended


async def test_the_calls_of_a_call_stand_below_it() -> None:
    async with watched() as table, fail_after(5):
        ended = table.start({"id": "outer", "name": "nest"}, {"id": "last", "name": "fail"})
        await table.gates.reached.wait()
        rows = table.lines()[2:-1]
        assert [row.split()[0] for row in rows] == ["outer", "└", "last"]
        table.gates.open.set()
        await ended


async def test_a_call_that_never_ran_has_no_bar() -> None:
    async with watched() as table, fail_after(5):
        await table.start({"id": "typo", "name": "hodl"}, {"id": "ran", "name": "fail"})
        assert "━" not in table.line("typo")
        assert "unknown_tool" in table.line("typo")
        assert "━" in table.line("ran")


async def test_of_more_rows_than_fit_the_running_ones_are_shown_and_the_rest_is_counted() -> None:
    async with watched() as table, fail_after(5):
        calls = [{"id": f"f{number}", "name": "fail"} for number in range(20)]
        ended = table.start(*calls, hold("holding", "a"))
        await table.gates.reached.wait()
        lines = table.lines(height=12)
        assert len(lines) <= 12
        assert any(line.startswith("holding") for line in lines)
        assert lines[-1].startswith("6 of 21 calls shown")
        table.gates.open.set()
        await ended


async def test_the_last_table_drawn_is_that_of_the_end() -> None:
    async with watched() as table, fail_after(5):
        screen = io.StringIO()
        table.gates.open.set()
        events = table.runtime.subscribe()
        batch = table.runtime.session("s").start_batch([hold("only", "a")])
        await live_table(Console(file=screen, width=100, force_terminal=True))(table.runtime, batch, events)
        assert "success" in screen.getvalue().rpartition("only")[2]


HOLD = """
import os
from toolwright import tool

@tool
def hold(gate: str) -> str:
    with open(gate) as file:
        return file.read()
"""


def test_on_a_terminal_a_batch_shows_its_table_and_then_the_outcomes(command: list[str], project: Path) -> None:
    (project / "gated.py").write_text(HOLD)
    os.mkfifo(project / "gate")
    os.mkfifo(project / "other")
    calls = [
        {"id": name, "name": "hold", "arguments": {"gate": gate}} for name, gate in (("a", "gate"), ("b", "other"))
    ]
    (project / "batch.json").write_bytes(jsonx.encode(calls))
    ours, theirs = pty.openpty()
    words = [*command, "batch", "batch.json", "--tools", "gated.py", "--timeline"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, b"waits for a")
            (project / "gate").write_text("from a")
            (project / "other").write_text("from b")
            shown += read_until(ours, None)
        finally:
            os.close(ours)
            process.kill()
    text = shown.decode()
    for word in ("progress", "what the model reads", "from a", "from b", "why it waited"):
        assert word in text
    assert '"call_id"' not in text


def read_until(fd: int, word: bytes | None) -> bytes:
    """What a terminal shows until this word, or until its end."""
    shown = b""
    while word is None or word not in shown:
        ready, _, _ = select.select([fd], [], [], 20)
        if not ready:
            pytest.fail(f"Still waiting for {word!r} after {shown!r}")
        try:
            part = os.read(fd, 65536)
        except OSError:  # Linux says so at the end of a terminal.
            part = b""
        if not part:
            assert word is None, shown
            return shown
        shown += part
    return shown
