"""The tools of a random program. Owns what a script may do, and writing down what really happened.

A script is a list of acts, and the argument of every tool: the same tool run again does the same.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.effects.interleaving.ledger import Ledger
from tests.effects.interleaving.loop import PROCESS
from toolwright import Pending, RetryPolicy, Tool, ToolContext, ToolError, tool
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import WaitKey

LEDGER: list[Ledger] = []
"""The book of the world that is played now."""

PARTS = ("step", "step", "both", "sleep", "wait", "receive", "nested", "pause", "flaky", "slow", "stubborn", "deaf")
ENDS = ("value", "value", "value", "pending", "pending", "error")
NAMES = ("safe", "safe", "solo", "pay", "pay", "solo_pay", "look", "gated", "gated_safe", "doubt")
RERUN = frozenset({"safe", "solo", "gated_safe"})


def random_script(chance: random.Random, depth: int = 1) -> list[Any]:
    acts: list[Any] = []
    for number in range(chance.choice((0, 1, 1, 2, 3))):
        kind = chance.choice(PARTS)
        if kind == "step":
            end = chance.choice(("ok", "ok", "ok", "error", "again"))
            policy = chance.choice(("rerun", "fail", "probe"))
            acts.append(["step", f"{policy}-{end}-{number}", policy, end])
        elif kind == "both":
            policy = chance.choice(("rerun", "fail"))
            acts.append(["both", f"{policy}-ok-{number}", policy])
        elif kind == "sleep":
            acts.append(["sleep", f"z{number}", chance.choice((0, 0.05, 0.5))])
        elif kind == "wait":
            acts.append(["wait", f"e{number}", chance.choice((None, 0.05, 0.3, 1))])
        elif kind == "receive":
            acts.append(["receive", "news", chance.choice((1, 2)), chance.choice((None, 0.05, 0.4))])
        elif kind == "nested" and depth:
            acts.append(["nested", chance.choice(NAMES), random_script(chance, depth - 1), chance.random() < 0.5])
        elif kind == "pause":
            acts.append(["pause", chance.choice((0, 0.01, 0.1))])
        elif kind == "flaky":
            acts.append(["flaky"])
        elif kind == "slow" and chance.random() < 0.3:
            acts.append(["pause", 7])
        elif kind == "stubborn" and chance.random() < 0.5:
            acts.append(["stubborn", chance.choice((0.02, 0.5))])
        elif kind == "deaf" and chance.random() < 0.3:
            acts.append(["deaf"])
    end = chance.choice(ENDS)
    acts.append([end, chance.choice((None, 0.05, 0.5, 2))] if end == "pending" else [end])
    return acts


class Performance:
    """One run of a tool."""

    def __init__(self, ctx: ToolContext, about: str) -> None:
        self.ctx = ctx
        self.about = about
        self.ledger = LEDGER[0]
        self.call = CallKey(ctx.session_id, "", ctx.call_id)
        self.ledger.begun(self.call, ctx.tool, PROCESS.get(), ctx.attempt)
        self.ledger.happened.add(about)

    async def run(self, script: list[Any]) -> Any:
        seen = []
        for place, (kind, *rest) in enumerate(script):
            seen.append(await getattr(self, f"_{kind}")(str(place), *rest))
        result = seen[-1]
        if isinstance(result, Pending):
            return result
        value = {"seen": seen, "run": self.ledger.runs[self.call]}
        self.ledger.returned[self.call].append(value)
        return value

    def _saw(self, what: str, result: Any) -> Any:
        self.ledger.saw(self.call, self.ctx.attempt, what, result)
        return result

    async def _caught(self, what: str, work: Any) -> Any:
        try:
            result = await work
        except ToolError as error:
            if error.failure.retry:
                raise
            return self._saw(what, f"error {error.failure.code} {error.failure.message}")
        return self._saw(what, result)

    async def _step(self, place: str, name: str, policy: Any, end: str) -> Any:
        ledger, ctx, call = self.ledger, self.ctx, self.call

        async def do() -> str:
            times = ledger.stepped(call, name)
            if end == "again" and ctx.attempt == 1:
                raise ToolError("not yet", code="again", retry=True)
            if ctx.attempt % 2:
                await asyncio.sleep(0)
            if end == "error":
                raise ToolError(f"step {times}", code="no")
            return f"did {times}"

        async def probe() -> str | None:
            times = ledger.steps[call, name]
            return f"found {times}" if times and end == "ok" else None

        if end == "again" and ctx.max_attempts == 1:
            return None
        return await self._caught(name, ctx.step(name, do, on_crash=probe if policy == "probe" else policy))

    async def _both(self, place: str, name: str, policy: str) -> Any:
        return await asyncio.gather(
            self._step(place, f"{name}x", policy, "ok"),
            self._step(place, f"{name}y", policy, "ok"),
            self._pause(place, 0.01),
        )

    async def _sleep(self, place: str, name: str, seconds: float) -> Any:
        await self.ctx.sleep(name, seconds)

    async def _wait(self, place: str, name: str, deadline: float | None) -> Any:
        key = self.ctx.event_key(name)
        self.ledger.keys[WaitKey(self.call, "event", name)] = key
        return await self._caught(f"event {name}", self.ctx.wait(key, deadline))

    async def _receive(self, place: str, name: str, times: int, deadline: float | None) -> Any:
        named = WaitKey(self.call, "signal", name)
        self.ledger.keys[named] = self.ctx.signal_key(name)
        self.ledger.listening.add(named)
        return [
            await self._caught(f"signal {name} {place}.{number}", self.ctx.receive(name, deadline))
            for number in range(times)
        ]

    async def _nested(self, place: str, name: str, script: list[Any], named: bool) -> Any:
        call: dict[str, Any] = {"name": name, "arguments": {"script": script, "about": f"{self.about}/{place}"}}
        if named:
            call["id"] = f"{self.call.call_id}/{place}"
        (outcome,) = await self.ctx.run_batch([call])
        if outcome.status == "cancelled":
            if outcome.may_have_run and self.ledger.standing:
                return "cancelled"
            return "stopped"
        about = outcome.failure.code if outcome.failure is not None else outcome.value
        return self._saw(f"nested {place}", [outcome.status, about])

    async def _pause(self, place: str, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _flaky(self, place: str) -> None:
        if self.ctx.attempt < self.ctx.max_attempts:
            raise ToolError("once more", code="flaky", retry=True)

    async def _stubborn(self, place: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds / 2)
        except asyncio.CancelledError:
            await asyncio.sleep(seconds)  # and goes on as if nobody had asked it to stop

    async def _deaf(self, place: str) -> None:
        try:
            await asyncio.sleep(6)  # beyond its time
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)  # beyond its grace

    async def _value(self, place: str) -> str:
        return "done"

    async def _error(self, place: str) -> None:
        raise ToolError("the script ends so", code="scripted")

    async def _pending(self, place: str, deadline: float | None) -> Pending:
        self.ledger.keys[WaitKey(self.call, "completion")] = self.ctx.completion_key()
        self.ledger.pending.add(self.call)
        return Pending(deadline=deadline)


async def _look(arguments: dict[str, Any]) -> Any:
    await asyncio.sleep(0.01)
    return {"found": arguments["about"]} if arguments["about"] in LEDGER[0].happened else None


def make_tools() -> list[Tool]:
    again = RetryPolicy(attempts=2, base_delay=0.05, jitter=0)
    options: dict[str, dict[str, Any]] = {
        "safe": {"idempotent": True, "parallel": True, "retry": again},
        "solo": {"idempotent": True, "retry": again},
        "pay": {"parallel": True},
        "solo_pay": {},
        "look": {"parallel": True, "on_crash": _look},
        "gated": {"parallel": True, "approval": "required"},
        "gated_safe": {"idempotent": True, "approval": "required"},
        "doubt": {"parallel": True, "on_crash": "ask"},
    }

    def make(name: str) -> Tool:
        async def perform(ctx: ToolContext, script: list, about: str) -> Any:
            return await Performance(ctx, about).run(script)

        return tool(name=name, id=name, **options[name])(perform)

    return [make(name) for name in options]
