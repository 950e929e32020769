"""The events of background runs on their way to the store. Owns joining many of them into one report, and writing the
reports of a worker's runs together, again where that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from toolwright.background.change_watch import ChangeWatch
from toolwright.background.output import Gathered, LogText, live_tail
from toolwright.clock import Clock
from toolwright.errors import StoreError
from toolwright.events import AnyEvent, CallOutput, CallProgress, CallStatus, CallWaiting
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.background_run import BackgroundRun, Progress
from toolwright.stores.contracts.run_store import Report, RunStore
from toolwright.tools.outcome import encodable

log = logging.getLogger("toolwright.background")

WORDS = 500
"""The longest label, and name of a wait, in characters."""
STREAM = 50
"""Characters of the name of a stream."""
FLUSH = 0.25
"""Seconds that reports of runs are gathered before they are written, all in one transaction."""


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
    label, unit = (None if each is None else _words(each)[:WORDS] for each in (event.label, event.unit))
    if event.current is None and event.total is None and label is None:
        return None
    return Progress(event.current, event.total, unit, label)


def _words(text: object) -> str:
    return encodable(text if isinstance(text, str) else str(text))


# --- writing them


class ReportWriter:
    """Writes the reports of a worker's runs; `lost` is called for a run that the worker no longer holds."""

    def __init__(self, store: RunStore, clock: Clock, watch: ChangeWatch, lost: Callable[[Report], None]) -> None:
        self._store = store
        self._clock = clock
        self._watch = watch
        self._lost = lost
        self._dirty: dict[EventCollector, None] = {}
        self._unwritten: list[Report] = []
        self._flushing: asyncio.Task[None] | None = None
        # Reports that were taken and are being written: what comes after them waits until they are.
        self._writing = asyncio.Lock()
        self._closed = False

    def dirty(self, events: EventCollector) -> None:
        """A run has something to report."""
        self._dirty[events] = None
        self._write_soon()

    def _write_soon(self) -> None:
        if self._flushing is None and not self._closed:
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def _flush_soon(self) -> None:
        while self._dirty or self._unwritten:
            await self._clock.sleep(FLUSH)
            try:
                await self.flush()
            except StoreError as fault:
                log.warning(
                    "The reports of background runs cannot be written, and are tried again: %s",
                    fault,
                    extra=log_fields("runs.not_reported"),
                )
        self._flushing = None

    async def flush(self, only: EventCollector | None = None) -> None:
        """Write the reports of one run or of all.

        Raises:
            StoreError: they could not be written. They are retained, and no new ones are taken until they are written.
        """
        async with self._writing:
            before, self._unwritten = self._unwritten, []
            await self._write(before)
            if only is None:
                collectors, self._dirty = list(self._dirty), {}
            else:
                collectors = [only] if only in self._dirty else []
                self._dirty.pop(only, None)
            await self._write([report for report in (events.take() for events in collectors) if report is not None])

    async def take_last(self, only: EventCollector) -> Report | None:
        """The unwritten report of a run that ends, to be written with its end.

        Output is written now: the log of the run is made of it. So are reports that could not be written before.

        Raises:
            StoreError: it could not be written. It is retained.
        """
        if only.has_output_left or self._unwritten or self._writing.locked():
            await self.flush(only)
        self._dirty.pop(only, None)
        return only.take()

    def put_back(self, report: Report | None) -> None:
        """Retain a report that was not written with the end of its run, and write it later."""
        if report is not None:
            self._unwritten.append(report)
            self._write_soon()

    async def _write(self, reports: list[Report]) -> None:
        if not reports:
            return
        try:
            lost = set(await self._store.report(reports))
        except StoreError:
            self._unwritten = reports + self._unwritten
            raise
        for report in reports:
            if report.id in lost:
                self._lost(report)
        self._watch.ring([report.id for report in reports])

    async def append(
        self, run: BackgroundRun, events: EventCollector, type: str, payload: bytes, key: str | None
    ) -> None:
        """Append an event that the tool of a run declares, after all its earlier reports.

        Raises:
            StoreError: it could not be written, or this worker no longer holds the run.
            RunError: the key was used for something else.
        """
        await self.flush(events)
        now = self._clock.now()
        if await self._store.append(run.id, run.token, type, payload, key, now) is None:
            raise StoreError(f"This worker no longer holds the run {run.id!r}, and cannot write to it")
        self._watch.ring([run.id])

    async def close(self) -> None:
        """Write the remaining reports, and gather nothing more.

        Raises:
            StoreError: it could not be written.
        """
        self._closed = True
        if self._flushing is not None:
            self._flushing.cancel()
        await self.flush()
