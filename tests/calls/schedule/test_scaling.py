"""What scheduling costs as calls become many, counted in executed lines of its code: no clock, so no flakes."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import toolwright.calls.schedule
from tests.calls.schedule.stage import Stage, call, settle
from tests.support import fail_after
from toolwright import Batch, Policy, Runtime, Session, Tool, ToolCall, ToolContext, tool, tree
from toolwright.testing import is_idle

FEW, MANY = 250, 1000
SCHEDULING = tuple(str(file) for file in Path(toolwright.calls.schedule.__file__).parent.glob("*.py"))
POLICY = Policy(on_loop="ignore", timeout=1000.0, max_concurrency=8)


class Lines:
    """The lines of the scheduling code that ran."""

    count = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._inside if frame.f_code.co_filename in SCHEDULING else None

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
        return self._inside


@contextmanager
def counted() -> Iterator[Lines]:
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines.trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
    assert lines.count, "No line of the scheduling code ran: are its files elsewhere now?"


def tools(stage: Stage) -> list[Tool]:
    @tool(parallel=True)
    async def hold(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="path")
    async def hold_path(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(reads="path")
    async def read(path: str) -> None: ...

    @tool(writes="path")
    async def write(path: str) -> None: ...

    @tool(reads=tree("folder"))
    async def search(folder: str) -> None: ...

    @tool(writes=tree("folder"))
    async def wipe(folder: str) -> None: ...

    @tool(key="k")
    async def keyed() -> None: ...

    @tool
    async def everything() -> None: ...

    @tool(parallel=True)
    async def look() -> None: ...

    @tool(parallel=True)
    async def nest(ctx: ToolContext, name: str, arguments: dict[str, Any], times: int) -> None:
        await ctx.run_batch([ToolCall(name=name, arguments=arguments) for _ in range(times)])

    @tool(parallel=True)
    async def gather(ctx: ToolContext, name: str, arguments: dict[str, Any], times: int) -> None:
        await asyncio.gather(*(ctx.call(name, **arguments) for _ in range(times)))

    return [hold, hold_path, read, write, search, wipe, keyed, everything, look, nest, gather]


async def per_call(play: Callable[[Session, Stage, int], Any], times: int) -> float:
    """The lines of scheduling that run for each call of a play."""
    stage = Stage()
    async with fail_after(60), Runtime.open(tools=tools(stage), policy=POLICY) as runtime:
        session = runtime.session("s")
        with counted() as lines:
            batches: list[Batch] = await play(session, stage, times)
            stage.open()
            for batch in batches:
                await batch
        assert is_idle(session)
        assert len(runtime.log) >= times
    return lines.count / times


Made = tuple[str, dict[str, Any]]
PATTERNS: dict[str, Callable[[int], Made]] = {
    "parallel": lambda n: ("look", {}),
    "exclusive": lambda n: ("everything", {}),
    "one key": lambda n: ("keyed", {}),
    "parallel and exclusive": lambda n: ("look", {}) if n % 2 else ("everything", {}),
    "eight parallel, one exclusive": lambda n: ("look", {}) if n % 9 else ("everything", {}),
    "reads of one path": lambda n: ("read", {"path": "a"}),
    "reads and writes of one path": lambda n: ("read", {"path": "a"}) if n % 2 else ("write", {"path": "a"}),
    "writes of many paths": lambda n: ("write", {"path": f"a/b/{n}"}),
    "tree reads and writes below": lambda n: ("search", {"folder": "a"}) if n % 2 else ("write", {"path": f"a/{n}"}),
    "tree writes and reads below": lambda n: ("wipe", {"folder": "a"}) if n % 2 else ("read", {"path": f"a/{n}"}),
    "trees at all heights": lambda n: ("search" if n % 3 else "wipe", {"folder": "/".join("abcdefgh"[: n % 8])}),
}


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_the_work_for_a_call_does_not_grow_with_the_number_of_calls(pattern):
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        first = session.start_batch([call("first", "hold"), call("all", "everything")])
        made = [PATTERNS[pattern](n) for n in range(times)]
        rest = session.start_batch([ToolCall(name=name, arguments=arguments) for name, arguments in made])
        await settle()
        return [first, rest]

    assert await per_call(play, MANY) < 1.2 * await per_call(play, FEW)


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    ("crowd", "then"),
    [
        (("search", {"folder": "a"}), lambda n: ("write", {"path": f"a/{n}"})),
        (("read", {"path": "a/b"}), lambda n: ("wipe", {"folder": "a"})),
        (("look", {}), lambda n: ("everything", {})),
        (("write", {"path": "a/b/c"}), lambda n: ("search", {"folder": "a"})),
    ],
    ids=["tree reads, then writes", "reads, then tree writes", "parallel, then exclusive", "writes, then tree reads"],
)
async def test_a_crowd_behind_a_crowd_costs_no_more_than_two_crowds(crowd, then):
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        half = times // 2
        first = session.start_batch([call("first", "hold"), call("all", "everything")])
        made = [crowd] * half + [then(n) for n in range(half)]
        rest = session.start_batch([ToolCall(name=name, arguments=arguments) for name, arguments in made])
        await settle()
        return [first, rest]

    assert await per_call(play, MANY) < 1.2 * await per_call(play, FEW)


@pytest.mark.promise("SCHED-01")
async def test_one_exclusive_call_after_many_parallel_ones_looks_at_none_of_them():
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        batch = session.start_batch([ToolCall(name="look") for _ in range(times)] + [ToolCall(name="everything")])
        return [batch]

    assert await per_call(play, MANY) < 1.2 * await per_call(play, FEW)


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    "pattern", ["parallel", "exclusive", "reads and writes of one path", "tree reads and writes below"]
)
async def test_cancelling_many_calls_that_wait_costs_the_same_for_each(pattern):
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        first = session.start_batch([call("first", "hold"), call("all", "everything")])
        made = [PATTERNS[pattern](n) for n in range(times)]
        rest = session.start_batch([ToolCall(name=name, arguments=arguments) for name, arguments in made])
        behind = session.start_batch([call("behind", "look")])
        await settle()
        rest.cancel()
        return [first, rest, behind]

    assert await per_call(play, MANY) < 1.2 * await per_call(play, FEW)


@pytest.mark.promise("SCHED-05")
async def test_calls_that_are_freed_late_find_their_place_among_many_that_wait_for_slots():
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        chain = session.start_batch([ToolCall(name="keyed") for _ in range(times // 2)], max_concurrency=1)
        crowd = session.start_batch([ToolCall(name="look") for _ in range(times // 2)], max_concurrency=1)
        return [chain, crowd]

    async def narrow(times: int) -> float:
        stage = Stage()
        policy = POLICY.but(session_concurrency=1)
        async with fail_after(60), Runtime.open(tools=tools(stage), policy=policy) as runtime:
            with counted() as lines:
                for batch in await play(runtime.session("s"), stage, times):
                    await batch
        return lines.count / times

    assert await narrow(MANY) < 1.2 * await narrow(FEW)


@pytest.mark.promise("SCHED-06")
@pytest.mark.parametrize("way", ["nest", "gather"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("look", {}), ("everything", {}), ("write", {"path": "a"}), ("read", {"path": "held"})],
    ids=["parallel", "exclusive", "one path", "all behind a running call"],
)
async def test_the_work_for_a_nested_call_does_not_grow_with_the_number_of_its_siblings(way, name, arguments):
    async def play(session: Session, stage: Stage, times: int) -> list[Batch]:
        first = session.start_batch([call("held", "hold_path", path="held")])
        nested = session.start_batch([call("n", way, name=name, arguments=arguments, times=times)])
        await settle()
        return [first, nested]

    assert await per_call(play, MANY) < 1.3 * await per_call(play, FEW)
