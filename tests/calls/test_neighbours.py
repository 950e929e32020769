"""Calls of a batch do not notice each other: not by context variables, not by tasks, not when one breaks."""

import asyncio
import sys
from contextvars import ContextVar
from typing import Any

import pytest

from tests.calls.running import run, run_one
from toolwright import ToolCall, ToolContext, ToolError, tool

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.mark.promise("RUN-08")
async def test_what_the_caller_set_is_seen_by_every_kind_of_tool(open_session):
    @tool
    async def at_once() -> str:
        return WHO.get()

    @tool
    async def later() -> str:
        await asyncio.sleep(0)
        return WHO.get()

    @tool
    def on_a_thread() -> str:
        return WHO.get()

    session = await open_session(at_once, later, on_a_thread)
    WHO.set("the caller")
    outcomes = await run(session, *(ToolCall(name=name) for name in ("at_once", "later", "on_a_thread")))
    assert [outcome.value for outcome in outcomes] == ["the caller"] * 3


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "exclusive"])
@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "at once"])
async def test_what_a_call_sets_is_seen_by_no_other_call_and_not_by_the_caller(open_session, parallel, waits):
    @tool(parallel=parallel)
    async def note(name: str) -> list[str]:
        before = WHO.get()
        WHO.set(name)
        if waits:
            await asyncio.sleep(0)
        return [before, WHO.get()]

    session = await open_session(note)
    outcomes = await run(session, *(ToolCall(name="note", arguments={"name": name}) for name in "abc"))
    assert [outcome.value for outcome in outcomes] == [["nobody", "a"], ["nobody", "b"], ["nobody", "c"]]
    assert WHO.get() == "nobody"


@pytest.mark.promise("RUN-07")
async def test_a_call_has_one_task_from_its_first_step_to_its_last(open_session):
    @tool(parallel=True)
    async def look() -> bool:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return first is not None and first is asyncio.current_task()

    session = await open_session(look)
    outcomes = await run(session, *(ToolCall(name="look") for _ in range(5)))
    assert [outcome.value for outcome in outcomes] == [True] * 5
    assert asyncio.current_task() is not None


@pytest.mark.promise("RUN-07")
async def test_a_tool_may_bound_its_own_time_and_run_its_own_tasks(open_session):
    @tool(parallel=True)
    async def give_up() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "never"

    @tool(parallel=True)
    async def gather() -> list[int]:
        async def one(number: int) -> int:
            await asyncio.sleep(0)
            return number

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(3)]
        return [task.result() for task in tasks]

    @tool(parallel=True)
    async def plain() -> str:
        await asyncio.sleep(0)
        return "plain"

    session = await open_session(give_up, gather, plain)
    names = ["give_up", "plain", "gather", "give_up", "plain"]
    outcomes = await run(session, *(ToolCall(name=name) for name in names))
    assert [outcome.value for outcome in outcomes] == ["gave up", "plain", [0, 1, 2], "gave up", "plain"]


@pytest.mark.promise("RUN-07")
async def test_a_tool_that_cancels_its_own_task_ends_only_its_own_call(open_session):
    @tool(parallel=True)
    async def vanish(waits: bool) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(0)
        return "still here"

    @tool(parallel=True)
    async def stay() -> str:
        await asyncio.sleep(0)
        return "stayed"

    session = await open_session(vanish, stay)
    outcomes = await run(
        session,
        ToolCall(name="vanish", arguments={"waits": False}),
        ToolCall(name="stay"),
        ToolCall(name="vanish", arguments={"waits": True}),
        ToolCall(name="stay"),
    )
    assert [outcome.status for outcome in outcomes[1::2]] == ["success", "success"]
    assert outcomes[2].status != "success"


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    "error",
    [ToolError("no"), ValueError("no"), SystemExit(3), asyncio.CancelledError(), GeneratorExit(), MemoryError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_tool_raises_its_neighbours_go_on(open_session, kind, error):
    async def raise_async() -> None:
        raise error

    def raise_sync() -> None:
        raise error

    @tool
    async def fine(n: int) -> int:
        return n

    session = await open_session(tool(name="break")(raise_async if kind == "async" else raise_sync), fine)
    first, broken, last = await run(
        session,
        ToolCall(name="fine", arguments={"n": 1}),
        ToolCall(name="break"),
        ToolCall(name="fine", arguments={"n": 2}),
    )
    assert (first.value, last.value) == (1, 2)
    assert broken.status != "success"


@pytest.mark.promise("RUN-07")
async def test_a_tool_that_exits_ends_its_own_call(open_session):
    @tool
    async def leave() -> None:
        sys.exit("password=hunter2")

    outcome = await run_one(await open_session(leave), "leave")
    assert outcome.failure.category == "internal"
    assert "hunter2" not in outcome.text


@pytest.mark.promise("RUN-13")
async def test_a_nested_call_knows_its_parent_through_child_tasks_and_threads(open_session):
    @tool
    async def outer(ctx: ToolContext) -> list[Any]:
        async def child() -> Any:
            return (await ctx.call("inner")).value

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child()) for _ in range(2)]
        return [task.result() for task in tasks]

    @tool(parallel=True)
    async def inner(ctx: ToolContext) -> str | None:
        return ctx.parent_call_id

    assert (await run_one(await open_session(outer, inner), "outer")).value == ["c1", "c1"]
