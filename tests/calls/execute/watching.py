"""Reading events and records, so that a test compares plain values."""

import asyncio
from typing import Any

import pytest

from toolwright import Batch, Runtime


def take_all(subscription: Any) -> list[Any]:
    """Every event that is queued."""
    events = []
    while (event := subscription.take()) is not None:
        events.append(event)
    return events


def of_call(events: list[Any], call_id: str | None) -> list[str]:
    """The kinds of a call's events, in order."""
    return [event.kind for event in events if getattr(event, "call_id", None) == call_id]


def record(runtime: Runtime, call_id: str | None) -> Any:
    """The one record of a call."""
    (found,) = runtime.log.query(call_id=call_id)
    return found


async def ended(batch: Batch) -> list[Any]:
    """The outcomes of a batch that should be over by now, by a clock that only the test moves."""
    if not batch.done:
        pytest.fail("The batch still runs.")
    return await batch


async def finished(batch: Batch, seconds: float = 60) -> list[Any]:
    """The outcomes of a batch that ends in real time; unlike a cancelled wait, giving up does not stop it."""
    waiting = asyncio.ensure_future(batch.wait())
    await asyncio.wait([waiting], timeout=seconds)
    if not waiting.done():
        pytest.fail(f"The batch still runs after {seconds} s.")
    return await waiting
