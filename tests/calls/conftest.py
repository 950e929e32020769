"""Fixtures of the tests about calls: runtimes that are closed at the end, within a bound."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.calls.running import PATIENCE
from toolwright import Runtime, Session

OpenRuntime = Callable[..., Coroutine[Any, Any, Runtime]]


@pytest.fixture
async def open_runtime() -> AsyncIterator[OpenRuntime]:
    opened: list[Runtime] = []

    async def open_one(*tools: Any, **options: Any) -> Runtime:
        runtime = await Runtime.open(tools=tools, **options)
        opened.append(runtime)
        return runtime

    yield open_one
    for runtime in opened:
        closing = asyncio.ensure_future(runtime.close())
        await asyncio.wait([closing], timeout=PATIENCE)
        if not closing.done():
            pytest.fail(f"The runtime does not close within {PATIENCE} s.")
        await closing


@pytest.fixture
def open_session(open_runtime: OpenRuntime) -> Callable[..., Coroutine[Any, Any, Session]]:
    async def open_one(*tools: Any, **options: Any) -> Session:
        return (await open_runtime(*tools, **options)).session("s")

    return open_one
