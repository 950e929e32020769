"""A batch as bars over time. Owns drawing when calls waited and ran, and why, from their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from toolwright.calls.record import CallRecord
from toolwright.cli.display.styles import join_some, look_of, new_table, pick, seconds, short

_TICKS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
)
_TICK_WIDTH = 10
_WIDEST = 60  # where there is no screen to be filled
_NEVER_RAN = "│"
_NAMED = 3  # A record has so many names at most.


class Span(NamedTuple):
    """The stretch of time that a timeline covers."""

    start: float
    end: float

    def column(self, at: float, width: int) -> float:
        """Where an instant lies among this many columns."""
        return (at - self.start) / (self.end - self.start) * width


class Bar:
    """One call: dots while it waited, a bar while it ran, a stroke if it never did."""

    def __init__(self, record: CallRecord, span: Span) -> None:
        self._record = record
        self._span = span

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return _measure(options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record, width = self._record, options.max_width
        style = console.get_style(look_of(record.status).style)
        queued = min(int(self._span.column(record.queued_at, width)), width - 1)
        if record.started_at is None:
            end = min(int(self._span.column(record.finished_at or self._span.end, width)), width - 1)
            yield Segment(" " * queued)
            yield Segment("·" * (end - queued), Style(dim=True))
            yield Segment(_NEVER_RAN, style)
            return
        left, right = (self._halves(at, width) for at in (record.started_at, record.finished_at or self._span.end))
        left = min(left, 2 * width - 1)
        right = max(right, left + 1)
        yield Segment(" " * queued)
        yield Segment("·" * (left // 2 - queued), Style(dim=True))
        yield Segment(_block(left, right), style)

    def _halves(self, at: float, width: int) -> int:
        return round(self._span.column(at, width) * 2)


def _block(left: int, right: int) -> str:
    """A bar from one half column to another: never empty, so that a short call is still seen."""
    if left % 2 and right - left == 1:
        return "▗"
    return "▗" * (left % 2) + "▄" * (right // 2 - (left + 1) // 2) + "▖" * (right % 2)


class Axis:
    """The scale of a timeline."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return _measure(options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        length = self._span.end - self._span.start
        step = next((tick for tick in _TICKS if tick / length * width >= _TICK_WIDTH), length)
        line = ""
        for number in range(int(length / step) + 1):
            place = round(self._span.column(self._span.start + number * step, width))
            label = "0" if number == 0 else _label(number * step)
            if place >= len(line) and place + len(label) + 1 <= width:
                line = line.ljust(place) + f"╵{label}"
        yield Segment(line, Style(dim=True))


def _measure(options: ConsoleOptions) -> Measurement:
    return Measurement(20, min(_WIDEST, options.max_width))


def _label(at: float) -> str:
    return f"{at * 1000:.0f} ms" if at < 1 else f"{at:g} s"


def timeline(records: Sequence[CallRecord], *, most: int = 200) -> Table:
    """A table with a bar for each call, and the reason of its wait. If there are too many, the longest are shown."""
    span = _span(records)
    table = new_table(expand=True)
    table.add_column("call", no_wrap=True)
    table.add_column(Axis(span), ratio=1, no_wrap=True)
    table.add_column("waited", no_wrap=True, justify="right")
    table.add_column("ran", no_wrap=True, justify="right")
    table.add_column("why it waited", min_width=23, no_wrap=True, overflow="ellipsis", style="dim")
    shown = pick(records, most, lambda record: -record.run_time)
    for depth, record in _nested(shown):
        table.add_row(
            Text("  " * depth + ("└ " if depth else "") + short(record.call_id)),
            Bar(record, span),
            seconds(record.queue_time) if record.waited_for else "",
            "never" if record.started_at is None else seconds(record.run_time),
            _why(record, records),
        )
    table.caption = _summary(records, span, len(shown))
    table.caption_justify = "left"
    return table


def _why(record: CallRecord, records: Sequence[CallRecord]) -> str:
    names = record.waited_for
    if not names:
        return ""
    if len(names) < _NAMED or record.started_at is None:
        return f"for {join_some(names)}"
    # A record names the first few of many reasons; more useful is the call whose end let this one start.
    start = record.started_at
    ended = [(other.finished_at, other.call_id) for other in records if (other.finished_at or start) <= start]
    last = max(ended)[1] if ended else names[0]
    return f"for {short(last)} and others"


def _nested(records: Sequence[CallRecord]) -> Iterator[tuple[int, CallRecord]]:
    """Each record with its depth; nested calls come below the call that made them."""
    below: dict[str | None, list[CallRecord]] = {}
    known = {record.call_id for record in records}
    for record in records:
        below.setdefault(record.parent if record.parent in known else None, []).append(record)
    stack = [(0, record) for record in reversed(below.pop(None, []))]
    while stack:
        depth, record = stack.pop()
        yield depth, record
        stack += [(depth + 1, child) for child in reversed(below.pop(record.call_id, []))]


def _span(records: Sequence[CallRecord]) -> Span:
    start = min((record.queued_at for record in records), default=0.0)
    end = max((record.finished_at or record.queued_at for record in records), default=0.0)
    return Span(start, max(end, start + 0.001))


def _summary(records: Sequence[CallRecord], span: Span, shown: int) -> Text:
    left_out = "" if shown == len(records) else f" ({shown} shown, which ran longest)"
    work = sum(record.run_time for record in records)
    text = (
        f"{len(records)} calls{left_out}, {seconds(work)} of running in {seconds(span.end - span.start)}, "
        f"up to {_most_at_once(records)} at once · ··· waiting  ▄▄▄ running  {_NEVER_RAN} never ran"
    )
    return Text(text, style="dim")


def _most_at_once(records: Iterable[CallRecord]) -> int:
    edges: list[tuple[float, int]] = []
    for record in records:
        if record.started_at is not None and record.finished_at is not None:
            edges += [(record.started_at, 1), (record.finished_at, -1)]
    running = most = 0
    for _, change in sorted(edges):
        running += change
        most = max(most, running)
    return most
