"""Background runs while they run. Owns following their events, as bars that move or as lines; starts and stops none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from toolwright.background.handle import Run
from toolwright.cli.display.run_tables import event_text, progress_text, short_ids
from toolwright.cli.display.styles import look_of, new_table, pick, plain, seconds, short, state_text
from toolwright.cli.display.time_format import moment
from toolwright.stores.contracts.background_run import OVER, BackgroundRun, Progress
from toolwright.stores.contracts.run_events import RunEvent

Found = Callable[[], Awaitable[Sequence[Run]]]
"""The runs to follow, as of now: some may have come since it was last asked."""
_FRAME = 1 / 10
_LOOK = 1.0
"""Seconds between two looks for runs that have come."""
_PACE = 1.0
"""Seconds between two lines about the progress of a run."""
_BAR_WIDTH = 24
_AROUND = 6  # lines of the table that are not rows, and one for the prompt
_URGENCY = {"running": 0, "waiting": 1, "queued": 2}
_STATES = {
    "queued": "queued",
    "started": "running",
    "resumed": "running",
    "waiting": "waiting",
    "handed_back": "queued",
}


class Followed:
    """One run, read from its events."""

    def __init__(self, record: BackgroundRun) -> None:
        self.record = record
        self.state: str = record.status
        self.progress = record.progress
        self.started = record.started_at
        self.ended = record.ended_at
        self.note = ""

    def take(self, event: RunEvent) -> None:
        """Apply the next event."""
        payload = event.payload
        self.state = _STATES.get(event.type, self.state)
        if event.type == "tracked":
            self.started = event.at
        elif event.type == "started":
            self.started = self.started or event.at
            self.note = "taken over from another worker" if payload.get("taken_over_from") else ""
        elif event.type == "progress":
            self.progress = msgspec.convert(payload, Progress)
        elif event.type == "output":
            self.note = plain(payload["text"].rstrip("\n").rpartition("\n")[2])
        elif event.type == "cancel_asked":
            self.note = f"is to stop: {plain(payload['reason'])}"
        elif event.type == "handed_back":
            self.note = "its worker stops; another continues"
        elif event.type in OVER:
            self.state, self.ended = event.type, event.at
            self.note = plain(payload["summary"])

    def elapsed(self, now: float) -> float:
        """Seconds since it first started, or since it was asked for."""
        return max(0.0, (self.ended or now) - (self.started or self.record.created_at))


async def follow_runs(find: Found, console: Console, *, told: Callable[[str], None] | None = None) -> list[Run]:
    """Follow runs until all are finished: in a table that is updated, or by lines to `told`. Returns them."""
    following = _Following(find, told)
    work = asyncio.ensure_future(following.work())
    try:
        if told is None:
            # Redrawn from this loop and not from a thread of rich: the rows change here.
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
                while True:
                    over = work.done()
                    live.update(draw(list(following.rows.values()), console.height, time.time()), refresh=True)
                    if over:
                        break
                    await asyncio.wait({work}, timeout=_FRAME)
        await work
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # the task that awaited it got the error
            await work
    return list(following.runs.values())


class _Following:
    def __init__(self, find: Found, told: Callable[[str], None] | None) -> None:
        self._find = find
        self._told = told
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last_told: dict[str, float] = {}
        self.runs: dict[str, Run] = {}
        self.rows: dict[str, Followed] = {}

    async def work(self) -> None:
        """Follow the runs that are found now and later, until all are finished."""
        try:
            while True:
                for run in await self._find():
                    if run.id not in self.runs:
                        self.runs[run.id], self.rows[run.id] = run, Followed(run.record)
                        self._tasks[run.id] = asyncio.ensure_future(self._follow(run))
                left = [task for task in self._tasks.values() if not task.done()]
                if not left:
                    await asyncio.gather(*self._tasks.values())
                    return
                await asyncio.wait(left, timeout=_LOOK)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self, run: Run) -> None:
        row = self.rows[run.id]
        async for event in _events(run):
            row.take(event)
            if self._told is not None and self._worth_a_line(event):
                self._told(f"{moment(event.at)} {plain(run.id)} {short(row.record.title, 40)}: {_line(event)}")

    def _worth_a_line(self, event: RunEvent) -> bool:
        if event.type in ("output", "status"):
            return False
        if event.type == "progress":
            if event.at - self._last_told.get(event.run, 0.0) < _PACE:
                return False
            self._last_told[event.run] = event.at
        return True


def _events(run: Run) -> AsyncIterator[RunEvent]:
    return run.follow()


def _line(event: RunEvent) -> str:
    said = event_text(event)
    return f"{plain(event.type.replace('_', ' '))}{f', {said}' if said else ''}"


def draw(rows: Sequence[Followed], height: int, now: float) -> RenderableType:
    """The runs as a table of at most this height; rows that do not fit are counted."""
    table = new_table(expand=True)
    names = short_ids([row.record.id for row in rows])
    table.add_column("run", no_wrap=True, style="cyan", min_width=max(map(len, names.values()), default=0))
    table.add_column("title", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=11)
    table.add_column("progress", width=_BAR_WIDTH)
    table.add_column("", no_wrap=True)
    table.add_column("time", no_wrap=True, justify="right", min_width=6)
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    shown = pick(rows, max(3, height - _AROUND), lambda row: _URGENCY.get(row.state, 9))
    for row in shown:
        table.add_row(
            Text(names[row.record.id]),
            Text(short(row.record.title, 30)),
            state_text(row.state),
            _bar(row, now),
            _share(row.progress),
            seconds(row.elapsed(now)),
            Text(_note(row), style="" if row.state == "running" else "dim"),
        )
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    left_out = f"{len(shown)} of {len(rows)} runs shown · " if len(shown) < len(rows) else ""
    table.caption = Text(left_out + " · ".join(f"{count} {state}" for state, count in counts.items()), style="dim")
    table.caption_justify = "left"
    return table


def _note(row: Followed) -> str:
    if row.state in ("running", "waiting") and row.progress is not None and row.progress.label:
        return plain(row.progress.label)
    return row.note


def _share(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if progress.current is None:
        return progress_text(progress)
    return f"{100 * progress.current / progress.total:.0f}%" if progress.total else progress_text(progress)


def _bar(row: Followed, now: float) -> RenderableType:
    style, progress = look_of(row.state).style, row.progress
    if row.started is None:
        return Text("·" * _BAR_WIDTH if row.ended is None else "", style="dim")
    options: dict[str, Any] = {"width": _BAR_WIDTH, "complete_style": style, "finished_style": style}
    if row.state == "completed":
        return ProgressBar(total=1, completed=1, **options)
    if progress is None or progress.current is None or not progress.total:
        if row.ended is None:
            return ProgressBar(total=None, pulse=True, width=_BAR_WIDTH, pulse_style="cyan", animation_time=now % 1000)
        return ProgressBar(total=1, completed=0, **options)
    return ProgressBar(total=progress.total, completed=progress.current, **options)
