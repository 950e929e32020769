"""Claims between the owners of one store: two runtimes on one file, or on one schema, as two programs have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after, until
from toolwright import Policy, ReplaceArguments, Rule, Runtime, Tool, ToolCall, ToolContext, ToolError, tool
from toolwright.stores.sql.calls.journal import SqlJournalStore


class Floor:
    """Where the calls of all runtimes meet: who is inside, who came in and went out, and whom to let go."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.story: list[str] = []
        self._doors: dict[str, asyncio.Event] = {}

    def door(self, name: str) -> asyncio.Event:
        return self._doors.setdefault(name, asyncio.Event())

    async def visit(self, name: str) -> str:
        self.inside.append(name)
        self.story.append(f"{name} in")
        try:
            await self.door(name).wait()
        finally:
            self.inside.remove(name)
            self.story.append(f"{name} out")
        return name

    def let_go(self, *names: str) -> None:
        for name in names:
            self.door(name).set()

    async def has(self, *names: str) -> None:
        await until(lambda: sorted(self.inside) == sorted(names))


class Place:
    """A store, and the runtimes that have it open."""

    def __init__(self, store: str | Path, stack: AsyncExitStack) -> None:
        self.store = store
        self.floor = Floor()
        self._stack = stack

    def tools(self) -> list[Tool[..., Any]]:
        floor = self.floor

        @tool(writes="path")
        async def write(ctx: ToolContext, path: str) -> str:
            return await floor.visit(ctx.call_id)

        @tool(reads="path")
        async def read(ctx: ToolContext, path: str) -> str:
            return await floor.visit(ctx.call_id)

        @tool(key="account:{name}")
        async def book(ctx: ToolContext, name: str) -> str:
            return await floor.visit(ctx.call_id)

        @tool
        async def alone(ctx: ToolContext) -> str:
            return await floor.visit(ctx.call_id)

        @tool(readonly=True)
        async def look(ctx: ToolContext) -> str:
            return await floor.visit(ctx.call_id)

        @tool(key="outer:{name}")
        async def outer(ctx: ToolContext, name: str, inner: str, path: str = "") -> str:
            await floor.visit(ctx.call_id)
            arguments = {"path": path} if path else {}
            (outcome,) = await ctx.run_batch([ToolCall(id=f"{ctx.call_id}.in", name=inner, arguments=arguments)])
            return outcome.value if outcome.failure is None else f"{outcome.failure.code}"

        return [write, read, book, alone, look, outer]

    async def open(self, **options: Any) -> Runtime:
        return await self._stack.enter_async_context(Runtime.open(self.store, tools=self.tools(), **options))


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, file: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        store: str | Path = file
        if request.param == "postgres":
            server = request.getfixturevalue("postgres")
            store = f"{server.url}?schema={stack.enter_context(server.schema())}"
        yield Place(store, stack)


def call(id: str, tool_name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=tool_name, arguments=arguments)


def waits(batch: Any, position: int = 0) -> bool:
    """True when a call waits for one of another owner."""
    ticket = next((each.ticket for each in batch.calls if each.position == position), None)
    return ticket is not None and ticket.state == "elsewhere"


CONFLICTS = {
    "the same path": (call("a", "write", path="x"), call("b", "write", path="./x")),
    "a path that is read": (call("a", "read", path="x"), call("b", "write", path="x")),
    "the same key": (call("a", "book", name="ann"), call("b", "book", name="ann")),
    "an exclusive call first": (call("a", "alone"), call("b", "look")),
    "an exclusive call second": (call("a", "look"), call("b", "alone")),
    "two exclusive calls": (call("a", "alone"), call("b", "alone")),
}


@pytest.mark.promise("ENG-03", "SCHED-01", "SCHED-03")
@pytest.mark.parametrize("calls", CONFLICTS.values(), ids=CONFLICTS)
async def test_conflicting_calls_of_two_owners_run_one_after_the_other(place, calls):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        first = here.session("s").start_batch([calls[0]])
        await floor.has("a")
        second = there.session("s").start_batch([calls[1]])
        await until(lambda: waits(second))
        assert floor.inside == ["a"]
        floor.let_go("a", "b")
        outcomes = [*await first, *await second]
    assert [outcome.value for outcome in outcomes] == ["a", "b"]
    assert floor.story == ["a in", "a out", "b in", "b out"]


SIDE_BY_SIDE = {
    "two that read": (call("a", "read", path="x"), call("b", "read", path="x")),
    "other paths": (call("a", "write", path="x"), call("b", "write", path="y")),
    "other keys": (call("a", "book", name="ann"), call("b", "book", name="bob")),
    "two readonly calls": (call("a", "look"), call("b", "look")),
}


@pytest.mark.promise("ENG-03", "SCHED-01")
@pytest.mark.parametrize("calls", SIDE_BY_SIDE.values(), ids=SIDE_BY_SIDE)
async def test_other_calls_of_two_owners_run_side_by_side(place, calls):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        batches = [here.session("s").start_batch([calls[0]])]
        await floor.has("a")
        batches.append(there.session("s").start_batch([calls[1]]))
        await floor.has("a", "b")
        floor.let_go("a", "b")
        for batch in batches:
            await batch


@pytest.mark.promise("ENG-03", "SCHED-01")
async def test_other_sessions_have_orders_of_their_own(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        batches = [
            runtime.session(name).start_batch([call(name, "alone")]) for runtime, name in ((here, "s"), (there, "t"))
        ]
        await floor.has("s", "t")
        floor.let_go("s", "t")
        for batch in batches:
            await batch


@pytest.mark.promise("ENG-03", "SCHED-01", "SCHED-05")
async def test_the_order_of_calls_is_one_for_all_owners(place):
    async with fail_after(30):
        here, there, floor = await place.open(), await place.open(), place.floor
        order = [(here, "look"), (there, "look"), (there, "alone"), (here, "look"), (there, "look"), (here, "alone")]
        batches = []
        for number, (runtime, name) in enumerate(order):
            batches.append(runtime.session("s").start_batch([call(f"{number}", name)]))
            await batches[-1].launched()
        await floor.has("0", "1")
        await until(lambda: waits(batches[3]))
        floor.let_go("0")
        await floor.has("1")
        floor.let_go("1")
        await floor.has("2")
        floor.let_go("2")
        await floor.has("3", "4")
        floor.let_go("3", "4", "5")
        for batch in batches:
            await batch
    entered = [line.split()[0] for line in floor.story if line.endswith("in")]
    assert sorted(entered[:2]) == ["0", "1"]
    assert entered[2] == "2"
    assert sorted(entered[3:5]) == ["3", "4"]
    assert entered[5] == "5"


@pytest.mark.promise("ENG-03", "SCHED-03", "RUN-04")
async def test_a_call_that_is_queued_after_a_hook_stands_in_the_order_of_all_owners(place):
    """Its claims come from the arguments that the hook gives it, and nobody waits for it before."""
    hooked = asyncio.Event()

    async def elsewhere(given: Any) -> Any:
        await hooked.wait()
        return ReplaceArguments({"path": "y"})

    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(before=[elsewhere]), place.floor
        first = there.session("s").start_batch([call("hooked", "write", path="x")])
        batches = [here.session("s").start_batch([call(name, "write", path=name)]) for name in "xy"]
        await floor.has("x", "y")
        hooked.set()
        await until(lambda: waits(first))
        floor.let_go("x", "y", "hooked")
        for batch in (first, *batches):
            await batch
    assert floor.story.index("y out") < floor.story.index("hooked in")


@pytest.mark.promise("ENG-03", "EFF-05", "SCHED-01")
async def test_a_call_that_is_recovered_waits_for_calls_of_other_owners(place):
    async with fail_after(30):
        here, floor = await place.open(), place.floor
        gone = Runtime.open(place.store, tools=place.tools())
        runtime = await gone.__aenter__()
        left = asyncio.ensure_future(runtime.session("s").run_batch([call("left", "look")]))
        await floor.has("left")
        await gone.__aexit__(None, None, None)  # its call is cut off, and may run again
        await asyncio.wait({left})
        assert left.exception() is not None or left.result()[0].status == "cancelled"
        first = here.session("s").start_batch([call("a", "alone")])
        await floor.has("a")
        floor.let_go("left")
        there = await place.open()
        again = there.session("s").start_batch([call("left", "look")])
        await until(lambda: waits(again))
        floor.let_go("a")
        await first
        (outcome,) = await again
    assert outcome.value == "left"
    assert floor.story[-4:] == ["a in", "a out", "left in", "left out"]


@pytest.mark.promise("EFF-04", "EFF-05", "ENG-03")
@pytest.mark.parametrize("other", ["alive", "gone"])
async def test_a_call_that_began_beside_a_call_of_another_owner_is_known_to_have_begun(place, other):
    async with fail_after(30):
        here, floor = await place.open(), place.floor
        gone = [Runtime.open(place.store, tools=place.tools()) for _ in range(2)]
        first, second = [await runtime.__aenter__() for runtime in gone]
        batches = [(here if other == "alive" else first).session("s").start_batch([call("a", "book", name="ann")])]
        await floor.has("a")
        if other == "gone":
            await gone[0].__aexit__(None, None, None)  # its call is cut off, and continued by nobody
            await floor.has()
        batches.append(second.session("s").start_batch([call("b", "book", name="bob")]))
        await until(lambda: "b" in floor.inside)
        await gone[1].__aexit__(None, None, None)
        floor.let_go("a", "b")
        (again,) = await here.session("s").run_batch([call("b", "book", name="bob")])
        await asyncio.wait([asyncio.ensure_future(batch.wait()) for batch in batches])
        if other == "alive":
            await gone[0].__aexit__(None, None, None)
    assert again.failure is not None
    assert again.failure.code == "interrupted"
    assert floor.story.count("b in") == 1


@pytest.mark.promise("ENG-03", "RUN-09")
async def test_a_record_names_the_call_of_another_owner_that_it_waited_for(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        first = here.session("s").start_batch([call("first", "alone")])
        await floor.has("first")
        second = there.session("s").start_batch([call("second", "alone")])
        await until(lambda: waits(second))
        floor.let_go("first", "second")
        await first
        await second
        (record,) = there.log.query(call_id="second")
    assert record.waited_for == ("first",)


@pytest.mark.promise("ENG-03", "CANCEL-01")
async def test_a_batch_is_cancelled_while_it_waits_for_another_owner(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        first = here.session("s").start_batch([call("a", "alone")])
        await floor.has("a")
        second = there.session("s").start_batch([call("b", "alone")])
        await until(lambda: waits(second))
        third = here.session("s").start_batch([call("c", "alone")])
        second.cancel("not needed")
        (outcome,) = await second
        floor.let_go("a", "c")
        await first
        await third
        floor.let_go("d")
        (again,) = await there.session("s").run_batch([call("d", "look")])
    assert (outcome.status, outcome.may_have_run) == ("cancelled", False)
    assert again.value == "d"
    assert floor.story[:4] == ["a in", "a out", "c in", "c out"]


@pytest.mark.promise("ENG-03", "SCHED-05")
@pytest.mark.parametrize("hooks", [[], [lambda call: None]], ids=["queued early", "queued after a hook"])
async def test_the_time_in_the_queue_counts_waiting_for_another_owner(place, hooks):
    async with fail_after(20):
        here, floor = await place.open(), place.floor
        there = await place.open(policy=Policy(queue_timeout=0.2), before=hooks)
        first = here.session("s").start_batch([call("a", "alone")])
        await floor.has("a")
        (outcome,) = await there.session("s").run_batch([call("b", "alone")])
        floor.let_go("a")
        await first
    assert outcome.failure.code == "queue_timeout"
    assert floor.story == ["a in", "a out"]


@pytest.mark.promise("ENG-03", "AUTH-03", "SCHED-01")
async def test_an_approved_call_waits_for_calls_of_other_owners_and_holds_nothing_before(place):
    async with fail_after(20):
        here, there, floor = (
            await place.open(),
            await place.open(policy=Policy(rules=[Rule("ask", "alone")])),
            place.floor,
        )
        asked = there.session("s").start_batch([call("asked", "alone")])
        await until(lambda: bool(asked.calls and asked.calls[0].waiting))
        first = here.session("s").start_batch([call("a", "alone")])
        await floor.has("a")  # the other one waits for a person, and nobody waits for it
        (request,) = await there.approvals()
        await there.approve(request.key)
        await until(lambda: waits(asked))
        floor.let_go("a", "asked")
        await first
        (outcome,) = await asked
    assert outcome.value == "asked"
    assert floor.story == ["a in", "a out", "asked in", "asked out"]


@pytest.mark.promise("ENG-03", "SCHED-06")
async def test_a_nested_call_does_not_wait_for_a_call_that_waits_for_its_caller(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor

        @tool
        async def caller(ctx: ToolContext) -> str:
            await floor.visit(ctx.call_id)
            (outcome,) = await ctx.run_batch([call("inner", "alone")])
            return str(outcome.value)

        here.tools.register(caller)
        first = here.session("s").start_batch([call("outer", "caller")])
        await floor.has("outer")
        second = there.session("s").start_batch([call("b", "alone")])
        await until(lambda: waits(second))
        floor.let_go("outer")
        await floor.has("inner")
        assert waits(second)
        floor.let_go("inner", "b")
        (outcome,) = await first
        await second
    assert outcome.value == "inner"
    assert floor.story[-2:] == ["b in", "b out"]


@pytest.mark.promise("ENG-03", "SCHED-06")
async def test_a_call_of_another_owner_that_was_passed_waits_for_a_nested_call_that_outlives_its_caller(
    place, monkeypatch
):
    looks = asyncio.Queue[None]()
    look = SqlJournalStore.holders
    tasks: list[asyncio.Task[Any]] = []

    async def look_and_tell(store: SqlJournalStore, sessions: Any) -> Any:
        found = await look(store, sessions)
        looks.put_nowait(None)
        return found

    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor

        @tool
        async def leave_behind(ctx: ToolContext) -> str:
            await floor.visit(ctx.call_id)
            tasks.append(asyncio.create_task(ctx.run_batch([call("inner", "write", path="x")])))
            await floor.has("inner")
            return "gone"

        here.tools.register(leave_behind)
        first = here.session("s").start_batch([call("outer", "leave_behind")])
        await floor.has("outer")
        second = there.session("s").start_batch([call("b", "alone")])
        await until(lambda: waits(second))
        floor.let_go("outer")
        await first
        monkeypatch.setattr(SqlJournalStore, "holders", look_and_tell)
        for _ in range(2):
            await looks.get()  # the first may have been asked for before the caller ended
        assert waits(second)
        floor.let_go("inner", "b")
        await tasks[0]
        await second
    assert floor.story[-4:] == ["inner in", "inner out", "b in", "b out"]


@pytest.mark.promise("ENG-03", "SCHED-06")
async def test_a_nested_call_waits_for_a_call_of_another_owner_that_conflicts(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        second = there.session("s").start_batch([call("b", "write", path="x")])
        await floor.has("b")
        floor.let_go("a")
        first = here.session("s").start_batch([call("a", "outer", name="n", inner="write", path="x")])
        await until(lambda: any(waits(nested) for each in first.calls for nested in each.nested))
        assert floor.inside == ["b"]
        floor.let_go("b", "a.in")
        (outcome,) = await first
        await second
    assert outcome.value == "a.in"
    assert floor.story[-2:] == ["a.in in", "a.in out"]


@pytest.mark.promise("ENG-03", "SCHED-06")
async def test_a_nested_call_passes_a_call_of_its_own_process_that_waits_for_another_owner(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor

        @tool(writes="paths")
        async def write_all(ctx: ToolContext, paths: list[str]) -> str:
            return await floor.visit(ctx.call_id)

        @tool(writes="path")
        async def caller(ctx: ToolContext, path: str) -> str:
            await floor.visit(ctx.call_id)
            (outcome,) = await ctx.run_batch([call("inner", "write", path="q")])
            return str(outcome.value)

        here.tools.register(caller)
        there.tools.register(write_all)
        first = here.session("s").start_batch([call("outer", "caller", path="p")])
        await floor.has("outer")
        second = there.session("s").start_batch([call("both", "write_all", paths=["p", "q"])])
        await until(lambda: waits(second))
        third = here.session("s").start_batch([call("last", "write", path="q")])
        await until(lambda: waits(third))  # for the second, which waits for the first
        floor.let_go("outer")
        await floor.has("inner")
        floor.let_go("inner", "both", "last")
        (outcome,) = await first
        for batch in (second, third):
            await batch
    assert outcome.value == "inner"
    assert floor.story[-4:] == ["both in", "both out", "last in", "last out"]


@pytest.mark.promise("ENG-03", "SCHED-06")
async def test_nested_calls_of_two_owners_that_wait_for_each_other_fail_clearly(place):
    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor

        def make(runtime: Runtime, mine: str, theirs: str) -> None:
            @tool(name=f"cross_{mine}", writes="path")
            async def cross(ctx: ToolContext, path: str) -> str:
                await floor.visit(ctx.call_id)
                (outcome,) = await ctx.run_batch([call(f"{mine}.in", "write", path=theirs)])
                if outcome.failure is not None:
                    raise ToolError(outcome.failure.code)
                return str(outcome.value)

            runtime.tools.register(cross)

        make(here, "x", "y")
        make(there, "y", "x")
        floor.let_go("x.in", "y.in")
        batches = [here.session("s").start_batch([call("x", "cross_x", path="x")])]
        batches.append(there.session("s").start_batch([call("y", "cross_y", path="y")]))
        await floor.has("x", "y")
        floor.let_go("x", "y")
        outcomes = [(await batch)[0] for batch in batches]
    failed = [outcome for outcome in outcomes if outcome.failure is not None]
    assert failed
    assert all("deadlock" in outcome.failure.message for outcome in failed)
    assert [outcome.value for outcome in outcomes if outcome.failure is None] in ([], ["x.in"], ["y.in"])


@pytest.mark.promise("ENG-03", "SCHED-01")
async def test_nothing_is_lost_or_overlaps_where_many_batches_of_many_owners_meet(place):
    """Each call notes when it comes in and goes out: no two that conflict are inside at once, and each comes in."""
    inside: dict[str, str] = {}
    runs: list[str] = []
    overlaps: list[str] = []

    @tool(writes="path")
    async def put(ctx: ToolContext, path: str) -> str:
        for taken in (path, "all"):
            if taken in inside:
                overlaps.append(f"{ctx.call_id} beside {inside[taken]}")
        inside[path] = ctx.call_id
        await asyncio.sleep(0)
        del inside[path]
        runs.append(ctx.call_id)
        return path

    @tool
    async def sweep(ctx: ToolContext) -> str:
        if inside:
            overlaps.append(f"{ctx.call_id} beside {inside}")
        inside["all"] = ctx.call_id
        await asyncio.sleep(0)
        del inside["all"]
        runs.append(ctx.call_id)
        return "all"

    async with fail_after(60):
        runtimes = [await place.open() for _ in range(3)]
        for runtime in runtimes:
            runtime.tools.register(put)
            runtime.tools.register(sweep)

        async def work(number: int, runtime: Runtime) -> None:
            for turn in range(6):
                names = [f"{number}.{turn}.{n}" for n in range(4)]
                calls = [call(name, "put", path="abc"[n % 3]) for n, name in enumerate(names)]
                calls[number % 4 : number % 4] = [call(f"{number}.{turn}.s", "sweep")]
                await runtime.session("s").run_batch(calls)

        await asyncio.gather(*(work(n, runtime) for n, runtime in enumerate((*runtimes, runtimes[0]))))
    assert overlaps == []
    assert len(runs) == len(set(runs)) == 4 * 6 * 5


@pytest.mark.promise("ENG-03", "SCHED-01")
async def test_an_answer_that_was_asked_for_before_a_call_waited_does_not_free_it(place, monkeypatch):
    looks, stale = asyncio.Queue[None](), asyncio.Event()
    look = SqlJournalStore.holders

    async def look_slowly(store: SqlJournalStore, sessions: Any) -> Any:
        found = await look(store, sessions)
        looks.put_nowait(None)
        await stale.wait()
        return found

    async with fail_after(20):
        here, there, floor = await place.open(), await place.open(), place.floor
        monkeypatch.setattr(SqlJournalStore, "holders", look_slowly)
        batches = [here.session("s").start_batch([call("a", "write", path="x")])]
        await floor.has("a")
        batches.append(there.session("s").start_batch([call("b", "write", path="x")]))
        await looks.get()  # it knows of a, and is told late
        batches.append(here.session("s").start_batch([call("c", "write", path="y")]))
        await floor.has("a", "c")
        batches.append(there.session("s").start_batch([call("d", "write", path="y")]))
        await until(lambda: waits(batches[3]))
        stale.set()
        await looks.get()  # the next look
        assert sorted(floor.inside) == ["a", "c"]
        floor.let_go("a", "b", "c", "d")
        for batch in batches:
            await batch
    assert floor.story.index("c out") < floor.story.index("d in")
