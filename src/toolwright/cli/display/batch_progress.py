"""The state of a batch, read from its events. Owns following events; does not own how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from toolwright.events import (
    AnyEvent,
    BatchStarted,
    CallFinished,
    CallProgress,
    CallRetrying,
    CallStarted,
    CallStatus,
    CallWaiting,
    CallWarning,
)

_Key = tuple[str, str]


@dataclass(slots=True)
class Row:
    """One call: its state and the text to show for it. Instants are seconds since the epoch."""

    call_id: str
    tool: str
    depth: int
    queued: float
    state: str = "waiting"
    started: float | None = None
    finished: float | None = None
    current: float = 0.0
    total: float | None = None
    note: str = ""

    def elapsed(self, now: float) -> float:
        """Seconds it has run, or has waited while it does not run."""
        return max(0.0, (self.finished or now) - (self.started or self.queued))


class Board:
    """Rows in call order, the calls that a call runs below it."""

    def __init__(self) -> None:
        self._rows: dict[_Key, Row] = {}
        self._order: list[_Key] = []

    def __iter__(self) -> Iterator[Row]:
        return (self._rows[key] for key in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def counts(self) -> Counter[str]:
        """How many calls are in each state."""
        return Counter(row.state for row in self)

    def follow(self, event: AnyEvent) -> None:
        """Apply the next event."""
        if isinstance(event, BatchStarted):
            self._add(event)
            return
        key = (event.batch, getattr(event, "call_id", ""))
        row = self._rows.get(key)
        if row is None:
            return
        if isinstance(event, CallFinished):
            if event.code == "duplicate_id":
                return  # That is the fate of its namesake; the row is the first call's.
            row.state, row.finished = event.status, event.at
            if not event.attempts:
                row.started = None  # Every call starts and finishes as events; this one's tool never ran.
            if event.status == "success":
                row.total = row.total or 1
                row.current = row.total
            row.note = event.code or ("" if event.attempts < 2 else f"after {event.attempts} attempts")
        elif isinstance(event, CallStarted):
            row.state, row.started, row.note = "running", event.at, ""
        elif isinstance(event, CallProgress):
            row.current, row.total, row.note = event.current or 0.0, event.total, event.label or ""
        elif isinstance(event, CallStatus):
            row.note = event.text
        elif isinstance(event, CallRetrying):
            row.current, row.total = 0.0, None
            row.note = f"attempt {event.attempt} failed ({event.code}), again in {event.delay:.1f} s"
        elif isinstance(event, CallWaiting):
            row.note = f"waits for {event.what}" + (
                f" {event.name}" if event.what in ("event", "signal", "question") else ""
            )
        elif isinstance(event, CallWarning):
            row.note = event.message

    def _add(self, event: BatchStarted) -> None:
        above = next((key for key in self._order if event.parent is not None and key[1] == event.parent), None)
        depth = 0 if above is None else self._rows[above].depth + 1
        place = len(self._order) if above is None else self._end_of(above)
        for call_id, tool in event.calls:
            key = (event.batch, call_id)
            if key not in self._rows:
                self._rows[key] = Row(call_id, tool, depth, event.at)
                self._order.insert(place, key)
                place += 1

    def _end_of(self, above: _Key) -> int:
        """The place after a call and everything below it."""
        place = self._order.index(above) + 1
        depth = self._rows[above].depth
        while place < len(self._order) and self._rows[self._order[place]].depth > depth:
            place += 1
        return place
