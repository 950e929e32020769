"""Effects that are written together. Owns which effects of a tick go into one request; the journal writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolwright.stores.contracts.journal import CallKey, JournalStore, Kept


class EffectWriter:
    """Writes the effects that calls record in one tick of the loop by one request, and each alone where that fails.

    The journal adds the outcomes and starts of the tick to the same commit. An effect whose caller is cancelled is
    written all the same: it may have happened.
    """

    def __init__(self, journal: JournalStore) -> None:
        self._journal = journal
        self._waiting: list[tuple[CallKey, Kept, asyncio.Future[bool]]] = []

    def keep(self, key: CallKey, kept: Kept) -> Awaitable[bool]:
        """As `JournalStore.keep`, at the end of this tick of the loop."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[bool] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._write)
        self._waiting.append((key, kept, written))
        return written

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1:
            self._write_each(waiting)
            return

        def done(job: asyncio.Future[None]) -> None:
            if job.cancelled() or job.exception() is not None:
                # One of them is at fault: the others must not suffer for it.
                self._write_each(waiting)
                return
            for _, _, written in waiting:
                if not written.done():
                    written.set_result(True)

        job = self._journal.keep_all([(key, kept) for key, kept, _ in waiting])
        asyncio.ensure_future(job).add_done_callback(done)

    def _write_each(self, waiting: list[tuple[CallKey, Kept, asyncio.Future[bool]]]) -> None:
        for key, kept, written in waiting:
            asyncio.ensure_future(self._journal.keep(key, kept)).add_done_callback(_passing_on(written))


def _passing_on(written: asyncio.Future[bool]) -> Callable[[asyncio.Future[bool]], None]:
    def done(job: asyncio.Future[bool]) -> None:
        if job.cancelled():
            written.cancel()
            return
        fault = job.exception()  # taken also where nobody waits any more
        if written.done():
            return
        if fault is not None:
            written.set_exception(fault)
        else:
            written.set_result(job.result())

    return done
