"""How long something may take. Owns turning a clock's timer into a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwright.clock import Clock
from toolwright.tools.outcome import ToolError


@asynccontextmanager
async def within(clock: Clock, seconds: float, complaint: str) -> AsyncIterator[None]:
    """Fail once this much time has passed by the clock.

    Raises:
        ToolError: with the complaint and category "timeout".
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            timer = clock.call_at(clock.monotonic() + seconds, lambda: limit.reschedule(0.0))
            try:
                yield
            finally:
                timer.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise ToolError(
            f"{complaint}; try again later, or another page.", category="timeout", code="timeout", retry=True
        ) from None
