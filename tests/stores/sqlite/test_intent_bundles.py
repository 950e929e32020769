"""Intents that are written in one row: what each call of them can still do, and what others see of it."""

import asyncio

import pytest

from tests.conformance.databases import InFile
from tests.stores.sqlite.older_schemas import rows
from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey, Ended, Intent
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.stores.sql.calls.intent_bundles import FEWEST, LARGEST, Bundle
from toolwright.stores.sqlite.admin.history import batches, calls
from toolwright.stores.sqlite.admin.maintenance import check, prune, stats
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.tools.outcome import ToolOutcome

MANY = FEWEST + 2
COUNTS = "SELECT (SELECT count(*) FROM bundles), (SELECT count(*) FROM calls)"


def key(number: int, scope: str = "") -> CallKey:
    return CallKey("s", scope, f"c{number}")


def intents(count: int = MANY, *, scope: str = "", first: int = 0, arguments: bytes = b'{"n":1}') -> list[Intent]:
    return [
        Intent(key(number, scope), "b", number, "look", "app.look", arguments, "model", None, 10.25, rerun=True)
        for number in range(first, first + count)
    ]


def ended(numbers: range, at: float = 20.0) -> list[Ended]:
    return [
        Ended(key(n), ToolOutcome(call_id=f"c{n}", tool="look", status="success", payload=b"%d" % n), 11.0, at)
        for n in numbers
    ]


@pytest.mark.promise("EFF-04")
async def test_a_batch_that_may_simply_run_again_is_begun_in_one_row_and_ended_in_one_for_each_call(store, file):
    assert await store.journal.begin(intents()) == [None] * MANY
    assert rows(file, COUNTS) == [(1, 0)]
    await store.journal.finish_all(ended(range(MANY)))
    assert rows(file, "SELECT count(*), count(outcome), min(owner) FROM calls") == [(MANY, MANY, store.owner)]
    entries = await store.journal.begin(intents())
    assert [entry.outcome.value for entry in entries] == list(range(MANY))
    assert {(entry.intent.queued_at, entry.started_at, entry.finished_at) for entry in entries} == {(10.25, 11.0, 20.0)}
    assert rows(file, COUNTS) == [(0, MANY)]


@pytest.mark.promise("EFF-04")
@pytest.mark.parametrize(
    "batch",
    [
        intents(FEWEST - 1),
        [*intents(), *intents(scope="other")],
        intents(arguments=b'"' + b"x" * (LARGEST // MANY) + b'"'),
        intents(arguments=b'"\\u0000"'),
        [*intents(MANY - 1), Intent(key(99), "b", 9, "l\0k", "l", b"{}", "model", None, 10.25, rerun=True)],
        [*intents(MANY - 1), Intent(key(99), "b", 9, "pay", "pay", b"{}", "model", None, 10.25)],
    ],
    ids=["few", "two scopes", "large", "a zero in arguments", "a zero in a name", "one that may not run again"],
)
async def test_what_does_not_fit_into_one_row_is_written_call_by_call(store, file, batch):
    assert await store.journal.begin(batch) == [None] * len(batch)
    assert rows(file, COUNTS) == [(0, len(batch))]


@pytest.mark.promise("EFF-11")
async def test_a_batch_with_a_known_call_is_written_call_by_call(store, file):
    await store.journal.begin(intents(1, first=3))
    entries = await store.journal.begin(intents())
    assert [number for number, entry in enumerate(entries) if entry is not None] == [3]
    assert rows(file, COUNTS) == [(0, MANY)]
    assert store.journal.bundled == 0  # nothing stays in memory of what was not written


@pytest.mark.promise("EFF-11")
async def test_a_call_of_a_bundle_that_comes_again_is_found(store, file):
    await store.journal.begin(intents(arguments='{"city":"Köln \\"am\\" Rhein ☀"}'.encode()))
    (entry,) = await store.journal.begin(intents(1, first=4))
    assert entry.intent == Intent(
        key(4), "b", 4, "look", "app.look", '{"city":"Köln \\"am\\" Rhein ☀"}'.encode(), "model", None, 10.25
    )
    assert (entry.owner, entry.outcome, entry.started_at, entry.cut_off) == (store.owner, None, None, False)


@pytest.mark.promise("EFF-04")
async def test_calls_of_bundles_and_others_end_together_all_or_none(store, file):
    await store.journal.begin(intents())
    await store.journal.begin(intents(2, scope="other"))
    others = [Ended(key(n, "other"), end.outcome, 11.0, 20.0) for n, end in enumerate(ended(range(2)))]
    with pytest.raises(StoreError):
        await store.journal.finish_all([*ended(range(3)), *others, Ended(key(99), others[0].outcome, 11.0, 20.0)])
    assert rows(file, "SELECT count(outcome) FROM every_call") == [(0,)]
    await store.journal.finish_all([*ended(range(3)), *others])
    assert rows(file, "SELECT count(outcome) FROM every_call") == [(5,)]


@pytest.mark.promise("EFF-12")
async def test_readers_see_the_calls_of_a_bundle_and_leave_it_as_it_is(store, file):
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(2)))
    before = rows(file, "SELECT * FROM bundles")

    (batch,) = await batches(file)
    assert (batch.calls, batch.statuses) == (MANY, {"success": 2, "unfinished": MANY - 2})
    found = await calls(file, batch="b")
    assert [(one.key.call_id, one.status) for one in found] == [
        (f"c{n}", "success" if n < 2 else "running") for n in range(MANY)
    ]
    assert {one.arguments for one in found} == {b'{"n":1}'}
    counted = await stats(file)
    assert counted.calls == {"success": 2, "unfinished": MANY - 2}
    assert (counted.oldest, counted.oldest_unfinished) == (10.25, 10.25)
    assert await store.journal.unfinished() == []
    assert await check(file) == []
    assert rows(file, "SELECT * FROM bundles") == before != []


@pytest.mark.promise("EFF-12", "EFF-05")
async def test_what_a_dead_owner_left_of_a_bundle_is_another_owners(tmp_path):
    database = InFile(tmp_path)
    first, second = await database.open(), await database.open()
    await first.journal.begin(intents())
    await first.journal.finish_all(ended(range(3)))
    living = await second.journal.begin(intents())
    assert [entry.owner for entry in living if entry.outcome is None] == [first.owner] * (MANY - 3)

    await first.journal.begin(intents(scope="x"))
    await database.kill(first)
    left = await second.journal.unfinished()
    assert [entry.intent.key for entry in left] == sorted(
        [*(key(n) for n in range(3, MANY)), *(key(n, "x") for n in range(MANY))], key=lambda key: int(key.call_id[1:])
    )
    taken = await second.journal.begin(intents())
    assert [(entry.cut_off, entry.outcome is None) for entry in taken] == [(n > 2, n > 2) for n in range(MANY)]
    with pytest.raises(StoreError):
        await first.journal.finish_all(ended(range(3, MANY)))
    await second.journal.finish_all(ended(range(3, MANY), at=30.0))
    assert {entry.finished_at for entry in await second.journal.begin(intents())} == {20.0, 30.0}
    await database.close()


@pytest.mark.promise("EFF-11")
@pytest.mark.parametrize("verb", ["start", "release", "forget", "finish", "open_wait"])
async def test_a_call_of_a_bundle_can_do_what_others_can(store, file, verb):
    begun = asyncio.ensure_future(store.journal.begin(intents()))  # and not awaited: what is asked first is done first
    journal, one = store.journal, key(1)
    done = await {
        "start": lambda: journal.start(one, 11.0),
        "release": lambda: journal.release(one),
        "forget": lambda: journal.forget(one),
        "finish": lambda: journal.finish(one, ended(range(1, 2))[0].outcome, 11.0, 12.0),
        "open_wait": lambda: store.waits.open_wait(Wait(WaitKey(one, "event", "e"), 11.0)),
    }[verb]()
    assert done
    assert await begun == [None] * MANY
    await journal.finish_all(ended(range(2, MANY)))
    await journal.finish_all(ended(range(1)))
    kept = dict(rows(file, "SELECT call_id, outcome IS NOT NULL FROM calls"))
    assert {name for name, over in kept.items() if over} == {f"c{n}" for n in range(MANY) if n != 1 or verb == "finish"}
    assert ("c1" in kept) == (verb != "forget")
    assert rows(file, "SELECT count(*) FROM bundles") == [(0,)]


@pytest.mark.promise("EFF-13")
async def test_what_was_pruned_or_deleted_is_not_there_again_as_begun(store, file):
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(MANY)))
    assert rows(file, COUNTS) == [(1, MANY)]  # it says nothing any more
    assert (await prune(file, 30.0, dry_run=True)).calls == MANY
    assert (await prune(file, 30.0)).calls == MANY
    assert rows(file, COUNTS) == [(0, 0)]
    assert await store.journal.begin(intents()) == [None] * MANY


@pytest.mark.promise("EFF-13")
async def test_pruning_spares_the_relatives_of_calls_that_are_in_a_bundle(store, file):
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(2)))
    for dry_run in (True, False):
        pruned = await prune(file, 30.0, dry_run=dry_run)
        assert (pruned.calls, pruned.spared) == (0, 2)
    assert rows(file, COUNTS) == [(0, MANY)]


@pytest.mark.promise("EFF-13")
async def test_a_bundle_that_says_nothing_any_more_is_gone_when_the_store_is_closed(file):
    store = SqliteStore(file)
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(MANY)))
    await store.close()
    assert rows(file, COUNTS) == [(0, MANY)]


@pytest.mark.promise("EFF-13")
async def test_a_bundle_that_says_nothing_any_more_is_gone_with_the_next_batch_of_any_scope(store, file):
    await store.journal.begin(intents())
    await store.journal.finish_all(ended(range(MANY)))
    await store.journal.begin(intents(1, scope="other"))
    assert rows(file, COUNTS) == [(0, MANY + 1)]


@pytest.mark.promise("EFF-13")
async def test_a_wait_that_was_resolved_before_its_call_came_to_it_belongs_to_that_call(store, file):
    await store.journal.begin(intents())
    await store.waits.resolve(WaitKey(key(1), "event", "early"), Resolution("ok", 12.0))
    assert rows(file, COUNTS) == [(1, 0)]
    assert await check(file) == []


@pytest.mark.promise("EFF-12")
def test_calls_of_a_run_have_rows_of_their_own_because_they_change_hands_with_its_lease():
    row = ("s", f"{RUN_SCOPE}p1", "c", "b", 0, "look", "look", b"{}", "tool", None, 1.0, None, "owner")
    batch = [(*row[:2], f"c{n}", *row[3:]) for n in range(MANY)]
    assert Bundle.of(batch) is None
    assert Bundle.of([(row[0], "", *row[2:]) for row in batch]) is not None


@pytest.mark.promise("EFF-06", "EFF-11", "CANCEL-01")
async def test_calls_of_one_bundle_end_each_in_its_own_way(file, open_runtime):
    """By a step, at once, cancelled in the middle, and by a failure; the next runtime replays what ended."""
    blocked = asyncio.Event()

    @tool(readonly=True)
    async def look(ctx: ToolContext, n: int) -> int:
        if n % 4 == 1:
            return await ctx.step("look", lambda: n)
        if n % 4 == 2:
            blocked.set()
            await asyncio.Event().wait()
        if n % 4 == 3:
            raise ValueError("There is nothing to see.")
        return n

    asked = [ToolCall(id=f"c{n}", name="look", arguments={"n": n}) for n in range(MANY)]
    runtime = await open_runtime(file, look)
    async with fail_after(20):
        batch = runtime.session("s").start_batch(asked)
        await blocked.wait()
        while len(batch.unfinished) > sum(n % 4 == 2 for n in range(MANY)):
            await batch.next_change()
        batch.cancel()
        first = await batch
        again = (
            await (await open_runtime(file, look))
            .session("s")
            .run_batch([c for n, c in enumerate(asked) if n % 4 != 2])
        )
    assert [one.status for one in first] == ["success", "success", "cancelled", "failure"] * 2 + ["success"] * 2
    assert [(one.status, one.replayed) for one in again] == [
        (one.status, True) for one in first if one.status != "cancelled"
    ]


@pytest.mark.promise("EFF-11")
async def test_batches_at_once_in_one_session_share_and_keep_their_calls(file, open_runtime):
    ran: list[int] = []

    @tool(readonly=True)
    async def look(n: int) -> int:
        ran.append(n)
        return n

    session = (await open_runtime(file, look)).session("s")
    asked = [ToolCall(id=f"c{n}", name="look", arguments={"n": n}) for n in range(40)]
    async with fail_after(20):
        outcomes = await asyncio.gather(*(session.run_batch(asked[start : start + 20]) for start in (0, 10, 20, 0)))
    assert [[one.value for one in some] for some in outcomes] == [
        list(range(start, start + 20)) for start in (0, 10, 20, 0)
    ]
    assert sorted(ran) == list(range(40))
    assert rows(file, "SELECT count(*) FROM calls WHERE outcome IS NOT NULL") == [(40,)]


@pytest.mark.promise("EFF-11")
async def test_a_session_is_not_deleted_while_another_owner_runs_a_bundle_of_it(store, file):
    await store.journal.begin(intents())
    async with fail_after(20), Runtime.open(file) as runtime:
        with pytest.raises(ToolwrightError, match=f"{MANY} unfinished calls"):
            await runtime.delete_session("s")
    assert rows(file, COUNTS) == [(1, 0)]


@pytest.mark.promise("EFF-11")
async def test_a_session_with_a_bundle_is_deleted_whole_and_not_while_it_runs(file):
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(readonly=True)
    async def look(n: int) -> int:
        begun.set()
        await release.wait()
        return n

    asked = [ToolCall(id=f"c{n}", name="look", arguments={"n": n}) for n in range(MANY)]
    async with fail_after(20), Runtime.open(file, tools=[look]) as runtime:
        batch = runtime.session("s").start_batch(asked)
        await begun.wait()
        assert rows(file, COUNTS) == [(1, 0)]
        with pytest.raises(ToolwrightError, match="still run"):
            await runtime.delete_session("s")
        (about,) = await runtime.sessions()
        assert (about.id, about.calls, about.unfinished) == ("s", MANY, MANY)
        release.set()
        await batch
        await runtime.delete_session("s")
        assert rows(file, COUNTS) == [(0, 0)]
