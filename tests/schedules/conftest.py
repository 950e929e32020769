"""Fixtures of the tests that fire schedules: runtimes on every store, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.schedules.almanac import utc
from tests.support import fail_after
from toolwright import Runtime, ToolContext, tool
from toolwright.errors import RuntimeClosed, StoreError
from toolwright.testing import FakeClock

NINE = utc("2026-06-01T09:00").timestamp()
"""A Monday."""
ROUNDS = 12
"""A worker asks its store less often than that between two looks."""


class Stage:
    """Runtimes on one clock, which begins at nine. Time passes only as fast as their stores answer."""

    def __init__(self) -> None:
        self.clock = FakeClock(NINE)
        self.opened: list[Runtime] = []

    async def open(self, store: str | Path, *tools: Any, **options: Any) -> Runtime:
        runtime = await Runtime.open(store, tools=tools, clock=self.clock, sync="normal", **options)
        self.opened.append(runtime)
        return runtime

    async def settle(self) -> None:
        """Let everything happen that happens at this instant."""
        for _ in range(ROUNDS):
            await self.clock.settle()
            for runtime in self.opened:
                with suppress(RuntimeClosed, StoreError):
                    # Both are answered after all that the stores were asked for before.
                    await runtime.approvals()
                    await runtime.session("onlooker").runs()
        await self.clock.settle()

    async def pass_time(self, seconds: float, step: float = 10.0) -> None:
        """Let time pass, in steps that nobody sleeps through."""
        until = self.clock.monotonic() + seconds
        await self.settle()
        while (left := until - self.clock.monotonic()) > 1e-9:
            await self.clock.advance(min(step, left))
            await self.settle()

    async def until(self, true: Callable[[], Awaitable[object]], *, step: float = 0.5, most: float = 120.0) -> None:
        """Let time pass until something is so."""
        begun = self.clock.monotonic()
        async with fail_after(30):
            while not await true():
                assert self.clock.monotonic() - begun <= most, f"It is not so after {most} s."
                await self.clock.advance(step)
                await self.settle()

    async def close(self, runtime: Runtime) -> None:
        """Close a runtime, with the time that its calls are given to stop."""
        async with fail_after(30):
            closing = asyncio.ensure_future(runtime.close())
            while not closing.done():
                await self.clock.advance(0.5)
                await asyncio.wait({closing}, timeout=0.002)
            await closing


class Work:
    """A tool that runs until it is let go on, and what was seen of it."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.runs: list[str] = []
        self.go_on = asyncio.Event()
        self.most = self.now = 0

        @tool(supports_background=True)
        async def work(ctx: ToolContext, number: int = 0) -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            self.begun.append(number)
            self.runs.append(ctx.call_id)
            await self.go_on.wait()
            self.now -= 1
            return number

        self.tool = work


def clock_time(instant: float) -> str:
    """An instant of that Monday as hours and minutes after its nine o'clock, such as "0:10"."""
    minutes, seconds = divmod(round(instant - NINE), 60)
    return f"{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")


async def did(schedule: Any) -> list[tuple[str, str]]:
    """What a schedule did for its instants, the oldest first."""
    return [(clock_time(fired.instant), fired.what) for fired in reversed(await schedule.history(1_000))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, file: Path) -> str | Path:
    """Every store in turn."""
    return ":memory:" if request.param == "memory" else file


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    for runtime in made.opened:
        await made.close(runtime)


@pytest.fixture
def work() -> Work:
    return Work()
