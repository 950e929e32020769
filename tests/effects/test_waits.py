"""Calls that wait for the outside world: completions, events, signals; keys that cannot be made up."""

import asyncio
import base64

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after, in_memory
from toolwright import KeyRefused, Pending, Runtime, ToolCall, ToolContext, ToolError, ToolwrightError, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.effects.waiting_room import Watcher
from toolwright.errors import StoreError
from toolwright.testing import FakeClock, is_idle, slots_in_use


class Desk:
    """A tool that hands out its key and is done later."""

    def __init__(self, deadline: float | None = None) -> None:
        self.keys: dict[str, str] = {}
        self.ran: list[str] = []

        @tool
        async def book(ctx: ToolContext, flight: str) -> Pending:
            self.ran.append(flight)
            self.keys[flight] = ctx.completion_key()
            assert ctx.completion_key() == self.keys[flight]
            return Pending(deadline=deadline)

        self.tool = book


def call(flight: str = "LH1", name: str = "book") -> ToolCall:
    return ToolCall(id=flight, name=name, arguments={"flight": flight})


@pytest.mark.promise("WAIT-01")
async def test_a_pending_call_completes_with_what_its_key_is_resolved_with(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        assert (await waiting(events)).what == "completion"
        resolved = await runtime.resolve(desk.keys["LH1"], {"seat": "4A"})
        (outcome,) = await batch
    assert (resolved.first, resolved.status, resolved.value) == (True, "ok", {"seat": "4A"})
    assert (outcome.status, outcome.value, outcome.attempts) == ("success", {"seat": "4A"}, 1)
    (record,) = runtime.log.query(call_id="LH1")
    assert record.outcome == outcome


@pytest.mark.promise("WAIT-01")
async def test_a_pending_call_can_be_rejected_and_cancelled(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call("a"), call("b")])
        for _ in range(2):
            await waiting(events)
        await runtime.reject(desk.keys["a"], code="full", message="No seat left", category="unavailable")
        await runtime.cancel(desk.keys["b"], reason="the customer left")
        rejected, cancelled = await batch
    failure = rejected.failure
    assert (failure.category, failure.code, failure.message) == ("unavailable", "full", "No seat left")
    assert (cancelled.status, cancelled.reason, cancelled.may_have_run) == ("cancelled", "the customer left", True)


@pytest.mark.promise("WAIT-01")
async def test_a_pending_call_ends_at_its_deadline(place, open_runtime):
    clock, desk = FakeClock(), Desk(deadline=60)
    runtime = await open_runtime(place, desk.tool, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        await clock.advance(59)
        assert not batch.done
        await clock.advance(1.1)
        while not batch.done:
            await clock.advance(0)
        (outcome,) = await batch
        assert (outcome.failure.category, outcome.failure.code) == ("timeout", "expired")
        late = await runtime.resolve(desk.keys["LH1"], "too late")
    assert (late.first, late.status) == (False, "expired")


@pytest.mark.promise("WAIT-01")
async def test_pending_without_a_key_is_a_failure(place, open_runtime):
    @tool
    async def book() -> Pending:
        return Pending()

    runtime = await open_runtime(place, book)
    outcome = await runtime.session("s").call("book")
    assert outcome.failure.code == "pending_without_key"


@pytest.mark.promise("WAIT-01")
@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_tools_on_threads_and_in_processes_can_be_pending_too(place, open_runtime, mode):
    @tool(isolation="process" if mode == "process" else "none")
    def book(ctx: ToolContext) -> Pending:
        ctx.output("stdout", ctx.completion_key())
        return Pending()

    runtime = await open_runtime(place, book)
    events = runtime.subscribe()
    async with fail_after(20):
        batch = runtime.session("s").start_batch([ToolCall(name="book", arguments={})])
        key = ""
        async for event in events:
            key = getattr(event, "text", key)
            if event.kind == "call.waiting":
                break
        await runtime.resolve(key, 7)
        (outcome,) = await batch
    assert outcome.value == 7


@pytest.mark.promise("WAIT-02")
async def test_a_key_can_be_resolved_before_the_wait_begins(place, open_runtime):
    got = []

    @tool
    async def book(ctx: ToolContext, flight: str) -> Pending:
        await runtime.resolve(ctx.completion_key(), "early")
        await runtime.resolve(ctx.event_key("door"), "open")
        got.append(await ctx.wait(ctx.event_key("door")))
        return Pending()

    runtime = await open_runtime(place, book)
    async with fail_after(10):
        (outcome,) = await runtime.session("s").run_batch([call()])
    assert (outcome.value, got) == ("early", ["open"])


@pytest.mark.promise("WAIT-02")
async def test_the_first_resolution_wins_and_the_others_are_told_what_stood(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        key = desk.keys["LH1"]
        answers = await asyncio.gather(*(runtime.resolve(key, number) for number in range(10)))
        (outcome,) = await batch
        rejected = await runtime.reject(key, message="no")
    assert [answer.first for answer in answers].count(True) == 1
    assert {answer.value for answer in answers} == {outcome.value}
    assert (rejected.first, rejected.status, rejected.value) == (False, "ok", outcome.value)


@pytest.mark.promise("WAIT-02")
async def test_forged_altered_and_foreign_keys_are_refused(place, open_runtime, tmp_path):
    desk, elsewhere = Desk(), Desk()
    runtime = await open_runtime(place, desk.tool)
    other = await open_runtime(tmp_path / "other.db", elsewhere.tool)
    events, events_there = runtime.subscribe(), other.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        there = other.session("s").start_batch([call()])
        await waiting(events)
        await waiting(events_there)
        key, foreign = desk.keys["LH1"], elsewhere.keys["LH1"]
        prefix, body, signature = key.split(".")
        changed = body[:-1] + ("A" if body[-1] != "A" else "B")
        for bad in (
            "",
            "twk1",
            "twk1..",
            "LH1",
            key[:-1],
            key + "A",
            f"{prefix}.{changed}.{signature}",
            f"{prefix}.{body}.{base64.urlsafe_b64encode(b'x' * 32).decode().rstrip('=')}",
            key.upper(),
            "ключ.ключ.ключ",
            foreign,
            7,
            None,
        ):
            with pytest.raises(KeyRefused) as refused:
                await runtime.resolve(bad, "mine")
            assert refused.value.why == "forged", bad
        assert not batch.done
        await runtime.resolve(key, "right")
        await other.resolve(foreign, "there")
        assert (await batch)[0].value == "right"
        assert (await there)[0].value == "there"


@pytest.mark.promise("WAIT-02")
async def test_a_key_of_one_kind_does_not_serve_for_another(place, open_runtime):
    keys = {}

    @tool
    async def book(ctx: ToolContext) -> Pending:
        keys.update(done=ctx.completion_key(), door=ctx.event_key("door"), news=ctx.signal_key("news"))
        return Pending()

    runtime = await open_runtime(place, book)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c", name="book", arguments={})])
        await waiting(events)
        for wrong in (runtime.resolve(keys["news"]), runtime.signal(keys["done"]), runtime.approve(keys["done"])):
            with pytest.raises(KeyRefused) as refused:
                await wrong
            assert refused.value.why == "kind"
        await runtime.resolve(keys["done"])
        await batch
        with pytest.raises(KeyRefused, match="is finished") as refused:
            await runtime.resolve(keys["door"])
    assert refused.value.why == "over"


@pytest.mark.promise("WAIT-02")
async def test_a_value_without_a_json_form_resolves_nothing(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        with pytest.raises(ToolwrightError, match="no JSON form"):
            await runtime.resolve(desk.keys["LH1"], object())
        assert (await runtime.resolve(desk.keys["LH1"], 1)).first
        await batch


@pytest.mark.promise("WAIT-03")
async def test_a_tool_waits_for_events_it_named(place, open_runtime):
    keys = {}

    @tool
    async def book(ctx: ToolContext, flight: str) -> list[str]:
        keys[flight] = ctx.event_key("paid")
        return [flight, await ctx.wait(keys[flight])]

    runtime = await open_runtime(place, book)
    events = runtime.subscribe()
    async with fail_after(10):
        one = runtime.session("s").start_batch([call("a")])
        two = runtime.session("t").start_batch([call("a", "book")])
        names = [(await waiting(events)).name for _ in range(2)]
        assert names == ["paid", "paid"]
        await runtime.resolve(keys["a"], "by card")
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(one.wait()), asyncio.ensure_future(two.wait())], timeout=0.2
        )
        assert [task.result()[0].value for task in done] == [["a", "by card"]], "the other session's event is another"
        one.cancel()
        two.cancel()
        await asyncio.gather(one.settled(), two.settled())


@pytest.mark.promise("WAIT-03")
async def test_an_event_may_be_rejected_cancelled_or_late_and_the_tool_goes_on(place, open_runtime):
    clock, keys, seen = FakeClock(), {}, []

    @tool
    async def book(ctx: ToolContext) -> str:
        for name in ("rejected", "cancelled", "late"):
            keys[name] = ctx.event_key(name)
            try:
                await ctx.wait(keys[name], deadline=60)
            except ToolError as error:
                seen.append((error.failure.category, error.failure.code))
        return "went on"

    runtime = await open_runtime(place, book, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c", name="book", arguments={})])
        await waiting(events)
        await runtime.reject(keys["rejected"], code="no", message="no")
        await waiting(events)
        await runtime.cancel(keys["cancelled"])
        await waiting(events)
        await clock.advance(61)
        while not batch.done:
            await clock.advance(0)
        (outcome,) = await batch
    assert outcome.value == "went on"
    assert seen == [("external", "no"), ("unavailable", "wait_cancelled"), ("timeout", "expired")]


@pytest.mark.promise("WAIT-03")
async def test_a_tool_cannot_wait_for_what_is_not_its_own(place, open_runtime):
    desk = Desk()

    @tool
    async def spy(ctx: ToolContext) -> str:
        with pytest.raises(ToolwrightError, match="its own events"):
            await ctx.wait(desk.keys["LH1"])
        with pytest.raises(ToolwrightError, match="its own events"):
            await ctx.wait(ctx.completion_key())
        with pytest.raises(ToolwrightError, match="deadline"):
            await ctx.wait(ctx.event_key("e"), deadline=-1)
        return "refused"

    runtime = await open_runtime(place, desk.tool, spy)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        assert (await runtime.session("s").call("spy")).value == "refused"
        await runtime.resolve(desk.keys["LH1"])
        await batch


@pytest.mark.promise("WAIT-04")
async def test_pendings_wait_side_by_side_and_hold_no_slot(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    session = runtime.session("s")
    events = session.subscribe()
    flights = [f"f{number}" for number in range(20)]
    async with fail_after(10):
        batch = session.start_batch([call(flight) for flight in flights], max_concurrency=1)
        for _ in flights:
            await waiting(events)
        assert slots_in_use(session) == 0
        assert is_idle(session)
        for flight in reversed(flights):
            await runtime.resolve(desk.keys[flight], flight)
        outcomes = await batch
    assert [outcome.value for outcome in outcomes] == flights


@pytest.mark.promise("WAIT-05")
async def test_signals_arrive_in_order_and_none_is_lost(place, open_runtime):
    keys = []

    @tool
    async def listen(ctx: ToolContext) -> list[int]:
        keys.append(ctx.signal_key("news"))
        await ctx.sleep("a moment", 0)
        return [await ctx.receive("news") for _ in range(200)]

    runtime = await open_runtime(place, listen)
    events = runtime.subscribe()
    async with fail_after(20):
        batch = runtime.session("s").start_batch([ToolCall(id="c", name="listen", arguments={})])
        await waiting(events)
        counts = []
        for block in range(0, 200, 50):
            counts += await asyncio.gather(*(runtime.signal(keys[0], block + number) for number in range(50)))
        (outcome,) = await batch
    assert counts == list(range(1, 201))
    assert outcome.value == list(range(200))


@pytest.mark.promise("WAIT-05")
async def test_a_signal_that_does_not_come_in_time_is_still_the_next_one(place, open_runtime):
    clock, keys = FakeClock(), []

    @tool
    async def listen(ctx: ToolContext) -> list[str]:
        keys.append(ctx.signal_key("news"))
        heard = []
        for _ in range(3):
            try:
                heard.append(await ctx.receive("news", deadline=60))
            except ToolError as error:
                heard.append(error.failure.code)
        return heard

    runtime = await open_runtime(place, listen, clock=clock)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([ToolCall(id="c", name="listen", arguments={})])
        await waiting(events)
        await runtime.signal(keys[0], "first")
        await waiting(events)
        await clock.advance(61)
        second = asyncio.ensure_future(waiting(events))
        while not second.done():
            await clock.advance(0)
        await runtime.signal(keys[0], "second")
        (outcome,) = await batch
    assert outcome.value == ["first", "expired", "second"]


@pytest.mark.promise("WAIT-06")
async def test_a_session_cancels_its_waits_and_no_others(place, open_runtime):
    desk, keys = Desk(), []

    @tool(parallel=True)
    async def listen(ctx: ToolContext) -> str:
        keys.append(ctx.event_key("door"))
        try:
            return await ctx.wait(keys[-1])
        except ToolError as error:
            return error.failure.message

    runtime = await open_runtime(place, desk.tool, listen)
    events = runtime.subscribe()
    mine, other = runtime.session("s"), runtime.session("t")
    async with fail_after(10):
        batch = mine.start_batch([call("a"), ToolCall(id="l", name="listen", arguments={})])
        left = other.start_batch([call("b")])
        for _ in range(3):
            await waiting(events)
        assert await mine.cancel_waits("the user left") == 2
        pending, event = await batch
        assert (pending.status, pending.reason) == ("cancelled", "the user left")
        assert "the user left" in event.value
        assert not left.done
        again = mine.start_batch([call("c")])
        await waiting(events)
        await runtime.resolve(desk.keys["c"], "later")
        assert (await again)[0].value == "later"
        await runtime.resolve(desk.keys["b"], 1)
        await left


@pytest.mark.promise("WAIT-06", "WAIT-05")
@pytest.mark.parametrize("end", ["cancel_waits", "revoke"])
async def test_cancelling_the_waits_of_a_session_reaches_those_who_wait_for_a_signal(place, open_runtime, end):
    keys, heard = [], []

    @tool
    async def listen(ctx: ToolContext) -> str:
        keys.append(ctx.signal_key("news"))
        heard.append(await ctx.receive("news"))
        try:
            await ctx.receive("news")
        except ToolError as error:
            return f"{error.failure.code}: {error.failure.message}"
        return "heard more"

    runtime = await open_runtime(place, listen)
    session = runtime.session("s")
    events = runtime.subscribe()
    async with fail_after(10):
        batch = session.start_batch([ToolCall(id="l", name="listen", arguments={})])
        await waiting(events)
        await runtime.signal(keys[0], "one")
        await waiting(events)
        assert await getattr(session, end)("the user left") == 1
        (outcome,) = await batch
    assert (outcome.value, heard) == (
        "wait_cancelled: The wait for signal 'news' was cancelled: the user left",
        ["one"],
    )


@pytest.mark.promise("WAIT-06", "WAIT-02")
async def test_a_revoked_session_takes_nothing_for_good(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    session = runtime.session("s")
    async with fail_after(10):
        batch = session.start_batch([call("a")])
        await waiting(events)
        assert await session.revoke() == 1
        (outcome,) = await batch
        assert outcome.status == "cancelled"
        told = await runtime.resolve(desk.keys["a"], "late")
        assert (told.first, told.status) == (False, "cancelled")
        (again,) = await session.run_batch([call("b")])
        assert (again.status, again.reason) == ("cancelled", "the session was revoked")
        runtime.session("s2")
    if place != ":memory:":
        await runtime.close()
        second = await open_runtime(place, desk.tool)
        async with fail_after(10):
            (still,) = await second.session("s").run_batch([call("c")])
        assert still.status == "cancelled"


@pytest.mark.promise("WAIT-06")
async def test_what_asks_nobody_still_runs_in_a_revoked_session(place, open_runtime):
    @tool(supports_background=True)
    async def add(a: int) -> int:
        return a + 1

    @tool(approval="required")
    async def pay() -> None:
        raise AssertionError("nobody approved it")

    runtime = await open_runtime(place, add, pay)
    session = runtime.session("s")
    async with fail_after(10):
        await session.revoke("it is over")
        assert (await session.call("add", a=1)).value == 2
        assert (await (await session.spawn("add", {"a": 2})).wait()).value == 3
        refused = await session.call("pay")
    assert refused.failure is not None
    assert refused.failure.code == "denied"
    assert "it is over" in refused.failure.message


@pytest.mark.promise("CANCEL-01")
async def test_a_pending_call_is_cancelled_with_its_batch(place, open_runtime):
    desk = Desk()
    runtime = await open_runtime(place, desk.tool)
    events = runtime.subscribe()
    async with fail_after(5):
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        batch.cancel("enough")
        (outcome,) = await batch
        assert (outcome.status, outcome.may_have_run) == ("cancelled", True)
        with pytest.raises(KeyRefused, match="is finished"):
            await runtime.resolve(desk.keys["LH1"], "late")


@pytest.mark.promise("EFF-10", "WAIT-01")
async def test_a_pending_call_goes_on_after_a_restart_with_the_deadline_it_had(file, open_runtime):
    clock, desk = FakeClock(), Desk(deadline=600)
    async with fail_after(10):
        first = await open_runtime(file, desk.tool, clock=clock)
        events = first.subscribe()
        first.session("s").start_batch([call("a"), call("b"), call("c")])
        for _ in range(3):
            await waiting(events)
        await first.close()
        await clock.advance(500)
        helper = await open_runtime(file, clock=clock)
        await helper.resolve(desk.keys["a"], "while nobody was there")
        await helper.close()

        second = await open_runtime(file, desk.tool, clock=clock)
        recovered = {one.call_id: one for one in await second.recover()}
        assert {one.action for one in recovered.values()} == {"waiting"}
        assert recovered["a"].outcome.value == "while nobody was there"
        assert recovered["b"].outcome.status == recovered["c"].outcome.status == "pending"
        batch = second.session("s").start_batch([call("a"), call("b"), call("c")])
        await second.resolve(desk.keys["b"], "now")
        await clock.advance(101)
        while not batch.done:
            await clock.advance(0)
        a, b, c = await batch
    assert (a.value, b.value, c.failure.code) == ("while nobody was there", "now", "expired")
    assert desk.ran == ["a", "b", "c"], "none of them ran again"


@pytest.mark.promise("WAIT-02")
async def test_another_process_on_the_same_file_resolves_too(file, open_runtime):
    desk = Desk()
    runtime = await open_runtime(file, desk.tool)
    other = await open_runtime(file)
    keys = []

    @tool
    async def listen(ctx: ToolContext) -> list[int]:
        keys.append(ctx.signal_key("news"))
        return [await ctx.receive("news"), await ctx.receive("news")]

    runtime.tools.register(listen)
    events = runtime.subscribe()
    async with fail_after(10):
        batch = runtime.session("s").start_batch([call(), ToolCall(id="l", name="listen", arguments={})])
        for _ in range(2):
            await waiting(events)
        assert (await other.resolve(desk.keys["LH1"], "from elsewhere")).first
        assert [await other.signal(keys[0], number) for number in (1, 2)] == [1, 2]
        booked, heard = await batch
    assert (booked.value, heard.value) == ("from elsewhere", [1, 2])


@pytest.mark.promise("WAIT-02")
async def test_a_resolution_of_another_process_is_not_missed_while_a_second_wait_begins():
    rows, clock, asked = MemoryDatabase(), FakeClock(), asyncio.Queue()

    class Slow(MemoryStore):
        """Tells only when it is let to from where on arrivals are to be read."""

        async def arrivals(self, since):
            if since is None:
                asked.put_nowait(let := asyncio.Event())
                await let.wait()
            return await super().arrivals(since)

    desk = Desk()
    async with (
        fail_after(10),
        Runtime.open(Slow(rows), tools=[desk.tool], clock=clock) as runtime,
        Runtime.open(MemoryStore(rows), clock=clock) as other,
    ):
        events = runtime.subscribe()
        first = runtime.session("a").start_batch([call()])
        let_first = await asked.get()
        second = runtime.session("b").start_batch([call("BA2")])
        let_second = await asked.get()
        let_first.set()
        await waiting(events)
        assert (await other.resolve(desk.keys["LH1"], "from elsewhere")).first
        let_second.set()
        await waiting(events)
        await clock.advance(1)
        (outcome,) = await first
        assert outcome.value == "from elsewhere"
        second.cancel("done")


async def test_a_blocking_runtime_resolves_too(tmp_path):
    desk = Desk()

    def use() -> None:
        with Runtime.open_blocking(tools=[desk.tool]) as runtime:
            events = runtime.subscribe()
            batch = runtime.session("s").start_batch([call()])
            for event in events:
                if event.kind == "call.waiting":
                    break
            runtime.resolve(desk.keys["LH1"], 3)
            assert batch.wait()[0].value == 3

    async with fail_after(10):
        await asyncio.to_thread(use)


@pytest.mark.promise("WAIT-01", "EFF-07")
async def test_a_pending_call_whose_outcome_could_not_be_written_takes_the_same_completion_again():
    class Failing(MemoryStore):
        fails = True

        async def finish(self, *args, **options):
            if self.fails:
                raise StoreError("the disk is full")
            return await super().finish(*args, **options)

    desk, store = Desk(), Failing()
    async with fail_after(10), Runtime.open(store, tools=[desk.tool]) as runtime:
        events = runtime.subscribe()
        batch = runtime.session("s").start_batch([call()])
        await waiting(events)
        await runtime.resolve(desk.keys["LH1"], "4A")
        with pytest.raises(StoreError, match="the disk is full"):
            await batch
        store.fails = False
        (outcome,) = await runtime.session("s").run_batch([call()])
    assert (outcome.value, desk.ran) == ("4A", ["LH1"])


@pytest.mark.promise("WAIT-01")
async def test_waits_that_were_resolved_long_before_their_deadline_leave_no_alarm_behind(place, open_runtime):
    keys: list[str] = []

    @tool(parallel=True)
    async def book(ctx: ToolContext, days: int) -> Pending:
        keys.append(ctx.completion_key())
        return Pending(deadline=days * 24 * 3600)

    runtime = await open_runtime(place, book)
    events = runtime.subscribe()
    async with fail_after(60):
        days = [1] + [30] * 400
        batch = runtime.session("s").start_batch([ToolCall(name="book", arguments={"days": each}) for each in days])
        for _ in days:
            await waiting(events)
        for key in keys[1:]:
            await runtime.resolve(key, None)
        # The first of them still waits, and is the next to come to its deadline.
        more = [ToolCall(name="book", arguments={"days": 30})] * 200
        again = runtime.session("s").start_batch(more)
        for _ in more:
            await waiting(events)
        alarms = in_memory(Watcher)
        for key in (keys[0], *keys[len(days) :]):
            await runtime.resolve(key, None)
        await batch
        await again
    assert alarms < 300
