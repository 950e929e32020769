"""Calls of a batch do not notice each other: not by context variables, not by tasks, not when one breaks."""

import asyncio
import sys
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from tests.calls.running import run, run_one
from tests.support import fail_after
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


class Unlike:
    """Raises when it is compared, as a numpy array does."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of a comparison is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class Alike:
    """Equal to every other one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


HELD: ContextVar[Any] = ContextVar("held", default=None)


@pytest.mark.promise("RUN-07")
async def test_a_value_that_cannot_be_compared_may_stand_in_a_context_variable(open_session):
    @tool(parallel=True)
    async def hold() -> str:
        HELD.set(Unlike())
        return "held"

    session = await open_session(hold)
    HELD.set(Unlike())
    async with fail_after(5):
        outcomes = await run(session, *(ToolCall(name="hold") for _ in range(3)))
    assert [outcome.value for outcome in outcomes] == ["held"] * 3


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "at once"])
async def test_an_equal_object_that_a_call_sets_is_not_seen_by_the_next(open_session, waits):
    mine = Alike()
    seen: list[Any] = []

    @tool(parallel=True)
    async def swap() -> None:
        seen.append(HELD.get())
        HELD.set(Alike())
        if waits:
            await asyncio.sleep(0)

    session = await open_session(swap)
    HELD.set(mine)
    await run(session, *(ToolCall(name="swap") for _ in range(3)))
    assert len(seen) == 3
    assert all(one is mine for one in seen)


@pytest.mark.promise("RUN-07", "CANCEL-01")
@pytest.mark.parametrize("how", ["a task", "a weak reference", "a callback"])
async def test_a_task_that_a_finished_call_kept_is_not_that_of_a_sibling(open_session, how):
    kept: list[Any] = []
    seen: list[Any] = []

    @tool(parallel=True)
    async def keep() -> str:
        task = asyncio.current_task()
        assert task is not None
        if how == "a callback":
            task.add_done_callback(kept.append)
        else:
            kept.append(task if how == "a task" else weakref.ref(task))
        return "kept"

    @tool(parallel=True)
    async def go_on() -> str:
        seen.append(asyncio.current_task())
        for one in kept:
            task = one() if isinstance(one, weakref.ref) else one
            if task is not None:
                task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        return "went on"

    session = await open_session(keep, go_on)
    outcomes = await run(session, *(ToolCall(name=name) for name in ("keep", "go_on", "go_on")))
    assert [outcome.text for outcome in outcomes] == ["kept", "went on", "went on"]
    tasks = [one() if isinstance(one, weakref.ref) else one for one in kept]
    assert all(task not in seen for task in tasks)
    if how == "a callback":
        assert len(tasks) == 1  # it was told as soon as its own call was over


@pytest.mark.promise("RUN-07", "CANCEL-01")
@pytest.mark.parametrize("how", ["a task", "a weak reference", "a name", "from outside"])
async def test_a_task_that_somebody_kept_is_not_that_of_a_call_of_the_next_batch(open_session, how):
    kept: list[Any] = []
    seen: list[Any] = []

    @tool
    async def keep() -> str:
        task = asyncio.current_task()
        assert task is not None
        if how == "a name":
            task.set_name("mine")
        elif how != "from outside":
            kept.append(task if how == "a task" else weakref.ref(task))
        return "kept"

    @tool
    async def go_on() -> str:
        task = asyncio.current_task()
        assert task is not None
        seen.append(task)
        for _ in range(3):
            await asyncio.sleep(0)
        return task.get_name()

    session = await open_session(keep, go_on)
    await session.run_batch([ToolCall(name="keep")])
    if how == "from outside":
        kept.extend(asyncio.all_tasks() - {asyncio.current_task()})

    def cancel_kept() -> None:
        for one in kept:
            task = one() if isinstance(one, weakref.ref) else one
            if task is not None:
                task.cancel()

    # No turn of the loop comes between the two batches, and the second one has begun when the task is cancelled.
    asyncio.get_running_loop().call_soon(cancel_kept)
    (outcome,) = await session.run_batch([ToolCall(name="go_on")])
    assert (outcome.status, outcome.text == "mine") == ("success", False)


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("before", ["plain", "sets"])
async def test_a_call_that_waits_has_its_own_context_at_every_step(open_session, before):
    @tool(parallel=True)
    async def plain() -> str:
        return "at once"

    @tool(parallel=True)
    async def sets(name: str) -> list[str]:
        seen = [WHO.get()]
        WHO.set(name)
        async with asyncio.timeout(60):  # takes the task, so that the call must keep it
            await asyncio.sleep(0)
            seen.append(WHO.get())
            await asyncio.create_task(asyncio.sleep(0))
            seen.append(WHO.get())
        return seen

    session = await open_session(plain, sets)
    first = ToolCall(name=before, arguments={"name": "x"} if before == "sets" else {})
    _, *outcomes = await run(session, first, *(ToolCall(name="sets", arguments={"name": name}) for name in "ab"))
    assert [outcome.value for outcome in outcomes] == [["nobody", "a", "a"], ["nobody", "b", "b"]]
    assert WHO.get() == "nobody"


@pytest.mark.promise("RUN-07")
async def test_a_task_is_the_same_for_a_call_that_cancels_it_in_its_first_step(open_session):
    seen: list[Any] = []

    @tool(parallel=True)
    async def vanish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        finally:
            seen.append(asyncio.current_task() is task)

    session = await open_session(vanish)
    (outcome,) = await run(session, ToolCall(name="vanish"))
    assert (outcome.status, seen) == ("cancelled", [True])
