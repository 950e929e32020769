"""Steps and sleeps inside a tool: once, by name, across attempts and restarts."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import BaseModel

from tests.effects.watching import waiting
from tests.support import fail_after, until
from toolwright import Policy, ReplayMismatch, RetryPolicy, ToolCall, ToolContext, ToolError, ToolwrightError, tool
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import NOT_ALL
from toolwright.stores.sql.calls.journal import SqlJournalStore
from toolwright.testing import FakeClock, is_idle, slots_in_use

ONE = [ToolCall(id="c1", name="work", arguments={})]


@dataclass
class Receipt:
    flight: str
    paid_at: datetime
    seats: tuple[int, ...]


@dataclass
class Refund:
    reason: str


class Fare(BaseModel):
    amount: Decimal
    valid: set[str]


RECEIPT = Receipt("LH1", datetime(2030, 1, 2, tzinfo=UTC), (3, 4))
FARE = Fare(amount=Decimal("9.50"), valid={"LH1"})


@pytest.mark.promise("EFF-06", "APP-06")
async def test_a_step_gives_the_type_that_its_function_returns_also_when_it_is_not_run_again(place, open_runtime):
    ran: list[str] = []
    seen: list[list[object]] = []

    async def pair(flight: str, seats: int) -> tuple[str, int]:
        ran.append("pair")
        return flight, seats

    def pay() -> Receipt:
        return RECEIPT

    def fares() -> dict[int, Fare] | None:
        return {7: FARE}

    def either() -> Receipt | Refund:
        return Refund("late")

    def content() -> bytes:
        return b"\xff"

    def plain() -> dict[str, list[int]]:
        return {"seats": [1]}

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0))
    async def work(ctx: ToolContext) -> None:
        seen.append(
            [
                await ctx.step("pair", pair, "LH1", 2),
                await ctx.step("pay", pay),
                await ctx.step("fares", fares),
                await ctx.step("either", either),
                await ctx.step("content", content),
                await ctx.step("plain", plain),
                await ctx.step("lambda", lambda: (1, 2)),  # it has no annotation, so this is plain JSON data
            ]
        )
        if ctx.attempt == 1:
            raise ToolError("again", retry=True)

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.ok, outcome.failure
    assert seen == [[("LH1", 2), RECEIPT, {7: FARE}, Refund("late"), b"\xff", {"seats": [1]}, [1, 2]]] * 2
    assert ran == ["pair"]


@pytest.mark.promise("APP-06")
async def test_a_step_whose_value_does_not_fit_its_return_type_fails_without_telling_the_value(place, open_runtime):
    def pay() -> Receipt:
        return {"flight": "hush", "paid_at": "some day"}  # type: ignore[return-value]

    @tool
    async def work(ctx: ToolContext) -> str:
        return (await ctx.step("pay", pay)).flight

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.failure.code == "step_type"
    assert "'pay'" in outcome.text
    assert "hush" not in outcome.text
    assert "some day" not in f"{outcome.text}{outcome.failure.detail}"


@pytest.mark.promise("EFF-06", "RETRY-02")
async def test_a_step_that_one_attempt_did_is_not_redone_by_the_next(place, open_runtime):
    ran, keys = [], []

    def charge() -> str:
        ran.append("charge")
        return "r1"

    @tool(idempotent=True, retry=RetryPolicy(attempts=3, base_delay=0))
    async def work(ctx: ToolContext) -> str:
        keys.append((ctx.attempt, ctx.idempotency_key))
        receipt = await ctx.step("charge", charge)
        if ctx.attempt < 3:
            raise ToolError("try again", retry=True)
        return receipt

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, outcome.attempts, ran) == ("r1", 3, ["charge"])
    assert [attempt for attempt, _ in keys] == [1, 2, 3]
    assert len({key for _, key in keys}) == 1


@pytest.mark.promise("EFF-06")
@pytest.mark.parametrize("name", ["", "  ", 3, None, "x" * 256, "\ud800"], ids=repr)
async def test_an_unusable_name_is_refused_before_anything_runs(place, open_runtime, name):
    ran = []

    @tool
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(ToolwrightError, match="name"):
            await ctx.step(name, lambda: ran.append(1))
        with pytest.raises(ToolwrightError, match="name"):
            await ctx.sleep(name, 0)
        return "refused"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, ran) == ("refused", [])


@pytest.mark.promise("EFF-06")
async def test_a_name_that_was_used_is_refused_before_anything_runs(place, open_runtime):
    ran = []

    @tool
    async def work(ctx: ToolContext) -> str:
        await ctx.step("a", lambda: ran.append(1))
        with pytest.raises(ToolwrightError, match="'a' was used before in call 'c1'"):
            await ctx.step("a", lambda: ran.append(2))
        return "refused"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, ran) == ("refused", [1])


@pytest.mark.promise("EFF-03")
async def test_the_same_step_of_sibling_calls_and_scopes_never_meets(place, open_runtime):
    ran = []

    def note(number: int) -> int:
        ran.append(number)
        return number

    @tool(parallel=True)
    async def work(ctx: ToolContext, number: int) -> int:
        return await ctx.step("same", note, number)

    runtime = await open_runtime(place, work)
    calls = [ToolCall(id=f"c{number}", name="work", arguments={"number": number}) for number in range(3)]
    for scope in ("", "other"):
        outcomes = await runtime.session("s").run_batch(calls, scope=scope)
        assert [outcome.value for outcome in outcomes] == [0, 1, 2]
    other = await runtime.session("t").run_batch(calls[:1])
    assert other[0].value == 0
    assert sorted(ran) == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.promise("EFF-06")
async def test_the_error_of_a_step_keeps_its_code_and_message_for_the_next_attempt(place, open_runtime):
    ran, seen = [], []

    def charge() -> None:
        ran.append(1)
        raise ToolError("no money", code="declined", category="external")

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0))
    async def work(ctx: ToolContext) -> str:
        try:
            await ctx.step("charge", charge)
        except ToolError as error:
            seen.append((error.failure.code, error.failure.message, error.failure.category))
        if ctx.attempt == 1:
            raise ToolError("again", retry=True)
        return "told"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, ran) == ("told", [1])
    assert seen == [("declined", "no money", "external")] * 2


@pytest.mark.promise("EFF-06", "RETRY-02")
async def test_a_step_that_says_retry_runs_again_in_the_next_attempt(place, open_runtime):
    ran = []

    def charge() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ToolError("busy", retry=True)
        return "paid"

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0))
    async def work(ctx: ToolContext) -> str:
        return await ctx.step("charge", charge)

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, len(ran)) == ("paid", 2)


@pytest.mark.promise("EFF-06", "RETRY-02")
@pytest.mark.parametrize("policy", ["fail", "probe"])
async def test_a_step_that_says_retry_is_not_taken_for_one_that_was_cut_off(place, open_runtime, policy):
    ran, probed = [], []

    async def charge() -> int:
        ran.append(1)
        if len(ran) == 1:
            raise ToolError("busy", retry=True)
        return len(ran)

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0))
    async def work(ctx: ToolContext) -> int:
        return await ctx.step("charge", charge, on_crash="fail" if policy == "fail" else lambda: probed.append(1))

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.value, ran, probed) == (2, [1, 1], [])


@pytest.mark.promise("EFF-06", "OUT-03")
async def test_an_unexpected_error_of_a_step_stays_private(place, open_runtime):
    def charge() -> None:
        raise ValueError("password=hunter2")

    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.step("charge", charge)

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert (outcome.failure.category, outcome.failure.code) == ("internal", "internal_error")
    assert "hunter2" not in outcome.text
    assert "hunter2" in (outcome.failure.detail or "")


@pytest.mark.promise("EFF-02")
async def test_a_step_with_another_input_than_before_is_a_mismatch(place, open_runtime):
    seen: list[ReplayMismatch] = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=2, base_delay=0))
    async def work(ctx: ToolContext) -> int:
        try:
            return await ctx.step("book", lambda order: order["seat"], {"seat": ctx.attempt, "row": 9})
        except ReplayMismatch as error:
            seen.append(error)
            raise ToolError("other input") from error
        finally:
            if ctx.attempt == 1:
                raise ToolError("again", retry=True)

    runtime = await open_runtime(place, work)
    await runtime.session("s").run_batch(ONE)
    (mismatch,) = seen
    assert mismatch.differences == ["$[0].seat: 1 before, 2 now"]


@pytest.mark.promise("EFF-06")
@pytest.mark.parametrize("function", [None, 3, "charge"], ids=repr)
async def test_a_step_needs_a_function(place, open_runtime, function):
    @tool
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(ToolwrightError, match="has no function"):
            await ctx.step("a", function)
        return "refused"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.value == "refused"


async def test_a_step_whose_result_has_no_json_form_fails_alone(place, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(ToolError, match="has no JSON form"):
            await ctx.step("a", object)
        with pytest.raises(ToolError, match="str that has no JSON form: a text in it has half of a surrogate pair"):
            await ctx.step("c", lambda: "\ud83d")
        with pytest.raises(ToolwrightError, match="inputs of step 'b' have no JSON form"):
            await ctx.step("b", lambda thing: thing, object())
        return "told"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.value == "told"


async def test_a_sync_tool_is_told_that_steps_need_an_async_one(place, open_runtime):
    @tool
    def work(ctx: ToolContext) -> str:
        made = ctx.step("a", lambda: 1)
        with pytest.raises(ToolwrightError, match="async tool"):
            made.send(None)
        return "told"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.value == "told"


@pytest.mark.promise("EFF-10")
@pytest.mark.parametrize(
    "seconds", [-5, "5", None, True, float("nan"), float("inf"), 10**400], ids=lambda s: f"{s!r:.9}"
)
async def test_a_sleep_that_has_no_end_is_refused(place, open_runtime, seconds):
    @tool
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(
            ToolwrightError, match=r"The duration of sleep 'nap' is .*; use a number of seconds, 0 or more"
        ):
            await ctx.sleep("nap", seconds)
        return "told"

    runtime = await open_runtime(place, work)
    (outcome,) = await runtime.session("s").run_batch(ONE)
    assert outcome.value == "told"


@pytest.mark.promise("EFF-07")
async def test_a_task_that_outlives_its_call_is_told_that_nothing_is_recorded_any_more(place, open_runtime):
    ended, tasks = asyncio.Event(), []

    async def outliving(ctx: ToolContext) -> None:
        await ended.wait()
        await ctx.step("late", lambda: 1)

    @tool
    async def work(ctx: ToolContext) -> None:
        tasks.append(asyncio.create_task(outliving(ctx)))

    runtime = await open_runtime(place, work)
    await runtime.session("s").run_batch(ONE)
    ended.set()
    async with fail_after(5):
        await asyncio.wait(tasks)
    assert str(tasks[0].exception()) == (
        "nothing can be recorded for this call any more: it has ended, or its store failed"
    )


@pytest.mark.promise("EFF-10")
async def test_a_sleep_holds_no_slot_and_its_time_is_not_the_tools(place, open_runtime):
    clock = FakeClock()

    @tool(parallel=True, timeout=1)
    async def work(ctx: ToolContext) -> str:
        await ctx.sleep("night", 3600)
        return "morning"

    @tool(parallel=True)
    async def other() -> str:
        return "done"

    runtime = await open_runtime(place, work, other, clock=clock)
    session = runtime.session("s")
    events = session.subscribe()
    async with fail_after(10):
        batch = session.start_batch(ONE, max_concurrency=1)
        assert (await waiting(events)).what == "sleep"
        assert slots_in_use(session) == 0
        (outcome,) = await session.run_batch([ToolCall(name="other", arguments={})], max_concurrency=1)
        assert outcome.value == "done"
        await clock.advance(3599)
        assert not batch.done
        await clock.advance(1.1)
        while not batch.done:
            await clock.advance(0)
        (outcome,) = await batch
    assert outcome.value == "morning"


@pytest.mark.promise("EFF-10", "EFF-01")
async def test_a_sleep_does_not_start_anew_after_a_restart(file, open_runtime):
    clock = FakeClock()

    @tool(idempotent=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.sleep("night", 3600)
        return "morning"

    async with fail_after(10):
        first = await open_runtime(file, work, clock=clock)
        events = first.subscribe()
        first.session("s").start_batch(ONE)
        await waiting(events)
        await first.close()
        await clock.advance(3000)
        second = await open_runtime(file, work, clock=clock)
        events = second.subscribe()
        batch = second.session("s").start_batch(ONE)
        await waiting(events)
        await clock.advance(599)
        assert not batch.done
        await clock.advance(1.1)
        while not batch.done:
            await clock.advance(0)
        (outcome,) = await batch
    assert (outcome.value, outcome.replayed) == ("morning", False)


async def test_a_call_that_is_cancelled_while_it_sleeps_ends_at_once(place, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.sleep("night", 3600)

    runtime = await open_runtime(place, work)
    events = runtime.subscribe()
    async with fail_after(5):
        batch = runtime.session("s").start_batch(ONE)
        await waiting(events)
        batch.cancel("enough")
        (outcome,) = await batch
    assert (outcome.status, outcome.reason, outcome.may_have_run) == ("cancelled", "enough", True)
    assert is_idle(runtime.session("s"))


@pytest.mark.promise("EFF-06", "EFF-07")
async def test_results_of_steps_that_cannot_be_written_together_are_written_one_by_one(file, open_runtime, monkeypatch):
    """As beside a call that another process has taken over, which alone may lose what it did."""
    charged: list[str] = []
    seen: list[str] = []
    stays = asyncio.Event()

    async def refuse(journal: SqlJournalStore, effects: object) -> None:
        raise StoreError(NOT_ALL)

    @tool(readonly=True)
    async def work(ctx: ToolContext) -> str:
        async def charge() -> str:
            charged.append(ctx.call_id)
            return f"receipt of {ctx.call_id}"

        receipt = await ctx.step("charge", charge)
        seen.append(receipt)
        await stays.wait()
        return receipt

    monkeypatch.setattr(SqlJournalStore, "keep_all", refuse)
    calls = [ToolCall(id=f"c{number}", name="work", arguments={}) for number in range(3)]
    async with fail_after(20):
        first = await open_runtime(file, work)
        first.session("s").start_batch(calls)
        await until(lambda: len(seen) == 3)
        await first.close()
        stays.set()
        second = await open_runtime(file, work)
        outcomes = await second.session("s").run_batch(calls)
    assert [outcome.value for outcome in outcomes] == [f"receipt of c{number}" for number in range(3)]
    assert charged == ["c0", "c1", "c2"], "no step ran again"


async def test_calls_that_wake_together_take_turns_for_their_slots(place, open_runtime):
    clock = FakeClock()
    inside, most = 0, 0

    @tool(parallel=True)
    async def work(ctx: ToolContext) -> None:
        nonlocal inside, most
        await ctx.sleep("night", 60)
        inside += 1
        most = max(most, inside)
        for _ in range(3):
            await asyncio.sleep(0)
        inside -= 1

    runtime = await open_runtime(place, work, clock=clock)
    session = runtime.session("s")
    events = session.subscribe()
    calls = [ToolCall(id=f"c{number}", name="work", arguments={}) for number in range(10)]
    async with fail_after(10):
        batch = session.start_batch(calls, max_concurrency=2)
        for _ in calls:
            await waiting(events)
        await clock.advance(61)
        while not batch.done:  # the journal has a thread of its own, for which a clock does not wait
            await clock.advance(0)
        outcomes = await batch
    assert all(outcome.ok for outcome in outcomes)
    assert most == 2
    assert slots_in_use(session) == 0


@pytest.mark.promise("CANCEL-02", "SCHED-04")
@pytest.mark.parametrize("how", ["returns", "is given up"])
async def test_a_call_that_left_a_task_waiting_for_its_slot_leaves_the_slot_to_others(place, open_runtime, how):
    clock, free, go, stays = FakeClock(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    left: list[asyncio.Task[None]] = []

    @tool(parallel=True)
    async def work(ctx: ToolContext) -> None:
        left.append(asyncio.create_task(ctx.sleep("nap", 20)))
        try:
            await go.wait()
        except asyncio.CancelledError:
            await stays.wait()

    @tool(parallel=True)
    async def other() -> None:
        await free.wait()

    runtime = await open_runtime(place, work, other, clock=clock, policy=Policy(session_concurrency=1))
    session = runtime.session("s")
    events = session.subscribe()
    async with fail_after(10):
        batch = session.start_batch(ONE)
        await waiting(events)
        holding = session.start_batch([ToolCall(name="other")])
        await until(lambda: runtime.log.query(tool="other", status="running"))
        woken = batch.next_change()
        await until(lambda: woken.done() or clock.advance(1))  # its alarm may not be set yet
        if how == "returns":
            go.set()
        else:
            batch.cancel()
            await until(lambda: batch.done or clock.advance(0.1))
        await batch
        assert slots_in_use(session) == 1
        free.set()
        await holding
        assert slots_in_use(session) == 0
        assert (await session.run_batch([ToolCall(name="other")]))[0].ok
        stays.set()
        await until(left[0].done)
        await until(lambda: is_idle(session))


@pytest.mark.promise("EFF-10", "TIME-01")
async def test_the_time_of_a_call_stands_still_that_waits_again_before_it_has_its_slot(place, open_runtime):
    clock, again, free = FakeClock(), asyncio.Event(), asyncio.Event()

    @tool(parallel=True, timeout=1)
    async def work(ctx: ToolContext) -> str:
        async def sleep_later() -> None:
            await again.wait()
            await ctx.sleep("night", 3600)

        await asyncio.gather(ctx.sleep("nap", 20), sleep_later())
        return "morning"

    @tool(parallel=True)
    async def other() -> None:
        await free.wait()

    runtime = await open_runtime(place, work, other, clock=clock, policy=Policy(session_concurrency=1))
    session = runtime.session("s")
    events = session.subscribe()
    async with fail_after(10):
        batch = session.start_batch(ONE)
        await waiting(events)
        holding = session.start_batch([ToolCall(name="other")])
        await until(lambda: runtime.log.query(tool="other", status="running"))
        woken = batch.next_change()
        await until(lambda: woken.done() or clock.advance(1))  # its alarm may not be set yet
        again.set()
        await waiting(events)
        free.set()
        await holding
        assert slots_in_use(session) == 0
        await clock.advance(3000)
        assert not batch.done
        await until(lambda: batch.done or clock.advance(100))
        (outcome,) = await batch
    assert outcome.value == "morning"


@pytest.mark.promise("TIME-01", "SCHED-04")
async def test_a_call_that_cancels_a_task_of_its_own_which_waits_for_the_slot_gets_slot_and_time(place, open_runtime):
    clock, enough, free = FakeClock(), asyncio.Event(), asyncio.Event()

    @tool(parallel=True, timeout=1)
    async def work(ctx: ToolContext) -> None:
        napping = asyncio.create_task(ctx.sleep("nap", 20))
        await enough.wait()
        napping.cancel()
        await clock.sleep(3600)

    @tool(parallel=True)
    async def other() -> None:
        await free.wait()

    runtime = await open_runtime(place, work, other, clock=clock, policy=Policy(session_concurrency=1))
    session = runtime.session("s")
    events = session.subscribe()
    async with fail_after(10):
        batch = session.start_batch(ONE)
        await waiting(events)
        holding = session.start_batch([ToolCall(name="other")])
        await until(lambda: runtime.log.query(tool="other", status="running"))
        woken = batch.next_change()
        await until(lambda: woken.done() or clock.advance(1))  # its alarm may not be set yet
        enough.set()
        await clock.advance(5)
        assert not batch.done, "its time stands still until it has its slot"
        free.set()
        await holding
        assert slots_in_use(session) == 1
        await clock.advance(1)
        (outcome,) = await batch
    assert outcome.failure.code == "timeout"
    assert is_idle(session)


@pytest.mark.promise("TIME-01", "EFF-07")
@pytest.mark.parametrize("late", ["step", "sleep", "wait", "receive"])
async def test_the_code_of_a_call_that_was_given_up_does_nothing_more_and_harms_no_other(place, open_runtime, late):
    clock, begun, ended, ran = FakeClock(), asyncio.Event(), asyncio.Event(), []

    async def charge() -> None:
        ran.append("charge")

    @tool(parallel=True, timeout=1)
    async def deaf(ctx: ToolContext) -> None:
        begun.set()
        try:
            await clock.sleep(10)
        except asyncio.CancelledError:
            await clock.sleep(10)
        work = {
            "step": lambda: ctx.step("charge", charge, on_crash="rerun"),
            "sleep": lambda: ctx.sleep("nap", 1),
            "wait": lambda: ctx.wait(ctx.event_key("door")),
            "receive": lambda: ctx.receive("news"),
        }
        try:
            await work[late]()
            ran.append("beyond")
        finally:
            ended.set()

    @tool(parallel=True)
    async def work() -> str:
        await ended.wait()
        return "done"

    runtime = await open_runtime(place, deaf, work, clock=clock)
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="d", name="deaf", arguments={}), *ONE])
        await begun.wait()
        for seconds in (1, 0.1, 10):
            await clock.advance(seconds)
        given_up, done = await batch
    assert given_up.failure.category == "timeout"
    assert (done.value, ran) == ("done", [])
