"""Drivers: work comes to a worker once, again when it was cut off, at its instant, and until the worker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from toolwright.runtime.runtime import Runtime
from toolwright.testing.models import FunctionModel
from toolwright.tools.background_protocols import RunClient
from toolwright.tools.call import ToolCall
from toolwright.tools.function import tool
from toolwright.tools.model import ModelRequest
from toolwright.tools.tool import Tool
from toolwright.tools.turn_protocols import TurnOutcome

PATIENCE = 60.0
"""Seconds that anything may take: a driver may notice the end of a worker late."""


class DriverPlace(Protocol):
    """Where a case happens: a store, empty at first, that several runtimes open, and a driver that brings its work."""

    @property
    def store(self) -> str:
        """The location of the store."""
        ...

    @property
    def driver(self) -> str:
        """The driver, as `Runtime.open` takes it."""
        ...


class DriverCase(Struct, frozen=True):
    """One promise of a driver."""

    name: str
    check: Callable[[DriverPlace], Coroutine[Any, Any, None]]

    async def run(self, place: DriverPlace) -> None:
        """Check the promise over a new store.

        Raises:
            AssertionError: the driver breaks the promise.
        """
        async with asyncio.timeout(3 * PATIENCE):
            await self.check(place)

    def __str__(self) -> str:
        return self.name


class Bench:
    """The tools of a case, and what they did."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    @property
    def tools(self) -> list[Tool]:
        """Tools whose code is this object's."""

        @tool(supports_background=True, on_crash="rerun")
        async def work(key: str) -> str:
            """Work at once."""
            self.ran.append(key)
            return key

        @tool(supports_background=True, on_crash="rerun")
        async def hold(key: str) -> str:
            """Work until it may end."""
            self.ran.append(key)
            self.begun.set()
            await self.go.wait()
            return key

        @tool(supports_background=True)
        async def pay(key: str) -> str:
            """Do something that must not happen twice."""
            self.ran.append(key)
            self.begun.set()
            await self.go.wait()
            return key

        @tool(approval="required")
        async def wipe() -> str:
            """Wait for a person."""
            self.ran.append("wiped")
            return "wiped"

        return [work, hold, pay, wipe]

    def model(self, request: ModelRequest) -> str | list[ToolCall]:
        """Asks a person once, where the message says so."""
        if request.number == 0 and "wipe" in str(request.messages[-1]):
            return [ToolCall("wipe", {}, "w")]
        return "Done."


@asynccontextmanager
async def opened(place: DriverPlace, bench: Bench, *, worker: bool, driven: bool = True) -> AsyncIterator[Runtime]:
    """A runtime of a case, with the driver unless it is not to be `driven`."""
    async with Runtime.open(
        place.store,
        tools=bench.tools,
        model=FunctionModel(bench.model),
        worker=worker,
        driver=place.driver if driven else None,
    ) as runtime:
        yield runtime


async def work_that_is_offered_twice_is_done_once(place: DriverPlace) -> None:
    bench = Bench()
    async with (
        opened(place, bench, worker=False) as first,
        opened(place, bench, worker=False) as second,
        opened(place, bench, worker=True),
        opened(place, bench, worker=True),
    ):
        keys = [f"k{number}" for number in range(5)]
        runs: list[RunClient] = []
        for key in keys:
            for runtime in (first, second):
                runs.append(await runtime.session("s").spawn("work", {"key": key}, id=key))
        outcomes = [await run.wait(PATIENCE) for run in runs]
    assert [outcome.status for outcome in outcomes] == ["success"] * 10
    assert sorted(bench.ran) == keys


async def work_waits_for_the_first_worker(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        run = await starter.session("s").spawn("work", {"key": "k"})
        assert (await run.refresh()).status == "queued"
        async with opened(place, bench, worker=True):
            assert (await run.wait(PATIENCE)).value == "k"
    assert bench.ran == ["k"]


async def work_that_nobody_offered_is_brought(place: DriverPlace) -> None:
    """A program without the driver started it, or ended before it could offer it."""
    bench = Bench()
    async with opened(place, bench, worker=False, driven=False) as starter, opened(place, bench, worker=True):
        run = await starter.session("s").spawn("work", {"key": "k"})
        assert (await run.wait(PATIENCE)).value == "k"
    assert bench.ran == ["k"]


async def work_that_was_cut_off_is_brought_again(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        async with opened(place, bench, worker=True):
            run = await starter.session("s").spawn("hold", {"key": "k"})
            await bench.begun.wait()
        bench.go.set()
        async with opened(place, bench, worker=True):
            assert (await run.wait(PATIENCE)).value == "k"
    assert bench.ran == ["k", "k"]


async def what_must_not_happen_twice_does_not(place: DriverPlace) -> None:
    """The driver brings it again, and the crash policy of its tool decides."""
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        async with opened(place, bench, worker=True):
            run = await starter.session("s").spawn("pay", {"key": "k"})
            await bench.begun.wait()
        bench.go.set()
        async with opened(place, bench, worker=True):
            outcome = await run.wait(PATIENCE)
    assert outcome.failure is not None
    assert outcome.failure.code == "interrupted"
    assert bench.ran == ["k"]


async def cancelled_work_stops(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        session = starter.session("s")
        never = await session.spawn("work", {"key": "never"})
        assert await never.cancel("it is not wanted")
        assert (await never.wait(PATIENCE)).status == "cancelled"
        async with opened(place, bench, worker=True):
            run = await session.spawn("hold", {"key": "k"})
            await bench.begun.wait()
            assert await run.cancel("it is not wanted")
            assert (await run.wait(PATIENCE)).status == "cancelled"
    assert bench.ran == ["k"]


async def a_schedule_fires_once_at_its_instant(place: DriverPlace) -> None:
    bench = Bench()
    async with (
        opened(place, bench, worker=False) as starter,
        opened(place, bench, worker=True),
        opened(place, bench, worker=True),
    ):
        at = datetime.now(UTC) + timedelta(seconds=5)
        schedule = await starter.session("s").schedule("work", {"key": "k"}, at=at)
        while (await schedule.refresh()).state == "active":  # noqa: ASYNC110 - it is in the store, and tells nobody
            await asyncio.sleep(0.05)
        (run,) = await starter.session("s").runs()
        assert (await run.wait(PATIENCE)).value == "k"
        assert len(await starter.session("s").runs()) == 1
    assert bench.ran == ["k"]


async def a_worker_that_stops_lets_its_work_end(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        async with opened(place, bench, worker=True) as runtime:
            run = await starter.session("s").spawn("hold", {"key": "k"})
            await bench.begun.wait()
            draining = asyncio.ensure_future(runtime.drain(PATIENCE))
            await asyncio.sleep(0)
            later = await starter.session("s").spawn("work", {"key": "later"})
            bench.go.set()
            await draining
            assert (await run.wait(PATIENCE)).value == "k"
            assert (await later.refresh()).status == "queued"
        async with opened(place, bench, worker=True):
            assert (await later.wait(PATIENCE)).value == "later"
    assert bench.ran == ["k", "later"]


async def a_turn_comes_to_a_worker(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter, opened(place, bench, worker=True):
        session = starter.session("s")
        turns = [await session.start_turn(f"Go {number}.", background=True) for number in range(3)]
        outcomes = [await turn.wait(PATIENCE) for turn in turns]
    assert [_text(outcome) for outcome in outcomes] == ["Done."] * 3


async def a_turn_that_waits_continues_when_it_is_decided(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter:
        async with opened(place, bench, worker=True):
            turn = await starter.session("s").start_turn("Please wipe.", background=True)
            assert (await turn).status == "waiting"
            other = await starter.session("t").start_turn("Please wipe.", background=True)
            assert (await other).status == "waiting"
            (approval,) = await starter.approvals("s")
            await starter.approve(approval.key)
            assert _text(await turn.wait(PATIENCE)) == "Done."
        # The other one is without a worker, and its decision comes meanwhile.
        (approval,) = await starter.approvals("t")
        await starter.approve(approval.key)
        async with opened(place, bench, worker=True):
            assert _text(await other.wait(PATIENCE)) == "Done."
    assert bench.ran == ["wiped", "wiped"]


async def a_cancelled_turn_stops(place: DriverPlace) -> None:
    bench = Bench()
    async with opened(place, bench, worker=False) as starter, opened(place, bench, worker=True):
        turn = await starter.session("s").start_turn("Please wipe.", background=True)
        assert (await turn).status == "waiting"
        assert await turn.cancel("it is not wanted")
        outcome = await turn.wait(PATIENCE)
    assert outcome is not None
    assert outcome.status == "cancelled"
    assert bench.ran == []


def _text(outcome: TurnOutcome | None) -> str:
    assert outcome is not None
    return outcome.text


DRIVER_CASES: tuple[DriverCase, ...] = tuple(
    DriverCase(check.__name__, check)
    for check in (
        work_that_is_offered_twice_is_done_once,
        work_waits_for_the_first_worker,
        work_that_nobody_offered_is_brought,
        work_that_was_cut_off_is_brought_again,
        what_must_not_happen_twice_does_not,
        cancelled_work_stops,
        a_schedule_fires_once_at_its_instant,
        a_worker_that_stops_lets_its_work_end,
        a_turn_comes_to_a_worker,
        a_turn_that_waits_continues_when_it_is_decided,
        a_cancelled_turn_stops,
    )
)
"""All cases for drivers."""
