"""What a running process says, on its way to the store. Owns joining much of it into one report."""

from __future__ import annotations

from collections.abc import Callable

from toolwright.clock import Clock
from toolwright.events import AnyEvent, CallOutput, CallProgress
from toolwright.processes.output import Gathered, LogText, live_tail
from toolwright.processes.process import Process, Progress
from toolwright.processes.store import Report


class Sink:
    """Takes the events of the calls of one process, at any rate, and never makes them wait.

    `dirty` is told once when there is something to report, until the report is taken.
    """

    def __init__(self, process: Process, clock: Clock, dirty: Callable[[Sink], None]) -> None:
        self.id = process.id
        self._token = process.token
        self._clock = clock
        self._dirty = dirty
        self._told = False
        self._gathered = Gathered(process.log_chars)
        self._tail = process.tail
        self._text = LogText(process.tail)
        self._progress: Progress | None = None
        self._status_text: str | None = None
        self._waiting: tuple[str, ...] | None = None

    def push(self, event: AnyEvent) -> None:
        """Take an event; only what the call of the process says, and what its nested calls print, is of interest."""
        if isinstance(event, CallOutput):
            self._gathered.add(event.stream, event.text)
        elif isinstance(event, CallProgress) and event.call_id == self.id:
            self._progress = Progress(event.current, event.total, None, event.label)
        else:
            return
        self._tell()

    def say(self, text: str) -> None:
        """What the process is doing, in words."""
        self._status_text = text
        self._tell()

    def wait_for(self, *what: str) -> None:
        """It waits for something outside; for nothing: it goes on."""
        self._waiting = what
        self._tell()

    def take(self) -> Report | None:
        """What was said since this was last asked for."""
        pieces, dropped = self._gathered.take()
        if pieces:
            self._tail = live_tail(self._tail, pieces, self._text)
        report = Report(
            id=self.id,
            token=self._token,
            at=self._clock.now(),
            pieces=pieces,
            dropped=dropped,
            progress=self._progress,
            status_text=self._status_text,
            waiting=self._waiting,
            tail=self._tail if pieces else None,
        )
        told, self._told = self._told, False
        self._progress = self._status_text = self._waiting = None
        return report if told else None

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._dirty(self)
