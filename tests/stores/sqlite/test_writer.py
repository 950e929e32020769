"""What the journal costs, and how its writer behaves under many hands."""

import asyncio
import threading

import apsw
import pytest

from tests.effects.watching import waiting
from tests.support import fail_after, until
from toolwright import Pending, Policy, Rule, Runtime, ToolCall, ToolContext, tool
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.sql import job_thread
from toolwright.stores.sqlite.core.writer import Writer
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import drop_locks


def intent(call_id: str, **changes) -> Intent:
    given = {"source": "model", "parent": None, "queued_at": 1.0, **changes}
    return Intent(CallKey("s", "", call_id), "b", 0, "book", "app.book", b"{}", **given)


@pytest.mark.promise("EFF-04")
@pytest.mark.parametrize(("name", "count", "most"), [("read", 1, 2), ("pay", 1, 2), ("read", 100, 5)])
async def test_a_batch_costs_few_commits(file, open_runtime, name, count, most):
    @tool(readonly=True)
    async def read(n: int) -> int:
        return n

    @tool
    async def pay(n: int) -> int:
        return n

    store = SqliteStore(file)
    runtime = await open_runtime(store, read, pay)
    before = store.commits
    await runtime.session("s").run_batch([{"name": name, "arguments": {"n": n}} for n in range(count)])

    assert store.commits - before <= most


@pytest.mark.promise("EFF-04", "AUTH-01")
async def test_a_call_that_a_condition_allows_starts_with_its_intent(file, open_runtime):
    @tool
    async def pay(n: int) -> int:
        return n

    store = SqliteStore(file)
    rules = [Rule("ask", "pay", when=lambda request: request.arguments["n"] > 10)]
    runtime = await open_runtime(store, pay, policy=Policy(rules=rules))
    before = store.commits
    (outcome,) = await runtime.session("s").run_batch([{"name": "pay", "arguments": {"n": 1}}])

    assert outcome.value == 1
    assert store.commits - before == 2


@pytest.mark.promise("EFF-04", "EFF-05")
async def test_a_call_that_waits_for_its_turn_is_not_marked_as_started_with_its_intent(file, open_runtime):
    inside: list[int] = []
    go = asyncio.Event()

    @tool
    async def pay(n: int) -> int:
        inside.append(n)
        await go.wait()
        return n

    store = SqliteStore(file)
    async with fail_after(20):
        runtime = await open_runtime(store, pay)
        calls = [{"id": f"c{n}", "name": "pay", "arguments": {"n": n}} for n in range(3)]
        batch = runtime.session("s").start_batch(calls)
        await until(lambda: inside == [0])
        drop_locks(store)  # as if its process had been killed now
        heir = await open_runtime(file, pay)
        left = {one.call_id: one.began for one in await heir.unfinished("s")}
        go.set()
        await batch
    assert left == {"c0": True, "c1": False, "c2": False}


@pytest.mark.promise("EFF-05", "EFF-12")
async def test_a_call_that_left_its_place_for_one_of_another_process_is_not_marked_as_started(file, open_runtime):
    inside: list[str] = []
    doors = {name: asyncio.Event() for name in ("shared", "later", "own")}

    @tool(key="{key}")
    async def pay(ctx: ToolContext, key: str) -> str:
        inside.append(ctx.call_id)
        await doors[ctx.call_id].wait()
        return ctx.call_id

    def call(id: str, key: str) -> ToolCall:
        return ToolCall(id=id, name="pay", arguments={"key": key})

    store = SqliteStore(file)
    async with fail_after(20):
        other, runtime = await open_runtime(file, pay), await open_runtime(store, pay)
        theirs = other.session("s").start_batch([call("shared", "x")])
        await until(lambda: inside == ["shared"])
        batch = runtime.session("s").start_batch([call("shared", "x"), call("own", "y")])
        await until(lambda: bool(batch.calls) and all(one.ticket is None for one in batch.calls))
        later = runtime.session("s").start_batch([call("later", "y")])
        await until(lambda: inside == ["shared", "later"])
        doors["shared"].set()
        await theirs
        await until(lambda: batch.calls[1].ticket is not None)  # it is behind the later one now
        drop_locks(store)  # as if its process had been killed now
        left = {one.call_id: one.began for one in await other.unfinished("s")}
        for door in doors.values():
            door.set()
        await batch
        await later
    assert left == {"later": True, "own": False}


SPLIT = 5
"""Waves that the thread of the store may take in two parts, where the loop waits for a core in between."""


@pytest.mark.promise("EFF-04", "EFF-06")
@pytest.mark.parametrize(
    ("options", "on_crash", "most"),
    [
        # 13 waves of 8 calls, and the intents. The outcomes of a wave are written with the next results of steps.
        ({"readonly": True}, None, 15),
        # A step that may not be repeated is marked before it runs.
        ({"readonly": True}, "fail", 1 + 2 * 13 + 1),
        # So is a call: its start is written with the outcomes of the wave before.
        ({"parallel": True}, None, 1 + 3 * 13),
        # Where only the call may not be repeated, its step needs no mark.
        ({"parallel": True}, "rerun", 1 + 2 * 13),
    ],
)
async def test_steps_of_parallel_calls_share_commits(file, open_runtime, monkeypatch, options, on_crash, most):
    # A machine that stands still for so long would split a commit.
    monkeypatch.setattr(job_thread, "LONGEST_BURST", 60.0)

    async def charge(n: int) -> int:
        return n

    @tool(**options)
    async def pay(ctx: ToolContext, n: int) -> int:
        return await ctx.step("charge", charge, n, on_crash=on_crash)

    store = SqliteStore(file)
    runtime = await open_runtime(store, pay)
    before = store.commits
    outcomes = await runtime.session("s").run_batch([{"name": "pay", "arguments": {"n": n}} for n in range(100)])

    assert [outcome.value for outcome in outcomes] == list(range(100))
    assert store.commits - before <= most + SPLIT


@pytest.mark.promise("EFF-04", "WAIT-01")
async def test_waits_of_parallel_calls_share_commits(file, open_runtime, monkeypatch):
    monkeypatch.setattr(job_thread, "LONGEST_BURST", 60.0)

    @tool(readonly=True)
    async def order(ctx: ToolContext, n: int) -> Pending:
        ctx.completion_key()
        return Pending()

    store = SqliteStore(file)
    runtime = await open_runtime(store, order)
    before = store.commits
    with runtime.subscribe() as events:
        batch = runtime.session("s").start_batch([{"name": "order", "arguments": {"n": n}} for n in range(100)])
        for _ in range(100):
            await waiting(events)
        # The intents, and 13 waves of 8 waits.
        assert store.commits - before <= 15 + SPLIT
        batch.cancel("enough")
        await batch


@pytest.mark.promise("EFF-11")
async def test_a_replayed_batch_costs_one_commit(file, open_runtime):
    @tool
    async def pay(n: int) -> int:
        return n

    store = SqliteStore(file)
    runtime = await open_runtime(store, pay)
    calls = [ToolCall(id=f"c{n}", name="pay", arguments={"n": n}) for n in range(10)]
    await runtime.session("s").run_batch(calls)
    before = store.commits
    await runtime.session("s").run_batch(calls)

    assert store.commits - before == 1


async def test_many_batches_of_many_sessions_at_once_are_all_recorded(file, open_runtime):
    @tool
    async def pay(n: int) -> int:
        await asyncio.sleep(0)
        return n

    runtime = await open_runtime(file, pay)
    names = [(f"s{n % 10}", n) for n in range(200)]
    async with fail_after(30):
        await asyncio.gather(
            *(
                runtime.session(session).run_batch([ToolCall(id=f"c{n}", name="pay", arguments={"n": n})])
                for session, n in names
            )
        )
    await runtime.close()
    again = await open_runtime(file, pay)
    for session, n in names:
        (outcome,) = await again.session(session).run_batch([ToolCall(id=f"c{n}", name="pay", arguments={"n": n})])
        assert (outcome.value, outcome.replayed) == (n, True)


@pytest.mark.promise("EFF-07")
async def test_work_that_fails_does_not_hurt_what_is_written_with_it(file):
    gate = threading.Event()

    def prepare(connection):
        connection.execute("CREATE TABLE notes (n UNIQUE)")

    def hold(connection):
        gate.wait(10)

    def insert(n):
        return lambda connection: connection.execute("INSERT INTO notes VALUES (?)", (n,)).fetchall()

    def raise_value_error(connection):
        raise ValueError("odd")

    writer = Writer(file, prepare, "full")
    held = writer.do(hold)
    jobs = [writer.do(insert(1)), writer.do(insert(1)), writer.do(raise_value_error), writer.do(insert(2))]
    gate.set()
    async with fail_after(10):
        _, *results = await asyncio.gather(held, *jobs, return_exceptions=True)
        notes = await writer.do(lambda connection: connection.execute("SELECT n FROM notes").fetchall())
        await writer.close()

    assert [type(result).__name__ for result in results] == ["list", "StoreError", "StoreError", "list"]
    assert "ValueError: odd" in str(results[2])
    assert notes == [(1,), (2,)]


async def test_a_loop_that_is_never_idle_is_answered(file):
    writer = Writer(file, lambda connection: connection.execute("CREATE TABLE notes (n)"), "normal")

    def insert(connection):
        return connection.execute("INSERT INTO notes VALUES (1) RETURNING n").fetchall()

    asked = [writer.do(insert)]
    async with fail_after(10):
        while not asked[0].done():
            asked.append(writer.do(insert))
            await asyncio.sleep(0)
        told = await asyncio.gather(*asked)
        await writer.close()

    assert told == [[(1,)]] * len(asked)


@pytest.mark.promise("EFF-08")
async def test_closing_writes_what_is_queued_and_refuses_what_comes_later(file):
    store = SqliteStore(file)
    queued = [asyncio.ensure_future(store.journal.begin([intent(f"c{n}")])) for n in range(50)]
    await asyncio.sleep(0)
    async with fail_after(10):
        await store.close()
        assert await asyncio.gather(*queued) == [[None]] * 50
        with pytest.raises(StoreError, match="is closed; open it again"):
            await store.journal.begin([intent("late")])
        await store.close()

        again = SqliteStore(file)
        assert len(await again.journal.unfinished()) == 50
        await again.close()


def test_a_loop_that_was_closed_does_not_stop_the_writer(file):
    async def leave_early():
        store = SqliteStore(file)
        job = asyncio.ensure_future(store.journal.begin([intent("c1")]))
        await asyncio.sleep(0)
        job.cancel()
        return store

    async def come_back(store):
        async with fail_after(10):
            (entry,) = await store.journal.begin([intent("c1")])
            await store.close()
        return entry

    store = asyncio.run(leave_early())
    entry = asyncio.run(come_back(store))

    assert entry.outcome is None
    assert entry.owner == store.owner


async def test_unfinished_calls_are_listed_by_session_oldest_first(file):
    store = SqliteStore(file)
    await store.journal.begin([intent("young", queued_at=9.0)])
    await store.journal.begin([intent("old", queued_at=3.0)])
    await store.close()
    again = SqliteStore(file)

    assert [entry.intent.key.call_id for entry in await again.journal.unfinished("s")] == ["old", "young"]
    assert await again.journal.unfinished("another") == []
    await again.close()


@pytest.mark.promise("EFF-12")
async def test_begin_writes_nothing_while_a_living_owner_runs_one_of_the_calls(file):
    mine, theirs = SqliteStore(file), SqliteStore(file)
    await theirs.journal.begin([intent("theirs")])
    fresh, taken = await mine.journal.begin([intent("fresh"), intent("theirs")])
    after = await theirs.journal.begin([intent("fresh")])
    await theirs.close()
    late = await mine.journal.begin([intent("fresh"), intent("theirs")])
    await mine.close()

    assert fresh is None
    assert taken is not None
    assert taken.owner == theirs.owner
    assert not taken.cut_off
    assert after == [None]
    assert [(entry.owner, entry.cut_off) for entry in late if entry] == [(mine.owner, True)] * 2


async def test_nothing_is_left_beside_a_closed_store(file):
    async with Runtime.open(file, tools=[]):
        pass

    assert [path.name for path in file.parent.iterdir()] == ["agent.db"]


@pytest.mark.promise("EFF-08")
async def test_the_log_has_room_before_a_commit_needs_it(file, open_runtime):
    @tool(parallel=True)
    async def pay(n: int) -> int:
        return n

    runtime = await open_runtime(SqliteStore(file), pay)
    log, sizes = file.with_name(file.name + "-wal"), []
    for batch in range(40):
        await runtime.session("s").run_batch([{"name": "pay", "arguments": {"n": batch}}])
        sizes.append(log.stat().st_size)

    assert len(set(sizes)) < 4, "It grows by doubling, and not with each commit: a sync is dearer while a file grows."


@pytest.mark.promise("EFF-08", "EFF-12")
async def test_room_in_the_log_overwrites_nothing_of_another_program(file, open_runtime):
    @tool(parallel=True)
    async def pay(n: int) -> int:
        return n

    runtimes = [await open_runtime(SqliteStore(file), pay) for _ in range(2)]
    for batch in range(60):  # by turns: each believes the log to be shorter than it is
        for name, runtime in enumerate(runtimes):
            calls = [{"id": f"{batch}/{n}", "name": "pay", "arguments": {"n": n}} for n in range(batch % 7 + 1)]
            await runtime.session(f"s{name}").run_batch(calls)
    reader = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)

    assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert reader.execute("SELECT count(*) FROM calls WHERE status = 'success'").fetchall() == [
        (2 * sum(batch % 7 + 1 for batch in range(60)),)
    ]
