"""Tools that break: each takes only its own call with it."""

import asyncio
import math
import sys
import threading
from typing import Any

import pytest

from tests.calls.execute.watching import ended, finished, of_call, record, take_all
from tests.support import Unspeakable, fail_after
from toolwright import Policy, ToolCall, tool


class Abort(BaseException):
    """Not an `Exception`, as a library's own control flow may be."""


def raise_(error: BaseException) -> None:
    raise error


WAYS_TO_BREAK = {
    "an exception": lambda: raise_(ValueError("broken")),
    "sys.exit": lambda: sys.exit(3),
    "SystemExit with text": lambda: raise_(SystemExit("goodbye")),
    "a BaseException": lambda: raise_(Abort("stop")),
    "StopIteration": lambda: raise_(StopIteration(5)),
    "StopAsyncIteration": lambda: raise_(StopAsyncIteration()),
    "GeneratorExit": lambda: raise_(GeneratorExit()),
    "CancelledError": lambda: raise_(asyncio.CancelledError()),
    "an exception group": lambda: raise_(BaseExceptionGroup("many", [Abort(), ValueError()])),
    "an exception without text": lambda: raise_(Unspeakable()),
    "MemoryError": lambda: raise_(MemoryError()),
    "assert": lambda: raise_(AssertionError()),
    "an error of its own arguments": lambda: raise_(TypeError("missing 1 required positional argument")),
}


@pytest.fixture(params=WAYS_TO_BREAK)
def break_down(request):
    return WAYS_TO_BREAK[request.param]


@pytest.mark.promise("RUN-07")
async def test_an_async_tool_that_breaks_fails_alone(break_down, clock, open_runtime):
    @tool(parallel=True)
    async def breaks() -> None:
        break_down()

    @tool(parallel=True)
    async def breaks_later() -> None:
        await clock.sleep(1)
        break_down()

    @tool(parallel=True)
    async def sibling() -> str:
        await clock.sleep(2)
        return "done"

    @tool
    async def following() -> str:
        return "done"

    runtime = await open_runtime(breaks, breaks_later, sibling, following)
    events = runtime.subscribe()
    calls = [ToolCall(id=name, name=name) for name in ("breaks", "breaks_later", "sibling", "following")]
    batch = runtime.session("s").start_batch(calls)
    await clock.advance(2)
    outcomes = await ended(batch)
    assert [outcome.status for outcome in outcomes] == ["failure", "failure", "success", "success"]
    for outcome in outcomes[:2]:
        assert (outcome.failure.category, outcome.failure.code) == ("internal", "internal_error")
        assert outcome.failure.detail
        assert outcome.text == '{"error":"The tool failed with an internal error; its details are in the log."}'
    taken = take_all(events)
    for call in calls:
        assert of_call(taken, call.id) == ["call.started", "call.finished"]
        assert record(runtime, call.id).finished_at is not None


@pytest.mark.promise("RUN-07")
async def test_a_tool_on_a_thread_that_breaks_fails_alone(break_down, clock, open_runtime, gate):
    @tool(parallel=True)
    def breaks() -> None:
        break_down()

    @tool(parallel=True)
    def sibling() -> str:
        gate.stop_here()
        return "done"

    @tool
    def following() -> str:
        return "done"

    # One more thread than the sibling needs: the call that breaks must leave its thread usable.
    runtime = await open_runtime(breaks, sibling, following, policy=Policy(runtime_concurrency=2))
    calls = [ToolCall(id=name, name=name) for name in ("sibling", "breaks", "following")]
    batch = runtime.session("s").start_batch(calls)
    await gate.reached.wait()
    gate.open()
    outcomes = await finished(batch)
    assert [outcome.status for outcome in outcomes] == ["success", "failure", "success"]
    assert (outcomes[1].failure.category, outcomes[1].failure.code) == ("internal", "internal_error")
    assert outcomes[1].failure.detail


@pytest.mark.promise("RUN-07")
async def test_a_keyboard_interrupt_that_a_thread_raises_is_no_wish_of_the_user(clock, open_runtime):
    # Signals reach the main thread only, so it can come from nobody but the tool.
    @tool(parallel=True)
    def breaks() -> None:
        raise KeyboardInterrupt

    @tool
    def following() -> str:
        return "done"

    runtime = await open_runtime(breaks, following)
    batch = runtime.session("s").start_batch([ToolCall(name="breaks"), ToolCall(name="following")])
    assert [outcome.status for outcome in await finished(batch)] == ["failure", "success"]


class Endless:
    """Has a JSON form that contains itself."""

    def model_dump(self, mode):
        return {"self": self}


class Rude:
    """Breaks when asked for its JSON form."""

    def model_dump(self, mode):
        raise LookupError("not today")


class Ruder:
    def model_dump(self, mode):
        raise SystemExit("not ever")


def make_circle() -> list:
    circle: list = []
    circle.append(circle)
    return circle


NO_JSON_FORM = {
    "an object": object,
    "a lock": threading.Lock,
    "a function": lambda: make_circle,
    "a class": lambda: ValueError,
    "a set of objects": lambda: {object()},
    "keys that are no text": lambda: {(1, 2): 3},
    "a circle": make_circle,
    "a form that contains itself": Endless,
    "a form that breaks": Rude,
    "a form that exits": Ruder,
    "half a character": lambda: "\ud800",
    "a number without end": lambda: 10**400,
    "a generator": lambda: (number for number in range(3)),
}


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("kind", NO_JSON_FORM)
async def test_a_tool_that_returns_what_has_no_json_form_fails_alone(kind, clock, open_runtime):
    @tool
    async def gives_nonsense() -> object:
        return NO_JSON_FORM[kind]()

    @tool
    async def following() -> str:
        return "done"

    runtime = await open_runtime(gives_nonsense, following)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="gives_nonsense"), ToolCall(name="following")])
    await clock.advance(1)
    async with fail_after(5):  # what cannot be measured at once is looked at in a thread
        first, second = await batch
    if kind == "a number without end":  # JSON itself has no limit
        assert first.status in ("success", "failure")
    else:
        assert (first.status, first.failure.category) == ("failure", "execution")
        assert first.failure.code == "unserialisable_result"
    assert second.value == "done"
    assert record(runtime, "c1").finished_at is not None
    assert isinstance(first.text, str)


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("number", [math.nan, math.inf])
async def test_numbers_that_json_lacks_do_not_break_the_text(number, clock, open_runtime):
    @tool
    async def gives() -> Any:
        return float(number)

    runtime = await open_runtime(gives)
    batch = runtime.session("s").start_batch([ToolCall(name="gives")])
    await clock.advance(1)
    (outcome,) = await ended(batch)
    assert outcome.text in ("null", '{"error":"The tool returned a float that has no JSON form"}')


BREAKING_OUTSIDE = {
    "an exception": lambda: raise_(ValueError("broken")),
    "sys.exit": lambda: sys.exit(3),
    "a BaseException": lambda: raise_(Abort("stop")),
    "CancelledError": lambda: raise_(asyncio.CancelledError()),
    "an exception without text": lambda: raise_(Unspeakable()),
}


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("way", BREAKING_OUTSIDE)
async def test_a_prepare_step_that_breaks_fails_its_own_call_alone(way, clock, open_runtime):
    ran = []

    async def prepare(arguments, call):
        BREAKING_OUTSIDE[way]()

    @tool(prepare=prepare)
    async def breaks() -> None:
        ran.append("breaks")

    @tool
    async def following() -> str:
        return "done"

    runtime = await open_runtime(breaks, following)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="breaks"), ToolCall(name="following")])
    await clock.advance(1)
    first, second = await ended(batch)
    assert (first.status, first.failure.code) == ("failure", "prepare_error")
    assert (second.status, second.value, ran) == ("success", "done", [])


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("way", BREAKING_OUTSIDE)
async def test_a_hook_before_the_tool_that_breaks_fails_its_own_call_alone(way, clock, open_runtime):
    async def hook(call):
        if call.call_id == "c1":
            BREAKING_OUTSIDE[way]()

    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work, before=[hook])
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work")])
    await clock.advance(1)
    first, second = await ended(batch)
    assert (first.status, first.failure.code) == ("failure", "hook_error")
    assert (second.status, second.value) == ("success", "done")


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("way", BREAKING_OUTSIDE)
async def test_a_hook_after_the_tool_that_breaks_fails_its_own_call_alone(way, clock, open_runtime):
    async def hook(call, outcome):
        if call.call_id == "c1":
            BREAKING_OUTSIDE[way]()

    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work, after=[hook])
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="work"), ToolCall(id="c2", name="work")])
    await clock.advance(1)
    first, second = await ended(batch)
    assert (first.status, first.failure.code, first.may_have_run) == ("failure", "hook_error", True)
    assert (second.status, second.value) == ("success", "done")


@pytest.mark.promise("RUN-07")
@pytest.mark.parametrize("way", BREAKING_OUTSIDE)
async def test_a_projector_that_breaks_changes_no_outcome(way, clock, open_runtime):
    def project(outcome):
        return BREAKING_OUTSIDE[way]()

    @tool
    async def work() -> str:
        return "done"

    runtime = await open_runtime(work, projector=project)
    batch = runtime.session("s").start_batch([ToolCall(name="work")])
    await clock.advance(1)
    (outcome,) = await ended(batch)
    assert (outcome.status, outcome.value) == ("success", "done")
    assert "could not be shown" in outcome.text


@pytest.mark.promise("RUN-07")
async def test_a_tool_that_leaves_a_task_behind_has_its_outcome_all_the_same(clock, open_runtime):
    stray = []

    @tool
    async def careless() -> str:
        stray.append(asyncio.create_task(clock.sleep(5)))
        return "done"

    runtime = await open_runtime(careless)
    batch = runtime.session("s").start_batch([ToolCall(name="careless")])
    await clock.advance(0)
    assert (await ended(batch))[0].value == "done"
    await clock.advance(5)
    assert stray[0].done()


@pytest.mark.promise("RUN-07")
async def test_a_tool_that_cancels_its_own_task_fails_alone(clock, open_runtime):
    def cancel_me():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @tool(parallel=True)
    async def gives_up() -> None:
        cancel_me()
        await clock.sleep(1)

    @tool(parallel=True)
    async def returns_first() -> str:
        cancel_me()
        return "done"

    @tool
    async def following() -> str:
        return "done"

    runtime = await open_runtime(gives_up, returns_first, following)
    batch = runtime.session("s").start_batch(
        [ToolCall(id="c1", name="gives_up"), ToolCall(id="c2", name="returns_first"), ToolCall(name="following")]
    )
    await clock.advance(1)
    first, second, third = await ended(batch)
    assert first.status in ("failure", "cancelled")
    assert first.status == "failure" or first.may_have_run
    assert (second.status, third.status) == ("success", "success")
