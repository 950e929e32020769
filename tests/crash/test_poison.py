"""A run that ends its worker each time, and a store that was put in the place of another."""

import pytest

from toolwright.processes.running import MOST_CRASHES

POISON = """
import os, signal

@tool(supports_background=True, idempotent=True)
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Runtime.open(store, tools=[poison], worker=True) as runtime:
        run = await runtime.session("s").spawn("poison", id="bg_poison")
        await run.wait()
        say([run.status, run.process.crashes, run.outcome.failure.code])
"""


@pytest.mark.promise("PROC-04")
def test_a_run_that_ends_its_worker_each_time_is_given_up(crashes):
    for _ in range(MOST_CRASHES):
        assert crashes.crash(POISON) == []
    (said,) = crashes.run(POISON).said
    assert said == ["abandoned", MOST_CRASHES, "interrupted"]


@pytest.mark.promise("EFF-12")
def test_a_store_in_the_place_of_one_that_is_still_used_is_refused_and_not_waited_for(crashes):
    holder = """
async def main():
    async with Runtime.open(store) as runtime:
        say("open")
        await asyncio.Event().wait()
"""
    again = """
from toolwright.errors import StoreError

async def main():
    try:
        async with Runtime.open(store):
            say("opened")
    except StoreError as error:
        say(str(error))
"""
    running = crashes.start(holder)
    assert running.hear() == "open"
    for name in ("", "-wal", "-shm"):
        crashes.store.with_name(crashes.store.name + name).unlink(missing_ok=True)
    (said,) = crashes.run(again).said
    assert "a program still uses another store that was here before" in said
    running.kill()
