"""A machine that has no thread or process to give: nothing ran, so nothing is recorded as the tool's outcome."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import fail_after, until
from toolwright import MachineError, ToolCall, ToolContext, tool


@contextmanager
def no_threads() -> Iterator[list[str]]:
    """A machine that can start no thread, as each would need a stack larger than all memory; gives those it refused."""
    start, refused = threading.Thread.start, list[str]()

    def note(thread: threading.Thread) -> None:
        try:
            start(thread)
        except RuntimeError:
            refused.append(thread.name)
            raise

    before = threading.stack_size(1 << 46)
    threading.Thread.start = note  # type: ignore[assignment,method-assign]
    try:
        yield refused
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        threading.stack_size(before)


@contextmanager
def no_files() -> Iterator[None]:
    """A process that may open no more files or sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@tool(readonly=True)
async def warm_up() -> None:
    """Let a store open all that it opens when it is first used."""


@pytest.mark.promise("EFF-07", "RUN-08")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_that_the_machine_has_no_thread_for_is_raised_and_runs_when_it_comes_again(
    place, open_runtime, idempotent
):
    ran: list[str] = []

    @tool(idempotent=idempotent, parallel=True)
    def on_a_thread() -> str:
        ran.append("thread")
        return "done"

    @tool(parallel=True)
    async def beside() -> str:
        ran.append("beside")
        return "beside"

    runtime = await open_runtime(place, warm_up, on_a_thread, beside)
    session = runtime.session("s")
    calls = [ToolCall(id="c1", name="on_a_thread"), ToolCall(id="c2", name="beside")]
    await runtime.session("s").call("warm_up")
    async with fail_after(20):
        with no_threads(), pytest.raises(MachineError, match="No thread could be started"):
            await session.run_batch(calls)
        assert ran == ["beside"]
        first, second = await session.run_batch(calls)
    assert (first.value, first.replayed) == ("done", False)
    assert (second.value, second.replayed) == ("beside", True)
    assert ran == ["beside", "thread"]


@pytest.mark.promise("EFF-07", "RUN-08")
async def test_a_call_that_the_machine_has_no_child_process_for_is_raised_and_runs_when_it_comes_again(
    place, open_runtime
):
    @tool(isolation="process", parallel=True)
    def apart() -> str:
        return "done"

    runtime = await open_runtime(place, warm_up, apart)
    session, calls = runtime.session("s"), [ToolCall(id=name, name="apart") for name in ("c1", "c2")]
    await runtime.session("s").call("warm_up")
    async with fail_after(20):
        with no_files(), pytest.raises(MachineError, match="No child process could be started"):
            await session.run_batch(calls)
        outcomes = await session.run_batch(calls)
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("done", False)] * 2


@pytest.mark.promise("EFF-07", "RUN-08")
async def test_a_thread_that_the_machine_gives_a_little_later_is_waited_for(place, open_runtime):
    @tool
    def on_a_thread() -> str:
        return "done"

    runtime = await open_runtime(place, warm_up, on_a_thread)
    await runtime.session("s").call("warm_up")
    async with fail_after(20):
        with no_threads() as refused:
            batch = runtime.session("s").start_batch([ToolCall(id="c1", name="on_a_thread")])
            await until(lambda: refused)
        (outcome,) = await batch
    assert outcome.value == "done"


@pytest.mark.promise("EFF-06", "EFF-07")
async def test_a_step_that_the_machine_has_no_thread_for_is_neither_failed_nor_in_doubt(place, open_runtime):
    ran: list[str] = []

    def charge() -> str:
        ran.append("charged")
        return "receipt"

    @tool(on_crash="rerun")
    async def book(ctx: ToolContext) -> str:
        return str(await ctx.step("charge", charge, on_crash="fail"))

    runtime = await open_runtime(place, warm_up, book)
    session = runtime.session("s")
    await runtime.session("s").call("warm_up")
    async with fail_after(20):
        with no_threads(), pytest.raises(MachineError):
            await session.run_batch([ToolCall(id="c1", name="book")])
        assert ran == []
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="book")])
    assert (outcome.value, ran) == ("receipt", ["charged"])


@pytest.mark.promise("EFF-07", "SCHED-06")
async def test_a_nested_call_that_the_machine_cannot_run_is_no_failure_of_its_parent(file, open_runtime):
    @tool(idempotent=True)
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("inner")).text

    @tool(idempotent=True)
    def inner() -> str:
        return "inside"

    runtime = await open_runtime(file, warm_up, outer, inner)
    session = runtime.session("s")
    await runtime.session("s").call("warm_up")
    async with fail_after(20):
        with no_threads(), pytest.raises(MachineError):
            await session.run_batch([ToolCall(id="c1", name="outer")])
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="outer")])
    assert outcome.value == "inside"
