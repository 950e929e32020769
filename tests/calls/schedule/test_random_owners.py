"""Random programs of three owners of one store: no two conflicting calls overlap, and none waits for ever."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, Tool, ToolCall, ToolContext, tool
from toolwright.calls.schedule.claim_index import overlap
from toolwright.tools.claims import EXCLUSIVE, PARALLEL, Claim

LEAVES = ("write", "read", "alone", "look")
CLAIMS = {"alone": EXCLUSIVE, "call_alone": EXCLUSIVE, "look": PARALLEL}


class World:
    """What the tools of all owners touch. A call is told its ancestors, with which it may overlap."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.overlaps: list[tuple[str, str]] = []
        self.runs: list[str] = []
        self._inside: dict[str, tuple[tuple[Claim, ...], Sequence[str]]] = {}

    async def visit(self, ctx: ToolContext, name: str, path: str, above: Sequence[str]) -> str:
        claims = CLAIMS.get(name) or (Claim(("path", path), name != "read"),)
        for other, (theirs, others_above) in self._inside.items():
            if other not in above and ctx.call_id not in others_above and overlap(claims, theirs):
                self.overlaps.append((ctx.call_id, other))
        self._inside[ctx.call_id] = (claims, above)
        self.runs.append(ctx.call_id)
        try:
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(0.001 * self.random.random())
            if name.startswith("call"):
                await self.call_others(ctx, above)
        finally:
            del self._inside[ctx.call_id]
        return path

    async def call_others(self, ctx: ToolContext, above: Sequence[str]) -> None:
        names = LEAVES if len(above) > 1 else (*LEAVES, "call")
        given = {"above": [*above, ctx.call_id]}
        calls = [self.call(f"{ctx.call_id}.{n}", names, **given) for n in range(self.random.randint(1, 2))]
        for outcome in await ctx.run_batch(calls):
            assert outcome.failure is None or outcome.failure.code == "deadlock"

    def call(self, id: str, names: Sequence[str], **given: Any) -> ToolCall:
        arguments = {"path": self.random.choice("abc"), "above": [], **given}
        return ToolCall(id=id, name=self.random.choice(names), arguments=arguments)

    def tools(self) -> list[Tool[..., Any]]:
        def made(name: str, **options: Any) -> Tool[..., Any]:
            @tool(name=name, **options)
            async def work(ctx: ToolContext, path: str, above: list[str]) -> str:
                return await self.visit(ctx, name, path, above)

            return work

        return [
            made("write", writes="path"),
            made("read", reads="path", readonly=True),
            made("alone"),
            made("look", readonly=True),
            made("call", writes="path"),
            made("call_alone"),
        ]


async def pause(call: object) -> None:
    await asyncio.sleep(0)


@pytest.mark.promise("ENG-03", "SCHED-01", "SCHED-05", "SCHED-06")
@pytest.mark.parametrize("seed", range(4))
async def test_no_two_conflicting_calls_of_random_programs_overlap(seed: int, file: Path) -> None:
    world = World(seed)
    options: list[dict[str, Any]] = [
        {},
        {"policy": Policy(max_concurrency=2, session_concurrency=3)},
        {"before": [pause]},
    ]

    async def work(number: int, runtime: Runtime) -> None:
        for turn in range(3):
            ids = [f"{number}.{turn}.{n}" for n in range(world.random.randint(1, 4))]
            calls = [world.call(id, (*LEAVES, "call", "call_alone")) for id in ids]
            batch = runtime.session("s").start_batch(calls)
            if world.random.random() < 0.2:
                await asyncio.sleep(0.005 * world.random.random())
                batch.cancel("no longer needed")
            failures = [outcome.failure for outcome in await batch if outcome.failure is not None]
            assert failures == []  # such as the timeout of a call that waits for ever

    async with fail_after(60), AsyncExitStack() as stack:
        opened = [Runtime.open(file, tools=world.tools(), **each) for each in options]
        runtimes = [await stack.enter_async_context(each) for each in opened]
        await asyncio.gather(*(work(n, runtime) for n, runtime in enumerate((*runtimes, *runtimes))))
    assert world.overlaps == []
    assert len(world.runs) == len(set(world.runs)) > 20
