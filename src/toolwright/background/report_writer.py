"""The reports of a worker's runs. Owns gathering them, writing them together, and trying again when that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from toolwright.background.change_watch import ChangeWatch
from toolwright.background.event_collector import EventCollector
from toolwright.clock import Clock
from toolwright.errors import StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.background_run import BackgroundRun
from toolwright.stores.contracts.run_store import Report, RunStore

log = logging.getLogger("toolwright.background")

FLUSH = 0.25
"""Seconds that reports of runs are gathered before they are written, all in one transaction."""


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
        if only.has_output_left or self._unwritten:
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
