"""The worker that is killed over and over: it starts background runs and runs them, and leaves traces in a ledger.

Several of them work on one file. Each run of a tool's code notes its name, its key and the value it will return.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from toolwright import Policy, Runtime, Session, Tool, ToolContext, tool
from toolwright.clock import SystemClock, Timer
from toolwright.testing import crash_point, note, say

INSIDE = ("inside a run, before its effect", "inside a run, after its effect")
SESSIONS = ("s0", "s1")
PER_SESSION = 4
PER_WORKER = 3
RUNS = 5
"""How many runs a worker starts at once."""


class HastyClock:
    """Waits are short, and instants real: what a worker does every few seconds it does at once, and no lease passes.

    `ahead` is by how many seconds the instants are late, as if the leases of all others had passed. `wholly` makes
    instants follow each other as fast as waits do.
    """

    def __init__(self, times: float = 25.0, ahead: float = 0.0, *, wholly: bool = False) -> None:
        self._times = times
        self._since = time.time()
        self._began = time.monotonic()
        self._ahead = ahead
        self._wholly = wholly
        self._clock = SystemClock()

    def now(self) -> float:
        passed = time.time() - self._since
        return self._since + passed * (self._times if self._wholly else 1) + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() * self._times

    def lease_time(self) -> float:
        """The clock of leases, as `now` tells it: that of the machine, unless it is ahead."""
        passed = time.monotonic() - self._began
        return self._began + passed * (self._times if self._wholly else 1) + self._ahead

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Timer:
        return self._clock.call_at(when / self._times, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._times)


def effect(name: str, key: str) -> str:
    value = os.urandom(4).hex()
    crash_point(INSIDE[0])
    note(f"{name} {key} {value}")
    crash_point(INSIDE[1])
    return value


def done_before(name: str, key: str) -> str | None:
    """The value of an effect, for a program that does not know whether it happened."""
    lines = [line.split() for line in Path("ledger").read_text().splitlines()]
    return next((line[2] for line in lines if line[:2] == [name, key]), None)


async def pause(key: str) -> None:
    """Take some time, so that kills come in the middle of it."""
    await asyncio.sleep(random.Random(key).choice([0.0, 0.0, 0.002, 0.01, 0.04]))


@tool(readonly=True, supports_background=True)
async def read(key: str) -> str:
    await pause(key)
    return effect("read", key)


@tool(supports_background=True)
async def pay(key: str) -> str:
    await pause(key)
    return effect("pay", key)


@tool(on_crash="rerun", supports_background=True)
async def steady(ctx: ToolContext, key: str) -> str:
    """Three steps, none of which is repeated: whether a step that was cut off happened can be found out."""
    given = []
    for number, name in enumerate(("one", "two", "three")):
        given.append(await ctx.step(name, effect, f"steady-{name}", key, on_crash=done_before))
        ctx.output("stdout", f"{name}\n")
        ctx.progress(number + 1, 3)
        await pause(f"{key}.{name}")
    return "+".join(given)


@tool(on_crash="rerun", supports_background=True)
async def doubtful(ctx: ToolContext, key: str) -> str:
    """A step that is not repeated either, but may be lost: nobody can tell whether it happened."""
    value: str = await ctx.step("act", effect, "doubtful", key, on_crash="fail")
    await pause(key)
    return value


@tool(on_crash="rerun", supports_background=True)
async def keeper(ctx: ToolContext, key: str) -> str:
    """Changes of session services are made once, however often the tool runs."""
    await ctx.messages.append(f"{key} begins")
    await pause(key)
    await ctx.files.write(f"/{key}.txt", key)
    await ctx.kv.set(key, key)
    await ctx.messages.append(f"{key} ends")
    return effect("keeper", key)


@tool(on_crash="rerun", supports_background=True)
async def family(ctx: ToolContext, key: str) -> str:
    for child in ("a", "b"):
        await ctx.runs.spawn("doubtful", {"key": f"{key}{child}"}, title=key, signal_on_completion=True)
        await pause(f"{key}{child}")
    return effect("family", key)


TOOLS: list[Tool] = [read, pay, steady, doubtful, keeper, family]
CHOICE = [one.name for one in TOOLS]
SURE = {"read", "steady", "keeper", "family", "linger"}
"""Those that succeed in the end, however often they are killed."""
REPEATED = {"read", "keeper", "family", "linger"}
"""The names of effects that may come again; all others come once at most."""
FENCED = ["read", "pay", "doubtful", "keeper", "family"]
"""Those that hold what they promise also when two workers are at it, one of which stood still: no probe can know then
whether something is still about to happen."""


def wish(id: str, tools: Sequence[str]) -> tuple[str, str]:
    """The session and the tool of a run: always the same ones for an id."""
    chance = random.Random(id)
    session, name = chance.choice(SESSIONS), chance.choice(tools)
    # What a run starts is refused where its session has no room for it.
    return (f"family {id}" if name == "family" else session), name


async def begin(runtime: Runtime, first: str, tools: Sequence[str], *, again: bool) -> None:
    """Start a run that may be there already, say so, and say how it ended; and so on, if it is to begin `again`."""
    for number in count() if again else range(1):
        id = f"{first}.{number}"
        session, name = wish(id, tools)
        run = await runtime.session(session).spawn(name, {"key": id}, id=id, signal_on_completion=True)
        say(["started", id, None])
        outcome = await run.wait()
        say(["ended", id, [outcome.status, outcome.value]])


async def worker(
    numbers: list[int],
    way: str = "work",
    sync: Any = "normal",
    ahead: float = 0.0,
    tools: Sequence[str] = CHOICE,
) -> None:
    """Start the runs of these numbers and work: until it is killed, or everything is over, or it is drained."""
    policy = Policy(
        background_per_session=PER_SESSION,
        background_per_worker=PER_WORKER,
        on_background_limit="queue",
        max_crashes=1000,  # they are killed far more often than any run that is not to blame
        grace=600.0,  # of this hasty clock: a step that a drain stops waits for the disk
    )
    lingers = asyncio.Event()

    @tool(readonly=True, supports_background=True)
    async def linger(key: str) -> str:
        if way == "drain":
            lingers.set()
            await asyncio.Event().wait()
        return effect("linger", key)

    every, clock = [*TOOLS, linger], HastyClock(ahead=ahead)
    async with Runtime.open("agent.db", tools=every, policy=policy, clock=clock, worker=True, sync=sync) as runtime:
        begun = [
            asyncio.ensure_future(begin(runtime, f"{number}.{place}", tools, again=way == "work"))
            for number in numbers
            for place in range(RUNS)
        ]
        if way == "drain":
            await until_set(lingers, runtime.session(SESSIONS[0]), f"{numbers[0]}.linger")
            await runtime.drain(0.0)
        elif way == "finish":
            await asyncio.gather(*begun)
            for session in await runtime.sessions():
                await all_over(runtime.session(session.id))
        else:
            await asyncio.Event().wait()
        for task in begun:
            task.cancel()


async def until_set(lingers: asyncio.Event, session: Session, id: str) -> None:
    """Start runs that linger until one of them does so here, and not with another worker."""
    for number in count():
        run = await session.spawn("linger", {"key": f"{id}.{number}"}, id=f"{id}.{number}", signal_on_completion=True)
        waits = [asyncio.ensure_future(what) for what in (lingers.wait(), run.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        if lingers.is_set():
            return


async def all_over(session: Session) -> None:
    """Wait until nothing of a session is active; runs may start others."""
    while active := await session.runs(active=True):
        for run in active:
            await run.wait()
