"""An idle session. Owns the condition: nothing in it runs, or only waits for something outside."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from toolwright.argument_checks import require_seconds
from toolwright.calls.active_call import ActiveCall
from toolwright.calls.batch import Batch
from toolwright.clock import Clock


class OtherWork(Protocol):
    """Work of a session beside its batches: its turns."""

    @property
    def busy(self) -> bool:
        """True while it is under way, and does not only wait for something outside."""
        ...

    def changed(self) -> asyncio.Future[None]:
        """Done when that may have changed."""
        ...

    def cancel(self, reason: str) -> None:
        """Stop it."""
        ...


async def wait_for_idle(
    batches: Collection[Batch], other: OtherWork | None, clock: Clock, timeout: float | None
) -> bool:
    """Wait until neither the batches nor the other work are busy; False when one still is after this time."""
    if timeout is not None:
        require_seconds("timeout", timeout)
    waiter = asyncio.ensure_future(_idle(batches, other))
    late = None if timeout is None else asyncio.ensure_future(clock.sleep(timeout))
    try:
        await asyncio.wait({waiter, late} if late is not None else {waiter}, return_when=asyncio.FIRST_COMPLETED)
        return waiter.done()
    finally:
        for task in (waiter, late):
            if task is not None and not task.done():
                task.cancel()


async def _idle(batches: Collection[Batch], other: OtherWork | None) -> None:
    while _busy(batches) or (other is not None and other.busy):
        changes = [batch.next_change() for batch in batches]
        if other is not None:
            changes.append(other.changed())
        try:
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()
        await asyncio.sleep(0)  # The calls that a finished call blocked are about to start.


def _busy(batches: Collection[Batch]) -> bool:
    calls = [call for batch in batches for call in batch.unfinished]
    if not any(call.waiting for call in calls):
        return bool(calls)
    # A call that made others waits for these, and calls that conflict with a waiting one are blocked by it.
    callers = {batch.parent for batch in batches}
    return not all(call.waiting or _is_blocked(call) or call in callers for call in calls)


def _is_blocked(call: ActiveCall) -> bool:
    return call.ticket is not None and call.ticket.state in ("blocked", "gate")
