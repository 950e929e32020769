"""Seeing what the journal has decided, where no event tells it."""

from collections.abc import Iterable

from tests.support import until
from toolwright import Batch
from toolwright.event_bus import Subscription
from toolwright.events import CallWaiting


async def until_shared(batches: Iterable[Batch]) -> None:
    """Wait until each call of the batches waits for another that has the same identity."""
    calls = [call for batch in batches for call in batch.calls]
    await until(lambda: all(call.shares for call in calls))


async def waiting(events: Subscription) -> CallWaiting:
    """The next call that waits for something outside."""
    async for event in events:
        if isinstance(event, CallWaiting):
            return event
    raise AssertionError("Nobody waits.")
