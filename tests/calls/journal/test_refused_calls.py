"""Calls that fail before they run: what the caller was told stands, here and after a restart."""

import asyncio

import pytest

from tests.support import fail_after, until
from toolwright import Policy, ReplayMismatch, Rule, ToolCall, ToolContext, tool
from toolwright.stores.sqlite.store import SqliteStore

REFUSED = {
    "an unknown tool": ToolCall(id="c1", name="later", arguments={"n": 1}),
    "bad arguments": ToolCall(id="c1", name="strict", arguments={"n": "many"}),
    "text that is no JSON": ToolCall(id="c1", name="strict", arguments='{"n": '),
    "text for an unknown tool": ToolCall(id="c1", name="later", arguments='{"n": '),
    "too many bytes": ToolCall(id="c1", name="strict", arguments={"n": 1, "more": "x" * 3000}),
    "another kind": ToolCall(id="c1", name="strict", arguments={"n": 1}, kind="shell"),
}


@tool(idempotent=True)
async def fine(n: int = 0) -> int:
    return n


@pytest.mark.promise("EFF-15")
@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
async def test_a_call_that_was_refused_stays_refused_when_it_could_run(place, open_runtime, call):
    ran: list[int] = []

    @tool
    async def strict(n: int) -> None:
        ran.append(n)

    @tool(name="strict")
    async def lenient(n: object = 0, more: str = "") -> None:
        ran.append(0)

    @tool
    async def later(n: int = 0) -> None:
        ran.append(n)

    policy = Policy(max_argument_bytes=2000)
    runtime = await open_runtime(place, strict, fine, policy=policy)
    calls = [call, ToolCall(id="c2", name="fine", arguments={"n": 2})]
    first, other = await runtime.session("s").run_batch(calls)
    assert (first.status, first.replayed, other.value) == ("failure", False, 2)
    if isinstance(place, str):
        runtime.tools.register(later)
        runtime.tools.register(lenient, replace=True)
    else:
        await runtime.close()
        runtime = await open_runtime(place, lenient, later, fine, policy=policy)
    again, other = await runtime.session("s").run_batch(calls)
    assert (again.failure, again.text, again.replayed) == (first.failure, first.text, True)
    assert (other.value, other.replayed) == (2, True)
    assert ran == []


@pytest.mark.promise("EFF-15")
async def test_other_arguments_under_the_id_of_a_refused_call_are_a_mismatch(place, open_runtime):
    runtime = await open_runtime(place, fine)
    session = runtime.session("s")
    await session.run_batch([ToolCall(id="c1", name="fine", arguments={"n": "many"})])
    with pytest.raises(ReplayMismatch):
        await session.run_batch([ToolCall(id="c1", name="fine", arguments={"n": 1})])
    (other,) = await session.run_batch([ToolCall(id="c1", name="fine", arguments={"n": 1})], scope="turn 2")
    assert other.value == 1


@pytest.mark.promise("EFF-15", "RUN-02")
async def test_of_two_calls_with_one_id_the_first_has_the_identity(place, open_runtime):
    runtime = await open_runtime(place, fine)
    session = runtime.session("s")
    calls = [ToolCall(id="c1", name="fine", arguments={"n": 1}), ToolCall(id="c1", name="nobody")]
    first, second = await session.run_batch(calls)
    assert (first.value, second.status) == (1, "failure")
    first, second = await session.run_batch(calls)
    assert (first.value, first.replayed, second.status) == (1, True, "failure")


@pytest.mark.promise("EFF-15", "EFF-11")
async def test_a_finished_call_is_replayed_when_its_tool_is_gone(place, open_runtime):
    runtime = await open_runtime(place, fine)
    session = runtime.session("s")
    await session.run_batch([ToolCall(id="c1", name="fine", arguments={"n": 1})])
    runtime.tools.unregister("fine")
    (again,) = await session.run_batch([ToolCall(id="c1", name="fine", arguments={"n": 1})])
    assert (again.value, again.replayed) == (1, True)


@pytest.mark.promise("EFF-15")
async def test_what_a_policy_refused_stays_refused(place, open_runtime):
    runtime = await open_runtime(place, fine)
    calls = [ToolCall(id="c1", name="fine")]
    (first,) = await runtime.session("s").run_batch(calls, rules=[Rule("deny", "fine")])
    (again,) = await runtime.session("s").run_batch(calls)
    assert (first.failure.category, again.failure, again.replayed) == ("permission_denied", first.failure, True)


@pytest.mark.promise("EFF-15", "EFF-08")
async def test_a_refused_call_costs_the_others_no_commit(file, open_runtime):
    async def commits(*calls: ToolCall) -> int:
        before = store.commits
        await runtime.session("s").run_batch(calls)
        return store.commits - before

    @tool
    async def once() -> None:
        """May not run again, so that its start is written."""

    store = SqliteStore(file)
    runtime = await open_runtime(store, fine, once)
    await commits(ToolCall(name="fine"))
    for name in ("fine", "once"):
        alone = await commits(ToolCall(name=name), ToolCall(name=name))
        beside = await commits(ToolCall(name=name), ToolCall(name=name), ToolCall(name="nobody"), ToolCall(name="no"))
        assert beside <= alone
    assert await commits(ToolCall(name="nobody")) <= 2


@pytest.mark.promise("EFF-15", "SCHED-06")
async def test_a_nested_call_that_was_refused_is_replayed_with_its_parent(place, open_runtime):
    @tool(idempotent=True)
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("nobody")).failure.code  # type: ignore[union-attr]

    runtime = await open_runtime(place, outer)
    for replayed in (False, True):
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="outer")])
        assert (outcome.value, outcome.replayed) == ("unknown_tool", replayed)


# --- stopped before the journal answers


@pytest.mark.promise("CANCEL-01", "EFF-11")
@pytest.mark.parametrize("turns", range(4))
async def test_a_finished_call_that_is_stopped_when_it_comes_again_does_not_say_that_it_did_not_run(
    file, open_runtime, turns
):
    @tool
    async def book() -> str:
        return "booked"

    runtime = await open_runtime(file, book)
    session = runtime.session("s")
    await session.run_batch([ToolCall(id="c1", name="book")])
    batch = session.start_batch([ToolCall(id="c1", name="book")])
    for _ in range(turns):
        await asyncio.sleep(0)
    batch.cancel("enough")
    async with fail_after(5):
        (outcome,) = await batch
    if outcome.status == "cancelled":
        assert outcome.may_have_run
        assert "did not run" not in outcome.text
        assert "whether it ran then is not known" in outcome.text
    else:
        assert (outcome.value, outcome.replayed) == ("booked", True)
    (again,) = await session.run_batch([ToolCall(id="c1", name="book")])
    assert (again.value, again.replayed) == ("booked", True)


@pytest.mark.promise("CANCEL-01")
async def test_a_call_that_nobody_can_have_made_before_did_not_run(file, open_runtime):
    @tool
    async def book() -> str:
        return "booked"

    runtime = await open_runtime(file, book)
    batch = runtime.session("s").start_batch([ToolCall(name="book")])
    batch.cancel("enough")
    async with fail_after(5):
        (outcome,) = await batch
    assert (outcome.status, outcome.may_have_run) == ("cancelled", False)
    assert "it did not run" in outcome.text


@pytest.mark.promise("CANCEL-01", "EFF-11")
async def test_a_call_that_shares_a_running_one_and_is_stopped_may_have_run(place, open_runtime):
    begun, end = asyncio.Event(), asyncio.Event()

    @tool
    async def book() -> str:
        begun.set()
        await end.wait()
        return "booked"

    runtime = await open_runtime(place, book)
    session = runtime.session("s")
    first = session.start_batch([ToolCall(id="c1", name="book")])
    async with fail_after(5):
        await begun.wait()
        second = session.start_batch([ToolCall(id="c1", name="book")])
        await until(lambda: second.calls[0].shares is not None)
        second.cancel("enough")
        (outcome,) = await second
        assert (outcome.status, outcome.may_have_run) == ("cancelled", True)
        end.set()
        (outcome,) = await first
    assert outcome.value == "booked"
