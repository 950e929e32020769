"""The agent that every machine of a world runs. Owns its tools, which write down what they do."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from tests.effects.interleaving.loop import PROCESS
from toolwright import App, Policy, Tool, ToolCall, ToolContext, tool
from toolwright.stores.postgres.life import LEASE
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelRequest

RERUN = frozenset({"look", "steps", "hear", "write", "tick"})
"""Tools that a crash may let run again, and that must succeed in the end. All others run once at most."""


def _world() -> Any:
    return PROCESS.get().world  # type: ignore[union-attr]


async def _pause() -> None:
    await asyncio.sleep(_world().chance.choice((0.0, 0.0, 0.01, 0.3, 2.0)))


async def _once(name: str, key: str) -> None:
    """Something outside that must not happen twice."""
    world = _world()
    world.ledger.effects[f"{name} {key}"] += 1
    world.note(PROCESS.get(), f"{name} {key} happens")
    if world.ledger.effects[f"{name} {key}"] > 1:
        world.wrong(f"{name} {key} happened twice")


def _gives(key: str, value: Any) -> Any:
    _world().ledger.values[key].add(str(value))
    return value


async def _step(ctx: ToolContext, key: str, name: str, on_crash: Literal["rerun", "fail"]) -> Any:
    world, what = _world(), f"step {name} of {key}"

    async def do() -> str:
        world.ledger.steps[what] += 1
        world.note(PROCESS.get(), f"{what} happens")
        # Who was taken for dead may do what may be done again, before it learns of that.
        stale = on_crash == "rerun" and PROCESS.get().excused(LEASE - 2.0)  # type: ignore[union-attr]
        if what in world.ledger.done_steps and not stale:
            world.wrong(f"{what} was done, and happened again")
        if on_crash == "fail" and world.ledger.steps[what] > 1:
            world.wrong(f"{what} happened twice")
        await _pause()
        return f"{name} {world.ledger.steps[what]}"

    done = await ctx.step(name, do, on_crash=on_crash)
    world.ledger.done_steps.add(what)
    return done


@tool(supports_background=True, parallel=True)
async def pay(key: str) -> str:
    await _pause()
    await _once("pay", key)
    await _pause()
    return _gives(key, f"paid {key}")


@tool(supports_background=True, idempotent=True, parallel=True)
async def look(key: str) -> str:
    await _pause()
    return _gives(key, f"looked at {key}")


@tool(key="account:{account}")
async def put(ctx: ToolContext, key: str, account: int) -> str:
    world = _world()
    place = (ctx.session_id, f"account:{account}")
    others = world.ledger.inside[place]
    here = (PROCESS.get(), key)
    for process, other in others:
        if not process.dead and (process is here[0] or world.claims_hold_everywhere):
            world.wrong(f"put {key} and put {other} overlap in {place}")
    others.append(here)
    try:
        await _pause()
        await _once("put", key)
    finally:
        others.remove(here)
    return _gives(key, f"put {key}")


@tool(supports_background=True, parallel=True, on_crash="rerun")
async def steps(ctx: ToolContext, key: str) -> str:
    first = await _step(ctx, key, "first", "fail")
    await ctx.sleep("nap", 0.5)
    second = await _step(ctx, key, "second", "rerun")
    world = _world()
    name = f"event of {key}"
    world.ledger.keys[name] = ctx.event_key("go")
    seen = await ctx.wait(world.ledger.keys[name])
    if world.ledger.saw.setdefault(name, seen) != seen:
        world.wrong(f"{key} saw {seen} after {world.ledger.saw[name]}")
    third = await _step(ctx, key, "third", "fail")
    return _gives(key, f"{first} {second} {seen} {third}")


@tool(supports_background=True, parallel=True, on_crash="rerun")
async def hear(ctx: ToolContext, key: str) -> str:
    world = _world()
    name = f"signals of {key}"
    world.ledger.keys[name] = ctx.signal_key("news")
    heard = [await ctx.receive("news"), await ctx.receive("news")]
    if world.ledger.saw.setdefault(name, heard) != heard:
        world.wrong(f"{key} heard {heard} after {world.ledger.saw[name]}")
    return _gives(key, f"heard {heard}")


@tool(supports_background=True, parallel=True, on_crash="rerun")
async def write(ctx: ToolContext, key: str) -> str:
    await ctx.messages.append(f"{key} begins", sender="tool")
    await _pause()
    await ctx.kv.set(key, "written")
    await ctx.messages.append(f"{key} ends", sender="tool")
    return _gives(key, f"wrote {key}")


@tool(supports_background=True, parallel=True, idempotent=True)
async def tick(ctx: ToolContext, key: str) -> str:
    return _gives(key, "ticked")


def answer(request: ModelRequest) -> Any:
    key = request.session
    _world().note(PROCESS.get(), f"the model of {key} is asked, {request.number}")
    if request.number == 0:
        return [ToolCall("pay", {"key": f"{key} a"}, "a"), ToolCall("look", {"key": f"{key} b"}, "b")]
    if request.number == 1:
        return [ToolCall("steps", {"key": f"{key} c"}, "c"), ToolCall("put", {"key": f"{key} d", "account": 1}, "d")]
    return "Done."


TOOLS: list[Tool] = [pay, look, put, steps, hear, write, tick]
APP = App(
    tools=TOOLS,
    model=FunctionModel(answer),
    policy=Policy(on_loop="ignore", on_ask="deny", timeout=1_000, max_crashes=1_000, background_per_worker=4),
)
