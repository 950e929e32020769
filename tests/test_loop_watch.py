"""The measure of a loop that does not turn, tried on stalls that are made on purpose."""

import asyncio
import hashlib
import time
from collections.abc import Callable

from tests.loop_watch import MOST_STALL, watch_loop

STALL = 3 * MOST_STALL


def compute() -> None:
    """Use CPU for the length of a stall, whatever the machine does beside it."""
    until = time.thread_time() + STALL
    while time.thread_time() < until:
        pass


def lasting(function: Callable[[bytes], object]) -> bytes:
    """Enough data for a function to take the length of a stall."""
    data = bytes(1_000_000)
    before = time.thread_time()
    function(data)
    return data * (2 + int(2 * STALL / (time.thread_time() - before)))


async def test_code_that_computes_on_the_loop_is_a_stall_and_its_place_is_told():
    with watch_loop() as watch:
        await asyncio.sleep(0)
        compute()
        await asyncio.sleep(0)
    assert watch.longest > STALL / 2
    assert "compute" in watch.place


async def test_a_thread_that_holds_the_interpreter_lock_is_a_stall():
    data = lasting(lambda data: data.count(b"\0x"))
    with watch_loop() as watch:
        await asyncio.to_thread(data.count, b"\0x")
    assert watch.longest > STALL / 2


async def test_a_thread_that_computes_without_the_lock_or_gives_it_back_is_none():
    data = lasting(lambda data: hashlib.sha256(data))
    with watch_loop() as watch:
        await asyncio.to_thread(hashlib.sha256, data)
        await asyncio.to_thread(compute)
    assert watch.longest < MOST_STALL


async def test_a_loop_that_waits_does_not_stall():
    with watch_loop() as watch:
        await asyncio.to_thread(time.sleep, STALL)
    assert watch.longest < MOST_STALL


async def test_the_fixture_lets_a_quick_test_pass(loop_watch):
    await asyncio.sleep(0)
    loop_watch.restart()
    assert loop_watch.longest == 0.0
