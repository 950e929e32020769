"""Lists of batches and calls, for people to read."""

import asyncio

import pytest

from tests.stores.sqlite.older_schemas import rows
from tests.support import fail_after
from toolwright import ToolCall, tool
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.stores.sqlite.admin.history import batches, calls
from toolwright.stores.sqlite.core.side_connection import inspect_file
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.tools.outcome import ToolError, ToolOutcome


def intent(name: str, batch: str, position: int, queued_at: float, session: str = "s") -> Intent:
    return Intent(CallKey(session, "", name), batch, position, "book", "app.book", b'{"n":1}', "model", None, queued_at)


async def write(file) -> SqliteStore:
    """Two finished batches and an unfinished one; its owner is still alive."""
    store = SqliteStore(file)
    await store.journal.begin([intent("c2", "b1", 1, 10.0), intent("c1", "b1", 0, 10.0)])
    for name, status, at in (("c1", "success", 13.0), ("c2", "failure", 15.0)):
        outcome = ToolOutcome(call_id=name, tool="book", status=status, attempts=2)
        await store.journal.finish(CallKey("s", "", name), outcome, 12.0, at)
    await store.journal.begin([intent("c3", "b2", 0, 20.0), intent("c4", "b2", 1, 20.0), intent("c5", "b2", 2, 20.0)])
    await store.journal.start(CallKey("s", "", "c3"), 25.0)
    await store.waits.open_wait(Wait(WaitKey(CallKey("s", "", "c4"), "approval"), 21.0))
    await store.waits.open_wait(Wait(WaitKey(CallKey("s", "", "c4"), "event", "paid"), 22.0))
    await store.waits.resolve(WaitKey(CallKey("s", "", "c4"), "event", "over"), Resolution("ok", 22.0))
    await store.journal.finish(
        CallKey("s", "", "c5"), ToolOutcome(call_id="c5", tool="book", status="success"), 20.0, 24.0
    )
    await store.journal.begin([intent("c1", "b1", 0, 15.0, "another")])
    return store


@pytest.mark.promise("EFF-13")
async def test_batches_are_listed_newest_first_with_their_counts(file):
    store = await write(file)
    found = await batches(file)
    mine = await batches(file, "s", limit=1)
    await store.close()

    assert [(one.session, one.batch, one.calls, one.statuses) for one in found] == [
        ("s", "b2", 3, {"success": 1, "unfinished": 2}),
        ("another", "b1", 1, {"unfinished": 1}),
        ("s", "b1", 2, {"success": 1, "failure": 1}),
    ]
    assert [(one.first_at, one.last_at) for one in found] == [(20.0, 25.0), (15.0, 15.0), (10.0, 15.0)]
    assert mine == found[:1]
    assert await batches(file, "nobody") == []


@pytest.mark.promise("EFF-13")
async def test_calls_are_listed_in_order_with_what_became_of_them(file):
    store = await write(file)
    finished, unfinished = await calls(file, batch="b1", session="s"), await calls(file, batch="b2")
    everything = await calls(file, session="s")
    await store.close()
    after = await calls(file, batch="b2")

    assert [(one.key.call_id, one.status, one.attempts) for one in finished] == [
        ("c1", "success", 2),
        ("c2", "failure", 2),
    ]
    assert [(one.started_at, one.finished_at) for one in finished] == [(12.0, 13.0), (12.0, 15.0)]
    assert finished[0].arguments == b'{"n":1}'
    assert [(one.key.call_id, one.status, one.attempts, one.cut_off) for one in unfinished] == [
        ("c3", "running", 1, False),
        ("c4", "waiting", 0, False),
        ("c5", "success", 0, False),
    ]
    assert unfinished[1].waits_for == ("approval", "event:paid")
    assert everything == [*finished, *unfinished]
    assert [(one.status, one.cut_off) for one in after] == [("cut off", True), ("waiting", True), ("success", False)]
    assert len(await calls(file, batch="b1")) == 3


@pytest.mark.promise("EFF-13")
async def test_a_call_is_resolved_when_its_completion_came_and_its_tool_has_ended(file):
    store = await write(file)
    running, waiting = CallKey("s", "", "c3"), CallKey("s", "", "c4")
    await store.waits.resolve(WaitKey(running, "completion"), Resolution("ok", 26.0))
    await store.waits.resolve(WaitKey(waiting, "event", "paid"), Resolution("ok", 26.0))
    early = await calls(file, batch="b2")
    await store.waits.open_wait(Wait(WaitKey(running, "completion"), 27.0))
    found = await calls(file, batch="b2")
    await store.close()

    assert [(one.status, one.resolved) for one in early] == [("running", False), ("waiting", False), ("success", False)]
    assert [(one.status, one.resolved) for one in found] == [("waiting", True), ("waiting", False), ("success", False)]


async def test_calls_of_nothing_in_particular_are_refused(file):
    await SqliteStore(file).close()
    with pytest.raises(ToolwrightError, match="name one of them"):
        await calls(file)


async def test_an_inspector_that_only_looks_cannot_write(file):
    await SqliteStore(file).close()
    with pytest.raises(StoreError, match="it cannot be written to"):
        await inspect_file(file, lambda connection: connection.execute("DELETE FROM meta").fetchall())


@pytest.mark.promise("EFF-13")
async def test_looking_changes_nothing_and_does_not_disturb_who_runs(file, open_runtime):
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def hold(n: int) -> int:
        entered.set()
        await leave.wait()
        raise ToolError("No")

    runtime = await open_runtime(file, hold)
    batch = runtime.session("s").start_batch([ToolCall(id="c1", name="hold", arguments={"n": 1})])
    async with fail_after(10):
        await entered.wait()
        before = rows(file, "SELECT * FROM calls")
        (listed,) = await batches(file)
        (running,) = await calls(file, batch=listed.batch)
        assert rows(file, "SELECT * FROM calls") == before
        leave.set()
        (outcome,) = await batch
        (ended,) = await calls(file, session="s")

    assert (running.status, running.tool, running.cut_off) == ("running", "hold", False)
    assert ended.outcome == outcome
