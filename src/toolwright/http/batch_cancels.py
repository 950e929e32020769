"""Stopping batches that another server of the store runs. Owns the signal by which one server asks the others, and
looking for it while batches are unfinished here.

A batch has no record of its own that could say so. One of its unfinished calls is sent a signal instead, which every
process on the store can do; the server that runs the batch sees it within a second, and cancels the batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from toolwright import jsonx
from toolwright.calls.batch import Batch
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.log_fields import log_fields
from toolwright.runtime.runtime import Runtime, history_of, is_durable, waits_of
from toolwright.runtime.used_sessions import used_session
from toolwright.stores.contracts.inspection import PastCall
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import WaitKey

log = logging.getLogger("toolwright.http")

SIGNAL = "toolwright:cancel-batch"
LOOK = 1.0
"""Seconds between two looks for signals, while batches are unfinished."""
ANSWERED = 10.0
"""Seconds within which another server must have cancelled a batch."""
_RECHECK = 0.1


class BatchCancels:
    """The requests of other servers to cancel batches of a runtime, and its own to them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._batches: set[Batch] = set()
        self._watching: asyncio.Task[None] | None = None
        self._looks = asyncio.Event()
        """Set once signals that are sent from now on are seen."""

    async def ready(self) -> None:
        """Wait until a batch that is watched can be cancelled by other servers."""
        if self._watching is not None:
            await self._looks.wait()

    def watch(self, batch: Batch) -> None:
        """Let other servers cancel a batch, until it is done."""
        if batch.done or not is_durable(self._runtime):
            return
        self._batches.add(batch)
        if self._watching is None:
            self._looks.clear()
            self._watching = asyncio.ensure_future(self._watch())

    def stop(self) -> None:
        """Look no more: the service stops."""
        self._batches.clear()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        self._looks.set()

    async def _watch(self) -> None:
        waits, cursor, failing = waits_of(self._runtime), None, False
        while self._batches:
            try:
                arrived = await waits.arrivals(cursor)
                cursor, failing = arrived.cursor, False
                self._looks.set()
                for key in arrived.signals:
                    if key.name == SIGNAL:
                        said = (await waits.signals(key))[-1:]
                        self._cancel(key.call, str(jsonx.decode(said[0])) if said else "it was cancelled over HTTP")
            except RuntimeClosed:
                self._looks.set()
                break
            except StoreError as error:
                if not failing:
                    log.warning("Requests to cancel are not read: %s", error, extra=log_fields("http.cancels_not_read"))
                failing = True
                self._looks.set()
            await asyncio.sleep(LOOK)
            self._batches = {batch for batch in self._batches if not batch.done}
        self._watching = None

    def _cancel(self, call: CallKey, reason: str) -> None:
        for batch in used_session(self._runtime, call.session).batches:
            if batch.scope == call.scope and any(each.call_id == call.call_id for each in batch.unfinished):
                batch.cancel(reason)

    async def ask(self, calls: Sequence[PastCall], reason: str) -> bool | None:
        """Ask the server that runs the batch of these calls to cancel it: True when it did, False when all calls ended
        otherwise, None when no server answers."""
        left = [call.key for call in calls if call.outcome is None and not call.cut_off]
        now = self._runtime.clock.now()
        await waits_of(self._runtime).signal(WaitKey(left[0], "signal", SIGNAL), jsonx.encode(reason), now)
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWERED
        while loop.time() < end:
            known = await history_of(self._runtime).batch_calls(calls[0].batch, left[0].session)
            states = {one.key: one.status for one in known}
            # A call that was cancelled before it did anything is forgotten, and can be made again.
            if any(states.get(key, "cancelled") == "cancelled" for key in left):
                return True
            if not any(states[key] in ("running", "waiting", "cut off") for key in left):
                return False
            await asyncio.sleep(_RECHECK)
        return None


_CANCELS: WeakKeyDictionary[Runtime, BatchCancels] = WeakKeyDictionary()


def cancels_of(runtime: Runtime) -> BatchCancels:
    """Those of a runtime."""
    found = _CANCELS.get(runtime)
    if found is None:
        found = _CANCELS[runtime] = BatchCancels(runtime)
    return found
