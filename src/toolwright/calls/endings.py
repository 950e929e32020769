"""Outcomes on their way to the store. Owns that those of one turn of the loop are written together.

The first of a turn is asked for at once: mostly it is the only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolwright.calls.execute import CallRun
from toolwright.effects.journal import Ended, JournalStore
from toolwright.tools.outcome import ToolOutcome

Then = Callable[[CallRun, ToolOutcome, Exception | None], None]
"""Called when the outcome of a call is written, with None, or with what went wrong."""


_Calls = list[tuple[CallRun, Ended, Then]]


class Endings:
    """Writes the outcomes of calls that never waited.

    `alone` writes the outcome of one call and tells its `Then`; `written` is told of each that was written here.
    """

    def __init__(
        self, store: JournalStore, alone: Callable[[CallRun, Ended, Then], None], written: Callable[[CallRun], None]
    ) -> None:
        self._store = store
        self._alone = alone
        self._written = written
        self._following: _Calls | None = None

    def add(self, run: CallRun, ended: Ended, then: Then) -> None:
        """Write the outcome of a call, soon."""
        if self._following is not None:
            self._following.append((run, ended, then))
            return
        self._following = []
        # Before the store is asked, which may wait for the end of the turn too: these must come before that.
        run.host.loop.call_soon(self._write_following)
        self._write([(run, ended, then)])

    def _write_following(self) -> None:
        calls, self._following = self._following, None
        if calls:
            self._write(calls)

    def _write(self, calls: _Calls) -> None:
        def done(job: asyncio.Future[None]) -> None:
            if job.cancelled() or job.exception() is not None:
                # One of them is at fault: the others must not suffer for it.
                for run, ended, then in calls:
                    self._alone(run, ended, then)
                return
            for run, ended, then in calls:
                self._written(run)
                then(run, ended.outcome, None)

        asyncio.ensure_future(self._store.finish_all([ended for _, ended, _ in calls])).add_done_callback(done)
