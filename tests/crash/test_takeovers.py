"""What becomes of single runs when their worker is killed, drained or frozen, and another one is there."""

import asyncio
import json
import os
import time
from typing import Any

import pytest

from tests.crash.workers import HastyClock
from tests.support import fail_after
from toolwright import Policy, Runtime, ToolContext, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import crash_point, note, say

END = "before the end of a run is written"


async def single(disposition: Any = "resume", ahead: float = 0.0, timeout: float | None = None) -> None:
    """A worker with one run."""

    @tool(on_crash="rerun", supports_background=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.step("step", note, "step")
        crash_point("between")
        note("work")
        return f"by {os.getpid()}"

    async with Runtime.open("agent.db", tools=[work], worker=True, clock=HastyClock(ahead=ahead)) as runtime:
        say(os.getpid())
        options: dict[str, Any] = {"disposition": disposition, "timeout": timeout, "signal_on_completion": True}
        run = await runtime.session("s").spawn("work", id="r", **options)
        outcome = await run.wait()
        say([run.status, outcome.value])


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize(
    ("disposition", "status", "ledger"),
    [
        ("resume", "completed", ["step", "work"]),
        ("rerun", "completed", ["step", "step", "work"]),
        ("abandon", "abandoned", ["step"]),
    ],
)
def test_a_dead_workers_run_is_gone_on_with_or_begun_anew_or_abandoned(crashes, disposition, status, ledger):
    crashes.kill_at("between", single, disposition=disposition)
    _, (ended, _) = crashes.run(single, disposition=disposition).said

    assert (ended, crashes.ledger) == (status, ledger)
    with crashes.look() as store:
        ((last,),) = store.execute("SELECT payload FROM process_events ORDER BY number DESC LIMIT 1").fetchall()
        ((worker,),) = store.execute("SELECT payload FROM process_events WHERE type = 'started' LIMIT 1").fetchall()
    if status == "abandoned":
        evidence = json.loads(last)["evidence"]
        assert (evidence["worker"], evidence["attempts"]) == (json.loads(worker)["worker"], 2)


@pytest.mark.promise("PROC-04", "PROC-08")
@pytest.mark.parametrize("disposition", ["resume", "rerun", "abandon"])
def test_an_outcome_that_was_written_stays_whatever_the_disposition_and_the_time(crashes, disposition):
    (pid,) = crashes.kill_at(END, single, disposition=disposition, timeout=20.0).said
    # For the other, the time of the run was up long ago.
    _, ended = crashes.run(single, disposition=disposition, timeout=20.0, ahead=3600.0).said

    assert ended == ["completed", f"by {pid}"]
    assert crashes.ledger == ["step", "work"]


@pytest.mark.promise("PROC-04")
def test_a_run_is_taken_over_on_the_real_clock_within_the_lease_and_five_seconds(crashes):
    async def stuck() -> None:
        @tool(readonly=True, supports_background=True)
        async def work() -> str:
            say("inside")
            await asyncio.Event().wait()
            return "never"

        async with Runtime.open("agent.db", tools=[work], worker=True) as runtime:
            await (await runtime.session("s").spawn("work", id="r")).wait()

    async def other() -> None:
        @tool(readonly=True, supports_background=True)
        async def work() -> str:
            return "taken over"

        async with Runtime.open("agent.db", tools=[work], worker=True) as runtime:
            say("ready")
            run = await runtime.session("s").run("r")
            say((await run.wait()).value)

    killed = crashes.start(stuck)
    assert killed.hear() == "inside"
    waiting = crashes.start(other)
    assert waiting.hear() == "ready"
    killed.kill()
    since = time.monotonic()
    assert waiting.hear() == "taken over"
    assert time.monotonic() - since < 30 + 5


@pytest.mark.promise("PROC-04")
@pytest.mark.parametrize("times", [1.0, 200.0], ids=["unnoticed", "noticed"])
def test_a_thawed_worker_takes_its_run_again_when_the_one_that_took_it_over_is_killed(crashes, times):
    # On a fast clock it renews its leases first, and learns that it lost the run.
    async def patient() -> None:
        begun = 0

        @tool(readonly=True, supports_background=True)
        async def work() -> str:
            nonlocal begun
            begun += 1
            if begun == 1:
                crash_point("inside")
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.3)  # within its grace: it is not run again before it has stopped
            return f"at the {begun}. time"

        policy, clock = Policy(grace=times), HastyClock(times)
        async with Runtime.open("agent.db", tools=[work], worker=True, policy=policy, clock=clock) as runtime:
            run = await runtime.session("s").spawn("work", id="r")
            say((await run.wait()).value)

    async def thief() -> None:
        @tool(readonly=True, supports_background=True)
        async def work() -> str:
            say("inside")
            await asyncio.Event().wait()
            return "never"

        async with Runtime.open("agent.db", tools=[work], worker=True, clock=HastyClock(ahead=60.0)):
            await asyncio.Event().wait()

    frozen = crashes.start_frozen("inside", patient)
    other = crashes.start(thief)
    assert other.hear() == "inside"
    other.kill()
    frozen.thaw()

    assert frozen.hear() == "at the 2. time"
    frozen.wait()
    with crashes.look() as store:
        assert store.execute("SELECT token, attempts, state FROM processes").fetchall() == [(3, 3, "completed")]


class Faltering:
    """A store of runs that fails the first time that the end of a run is to be written."""

    def __init__(self, inner: Any, **parts: Any) -> None:
        self._inner = inner
        self._left = 1
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FalteringRuns(Faltering):
    async def finish(self, *given: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise StoreError("The disk is full for now.")
        return await self._inner.finish(*given)


@pytest.mark.promise("PROC-04", "PROC-08")
async def test_a_worker_that_is_alone_ends_later_what_its_store_could_not_write(crashes):
    ran = 0

    @tool(supports_background=True)
    async def work() -> str:
        nonlocal ran
        ran += 1
        return "done"

    store = SqliteStore(crashes.store)
    services = Faltering(store.services, runs=FalteringRuns(store.services.runs))
    around: Any = Faltering(store, services=services)
    clock = HastyClock(100.0, wholly=True)
    async with fail_after(10), Runtime.open(around, tools=[work], worker=True, clock=clock) as runtime:
        run = await runtime.session("s").spawn("work", id="r")
        outcome = await run.wait()

    assert (outcome.value, ran, run.to_json()["attempts"]) == ("done", 1, 2)
