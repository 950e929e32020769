"""Bundles where something goes wrong, or not as usual: no call of one is lost, held for ever, or kept in memory."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.stores.sqlite.older_schemas import rows
from tests.stores.sqlite.test_intent_bundles import COUNTS, MANY, ended, intents, key
from tests.support import fail_after
from toolwright import Image, Policy, Runtime, Success, ToolCall, ToolContext, ToolError, tool
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import RUN_SCOPE, Ended
from toolwright.stores.contracts.waits import Resolution, WaitKey
from toolwright.stores.sqlite.admin.maintenance import check
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock
from toolwright.testing.sqlite_store import let_write
from toolwright.tools.outcome import ToolOutcome


@pytest.mark.promise("EFF-09", "EFF-11")
@pytest.mark.parametrize("scope", ["", "other"])
async def test_calls_of_a_bundle_end_together_with_others(store, file, scope):
    """All are this owner's and unfinished: that only some of them are in a bundle is nobody's business."""
    await store.journal.begin(intents(1, first=50, scope=scope))
    await store.journal.begin(intents())
    alone = ToolOutcome(call_id="c50", tool="look", status="success", payload=b"50")
    await store.journal.finish_all([*ended(range(2)), Ended(key(50, scope), alone, 11.0, 20.0), *ended(range(2, 4))])
    finished = rows(file, "SELECT scope, call_id FROM calls WHERE outcome IS NOT NULL")
    assert sorted(finished) == sorted([*(("", f"c{n}") for n in range(4)), (scope, "c50")])
    await store.journal.finish_all(ended(range(4, MANY)))
    assert rows(file, "SELECT count(*) FROM every_call WHERE outcome IS NULL") == [(0,)]


@pytest.mark.promise("EFF-09", "EFF-12")
async def test_of_calls_that_end_together_all_are_written_or_none(store, file):
    await store.journal.begin(intents())
    with pytest.raises(StoreError, match="no longer this process's"):
        await store.journal.finish_all(ended(range(MANY + 1)))
    assert rows(file, "SELECT count(*) FROM calls WHERE outcome IS NOT NULL") == [(0,)]
    await store.journal.finish_all(ended(range(MANY)))
    await store.journal.finish_all(ended(range(2)))  # as they are already
    others = [replace(end, outcome=replace(end.outcome, payload=b'"another"')) for end in ended(range(2))]
    with pytest.raises(StoreError, match="no longer this process's"):
        await store.journal.finish_all(others)


@pytest.mark.promise("EFF-07", "EFF-12")
@pytest.mark.parametrize("verb", ["finish", "finish_all", "forget", "release"])
async def test_a_call_of_a_bundle_that_could_not_be_written_about_can_be_let_go_of(store, file, verb):
    await store.journal.begin(intents())
    await let_write(store, False)
    (end,) = ended(range(1))
    with pytest.raises(StoreError):
        await {
            "finish": lambda: store.journal.finish(end.key, end.outcome, 11.0, 12.0),
            "finish_all": lambda: store.journal.finish_all([end]),
            "forget": lambda: store.journal.forget(end.key),
            "release": lambda: store.journal.release(end.key),
        }[verb]()
    await let_write(store, True)
    assert await store.journal.release(end.key)
    other = SqliteStore(file)
    (entry,) = await other.journal.begin(intents(1))
    assert (entry.owner, entry.cut_off) == (other.owner, True)
    await other.close()


@pytest.mark.promise("EFF-12")
@pytest.mark.parametrize("verb", ["start", "release", "finish_all"])
async def test_a_bundle_that_nobody_waited_for_has_calls_all_the_same(store, verb):
    store.journal.begin(intents()).cancel()
    done = await {
        "start": lambda: store.journal.start(key(1), 11.0),
        "release": lambda: store.journal.release(key(1)),
        "finish_all": lambda: store.journal.finish_all(ended(range(MANY))),
    }[verb]()
    assert done is (None if verb == "finish_all" else True)
    assert store.journal.bundled == 0


@pytest.mark.promise("EFF-12")
async def test_a_batch_that_could_not_come_again_leaves_the_bundle_of_the_first_as_it_is(store):
    await store.journal.begin(intents())
    await let_write(store, False)
    with pytest.raises(StoreError):
        await store.journal.begin(intents())
    await let_write(store, True)
    assert await store.journal.start(key(1), 11.0)
    await store.journal.finish_all(ended(range(MANY)))


@pytest.mark.promise("EFF-07", "EFF-12")
async def test_a_call_of_a_bundle_whose_outcome_could_not_be_written_is_let_go_of_for_other_processes(store, file):
    ran: list[int] = []

    @tool(readonly=True)
    async def look(n: int) -> int:
        ran.append(n)
        begun.set()
        await leave.wait()
        return n

    begun, leave, clock = asyncio.Event(), asyncio.Event(), FakeClock()
    asked = [ToolCall(id=f"c{n}", name="look", arguments={"n": n}) for n in range(MANY)]
    async with (
        fail_after(20),
        Runtime.open(store, tools=[look], clock=clock) as first,
        Runtime.open(file, tools=[look], clock=clock) as second,
    ):
        batch = first.session("s").start_batch(asked)
        await begun.wait()
        assert rows(file, COUNTS) == [(1, 0)]
        await let_write(store, False)
        leave.set()
        with pytest.raises(StoreError):
            await batch
        await let_write(store, True)
        again = second.session("s").start_batch(asked)
        while not again.done:
            await clock.advance(0.1)
        outcomes = await again
    assert [one.value for one in outcomes] == list(range(MANY))
    assert {ran.count(n) for n in range(MANY)} <= {1, 2}


@pytest.mark.promise("EFF-13")
async def test_a_bundle_that_says_nothing_any_more_goes_even_if_the_first_batch_after_it_cannot_be_written(store, file):
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(MANY)))
    with pytest.raises(StoreError, match="no longer holds the run"):
        await store.journal.begin(intents(1, scope=f"{RUN_SCOPE}p1"))
    await let_write(store, False)
    with pytest.raises(StoreError):
        await store.journal.begin(intents(1, scope="other"))
    await let_write(store, True)
    assert rows(file, COUNTS) == [(1, MANY)]
    await store.journal.begin(intents(1, scope="other"))
    assert rows(file, COUNTS) == [(0, MANY + 1)]


@pytest.mark.promise("EFF-09")
async def test_arguments_that_are_no_text_are_kept_as_they_are(store, file):
    await store.journal.begin(intents(arguments=b'"\xff"'))
    (entry,) = await store.journal.begin(intents(1))
    assert entry.intent.arguments == b'"\xff"'


@pytest.mark.promise("EFF-13")
@pytest.mark.parametrize("intents_read", ["[[", '"c1"', '{"a":1}', "[1,2]", '[["c1"]]'])
async def test_a_bundle_that_cannot_be_read_is_reported(store, file, intents_read):
    await store.journal.begin(intents())
    await store.waits.resolve(WaitKey(key(1), "event", "early"), Resolution("ok", 12.0))
    assert await check(file) == []
    rows(file, f"UPDATE bundles SET intents = '{intents_read}'")
    assert await check(file) == ["1 bundles of intents cannot be read"]


@pytest.mark.promise("EFF-07")
async def test_an_outcome_that_no_store_can_write_is_a_fault_for_its_batch_and_for_no_other(file, open_runtime):
    @tool(readonly=True)
    async def draw(n: int) -> Success:
        return Success(n, images=[Image(data=1j if n == 0 else "eA==")])  # type: ignore[arg-type]

    async with fail_after(20):
        session = (await open_runtime(file, draw)).session("s")
        asked = [ToolCall(id=f"c{n}", name="draw", arguments={"n": n}) for n in range(2 * MANY)]
        odd, even = session.start_batch(asked[:MANY]), session.start_batch(asked[MANY:])
        with pytest.raises(StoreError, match="outcome of call 'c0' cannot be written"):
            await odd
        assert [one.value for one in await even] == list(range(MANY, 2 * MANY))
        rest = await session.run_batch(asked[1:MANY])
    assert [(one.value, one.replayed) for one in rest] == [(n, True) for n in range(1, MANY)]


@pytest.mark.promise("EFF-11", "CANCEL-01")
async def test_nothing_stays_in_memory_of_batches_that_are_over_whatever_became_of_them(store, file):
    """Ended at once, by a step, by a wait, an error, a timeout, with calls of its own, cancelled, or unwritten."""
    ways = ("at once", "step", "wait", "error", "timeout", "calls", "cancel")
    begun = asyncio.Event()

    @tool(readonly=True, timeout=0.05)
    async def look(ctx: ToolContext, way: str) -> str:
        if way == "step":
            return await ctx.step("look", lambda: way)
        if way == "wait":
            await ctx.sleep("a while", 0.001)
        if way == "error":
            raise ToolError("There is nothing to see.")
        if way == "calls":
            await asyncio.gather(*(ctx.call("look", way="at once") for _ in range(3)))
        if way in ("timeout", "cancel"):
            begun.set()
            await asyncio.Event().wait()
        return way

    # On a busy machine the outcomes of nested calls are written later than a call has to stop, unless it has longer.
    async with fail_after(30), Runtime.open(store, tools=[look], policy=Policy(grace=10)) as runtime:

        async def run(number: int, round: str) -> None:
            way = ways[number % len(ways)]
            mixed = [way, *ways[:-1], "at once", "at once", "at once"]
            calls = [
                ToolCall(id=f"{round}{number}.{n}", name="look", arguments={"way": w}) for n, w in enumerate(mixed)
            ]
            batch = runtime.session(f"s{number % 3}").start_batch(calls)
            if way == "cancel":
                await begun.wait()
                batch.cancel()
            await batch

        await asyncio.gather(*(run(n, "first ") for n in range(3 * len(ways))))
        assert store.journal.bundled == 0
        assert rows(file, "SELECT count(*) FROM every_call WHERE outcome IS NULL") == [(0,)]
        begun.clear()
        batches = [asyncio.ensure_future(run(n, "second ")) for n in range(3 * len(ways))]
        await begun.wait()
        await let_write(store, False)
        ends = await asyncio.gather(*batches, return_exceptions=True)
        assert {type(end) for end in ends} <= {StoreError, type(None)}
        assert StoreError in map(type, ends)
        assert store.journal.bundled == 0
        await let_write(store, True)
