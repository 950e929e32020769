"""Fixtures of the tests about background runs: runtimes on every store and on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support import fail_after
from toolwright import Runtime
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.testing import FakeClock

T = TypeVar("T")
OpenRuntime = Callable[..., Coroutine[Any, Any, Runtime]]


class Stage:
    """Runtimes on one clock. Time passes only as fast as their stores answer, so that none is left behind.

    `rounds` is how often the stores are asked at each instant, and `step` how far time passes at once.
    """

    def __init__(self, clock: FakeClock | None = None, *, rounds: int = 4, step: float = 1.0) -> None:
        self.clock = clock or FakeClock()
        self._rounds = rounds
        self._step = step
        self.opened: list[Runtime] = []

    async def open(self, store: str | Path, *tools: Any, **options: Any) -> Runtime:
        runtime = await Runtime.open(store, tools=tools, clock=self.clock, sync="normal", **options)
        self.opened.append(runtime)
        return runtime

    async def settle(self) -> None:
        """Let everything happen that happens at this instant."""
        for _ in range(self._rounds):
            await self.clock.settle()
            for runtime in self.opened:
                with suppress(RuntimeClosed, StoreError):
                    # Both are answered after all that the stores were asked for before.
                    await runtime.approvals()
                    await runtime.session("onlooker").runs()
        await self.clock.settle()

    async def pass_time(self, seconds: float, step: float | None = None) -> None:
        """Let time pass, in steps that nobody sleeps through."""
        until = self.clock.monotonic() + seconds
        await self.settle()
        while (left := until - self.clock.monotonic()) > 1e-9:
            await self.clock.advance(min(step or self._step, left))
            await self.settle()

    async def until(self, work: Awaitable[T], *, step: float = 0.25, most: float = 600.0) -> T:
        """What some work gives, while time passes."""
        task = asyncio.ensure_future(work)
        begun = self.clock.monotonic()
        async with fail_after(30):
            try:
                while not task.done():
                    assert self.clock.monotonic() - begun <= most, f"It is not done after {most} s."
                    await self.settle()
                    if not task.done():
                        await self.clock.advance(step)
                        await asyncio.wait({task}, timeout=0.001)
            finally:
                task.cancel()
            return await task

    async def until_so(self, true: Callable[[], Awaitable[object]], *, step: float = 0.25, most: float = 600.0) -> None:
        """Let time pass until something is so."""

        async def so() -> None:
            while not await true():
                await self.clock.sleep(step / 2)

        await self.until(so(), step=step, most=most)

    async def close(self, runtime: Runtime) -> None:
        """Close a runtime, with the time that its calls are given to stop."""
        await self.until(runtime.close(), step=1)

    async def status(self, run: Any, status: str) -> None:
        """Let time pass until a run has a status."""

        async def so() -> bool:
            return bool((await run.refresh()).status == status)

        await self.until_so(so)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    for runtime in made.opened:
        await made.close(runtime)
