"""Fixtures of the tests about time: a clock moved by hand, and runtimes on it that close whatever a test left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.calls.execute.gates import ThreadGate
from tests.support import fail_after
from toolwright import Runtime
from toolwright.testing import FakeClock

OpenRuntime = Callable[..., Coroutine[Any, Any, Runtime]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def open_runtime(clock: FakeClock) -> AsyncIterator[OpenRuntime]:
    """Opens runtimes on the fake clock. At the end it closes them, and moves time while they do."""
    opened: list[Runtime] = []

    async def open_one(*tools: Any, **options: Any) -> Runtime:
        runtime = await Runtime.open(tools=tools, clock=clock, **options)
        opened.append(runtime)
        return runtime

    yield open_one
    try:
        async with fail_after(5):
            for runtime in opened:
                closing = asyncio.create_task(runtime.close())
                while not closing.done():
                    await clock.advance(1)
                    await asyncio.wait([closing], timeout=0.01)
                await closing
    except pytest.fail.Exception:
        # A batch that lost a call waits for ever, and answers its first cancellation by waiting on.
        for _ in range(3):
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
        raise


@pytest.fixture
async def finale(open_runtime: OpenRuntime) -> AsyncIterator[asyncio.Event]:
    """Set when the test is over, however it ends, and before its runtimes close: for code that would hang for ever."""
    event = asyncio.Event()
    yield event
    event.set()


@pytest.fixture
async def gate() -> AsyncIterator[ThreadGate]:
    made = ThreadGate()
    yield made
    made.open()
