"""The duties of every call journal: remember the calls of a session, whether in memory or in a store.

The cases go through the public API, so they hold for `MemoryJournal`, for `StoreJournal` over any store, and for
whatever journal a runtime is opened with. A case is given a runtime that is open, and nothing has run in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from toolwright.errors import ReplayMismatch
from toolwright.runtime.runtime import Runtime
from toolwright.testing.conformance.controllers import raised
from toolwright.testing.models import ScriptedModel
from toolwright.tools.call import ToolCall
from toolwright.tools.context import ToolContext
from toolwright.tools.function import tool
from toolwright.tools.outcome import ConnectionRequired, Pending


class CallJournalCase(Struct, frozen=True):
    """One promise of a call journal."""

    name: str
    check: Callable[[Runtime], Coroutine[Any, Any, None]]

    async def run(self, runtime: Runtime) -> None:
        """Check the promise on an open runtime in which nothing has run.

        Raises:
            AssertionError: its journal does not keep it.
        """
        await self.check(runtime)

    def __str__(self) -> str:
        return self.name


class _Desk:
    """A tool that counts its calls, and that can be held up."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.ran: list[Any] = []
        self.began = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

        @tool
        async def book(seat: int) -> str:
            self.ran.append(seat)
            self.began.set()
            await self.open.wait()
            return f"seat {seat}"

        runtime.tools.register(book)

    def call(self, id: str | None = "c1", seat: int = 1, name: str = "book") -> ToolCall:
        return ToolCall(id=id, name=name, arguments={"seat": seat})


async def _settled() -> None:
    """Let whatever is under way come as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0.001)


async def a_finished_call_is_replayed_and_not_run(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    (first,) = await session.run_batch([desk.call()])
    (again,) = await session.run_batch([desk.call()])
    assert (first.value, first.replayed) == ("seat 1", False)
    assert (again.value, again.replayed) == ("seat 1", True)
    assert desk.ran == [1]


async def a_call_without_an_id_always_runs(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    for _ in range(2):
        (outcome,) = await session.run_batch([desk.call(None)])
        assert not outcome.replayed
    assert desk.ran == [1, 1]


async def an_id_belongs_to_its_session_and_its_scope(runtime: Runtime) -> None:
    desk = _Desk(runtime)
    for session, scope in (("s", ""), ("s", "other"), ("t", "")):
        (outcome,) = await runtime.session(session).run_batch([desk.call()], scope=scope)
        assert not outcome.replayed
    assert desk.ran == [1, 1, 1]


async def an_id_with_other_arguments_is_a_mismatch_and_nothing_of_its_batch_runs(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    await session.run_batch([desk.call()])
    await raised(ReplayMismatch, session.run_batch([desk.call("c2", 7), desk.call("c1", 2)]))
    assert desk.ran == [1]
    (fresh,) = await session.run_batch([desk.call("c2", 8)])
    assert (fresh.value, fresh.replayed) == ("seat 8", False)


async def a_call_that_runs_is_shared_and_not_run_twice(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    desk.open.clear()
    first = session.start_batch([desk.call()])
    await desk.began.wait()
    second = session.start_batch([desk.call()])
    desk.open.set()
    ((one,), (other,)) = await first, await second
    assert (one.value, one.replayed, other.value, other.replayed) == ("seat 1", False, "seat 1", True)
    assert desk.ran == [1]


async def a_call_that_was_stopped_before_it_ran_runs_when_it_comes_again(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    desk.open.clear()
    first = session.start_batch([desk.call("c1", 1), desk.call("c2", 2)])
    await desk.began.wait()
    first.cancel("enough")
    desk.open.set()
    running, waiting = await first
    assert (running.status, running.may_have_run) == ("cancelled", True)
    assert (waiting.status, waiting.may_have_run) == ("cancelled", False)
    (again, ran) = await session.run_batch([desk.call("c1", 1), desk.call("c2", 2)])
    assert (again.status, again.replayed) == ("cancelled", True)
    assert (ran.value, ran.replayed, desk.ran) == ("seat 2", False, [1, 2])


async def a_call_runs_itself_when_the_call_that_it_shared_stops_first(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    desk.open.clear()
    holder = session.start_batch([desk.call("c1", 1)])
    await desk.began.wait()
    first = session.start_batch([desk.call("c2", 2)])
    second = session.start_batch([desk.call("c2", 2)])
    await _settled()
    first.cancel("enough")
    (stopped,) = await first
    desk.open.set()
    (ran,) = await second
    await holder
    assert (stopped.status, ran.value, ran.replayed, desk.ran) == ("cancelled", "seat 2", False, [1, 2])


async def a_refused_call_is_refused_again_by_the_same_words(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    given = ToolCall(id="c1", name="book", arguments={"seat": "front"})
    (first,) = await session.run_batch([given])
    (again,) = await session.run_batch([given])
    assert first.failure is not None
    assert first.failure.code == "invalid_arguments"
    assert (again.failure, again.replayed, desk.ran) == (first.failure, True, [])


async def arguments_are_the_same_in_any_spelling(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    (first,) = await session.run_batch([desk.call()])
    (again,) = await session.run_batch([{"id": "c1", "name": "book", "arguments": '{"seat": 1}'}])
    assert (again.value, again.replayed, desk.ran) == (first.value, True, [1])


async def a_call_that_lacked_a_connection_runs_once_there_is_one(runtime: Runtime) -> None:
    ran: list[int] = []

    @tool
    async def post(ctx: ToolContext) -> object:
        ran.append(1)
        return ConnectionRequired("mail") if len(ran) < 2 else "posted"

    runtime.tools.register(post)
    session, given = runtime.session("s"), ToolCall(id="c1", name="post", arguments={})
    (lacking,) = await session.run_batch([given])
    (still,) = await session.run_batch([given])
    assert (lacking.status, still.status, still.replayed, len(ran)) == ("connection_required", lacking.status, True, 1)
    await session.connect("mail")
    first, second = session.start_batch([given]), session.start_batch([given])
    ((one,), (other,)) = await first, await second
    assert (one.value, other.value, len(ran)) == ("posted", "posted", 2)


async def a_completed_call_is_replayed_with_its_completion(runtime: Runtime) -> None:
    keys: list[str] = []

    @tool
    async def order(ctx: ToolContext) -> object:
        keys.append(ctx.completion_key())
        return Pending()

    runtime.tools.register(order)
    session, given = runtime.session("s"), ToolCall(id="c1", name="order", arguments={})
    started = session.start_batch([given])
    (pending,) = await started.quiet()
    assert pending.status == "pending"
    await runtime.resolve(keys[0], {"sent": True})
    (outcome,) = await started
    (again,) = await session.run_batch([given])
    assert (outcome.value, again.value, again.replayed, len(keys)) == ({"sent": True}, {"sent": True}, True, 1)


async def a_call_of_a_turn_that_waits_for_a_person_runs_once_after_the_decision(runtime: Runtime) -> None:
    ran: list[int] = []

    @tool(approval="required")
    async def reserve(seat: int) -> str:
        ran.append(seat)
        return f"seat {seat}"

    runtime.tools.register(reserve)
    model = ScriptedModel([[ToolCall(id="c1", name="reserve", arguments={"seat": 1})], "It is yours."])
    for session in ("s", "t"):  # a journal that outlives the process leaves the call while it waits
        turn = await runtime.session(session).start_turn("A seat, please.", model=model)
        assert (await turn).status == "waiting"
        (approval,) = await runtime.approvals(session)
        if session == "s":
            await runtime.approve(approval.key)
            outcome = await turn.wait()
            assert outcome is not None
            assert (outcome.status, [call.value for call in outcome.calls]) == ("answered", ["seat 1"])
        else:
            await turn.cancel("no longer needed")
            outcome = await turn.wait()
            assert outcome is not None
            assert (outcome.status, [call.may_have_run for call in outcome.calls]) == ("cancelled", [False])
        assert await runtime.approvals(session) == []
        assert ran == [1]


async def the_same_id_twice_in_a_batch_runs_once(runtime: Runtime) -> None:
    desk, session = _Desk(runtime), runtime.session("s")
    first, second = await session.run_batch([desk.call(), desk.call()])
    assert (first.value, desk.ran) == ("seat 1", [1])
    assert second.failure is not None
    assert second.failure.code == "duplicate_id"


CALL_JOURNALS: tuple[CallJournalCase, ...] = tuple(
    CallJournalCase(check.__name__, check)
    for check in (
        a_finished_call_is_replayed_and_not_run,
        a_call_without_an_id_always_runs,
        an_id_belongs_to_its_session_and_its_scope,
        an_id_with_other_arguments_is_a_mismatch_and_nothing_of_its_batch_runs,
        a_call_that_runs_is_shared_and_not_run_twice,
        a_call_that_was_stopped_before_it_ran_runs_when_it_comes_again,
        a_call_runs_itself_when_the_call_that_it_shared_stops_first,
        a_refused_call_is_refused_again_by_the_same_words,
        arguments_are_the_same_in_any_spelling,
        a_call_that_lacked_a_connection_runs_once_there_is_one,
        a_completed_call_is_replayed_with_its_completion,
        a_call_of_a_turn_that_waits_for_a_person_runs_once_after_the_decision,
        the_same_id_twice_in_a_batch_runs_once,
    )
)
"""All that are about call journals."""
