"""The events of a background run on their way to the store. Owns joining many of them into one report."""

from __future__ import annotations

from collections.abc import Callable

from toolwright.background.output import Gathered, LogText, live_tail
from toolwright.clock import Clock
from toolwright.events import AnyEvent, CallOutput, CallProgress, CallStatus, CallWaiting
from toolwright.stores.contracts.background_run import BackgroundRun, Progress
from toolwright.stores.contracts.run_store import Report
from toolwright.tools.outcome import encodable

WORDS = 500
"""The longest label, and name of a wait, in characters."""
STREAM = 50
"""Characters of the name of a stream."""


class EventCollector:
    """Takes the events of the calls of one run, at any rate, and never makes them wait.

    `dirty` is called once when there is something to report, until the report is taken. `waits` is called each time
    that the call of the run begins to wait for something outside.
    """

    def __init__(
        self,
        run: BackgroundRun,
        clock: Clock,
        dirty: Callable[[EventCollector], None],
        waits: Callable[[], None],
    ) -> None:
        self.id = run.id
        self._token = run.token
        self._clock = clock
        self._dirty = dirty
        self._waits = waits
        self._told = False
        self._logged = run.log_chars
        self._gathered: Gathered | None = None  # most runs print nothing
        self._tail = run.tail
        self._text: LogText | None = None
        self._progress: Progress | None = None
        self._opening_text: str | None = None
        self._status_text: str | None = None
        self._said: str | None = None
        self._wanted: tuple[str, str] = ("something", "")
        self._waiting = self._waited = False

    def push(self, event: AnyEvent) -> None:
        """Take an event; only events of the run's call, and output of its nested calls, are of interest."""
        if isinstance(event, CallOutput):
            text = _words(event.text)
            if text:
                if self._gathered is None:
                    self._gathered = Gathered(self._logged)
                self._gathered.add(" ".join(_words(event.stream)[:STREAM].split()) or "output", text)
                self._tell()
        elif isinstance(event, CallProgress) and event.call_id == self.id:
            self._progress = _progress(event) or self._progress
            self._tell()
        elif isinstance(event, CallStatus) and event.call_id == self.id:
            self._said = _words(event.text)[:WORDS]
            self.say(self._said)
        elif isinstance(event, CallWaiting) and event.call_id == self.id:
            self._wanted = (_words(event.what), _words(event.name)[:WORDS])
            self._waits()

    def say(self, text: str) -> None:
        """The activity of the run, in words."""
        # People read events in their order: status text before the output comes before it.
        if self._gathered is None or self._gathered.is_empty:
            self._opening_text, self._status_text = text, None
        else:
            self._status_text = text
        self._tell()

    @property
    def printed(self) -> bool:
        """True when the run has printed something, here or with an earlier worker."""
        return self._logged > 0 or self._gathered is not None

    @property
    def has_output_left(self) -> bool:
        """True when there is output that was not taken yet."""
        return self._gathered is not None and not self._gathered.is_empty

    def waits(self, waiting: bool) -> None:
        """The run waits for something outside, or continues and shows the last status of its tool."""
        self._waiting = waiting
        if not waiting and self._said is not None:
            self.say(self._said)
        self._tell()

    def take(self) -> Report | None:
        """The report since this was last called."""
        told, self._told = self._told, False
        if not told:
            return None
        pieces, dropped = ([], 0) if self._gathered is None else self._gathered.take()
        if pieces:
            self._text = self._text or LogText(self._tail)
            self._tail = live_tail(self._tail, pieces, self._text)
        waiting = None
        if self._waiting is not self._waited:
            # A wait that began and ended since the last report is not told.
            self._waited = self._waiting
            waiting = self._wanted if self._waiting else ()
        report = Report(
            id=self.id,
            token=self._token,
            at=self._clock.now(),
            pieces=pieces,
            dropped=dropped,
            progress=self._progress,
            opening_text=self._opening_text,
            status_text=self._status_text,
            waiting=waiting,
            tail=self._tail if pieces else None,
        )
        self._progress = self._opening_text = self._status_text = None
        return report

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._dirty(self)


def _progress(event: CallProgress) -> Progress | None:
    """The progress that a tool reports, if it can be stored."""
    current, total = _number(event.current), _number(event.total)
    label, unit = (None if each is None else _words(each)[:WORDS] for each in (event.label, event.unit))
    if current is None and (event.current is not None or (total is None and label is None)):
        return None
    return Progress(current, total, unit, label)


def _number(value: object) -> float | None:
    # A value that is not a number is not below anything either.
    return value if isinstance(value, (int, float)) and abs(value) < 2**63 else None


def _words(text: object) -> str:
    return encodable(text if isinstance(text, str) else str(text))
