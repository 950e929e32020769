"""A call's identity is its session, scope and id: what happens when it comes again."""

import asyncio

import pytest

from tests.support import fail_after
from toolwright import ReplaceArguments, ToolCall, ToolError, tool
from toolwright.errors import ReplayMismatch, ToolwrightError


@pytest.mark.promise("EFF-11", "EFF-02")
async def test_a_call_run_again_gives_its_outcome_marked_replayed_and_does_not_run(place, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> dict:
        ran.append(flight)
        return {"seat": "12A"}

    runtime = await open_runtime(place, book)
    call = ToolCall(id="c1", name="book", arguments={"flight": "LH1"})
    (first,) = await runtime.session("s").run_batch([call])
    (second,) = await runtime.session("s").run_batch([call])

    assert ran == ["LH1"]
    assert (first.value, first.replayed) == ({"seat": "12A"}, False)
    assert (second.value, second.replayed) == ({"seat": "12A"}, True)


@pytest.mark.promise("EFF-11")
async def test_a_call_run_again_after_a_restart_gives_its_outcome_and_does_not_run(file, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> dict:
        ran.append(flight)
        return {"seat": "12A"}

    call = ToolCall(id="c1", name="book", arguments={"flight": "LH1"})
    runtime = await open_runtime(file, book)
    await runtime.session("s").run_batch([call])
    await runtime.close()
    again = await open_runtime(file, book)
    (outcome,) = await again.session("s").run_batch([call])

    assert ran == ["LH1"]
    assert (outcome.value, outcome.replayed) == ({"seat": "12A"}, True)


@pytest.mark.promise("EFF-11")
async def test_a_call_without_outcome_in_a_batch_of_replayed_ones_runs(place, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    session = (await open_runtime(place, book)).session("s")
    await session.run_batch([ToolCall(id="c1", name="book", arguments={"flight": "A"})])
    outcomes = await session.run_batch(
        [ToolCall(id=f"c{n}", name="book", arguments={"flight": name}) for n, name in ((0, "Z"), (1, "A"), (2, "B"))]
    )

    assert ran == ["A", "Z", "B"]
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [("Z", False), ("A", True), ("B", False)]


@pytest.mark.promise("EFF-11")
async def test_a_failed_call_replays_its_failure(place, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        raise ToolError("The flight is full", category="unavailable", code="full")

    session = (await open_runtime(place, book)).session("s")
    call = ToolCall(id="c1", name="book", arguments={"flight": "LH1"})
    await session.run_batch([call])
    (outcome,) = await session.run_batch([call])

    assert ran == ["LH1"]
    assert outcome.replayed
    assert outcome.status == "failure"
    assert outcome.failure is not None
    assert (outcome.failure.category, outcome.failure.code) == ("unavailable", "full")
    assert outcome.failure.message == "The flight is full"


@pytest.mark.promise("EFF-11", "EFF-02")
async def test_other_arguments_under_the_same_identity_are_refused_and_nothing_runs(place, open_runtime):
    ran = []

    @tool
    async def book(flight: str, seats: list[int], meal: str = "none") -> str:
        ran.append(flight)
        return "ok"

    session = (await open_runtime(place, book)).session("s")
    before = {"flight": "LH1", "seats": [1, 2], "meal": "fish"}
    await session.run_batch([ToolCall(id="c1", name="book", arguments=before)])
    fresh = ToolCall(id="c0", name="book", arguments={"flight": "new", "seats": []})
    other = ToolCall(id="c1", name="book", arguments={"flight": "LH1", "seats": [1, 3]})
    async with fail_after(5):
        with pytest.raises(ReplayMismatch) as raised:
            await session.run_batch([fresh, other])

    assert ran == ["LH1"]
    assert raised.value.differences == ['$.meal: "fish" before, null now', "$.seats[1]: 2 before, 3 now"]
    assert "'c1'" in str(raised.value)
    assert "scope=" in str(raised.value)


@pytest.mark.promise("EFF-11")
async def test_another_tool_under_the_same_identity_is_refused(place, open_runtime):
    @tool
    async def book(flight: str) -> str:
        return "booked"

    @tool
    async def cancel(flight: str) -> str:
        raise AssertionError("It must not run.")

    session = (await open_runtime(place, book, cancel)).session("s")
    await session.run_batch([ToolCall(id="c1", name="book", arguments={"flight": "LH1"})])
    with pytest.raises(ReplayMismatch) as raised:
        await session.run_batch([ToolCall(id="c1", name="cancel", arguments={"flight": "LH1"})])

    assert raised.value.differences == ["tool: 'book' before, 'cancel' now"]


@pytest.mark.promise("EFF-11")
@pytest.mark.parametrize("fresh_first", [True, False])
async def test_the_calls_of_a_batch_that_was_refused_can_run_later(place, open_runtime, fresh_first):
    @tool
    async def book(flight: str) -> str:
        return flight

    session = (await open_runtime(place, book)).session("s")
    await session.run_batch([ToolCall(id="taken", name="book", arguments={"flight": "A"})])
    fresh = ToolCall(id="fresh", name="book", arguments={"flight": "B"})
    wrong = ToolCall(id="taken", name="book", arguments={"flight": "C"})
    with pytest.raises(ReplayMismatch):
        await session.run_batch([fresh, wrong] if fresh_first else [wrong, fresh])
    async with fail_after(5):
        (outcome,) = await session.run_batch([fresh])

    assert (outcome.value, outcome.replayed) == ("B", False)


@pytest.mark.promise("EFF-11")
async def test_a_batch_that_was_refused_leaves_nothing_for_recovery(file, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    runtime = await open_runtime(file, book)
    session = runtime.session("s")
    await session.run_batch([ToolCall(id="taken", name="book", arguments={"flight": "A"})])
    wrong = ToolCall(id="taken", name="book", arguments={"flight": "C"})
    with pytest.raises(ReplayMismatch):
        await session.run_batch([wrong, ToolCall(id="fresh", name="book", arguments={"flight": "B"})])
    await runtime.close()
    again = await open_runtime(file, book)

    assert await again.recover() == []
    assert ran == ["A"]


@pytest.mark.promise("EFF-11")
async def test_a_scope_separates_ids_that_are_used_again(place, open_runtime):
    @tool
    async def book(flight: str) -> str:
        return flight

    session = (await open_runtime(place, book)).session("s")
    turns = []
    for turn, flight in (("t1", "A"), ("t2", "B"), ("t1", "A")):
        call = ToolCall(id="call_0", name="book", arguments={"flight": flight})
        turns += await session.run_batch([call], scope=turn)

    assert [(outcome.value, outcome.replayed) for outcome in turns] == [("A", False), ("B", False), ("A", True)]


@pytest.mark.promise("EFF-11")
async def test_a_session_separates_ids(place, open_runtime):
    @tool
    async def book(flight: str) -> str:
        return flight

    runtime = await open_runtime(place, book)
    (first,) = await runtime.session("s1").run_batch([ToolCall(id="c", name="book", arguments={"flight": "A"})])
    (second,) = await runtime.session("s2").run_batch([ToolCall(id="c", name="book", arguments={"flight": "B"})])

    assert (first.value, second.value) == ("A", "B")


@pytest.mark.promise("EFF-11")
async def test_a_generated_id_is_always_new(place, open_runtime):
    ran = []

    @tool
    async def roll() -> int:
        ran.append(1)
        return 4

    session = (await open_runtime(place, roll)).session("s")
    outcomes = [*(await session.run_batch([{"name": "roll"}])), await session.call("roll"), await session.call("roll")]

    assert len(ran) == 3
    assert not any(outcome.replayed for outcome in outcomes)


@pytest.mark.promise("EFF-11", "CANCEL-01")
async def test_a_call_cancelled_before_it_ran_may_run_again(place, open_runtime):
    entered = asyncio.Event()

    @tool
    async def block() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def book() -> str:
        return "booked"

    session = (await open_runtime(place, block, book)).session("s")
    batch = session.start_batch([ToolCall(id="first", name="block"), ToolCall(id="second", name="book")])
    async with fail_after(5):
        await entered.wait()
        batch.cancel()
        first, second = await batch
        again = await session.run_batch([ToolCall(id="first", name="block"), ToolCall(id="second", name="book")])

    assert (first.status, first.may_have_run) == ("cancelled", True)
    assert (second.status, second.may_have_run) == ("cancelled", False)
    assert (again[0].status, again[0].replayed) == ("cancelled", True)
    assert (again[1].value, again[1].replayed) == ("booked", False)


@pytest.mark.promise("EFF-11", "CANCEL-01")
async def test_a_batch_cancelled_while_its_intents_are_written_leaves_nothing_behind(file, open_runtime):
    ran = []

    @tool
    async def book() -> str:
        ran.append(1)
        return "booked"

    runtime = await open_runtime(file, book)
    for turns in range(6):  # at each point of the way to the disk and back
        batch = runtime.session("s").start_batch([ToolCall(id=f"c{turns}", name="book")])
        for _ in range(turns):
            await asyncio.sleep(0)
        batch.cancel()
        async with fail_after(5):
            await batch.settled()
    happened = len(ran)
    await runtime.close()
    again = await open_runtime(file, book)

    assert await again.recover() == []
    assert len(ran) == happened


@pytest.mark.promise("EFF-11")
async def test_arguments_that_a_hook_replaces_do_not_change_the_identity(place, open_runtime):
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    runtime = await open_runtime(place, book, before=[lambda call: ReplaceArguments({"flight": "hooked"})])
    call = ToolCall(id="c1", name="book", arguments={"flight": "LH1"})
    await runtime.session("s").run_batch([call])
    (outcome,) = await runtime.session("s").run_batch([call])

    assert ran == ["hooked"]
    assert (outcome.value, outcome.replayed) == ("hooked", True)


@pytest.mark.promise("EFF-11")
@pytest.mark.parametrize(
    "name", ["a\0b", "", "é\u0301 😀 \u202e", "'; DROP TABLE calls; --", "x" * 1_000_000], ids=range(5)
)
async def test_odd_names_are_names_like_any_other(place, open_runtime, name):
    ran = []

    @tool
    async def book(flight: str) -> str:
        ran.append(flight)
        return flight

    runtime = await open_runtime(place, book)
    session = runtime.session(f"s{name}")
    for ending in ("1", "2", "1"):
        calls = [ToolCall(id=f"{name}{ending}", name="book", arguments={"flight": ending})]
        (outcome,) = await session.run_batch(calls, scope=name)
        assert outcome.call_id == f"{name}{ending}"
        assert outcome.value == ending

    assert ran == ["1", "2"]


@pytest.mark.promise("EFF-11")
async def test_a_name_that_could_not_be_stored_is_refused(place, open_runtime):
    @tool
    async def book() -> str:
        raise AssertionError("It must not run.")

    runtime = await open_runtime(place, book)
    with pytest.raises(ToolwrightError, match="session id"):
        runtime.session("\ud800")
    with pytest.raises(ToolwrightError, match="scope"):
        await runtime.session("s").run_batch([{"name": "book"}], scope="\ud800")
    (outcome,) = await runtime.session("s").run_batch([{"name": "book", "id": "\ud800"}])
    assert outcome.failure.code == "unusable_id"


@pytest.mark.promise("CANCEL-01", "EFF-11")
@pytest.mark.parametrize(("hint", "again"), [({"readonly": True}, "success"), ({"idempotent": True}, "cancelled")])
async def test_a_call_that_only_reads_and_was_cancelled_runs_when_it_comes_again(place, open_runtime, hint, again):
    begun = asyncio.Event()

    @tool(**hint)
    async def look() -> str:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "seen"

    session = (await open_runtime(place, look)).session("s")
    call = ToolCall(id="c1", name="look")
    async with fail_after(10):
        batch = session.start_batch([call])
        await begun.wait()
        batch.cancel("enough")
        (first,) = await batch
        (second,) = await session.run_batch([call])
    effect = "it had no effect" if again == "success" else "it may have had an effect"
    assert (first.status, first.text) == ("cancelled", f'{{"error":"Cancelled: enough; {effect}."}}')
    assert (second.status, second.replayed) == (again, again == "cancelled")


@pytest.mark.promise("TIME-01")
async def test_a_call_that_only_reads_and_takes_too_long_says_nothing_of_an_effect(open_runtime):
    @tool(readonly=True, timeout=0.001)
    async def look() -> None:
        await asyncio.Event().wait()

    (outcome,) = await (await open_runtime(":memory:", look)).session("s").run_batch([ToolCall(name="look")])
    assert (outcome.failure.category, "effect" in outcome.text) == ("timeout", False)
