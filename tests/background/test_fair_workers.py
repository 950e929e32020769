"""Two workers with room share the runs that are queued."""

import asyncio
from collections import Counter

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, tool
from toolwright.background import worker as workers
from toolwright.stores import inspect_store

RUNS = 20


@pytest.mark.promise("PROC-14")
@pytest.mark.parametrize("spawner", ["with a worker", "without"])
async def test_two_idle_workers_take_half_of_the_runs_each(tmp_path, monkeypatch, spawner):
    monkeypatch.setattr(workers, "FAIR_WAIT", 3600.0)
    file, begun, end = tmp_path / "agent.db", asyncio.Queue[None](), asyncio.Event()

    @tool(supports_background=True, readonly=True)
    async def work() -> str:
        """Work until all have begun."""
        begun.put_nowait(None)
        await end.wait()
        return "done"

    policy = Policy(background_per_session=RUNS, session_concurrency=RUNS, runtime_concurrency=RUNS)

    def open_runtime(worker: bool):
        return Runtime.open(file, tools=[work], policy=policy, worker=worker, sync="normal")

    async with fail_after(60), open_runtime(True) as first, open_runtime(True), open_runtime(False) as third:
        while len(await inspect_store(file).workers()) < 2:
            pass
        session = (first if spawner == "with a worker" else third).session("s")
        spawned = [await session.spawn("work") for _ in range(RUNS)]
        for _ in range(RUNS):
            await begun.get()
        taken = Counter([(await run.refresh()).worker for run in spawned])
        end.set()
        for run in spawned:
            assert (await run.wait()).value == "done"
    assert sorted(taken.values()) == [RUNS // 2, RUNS // 2]


@pytest.mark.promise("PROC-14")
async def test_runs_that_another_worker_cannot_take_are_not_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "FAIR_WAIT", 0.0)
    file = tmp_path / "agent.db"

    @tool(supports_background=True, readonly=True)
    async def work() -> str:
        """Work."""
        return "done"

    policy = Policy(background_per_session=RUNS)
    async with (
        fail_after(60),
        Runtime.open(file, tools=[work], policy=policy, worker=True, sync="normal") as first,
        Runtime.open(file, worker=True, sync="normal"),
    ):
        while len(await inspect_store(file).workers()) < 2:
            pass
        spawned = [await first.session("s").spawn("work") for _ in range(RUNS)]
        assert {(await run.wait()).value for run in spawned} == {"done"}
