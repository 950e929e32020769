"""How many runs there may be at once: counted in the store, so that it holds for every program that starts one."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.background.conftest import Stage
from toolwright import Policy, ToolContext, tool
from toolwright.errors import RunError


@tool(supports_background=True)
async def endless() -> None:
    await asyncio.Event().wait()


@tool(supports_background=True)
async def echo() -> str:
    return "hi"


@pytest.mark.promise("PROC-06")
async def test_a_session_has_five_active_runs_at_most(stage: Stage, place: str | Path):
    runtime = await stage.open(place, endless)
    session = runtime.session("s")
    runs = [await session.spawn("endless") for _ in range(5)]
    with pytest.raises(RunError) as caught:
        await session.spawn("endless")
    assert caught.value.code == "session_limit"
    assert str(caught.value) == (
        "Maximum 5 active background runs per session. Wait for an existing run to finish before starting another."
    )
    await runtime.session("t").spawn("endless")
    await runs[2].cancel()
    await stage.until(runs[2].wait())
    await session.spawn("endless")
    with pytest.raises(RunError):
        await session.spawn("endless")
    assert len(await session.runs()) == 6


@pytest.mark.promise("PROC-06")
async def test_a_run_that_is_there_already_is_not_counted_again(stage: Stage, place: str | Path):
    session = (await stage.open(place, endless, worker=False)).session("s")
    for number in range(5):
        await session.spawn("endless", id=f"r{number}")
    assert (await session.spawn("endless", id="r0")).id == "r0"


@pytest.mark.promise("PROC-06")
async def test_the_limit_of_a_session_holds_when_two_runtimes_start_runs_at_once(stage: Stage, file: Path):
    first, second = await stage.open(file, endless, worker=False), await stage.open(file, endless, worker=False)
    sessions = [first.session("s"), second.session("s")]
    answers = await asyncio.gather(
        *(sessions[number % 2].spawn("endless") for number in range(30)), return_exceptions=True
    )
    started = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, RunError)]
    assert (len(started), len(refused)) == (5, 25)
    assert len(await sessions[0].runs()) == 5


@pytest.mark.promise("PROC-06")
async def test_a_worker_has_sixty_four_active_runs_at_most_also_under_a_storm(stage: Stage, file: Path):
    first, second = await stage.open(file, endless, worker=True), await stage.open(file, endless, worker=False)
    await stage.settle()
    runtimes = [first, second]
    answers = await asyncio.gather(
        *(runtimes[number % 2].session(f"s{number}").spawn("endless") for number in range(100)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, RunError)]
    assert len(refused) == 36
    assert {error.code for error in refused} == {"worker_limit"}
    assert str(refused[0]) == (
        "Worker is already running the maximum 64 active background runs. Try again after an existing run finishes."
    )


@pytest.mark.promise("PROC-06")
async def test_two_workers_take_twice_as_many(stage: Stage, file: Path):
    policy = Policy(background_per_worker=2)
    first = await stage.open(file, endless, worker=True, policy=policy)
    await stage.open(file, endless, worker=True, policy=policy)
    await stage.pass_time(1)
    for number in range(4):
        await first.session(f"s{number}").spawn("endless")
    with pytest.raises(RunError, match="maximum 4"):
        await first.session("more").spawn("endless")
    await stage.pass_time(2)
    runs = [run for number in range(4) for run in await first.session(f"s{number}").runs()]
    workers = [run.record.worker for run in runs]
    assert sorted(workers.count(worker) for worker in set(workers)) == [2, 2]


@pytest.mark.promise("PROC-06")
async def test_limits_hold_after_a_restart(stage: Stage, file: Path):
    first = await stage.open(file, endless)
    for _ in range(5):
        await first.session("s").spawn("endless")
    await stage.close(first)
    session = (await stage.open(file, endless, worker=False)).session("s")
    with pytest.raises(RunError) as caught:
        await session.spawn("endless")
    assert caught.value.code == "session_limit"


@pytest.mark.promise("PROC-06")
async def test_runs_may_wait_for_their_turn_instead_and_begin_in_order(stage: Stage, place: str | Path):
    begun: list[int] = []
    gates = [asyncio.Event() for _ in range(8)]

    @tool(supports_background=True)
    async def work(number: int) -> int:
        begun.append(number)
        await gates[number].wait()
        return number

    policy = Policy(background_per_session=2, on_background_limit="queue")
    session = (await stage.open(place, work, policy=policy)).session("s")
    # In the order they were asked for, whatever they are called.
    runs = [await session.spawn("work", {"number": number}, id=f"run-{9 - number}") for number in range(8)]
    await stage.pass_time(5)
    assert begun == [0, 1]
    assert [run.status for run in runs] == ["queued"] * 8
    for ended, after in ((1, [2]), (0, [3]), (3, [4]), (2, [5])):
        before = list(begun)
        gates[ended].set()
        await stage.until(runs[ended].wait())
        await stage.pass_time(2)
        assert begun == before + after
    await runs[6].cancel()
    assert runs[6].status == "cancelled"
    gates[4].set()
    await stage.until(runs[4].wait())
    await stage.pass_time(2)
    assert begun == [0, 1, 2, 3, 4, 5, 7], "one that was cancelled while it waited is left out"
    for gate in gates:
        gate.set()
    for number in (5, 7):
        assert (await stage.until(runs[number].wait())).value == number


@pytest.mark.promise("PROC-06")
async def test_runs_that_wait_for_their_turn_begin_whoever_ends_the_others(stage: Stage, file: Path):
    """A run ends here, and the next begins where a worker is free."""
    policy = Policy(background_per_session=1, on_background_limit="queue")
    first = await stage.open(file, endless, echo, policy=policy)
    session = first.session("s")
    before = await session.spawn("endless")
    await stage.status(before, "running")
    after = await session.spawn("echo")
    other = await stage.open(file, endless, echo, policy=policy, worker=False)
    await (await other.session("s").run(before.id)).cancel()
    assert (await stage.until(after.wait())).value == "hi"


@pytest.mark.promise("PROC-06")
async def test_what_a_run_starts_is_refused_and_does_not_wait_for_it(stage: Stage, place: str | Path):
    """Waiting, it would wait for the run that waits for it."""

    @tool(supports_background=True)
    async def start(ctx: ToolContext) -> str:
        return str((await (await ctx.runs.spawn("echo")).wait()).value)

    policy = Policy(background_per_session=1, on_background_limit="queue")
    session = (await stage.open(place, start, echo, policy=policy)).session("s")
    run = await session.spawn("start")
    outcome = await stage.until(run.wait())
    assert outcome.failure is not None
    assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "session_limit")


@pytest.mark.promise("PROC-06")
async def test_many_runs_in_one_worker_all_complete(stage: Stage, file: Path):
    @tool(supports_background=True)
    async def work(ctx: ToolContext, number: int) -> int:
        for step in range(5):
            await ctx.progress(step, 5)
            await stage.clock.sleep(0.1)
        return number

    policy = Policy(background_per_session=1_000, background_per_worker=300)
    session = (await stage.open(file, work, policy=policy)).session("s")
    runs = [await session.spawn("work", {"number": number}, signal_on_completion=True) for number in range(300)]
    outcomes = await stage.until(asyncio.gather(*(run.wait() for run in runs)))
    assert [outcome.value for outcome in outcomes] == list(range(300))
    assert len(await session.messages.list()) == 300


@pytest.mark.promise("PROC-06")
@pytest.mark.parametrize("most", [sys.maxsize, 10**30], ids=["maxsize", "beyond"])
async def test_a_limit_may_be_so_high_that_there_is_none(stage: Stage, file: Path, most: int):
    policy = Policy(
        background_per_session=most, background_per_worker=most, tracked_per_session=most, schedules_per_session=most
    )
    first = await stage.open(file, echo, worker=True, policy=policy)
    second = await stage.open(file, echo, worker=True, policy=policy)
    await stage.settle()
    session = first.session("s")
    runs = [await session.spawn("echo") for _ in range(3)]
    assert [(await stage.until(run.wait())).value for run in runs] == ["hi"] * 3
    assert (await session.track("deploy")).status == "running"
    assert (await session.schedule("echo", cron="* * * * *")).state == "active"
    for runtime in (first, second):
        assert runtime.worker is not None
        assert runtime.worker.silent_for is not None, "its lease is in the store"
