"""Three schedulers on one file, which crash at any moment, under a clock that jumps: each instant fires once."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.schedules.almanac import Expression, Field, Stretch, draw_expression, every, utc
from tests.support import fail_after
from toolwright import Runtime, tool
from toolwright.schedules.firing import Scheduler
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.sqlite.admin.maintenance import prune
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock

MINUTE = 60
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]


@tool(supports_background=True)
async def report(number: int) -> int:
    return number


class Competitor:
    """One who fires schedules, with a store of its own on the file, and a clock that differs a little."""

    def __init__(self, file: Path, skew: float) -> None:
        self._file = file
        self.skew = skew
        self.crashes = 0
        self._open()

    def _open(self) -> None:
        self.store = SqliteStore(self._file, sync="normal")
        self._scheduler = Scheduler(lambda: self.store.services.schedules, Limits(queue=True))

    async def fire(self, now: float) -> None:
        while await self._scheduler.fire_due(now + self.skew):
            pass

    async def crash(self, now: float, turns: int) -> None:
        """Fire, and be stopped after some turns of the loop, wherever that is; then begin anew."""
        firing = asyncio.ensure_future(self.fire(now))
        for _ in range(turns):
            await asyncio.sleep(0)
        self.crashes += not firing.done()
        firing.cancel()
        await asyncio.wait({firing})
        await self.store.close()
        self._open()


def beats(text: str, step: int) -> Expression:
    """An expression that goes by minutes, all day."""
    return Expression(Field(text, frozenset(range(0, 60, step))), every(0, 23), every(1, 31), every(1, 12), every(0, 7))


def expressions(random: Random, change: str) -> list[tuple[Expression, str]]:
    """Each with a zone: frequent ones, and others that have something to do when the clocks change."""
    often = [beats("*", 1), beats("*/3", 3), beats("*/5", 5), beats("*/7", 7), beats("*/10", 10)]
    drawn = [draw_expression(random, utc(change)) for _ in range(15)]
    return [(one, ZONES[number % len(ZONES)]) for number, one in enumerate(often + drawn)]


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize("change", ["2026-03-29T01:00", "2025-10-26T01:00"])
async def test_each_instant_fires_once_whoever_crashes_and_however_the_clock_jumps(file, change):
    random = Random(change)
    stretches = {zone: Stretch.around(zone, utc(change), 1) for zone in ZONES}
    begin, end = stretches["UTC"].seconds[0], stretches["UTC"].seconds[-10]
    clock = FakeClock(begin)
    expected: dict[str, list[float]] = {}
    async with fail_after(120), Runtime.open(file, tools=[report], clock=clock, sync="normal", worker=False) as runtime:
        handles = []
        for number, (expression, zone) in enumerate(expressions(random, change)):
            due = [float(second) for second in stretches[zone].due(expression)]
            session = runtime.session(f"s{number // 5}")
            options = {"cron": expression.text, "timezone": zone, "misfire": "all", "overlap": "allow"}
            handles.append(await session.schedule("report", {"number": number}, **options))
            expected[handles[-1].id] = due
        competitors = [Competitor(file, skew) for skew in (-120.0, 0.0, 90.0)]
        try:
            while clock.now() < end:
                # Less than what is made up for at most lies ahead, in minutes.
                ahead = random.choice([0.5, 5, 15, 40]) * random.random() * MINUTE
                clock.jump(min(ahead, end - clock.now() + 1))
                if random.random() < 0.15:
                    back = random.random() * 120 * MINUTE
                    clock.jump(-back)
                    await asyncio.gather(*(one.fire(clock.now()) for one in competitors))
                    clock.jump(back)
                now = min(clock.now(), end - 120.0)
                random.shuffle(competitors)
                survivor, *others = competitors
                firing = [
                    one.crash(now, random.randrange(400)) if random.random() < 0.3 else one.fire(now) for one in others
                ]
                await asyncio.gather(survivor.fire(now), *firing)
            await asyncio.gather(*(one.fire(end - one.skew) for one in competitors))
            assert sum(one.crashes for one in competitors) > 20
        finally:
            for one in competitors:
                await one.store.close()
        fired = {handle.id: [done.instant for done in await handle.history(10_000)] for handle in handles}
    for handle in handles:
        assert fired[handle.id][::-1] == [instant for instant in expected[handle.id] if instant <= end]
    assert sum(map(len, fired.values())) >= 5_000
    # Beside the history, what was started: one run for each instant, and none besides.
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        started = Counter(
            (schedule, utc(json.loads(origin)["instant"].removesuffix("Z")).timestamp())
            for schedule, origin in connection.execute("SELECT schedule, provenance FROM processes")
        )
        whats = {row[0] for row in connection.execute("SELECT DISTINCT what FROM firings")}
    assert started == Counter((id, instant) for id, instants in fired.items() for instant in instants)
    assert whats == {"fired"}


class Slow:
    """The store of a scheduler that is held up between its look and its firing."""

    def __init__(self, store) -> None:
        self._store = store
        self.looked, self.go_on = asyncio.Event(), asyncio.Event()

    async def due(self, *given):
        found = await self._store.due(*given)
        self.looked.set()
        await self.go_on.wait()
        return found

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.promise("CRON-03")
async def test_who_looked_before_another_fired_fires_nothing_even_if_what_was_done_is_pruned(file):
    begin = utc("2026-06-01T09:00").timestamp()
    clock = FakeClock(begin)
    async with fail_after(30), Runtime.open(file, tools=[report], clock=clock, sync="normal", worker=False) as runtime:
        session = runtime.session("s1")
        schedule = await session.schedule("report", {"number": 1}, cron="0 * * * *", overlap="allow")
        quick, late = Competitor(file, 0), Competitor(file, 0)
        slow = Slow(late.store.services.schedules)
        try:
            held_up = asyncio.ensure_future(Scheduler(lambda: slow, Limits(queue=True)).fire_due(begin + 3600))
            await slow.looked.wait()
            await quick.fire(begin + 3600)
            assert (await prune(file, begin + 7200)).firings == 1
            slow.go_on.set()
            await held_up
        finally:
            await quick.store.close()
            await late.store.close()
        assert (await schedule.history(), len(await session.runs())) == ([], 1)
        assert (await schedule.refresh()).next_at == begin + 7200
