"""Several processes around one run: workers that are drained, others that speak to it, runs that it starts."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.crash.workers import HastyClock
from tests.support import fail_after
from toolwright import Policy, Runtime, ToolContext, tool
from toolwright.errors import RunError
from toolwright.testing import Running, note, say


async def drained(bound: float) -> None:
    """A worker that is drained when it is asked to end."""
    asked = asyncio.Event()

    @tool(readonly=True, supports_background=True)
    async def brief() -> int:
        say("brief")
        await asked.wait()
        return os.getpid()

    @tool(on_crash="rerun", supports_background=True)
    async def long(ctx: ToolContext) -> list[int]:
        first: int = await ctx.step("first", done, "first")
        if first == os.getpid():
            say("long")
            await asyncio.Event().wait()
        return [first, await ctx.step("second", done, "second")]

    @tool(on_crash="rerun", supports_background=True, max_concurrency=1)
    async def listen(ctx: ToolContext, wait: bool) -> Any:
        if wait:
            say("listening")
            await asyncio.Event().wait()
        return await ctx.receive("news")

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    every = [brief, long, listen]
    async with Runtime.open("agent.db", tools=every, worker=True, clock=HastyClock()) as runtime:
        say("ready")
        await asked.wait()
        await runtime.drain(bound)
        say("drained")


def done(name: str) -> int:
    note(name)
    return os.getpid()


def _others() -> list[Any]:
    """The same tools, for a program that only starts them."""

    @tool(readonly=True, supports_background=True)
    async def brief() -> None: ...

    @tool(on_crash="rerun", supports_background=True)
    async def long() -> None: ...

    @tool(on_crash="rerun", supports_background=True, max_concurrency=1)
    async def listen(wait: bool) -> None: ...

    return [brief, long, listen]


@pytest.mark.promise("PROC-04", "PROC-08")
async def test_a_drained_worker_ends_what_it_can_and_another_goes_on_with_the_rest_at_once(crashes):
    async with fail_after(20), Runtime.open(crashes.store, tools=_others(), worker=False) as runtime:
        session = runtime.session("s")
        first = crashes.start(drained, bound=25.0)  # a second on its hasty clock
        assert first.hear() == "ready"
        brief = await session.spawn("brief", id="brief", signal_on_completion=True)
        long = await session.spawn("long", id="long", signal_on_completion=True)
        assert {first.hear(), first.hear()} == {"brief", "long"}
        os.kill(first.pid, signal.SIGTERM)
        assert (await brief.wait()).value == first.pid
        late = await session.spawn("brief", id="late")
        assert first.wait().said == ["drained"]
        assert [(run.status, run.to_json()["attempts"]) for run in await session.runs(active=True)] == [
            ("queued", 0),
            ("queued", 1),
        ]

        second = crashes.start(drained, bound=5.0)
        outcome = await long.wait()
        os.kill(second.pid, signal.SIGTERM)
        assert (await late.wait()).value == second.pid
        second.wait()
        events = [event async for event in long.follow()]
        told = [message.metadata["run_id"] for message in await session.messages.list()]

    assert outcome.value == [first.pid, second.pid]
    assert crashes.ledger == ["first", "second"]
    assert sorted(told) == ["brief", "long"]
    kinds = [event.type for event in events if event.type not in ("status", "output")]
    assert kinds == ["queued", "started", "handed_back", "started", "completed"]
    assert [event.payload["attempt"] for event in events if event.type == "started"] == [1, 2]


@pytest.mark.promise("PROC-04", "WAIT-05")
async def test_a_run_that_is_handed_back_before_it_began_keeps_its_signals(crashes):
    async with fail_after(20), Runtime.open(crashes.store, tools=_others(), worker=False) as runtime:
        session = runtime.session("s")
        await session.spawn("listen", {"wait": True}, id="first")
        worker = crashes.start(drained, bound=0.0)
        assert [worker.hear(), worker.hear()] == ["ready", "listening"]
        run = await session.spawn("listen", {"wait": False}, id="r")
        await run.signal("news", "early")
        async for event in run.follow():
            if event.type == "started":
                break
        await run.signal("news", "later")
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait()
        await (await session.run("first")).cancel()

        other = crashes.start(drained, bound=0.0)
        assert (await run.wait()).value == "early"
        os.kill(other.pid, signal.SIGTERM)
        other.wait()


# --- signals


def noted(line: str) -> bool | None:
    """Whether a note was made, for a program that does not know."""
    return line in Path("ledger").read_text().splitlines() or None


async def listener() -> None:
    """A worker whose run takes signals."""

    @tool(on_crash="rerun", supports_background=True)
    async def listen(ctx: ToolContext, count: int) -> list[Any]:
        taken: list[Any] = []
        while len(taken) < count:
            taken.append(await ctx.receive("news"))
            if len(taken) % 50 == 0:
                await ctx.step(f"after {len(taken)}", note, f"{len(taken)}", on_crash=noted)
        return taken

    policy = Policy(max_crashes=100)  # Its workers are killed more often than a run may be by default.
    async with Runtime.open("agent.db", tools=[listen], policy=policy, worker=True, clock=HastyClock(), sync="normal"):
        say("ready")
        await asyncio.Event().wait()


async def sender(name: str, count: int) -> None:
    """Sends signals as fast as it can to the run "r", which it does not run."""

    @tool(on_crash="rerun", supports_background=True)
    async def listen(count: int) -> None: ...

    async with Runtime.open("agent.db", tools=[listen], worker=False, sync="normal") as runtime:
        run = await runtime.session("s").run("r")
        for number in range(count):
            await run.signal("news", [name, number])


@pytest.mark.promise("WAIT-05", "PROC-03", "PROC-04")
async def test_signals_from_two_processes_are_received_in_order_and_once_while_workers_die(crashes):
    @tool(on_crash="rerun", supports_background=True)
    async def listen(count: int) -> None: ...

    count = 300
    async with fail_after(30), Runtime.open(crashes.store, tools=[listen], worker=False) as runtime:
        run = await runtime.session("s").spawn("listen", {"count": 2 * count}, id="r")
        senders = [crashes.start(sender, name=name, count=count) for name in ("a", "b")]
        workers: list[Running] = [crashes.start(listener) for _ in range(2)]
        for place in range(6):
            victim = workers.pop(0)
            victim.hear()
            victim.listen(0.02 * (place % 3))
            victim.kill()
            workers.append(crashes.start(listener))
        for one in senders:
            one.wait()
        taken = (await run.wait()).value

    assert len(taken) == 2 * count
    for name in ("a", "b"):
        assert [number for whose, number in taken if whose == name] == list(range(count))
    assert crashes.ledger == [str(number) for number in range(50, 2 * count + 1, 50)]


# --- runs of runs


async def parent() -> None:
    """A worker with a run that starts three others and waits for them."""

    @tool(readonly=True, supports_background=True)
    async def child(number: int) -> int:
        return number

    @tool(on_crash="rerun", supports_background=True)
    async def family(ctx: ToolContext) -> list[Any]:
        runs = [await ctx.runs.spawn("child", {"number": number}) for number in range(3)]
        return [(await run.wait()).value for run in runs]

    async with Runtime.open("agent.db", tools=[child, family], worker=True, clock=HastyClock()) as runtime:
        run = await runtime.session("s").spawn("family", id="family")
        say((await run.wait()).value)


@pytest.mark.promise("PROC-01", "PROC-04")
@pytest.mark.parametrize("nth", [2, 3, 4])
@pytest.mark.parametrize("point", ["before a run is registered", "after a run is registered"])
def test_a_run_that_is_killed_around_starting_others_starts_each_once(crashes, point, nth):
    crashes.kill_at(point, parent, nth=nth)
    crashes.kill_at("after the reports of runs are written", parent)
    assert crashes.run(parent).said == [[0, 1, 2]]

    with crashes.look() as store:
        rows: Any = store.execute("SELECT parent, arguments, state FROM processes ORDER BY arguments").fetchall()
    assert rows == [
        *(("family", b'{"number":%d}' % number, "completed") for number in range(3)),
        (None, b"{}", "completed"),
    ]


# --- limits


async def eager(limit: int) -> None:
    """Starts runs until it is refused."""

    @tool(readonly=True, supports_background=True)
    async def work() -> None: ...

    policy = Policy(background_per_session=limit)
    async with Runtime.open("agent.db", tools=[work], worker=False, policy=policy) as runtime:
        for _ in range(limit + 1):
            try:
                await runtime.session("s").spawn("work")
            except RunError as refusal:
                say(str(refusal))
                return
            say("started")


@pytest.mark.promise("PROC-06")
@pytest.mark.parametrize("point", ["before a run is registered", "after a run is registered", "after a commit"])
def test_the_limit_of_a_session_holds_when_processes_that_start_runs_at_once_are_killed(crashes, point):
    doomed = [crashes.start_doomed(point, eager, nth=nth, limit=8) for nth in (2, 3)]
    others = [crashes.start(eager, limit=8) for _ in range(2)]
    started = sum(one.wait().said.count("started") for one in [*doomed, *others])
    again = crashes.run(eager, limit=8).said

    with crashes.look() as store:
        assert store.execute("SELECT state, count(*) FROM processes GROUP BY 1").fetchall() == [("queued", 8)]
    # What the killed ones had registered counts, also where they did not live to say so.
    assert started <= 8
    assert again[-1].startswith("Maximum 8 active background runs per session.")
