"""Fixtures of the tests about what is remembered: runtimes on every store, closed at the end within a bound."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime

OpenRuntime = Callable[..., Coroutine[Any, Any, Runtime]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, file: Path) -> str | Path:
    """Every store in turn."""
    return ":memory:" if request.param == "memory" else file


@pytest.fixture
async def open_runtime() -> AsyncIterator[OpenRuntime]:
    opened: list[Runtime] = []

    async def open_one(store: str | Path, *tools: Any, **options: Any) -> Runtime:
        runtime = await Runtime.open(store, tools=tools, **options)
        opened.append(runtime)
        return runtime

    yield open_one
    async with fail_after(10):
        await asyncio.gather(*(runtime.close() for runtime in opened))
