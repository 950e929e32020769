"""Outcomes on their way to the store. Owns that those of one turn of the loop are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolwright.calls.execute.execute import CallRun
from toolwright.clock import Clock
from toolwright.stores.contracts.journal import Ended, JournalStore
from toolwright.tools.outcome import ToolOutcome

Then = Callable[[CallRun, ToolOutcome, Exception | None], None]
"""Called when the outcome of a call is written, with None, or with what went wrong."""


class Endings:
    """Writes the outcomes of calls.

    `alone` writes the outcome of one call and tells its `Then`; `written` is told of each that was written here.
    """

    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        alone: Callable[[CallRun, ToolOutcome, Then], None],
        written: Callable[[CallRun], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._alone = alone
        self._written = written
        self._calls: list[tuple[CallRun, ToolOutcome, Then]] = []

    def add(self, run: CallRun, outcome: ToolOutcome, then: Then) -> None:
        """Write the outcome of a call, at the end of this turn."""
        if not self._calls:
            run.host.loop.call_soon(self._write)
        self._calls.append((run, outcome, then))

    def _write(self) -> None:
        calls, self._calls = self._calls, []
        now = self._clock.now()

        def each_alone() -> None:
            for run, outcome, then in calls:
                self._alone(run, outcome, then)

        def done(job: asyncio.Future[None]) -> None:
            if job.cancelled() or job.exception() is not None:
                # One of them is at fault: the others must not suffer for it.
                each_alone()
                return
            for run, outcome, then in calls:
                self._written(run)
                then(run, outcome, None)

        ended = [
            Ended(run.key, outcome, run.record.started_at, now, run.entered or run.recovered is not None, run.refused)
            for run, outcome, _ in calls
        ]
        try:
            job = asyncio.ensure_future(self._store.finish_all(ended))
        except Exception:  # at what a tool put into its outcome
            each_alone()
        else:
            job.add_done_callback(done)
