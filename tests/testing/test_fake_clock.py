"""The clock that tests move by hand."""

import asyncio
from contextvars import ContextVar

import pytest

from toolwright import Runtime, tool
from toolwright.testing import FakeClock


async def test_time_stands_still_until_it_is_advanced():
    clock = FakeClock(now=1000.0)
    assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
    await clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)


async def test_a_jump_moves_the_clock_on_the_wall_both_ways_and_no_timer():
    clock = FakeClock(now=1000.0)
    fired: list[object] = []
    clock.call_at(1.0, fired.append, "timer")
    clock.jump(3600)
    assert (clock.now(), clock.monotonic()) == (4600.0, 0.0)
    clock.jump(-4000.5)
    await clock.advance(0.9)
    assert (clock.now(), fired) == (600.4, [])
    await clock.advance(0.1)
    assert (clock.now(), clock.monotonic(), fired) == (600.5, 1.0, ["timer"])


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf")])
async def test_a_jump_by_no_number_is_refused(seconds):
    clock = FakeClock(now=1000.0)
    with pytest.raises(ValueError, match="cannot jump by"):
        clock.jump(seconds)
    assert clock.now() == 1000.0


async def test_timers_fire_in_the_order_of_their_instants_each_at_its_own():
    clock = FakeClock()
    fired = []
    for when in (3.0, 1.0, 2.0, 5.0):
        clock.call_at(when, lambda when: fired.append((when, clock.monotonic())), when)
    await clock.advance(3)
    assert fired == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert (clock.pending, clock.next_in) == (1, 2.0)


async def test_timers_of_one_instant_fire_in_the_order_they_were_set():
    clock = FakeClock()
    fired: list[object] = []
    for name in "abc":
        clock.call_at(1.0, fired.append, name)
    await clock.advance(1)
    assert fired == ["a", "b", "c"]


async def test_a_timer_set_on_the_way_fires_in_the_same_advance_when_it_is_due():
    clock = FakeClock()
    instants = []

    async def tick():
        for _ in range(3):
            await clock.sleep(2)
            instants.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(5)
    assert instants == [2.0, 4.0]
    await clock.advance(1)
    assert instants == [2.0, 4.0, 6.0]
    assert task.done()


async def test_a_cancelled_timer_never_fires():
    clock = FakeClock()
    fired: list[object] = []
    clock.call_at(1.0, fired.append, "kept")
    clock.call_at(0.5, fired.append, "taken back").cancel()
    assert (clock.pending, clock.next_in) == (1, 1.0)
    await clock.advance(2)
    assert fired == ["kept"]
    assert (clock.pending, clock.next_in) == (0, None)


async def test_a_cancelled_sleep_leaves_no_timer():
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.settle()
    assert clock.pending == 1
    sleeper.cancel()
    await clock.settle()
    assert clock.pending == 0


async def test_an_advance_in_pieces_meets_the_same_timers_as_one():
    clock = FakeClock()
    fired: list[object] = []
    clock.call_at(0.3, fired.append, "timer")
    await clock.advance(0.1)
    await clock.advance(0.2)  # 0.1 + 0.2 is a little more than 0.3, and 0.7 + 0.1 a little less than 0.8
    assert fired == ["timer"]
    clock.call_at(1.1, lambda: fired.append(clock.monotonic() >= 1.1))
    await clock.advance(0.7)
    await clock.advance(0.1)
    assert fired == ["timer", True]


async def test_the_loop_settles_between_two_timers():
    clock = FakeClock()
    seen = []

    async def follow(name):
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(name)

    tasks = []
    clock.call_at(1.0, lambda: tasks.append(asyncio.create_task(follow("first"))))
    clock.call_at(2.0, seen.append, "second")
    await clock.advance(2)
    assert seen == ["first", "second"]


async def test_a_timer_runs_in_the_context_it_was_set_in():
    clock = FakeClock()
    name = ContextVar("name", default="none")
    seen = []

    async def set_timer():
        name.set("inner")
        clock.call_at(1.0, lambda: seen.append(name.get()))

    await asyncio.create_task(set_timer())
    await clock.advance(1)
    assert seen == ["inner"]


async def test_a_loop_that_never_rests_is_reported():
    clock = FakeClock()

    async def spin():
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="still busy"):
        await clock.advance(1)
    task.cancel()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
async def test_time_does_not_go_back(seconds):
    with pytest.raises(ValueError, match="cannot advance"):
        await FakeClock().advance(seconds)


async def test_a_tool_that_waits_by_the_clock_is_stopped_by_it():
    clock = FakeClock()

    @tool(timeout=10)
    async def report() -> str:
        await clock.sleep(3600)
        return "done"

    async with Runtime.open(tools=[report], clock=clock) as runtime:
        batch = runtime.session("s1").start_batch([{"name": "report"}])
        await clock.advance(9.9)
        assert not batch.done
        await clock.advance(0.1)
        (outcome,) = await batch
        assert outcome.failure is not None
        assert outcome.failure.category == "timeout"
