"""What many tests lean on. Owns bounded waiting; does not own fixtures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest


@asynccontextmanager
async def fail_after(seconds: float) -> AsyncIterator[None]:
    """Fail the test if the block takes longer than this in real time, whatever the clock of the code."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            pytest.fail(f"Still waiting after {seconds} s.")
        raise
