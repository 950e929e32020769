"""Fixtures of the tests that fire schedules: runtimes on every store, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.background.conftest import Stage
from tests.schedules.almanac import utc
from toolwright import ToolContext, tool
from toolwright.testing import FakeClock

NINE = utc("2026-06-01T09:00").timestamp()
"""A Monday."""
ROUNDS = 12
"""A worker asks its store less often than that between two looks."""


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
async def stage() -> AsyncIterator[Stage]:
    made = Stage(FakeClock(NINE), rounds=ROUNDS, step=10.0)
    yield made
    for runtime in made.opened:
        await made.close(runtime)


@pytest.fixture
def work() -> Work:
    return Work()
