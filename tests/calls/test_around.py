"""Context managers around an attempt: entered where the code runs, nested in order, and never in the way of a call."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tests.calls.running import run, run_one
from toolwright import (
    App,
    Attempt,
    MissingRequirement,
    Policy,
    RetryPolicy,
    Runtime,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from toolwright.calls.around import Inside

pytestmark = pytest.mark.promise("RUN-14")

TRACE: ContextVar[str] = ContextVar("trace", default="none")


@contextmanager
def traced(attempt: Attempt) -> Iterator[None]:
    """Set a variable for the time of an attempt; of a module, so that a child process finds it."""
    token = TRACE.set(f"{attempt.tool} {attempt.attempt}")
    try:
        yield
    finally:
        TRACE.reset(token)


class Notes:
    """Notes each attempt, and what happens around it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.seen: list[Any] = []
        self.attempts: list[Attempt] = []

    def __call__(self, attempt: Attempt) -> AbstractContextManager[None]:
        self.attempts.append(attempt)
        return self._around()

    @contextmanager
    def _around(self) -> Iterator[None]:
        self.seen.append(f"{self.name}in")
        try:
            yield
        except BaseException as error:
            self.seen.append(type(error).__name__)
            raise
        finally:
            self.seen.append(f"{self.name}out")


@tool
async def in_task() -> tuple[str, int]:
    """Look around on the loop."""
    await asyncio.sleep(0)
    return TRACE.get(), os.getpid()


@tool
async def at_once() -> tuple[str, int]:
    """The same, without waiting."""
    return TRACE.get(), os.getpid()


@tool
def in_thread() -> tuple[str, int]:
    """Look around on a thread."""
    assert threading.current_thread() is not threading.main_thread()
    return TRACE.get(), os.getpid()


@tool(isolation="process")
def in_child() -> tuple[str, int]:
    """Look around in a child process."""
    return TRACE.get(), os.getpid()


@tool(isolation="process")
async def in_child_loop() -> tuple[str, int]:
    """Look around on the loop of a child process."""
    await asyncio.sleep(0)
    return TRACE.get(), os.getpid()


EVERYWHERE = [in_task, at_once, in_thread, in_child, in_child_loop]


@pytest.mark.parametrize("looking", EVERYWHERE, ids=lambda each: each.name)
async def test_context_variables_reach_the_tool_wherever_it_runs(open_runtime, place, looking):
    runtime = await open_runtime(place, looking, around=[traced])
    outcome = await run_one(runtime.session("s"), looking.name)
    trace, pid = outcome.value
    assert trace == f"{looking.name} 1"
    assert (pid != os.getpid()) is (looking.mode == "process")
    assert TRACE.get() == "none"


async def test_an_attempt_says_which_it_is_and_each_has_its_own(open_runtime, place):
    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0, jitter=0))
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""
        keys.append(ctx.idempotency_key)
        if ctx.attempt < 3:
            raise ToolError("not yet", retry=True)
        return "done"

    keys: list[str] = []
    notes = Notes()
    runtime = await open_runtime(place, flaky, around=[notes])
    call = ToolCall(id="c1", name="flaky", source="user")
    for _ in range(2):  # the second time it is replayed, and has no attempt
        (outcome,) = await runtime.session("s").run_batch([call], scope="turn 1")
        assert outcome.value == "done"
    assert notes.attempts == [Attempt("s", "turn 1", "c1", "flaky", n, "user", keys[0]) for n in (1, 2, 3)]
    assert notes.seen == ["in", "ToolError", "out", "in", "ToolError", "out", "in", "out"]
    assert notes.attempts[0].to_json()["attempt"] == 1


async def test_the_first_is_the_outermost(open_session):
    seen: list[str] = []
    first, second = Notes("first "), Notes("second ")
    first.seen = second.seen = seen
    await run_one(await open_session(at_once, around=[first, second]), "at_once")
    assert seen == ["first in", "second in", "second out", "first out"]


async def test_a_call_that_is_refused_has_no_attempt(open_session):
    notes = Notes()
    session = await open_session(in_task, around=[notes], policy=Policy(read_only=True))
    assert (await run_one(session, "in_task")).failure.code == "denied"
    assert notes.attempts == []


async def test_nested_calls_have_attempts_inside_of_that_of_their_caller(open_session):
    @tool
    async def outer(ctx: ToolContext) -> list[str]:
        """Call another tool."""
        inner = await ctx.call("in_task")
        return [inner.value[0], TRACE.get()]

    outcome = await run_one(await open_session(in_task, outer, around=[traced]), "outer")
    assert outcome.value == ["in_task 1", "outer 1"]


# --- watching never breaks a call


class Breaking:
    """A context manager that breaks at one point."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __call__(self, attempt: Attempt) -> Any:
        if self.where == "factory":
            raise RuntimeError("broken factory")
        if self.where == "no manager":
            return 3
        return self

    def __enter__(self) -> None:
        if self.where == "enter":
            raise RuntimeError("broken enter")

    def __exit__(self, *error: object) -> bool:
        if self.where == "exit":
            raise RuntimeError("broken exit")
        return self.where == "swallow"


@tool
async def fails() -> None:
    """Fail."""
    raise ToolError("as it should", code="mine")


@tool
def fails_on_thread() -> None:
    """Fail on a thread."""
    raise ToolError("as it should", code="mine")


@pytest.mark.parametrize("where", ["factory", "no manager", "enter", "exit"])
@pytest.mark.parametrize("name", ["at_once", "in_thread", "in_child"])
async def test_a_manager_that_breaks_is_logged_and_the_call_runs_inside_of_the_others(
    open_runtime, where, name, caplog
):
    outer = Notes()
    around: list[Any] = [traced, Breaking(where)] if name == "in_child" else [outer, Breaking(where), traced]
    runtime = await open_runtime(at_once, in_thread, in_child, around=around)
    with caplog.at_level(logging.ERROR, "toolwright"):
        outcome = await run_one(runtime.session("s"), name)
    assert outcome.value[0] == f"{name} 1"
    if name != "in_child":  # the log of a child is its own
        (line,) = [record for record in caplog.records if record.name == "toolwright.calls"]
        assert (line.action, line.tool, line.call_id) == ("call.around_failed", name, "c1")  # type: ignore[attr-defined]
        assert outer.seen == ["in", "out"]


@pytest.mark.parametrize("where", ["factory", "enter", "exit", "swallow"])
@pytest.mark.parametrize("name", ["fails", "fails_on_thread"])
async def test_the_failure_of_a_tool_stands_whatever_a_manager_does(open_session, where, name):
    outer = Notes()
    session = await open_session(fails, fails_on_thread, around=[outer, Breaking(where)])
    assert (await run_one(session, name)).failure.code == "mine"
    assert outer.seen == ["in", "ToolError", "out"]


async def test_a_manager_sees_that_its_attempt_was_cancelled(open_session):
    @tool
    async def waits() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    notes = Notes()
    session = await open_session(waits, around=[notes])
    (outcome,) = await run(session, ToolCall(name="waits"), timeout=0.01)
    assert outcome.failure.category == "timeout"
    assert notes.seen == ["in", "CancelledError", "out"]


ENDINGS = [SystemExit, asyncio.CancelledError, GeneratorExit, BaseException]


class Ending:
    """A context manager that raises an error that is no `Exception`, and cannot tell what it is."""

    def __init__(self, where: str, error: type[BaseException]) -> None:
        self.where = where
        self.error = error

    def __call__(self, attempt: Attempt) -> Any:
        return self

    def __enter__(self) -> None:
        if self.where == "enter":
            raise self.error

    def __exit__(self, *error: object) -> None:
        if self.where == "exit":
            raise self.error

    def __repr__(self) -> str:
        raise ValueError("it has no name")


@pytest.mark.parametrize("error", ENDINGS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("where", ["enter", "exit"])
@pytest.mark.parametrize("looking", [in_task, at_once, in_thread], ids=lambda each: each.name)
async def test_an_error_of_a_manager_that_would_end_a_task_or_a_thread_does_not(
    open_session, caplog, looking, where, error
):
    outer = Notes()
    session = await open_session(looking, around=[outer, Ending(where, error)])
    with caplog.at_level(logging.ERROR, "toolwright"):
        outcome = await run_one(session, looking.name)
    assert (outcome.status, outer.seen) == ("success", ["in", "out"])
    (line,) = caplog.records
    assert "of a Ending" in line.getMessage()


async def test_a_keyboard_interrupt_passes_and_every_manager_is_left():
    outer = Notes()
    inside = Inside([outer, Ending("enter", KeyboardInterrupt)], Attempt("s", "", "c", "t", 1, "model", "k"))
    with pytest.raises(KeyboardInterrupt), inside:
        raise AssertionError("it went on")
    assert outer.seen == ["in", "KeyboardInterrupt", "out"]
    inside = Inside([outer, Ending("exit", KeyboardInterrupt)], Attempt("s", "", "c", "t", 1, "model", "k"))
    outer.seen.clear()
    with pytest.raises(KeyboardInterrupt), inside:
        pass
    assert outer.seen == ["in", "out"]


# --- child processes


@pytest.mark.parametrize("where", ["enter", "exit"])
async def test_in_a_child_too_an_error_of_a_manager_does_not_end_the_call(open_session, where):
    outcome = await run_one(
        await open_session(in_child, around=[traced, Ending(where, asyncio.CancelledError)]), "in_child"
    )
    assert outcome.value[0] == "in_child 1"


async def test_a_factory_that_cannot_be_sent_to_a_child_is_refused_at_opening_by_name():
    lock = threading.Lock()

    @contextmanager
    def holding(attempt: Attempt) -> Iterator[None]:
        with lock:
            yield

    with pytest.raises(MissingRequirement, match=r"Tool 'in_child' .*holding.* cannot be sent there .*of a module"):
        App(tools=[in_child], around=[holding]).open()
    async with Runtime.open(tools=[in_task], around=[holding]) as runtime:
        assert (await runtime.session("s").call("in_task")).ok


async def test_one_for_a_tool_that_is_registered_later_is_logged_and_left_out(open_runtime, caplog):
    lock = threading.Lock()

    def locked(attempt: Attempt) -> AbstractContextManager[bool]:
        return lock

    runtime = await open_runtime(in_task, around=[locked, traced])
    runtime.tools.register(in_child)
    with caplog.at_level(logging.ERROR, "toolwright"):
        outcome = await run_one(runtime.session("s"), "in_child")
    assert outcome.value[0] == "in_child 1"
    (line,) = [record for record in caplog.records if record.name == "toolwright.calls"]
    assert "locked" in line.getMessage()
    assert "make it a function of a module" in line.getMessage()


def unreadable() -> Any:
    raise RuntimeError("it cannot be read here")


class Unreadable:
    """Can be sent, and not read."""

    def __call__(self, attempt: Attempt) -> Any:
        raise AssertionError("it was read")

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return unreadable, ()


async def test_one_that_the_child_cannot_read_is_left_out_there(open_session):
    outcome = await run_one(await open_session(in_child, around=[Unreadable(), traced]), "in_child")
    assert outcome.value[0] == "in_child 1"


def test_background_runs_have_attempts_too(tmp_path: Path):
    notes = Notes()

    @tool(supports_background=True)
    async def work() -> str:
        """Work."""
        return "worked"

    async def main() -> None:
        async with Runtime.open(tmp_path / "agent.db", tools=[work], around=[notes]) as runtime:
            run = await runtime.session("s").spawn("work")
            await run.wait(10)

    asyncio.run(main())
    assert [attempt.tool for attempt in notes.attempts] == ["work"]


@pytest.mark.parametrize("kind", ["async generator", "coroutine"])
def test_an_async_context_manager_is_refused_when_the_app_is_made(kind):
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def span(attempt: Attempt) -> Any:
        yield

    async def coroutine(attempt: Attempt) -> None: ...

    with pytest.raises(Exception, match=r"use a function under @contextlib\.contextmanager"):
        App(around=[span if kind == "async generator" else coroutine])  # type: ignore[list-item]
