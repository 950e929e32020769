"""The table that is updated while a batch runs. Owns drawing the board repeatedly; not its content."""

from __future__ import annotations

import asyncio
import contextlib
import time

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from toolwright.calls.batch import Batch
from toolwright.cli.display.batch_progress import Board, Row
from toolwright.cli.display.blocked_by import Waits
from toolwright.cli.display.styles import join_some, look_of, new_table, pick, plain, seconds, short, state_text
from toolwright.cli.run_calls import Watch
from toolwright.errors import BatchFailed
from toolwright.event_bus import Subscription
from toolwright.runtime.runtime import Runtime

_FRAME = 1 / 15
_BAR_WIDTH = 18
_AROUND = 6  # lines of the table that are not rows, and one for the prompt
_URGENCY = {"running": 0, "waiting": 1, "failure": 2, "cancelled": 3}


def live_table(console: Console) -> Watch:
    """A watch that shows a batch as a table on this console until it is finished."""

    async def watch(runtime: Runtime, batch: Batch, events: Subscription) -> None:
        board = Board()
        waits = Waits(runtime.log.query(batch=batch.id), runtime.tools.snapshot())
        ended = asyncio.ensure_future(_end_of(batch))
        # Redrawn from this loop and not from a thread of rich: the board changes here.
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                over = ended.done()
                while (event := events.take()) is not None:
                    board.follow(event)
                live.update(draw(board, waits, height=console.height, now=time.time()), refresh=True)
                if over:
                    return
                await asyncio.wait({ended}, timeout=_FRAME)

    return watch


async def _end_of(batch: Batch) -> None:
    with contextlib.suppress(BatchFailed):  # The caller that runs the batch gets it too.
        await batch


def draw(board: Board, waits: Waits, *, height: int, now: float) -> RenderableType:
    """The board as a table of at most this height; rows that do not fit are counted."""
    table = new_table(expand=True)
    table.add_column("call", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("state", no_wrap=True, min_width=11)
    table.add_column("progress", width=_BAR_WIDTH)
    table.add_column("time", no_wrap=True, justify="right", min_width=6)
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    unfinished = {row.call_id for row in board if row.finished is None}
    rows = pick(list(board), max(3, height - _AROUND), lambda row: _URGENCY.get(row.state, 9))
    for row in rows:
        table.add_row(
            Text("  " * row.depth + ("└ " if row.depth else "") + short(row.call_id)),
            row.tool,
            state_text(row.state),
            progress_bar(row, now),
            seconds(row.elapsed(now)),
            _note(row, waits, unfinished),
        )
    table.caption = _summary(board, len(rows))
    table.caption_justify = "left"
    return table


def progress_bar(row: Row, now: float) -> RenderableType:
    """The progress of a call as a bar; a bar that pulses where it is not known."""
    if row.started is None:
        return Text("·" * _BAR_WIDTH if row.finished is None else "", style="dim")
    style = look_of(row.state).style
    if row.finished is None and row.total is None:
        return ProgressBar(total=None, pulse=True, width=_BAR_WIDTH, pulse_style="cyan", animation_time=now % 1000)
    return ProgressBar(
        total=row.total or 1,
        completed=row.current,
        width=_BAR_WIDTH,
        complete_style=style,
        finished_style=style,
    )


def _note(row: Row, waits: Waits, unfinished: set[str]) -> Text:
    if row.state != "waiting":
        return Text(plain(row.note), style="" if row.state == "running" else "dim")
    others = waits.left(row.call_id, unfinished)
    return Text(f"waits for {join_some(others)}" if others else row.note or "waits for a slot", style="dim")


def _summary(board: Board, shown: int) -> Text:
    counts = board.counts()
    parts = (f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
    left_out = f"{shown} of {len(board)} calls shown · " if shown < len(board) else ""
    return Text(left_out + " · ".join(parts), style="dim")
