"""The program that is killed over and over: random batches of tools of every kind, which leave traces in a ledger.

Each run of a tool's code notes its name, its key and the value it will return, so that what the store says afterwards
can be held against what was done.
"""

import asyncio
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolwright import Policy, RetryPolicy, Runtime, Session, Tool, ToolCall, ToolContext, ToolError, ToolOutcome, tool
from toolwright.testing import crash_point, note, say
from toolwright.tools.outcome import CUT_OFF_EARLIER, NOT_KNOWN, RUN_BY_ANOTHER

INSIDE = ("inside a tool, before its effect", "inside a tool, after its effect")


def effect(name: str, key: str) -> str:
    value = os.urandom(4).hex()
    crash_point(INSIDE[0])
    note(f"{name} {key} {value}")
    crash_point(INSIDE[1])
    return value


@tool(readonly=True)
async def read(key: str) -> str:
    await asyncio.sleep(0)
    return effect("read", key)


@tool(idempotent=True, key="account:{account}")
async def put(key: str, account: int) -> str:
    return effect("put", key)


@tool
async def pay(key: str) -> str:
    value = effect("pay", key)
    await asyncio.sleep(0)
    return value


@tool(key="account:{account}")
def withdraw(key: str, account: int) -> str:
    return effect("withdraw", key)


@tool(parallel=True, on_crash="ask")
async def send(key: str) -> str:
    await asyncio.sleep(0)
    return effect("send", key)


def delivered(arguments: dict[str, Any]) -> str | None:
    lines = [line.split() for line in Path("ledger").read_text().splitlines()]
    return next((value for name, key, value in lines if (name, key) == ("deliver", arguments["key"])), None)


@tool(parallel=True, on_crash=delivered)
async def deliver(key: str) -> str:
    return effect("deliver", key)


@tool(idempotent=True, parallel=True, retry=RetryPolicy(attempts=3, base_delay=0))
async def push(ctx: ToolContext, key: str) -> str:
    value = effect("push", key)
    if ctx.attempt < 3:
        raise ToolError("The line is busy.", retry=True)
    return value


@tool(idempotent=True, on_crash="fail", retry=RetryPolicy(attempts=3, base_delay=0))
async def charge(ctx: ToolContext, key: str) -> str:
    value = effect(f"charge#{ctx.attempt}", key)
    if ctx.attempt < 2:
        raise ToolError("The bank is busy.", retry=True)
    return value


@tool(idempotent=True, parallel=True)
async def trip(ctx: ToolContext, key: str) -> str:
    calls = [ToolCall(id=f"{key}.{name}", name=name, arguments={"key": f"{key}.{name}"}) for name in ("send", "read")]
    await ctx.run_batch(calls)
    return effect("trip", key)


@tool
async def errand(ctx: ToolContext, key: str) -> str:
    await ctx.call("pay", key=f"{key}.pay")
    await ctx.call("push", key=f"{key}.push")
    return effect("errand", key)


@tool(parallel=True, on_crash="rerun")
async def steady(ctx: ToolContext, key: str) -> str:
    await ctx.step("look", str, key, on_crash="rerun")
    value: str = await ctx.step("act", effect, "steady", key)
    return value


TOOLS: list[Tool] = [read, put, pay, withdraw, send, deliver, push, charge, trip, errand, steady]
RERUN = {"read", "put", "push", "trip"}
"""Those that a crash may make run again, and that must have succeeded in the end. All others run once at most."""
CHOICE = [one.name for one in TOOLS]


def shown(outcomes: Iterable[ToolOutcome]) -> list[list[Any]]:
    # Of a call that is stopped early, what it may have done is said of an earlier run, or of another batch's.
    early = (NOT_KNOWN, CUT_OFF_EARLIER, RUN_BY_ANOTHER)
    return [
        [one.call_id, one.status, one.value, one.may_have_run and not (one.reason or "").endswith(early)]
        for one in outcomes
    ]


async def work(session: Session, seed: str, name: str, batches: int) -> None:
    """Run the same batches whenever it is given the same seed and name."""
    chance = random.Random(seed)
    for number in range(batches):
        calls = []
        # Now and then many that may all simply run again: their intents are written together.
        size, choice = (
            (chance.randint(8, 12), sorted(RERUN)) if chance.random() < 0.2 else (chance.randint(1, 5), CHOICE)
        )
        for place in range(size):
            key, picked = f"{name}.{number}.{place}", chance.choice(choice)
            arguments = {"key": key} | ({"account": chance.randint(0, 1)} if picked in ("put", "withdraw") else {})
            calls.append(ToolCall(id=key, name=picked, arguments=arguments))
        batch = session.start_batch(calls)
        if chance.random() < 0.15:
            for _ in range(chance.randint(0, 30)):
                await asyncio.sleep(0)
            batch.cancel()
        say(shown(await batch))


async def agent(seed: int, run: int, plan: int, way: str, sync: Any, batches: int = 10_000) -> None:
    """Recover, or not, and work through a plan; end in the middle of a call."""
    lingers = asyncio.Event()

    @tool(parallel=True)
    async def linger(key: str) -> None:
        effect("linger", key)
        lingers.set()
        await asyncio.Event().wait()

    tools, events = [*TOOLS, linger], f"events-{run}.jsonl"
    options: dict[str, Any] = {"sync": sync, "recover": way == "open", "events_file": events}
    # Nobody is there to be asked.
    async with Runtime.open(
        # A busy machine takes longer to write what nested calls came to than a call has to stop.
        "agent.db",
        tools=tools,
        policy=Policy(on_ask="deny", max_crashes=1000, grace=5),
        **options,
    ) as runtime:
        if way == "recover":
            say(shown(one.outcome for one in await runtime.recover()))
        await asyncio.gather(
            *(
                work(runtime.session(f"s{hand}"), f"{seed}-{plan}-{hand}", f"{plan}.{hand}", batches)
                for hand in range(2)
            )
        )
        unclosed = runtime.log.query(status="running")
        assert not unclosed, unclosed
        if batches:
            call = ToolCall(id=f"end {run}", name="linger", arguments={"key": f"end.{run}"})
            runtime.session("s0").start_batch([call])
            await lingers.wait()
