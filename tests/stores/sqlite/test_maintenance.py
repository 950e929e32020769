"""Care of a store's file: counting, checking, and removing what is old when somebody asks."""

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.older_schemas import make_version_1, rows
from tests.support import fail_after
from toolwright import ToolCall, tool
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.inspection import Pruned, Retention
from toolwright.stores.contracts.journal import CallKey, Intent, Kept
from toolwright.stores.contracts.waits import Remembered, Resolution, Wait, WaitKey
from toolwright.stores.sql.admin import pruning
from toolwright.stores.sqlite.admin.maintenance import check, prune, stats
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.tools.outcome import ToolOutcome


def intent(key: CallKey, batch: str | None = None, parent: str | None = None) -> Intent:
    return Intent(key, batch or f"batch of {key.call_id}", 0, "book", "app.book", b"{}", "model", parent, 10.0)


async def finish(store: SqliteStore, key: CallKey, at: float, payload: bytes = b"1") -> None:
    outcome = ToolOutcome(call_id=key.call_id, tool="book", status="success", payload=payload)
    assert await store.journal.finish(key, outcome, None, at)


async def write(store: SqliteStore, name: str, at: float | None, session: str = "s", **links) -> CallKey:
    """A call with an effect, a wait and two signals; unfinished without an instant."""
    key = CallKey(session, "", name)
    await store.journal.begin([intent(key, **links)])
    await store.journal.keep(key, Kept("step:a", b"1", 11.0))
    await store.waits.open_wait(Wait(WaitKey(key, "event", "e"), 11.0))
    for payload in (b"1", b"2"):
        await store.waits.signal(WaitKey(key, "signal", "go"), payload, 12.0)
    if at is not None:
        await finish(store, key, at)
    return key


def names(file: Path, table: str = "calls") -> set[str]:
    return {row[0] for row in rows(file, f"SELECT call_id FROM {table}")}


@pytest.mark.promise("EFF-13")
async def test_pruning_removes_old_finished_calls_with_all_that_belongs_to_them(file):
    store = SqliteStore(file)
    for name, at in (("old", 100.0), ("older", 50.0), ("young", 200.0), ("just now", 150.0)):
        await write(store, name, at)
    before = names(file)
    assert await prune(file, 150.0, dry_run=True) == Pruned(calls=2, effects=2, waits=2, signals=4)
    assert names(file) == before
    pruned = await prune(file, 150.0)

    assert pruned == Pruned(calls=2, effects=2, waits=2, signals=4, spared=0, bytes=pruned.bytes)
    for table in ("calls", "effects", "waits", "signals"):
        assert names(file, table) == {"young", "just now"}
    assert await check(file) == []
    assert await prune(file, 150.0) == Pruned()
    await store.close()


@pytest.mark.promise("EFF-13")
async def test_pruning_spares_what_is_unfinished_and_what_it_needs_to_go_on(file):
    store = SqliteStore(file)
    await write(store, "unfinished", None, batch="b1", parent="caller")
    await write(store, "sibling", 50.0, batch="b1", parent="caller")
    await write(store, "caller", 50.0, batch="b0")
    await write(store, "caller's sibling", 50.0, batch="b0")
    await write(store, "child", 50.0, batch="b2", parent="unfinished")
    await write(store, "child of the sibling", 50.0, batch="b3", parent="sibling")
    await write(store, "stranger", 50.0, batch="b4")
    await write(store, "child of the stranger", 50.0, batch="b5", parent="stranger")
    # Of another session: the same names, and nothing to do with it.
    await write(store, "sibling", 50.0, "another", batch="b1", parent="caller")
    await store.close()
    before = {table: names(file, table) for table in ("effects", "waits", "signals")}
    pruned = await prune(file, 1000.0)

    assert (pruned.calls, pruned.spared) == (3, 5)
    left = {"unfinished", "sibling", "caller", "caller's sibling", "child", "child of the sibling"}
    assert names(file) == left
    assert {table: names(file, table) for table in before} == dict.fromkeys(before, left)
    assert rows(file, "SELECT DISTINCT session FROM calls") == [("s",)]

    heir = SqliteStore(file)
    await heir.journal.begin([intent(CallKey("s", "", "unfinished"))])
    await finish(heir, CallKey("s", "", "unfinished"), 60.0)
    await heir.close()
    assert (await prune(file, 1000.0)).calls == 6
    assert names(file) == set()


@pytest.mark.promise("EFF-13")
async def test_pruning_can_be_for_some_sessions_only(file):
    store = SqliteStore(file)
    for session in ("a", "b", "c"):
        await write(store, f"c of {session}", 50.0, session)
    await store.close()

    assert (await prune(file, 100.0, sessions=["a", "c", "unknown"])).calls == 2
    assert names(file) == {"c of b"}
    assert (await prune(file, 100.0, sessions=[])).calls == 0


@pytest.mark.promise("EFF-13")
async def test_many_calls_are_pruned_in_several_transactions(file, monkeypatch):
    monkeypatch.setattr(pruning, "CHUNK", 3)
    store = SqliteStore(file, sync="normal")
    for number in range(10):
        await write(store, f"c{number}", None if number in (2, 7) else 50.0)
    await write(store, "c5b", 50.0, batch="batch of c2")
    await store.close()
    pruned = await prune(file, 100.0)

    assert (pruned.calls, pruned.spared) == (8, 1)
    assert names(file) == {"c2", "c7", "c5b"}


@pytest.mark.promise("EFF-13")
async def test_decisions_and_revoked_sessions_outlive_the_calls_they_came_with(file):
    store = SqliteStore(file)
    key = await write(store, "c1", None)
    decision = Remembered("s", "app.book", "allow", b"{}", 20.0)
    await store.waits.resolve(WaitKey(key, "approval"), Resolution("ok", 20.0), decision)
    await store.waits.cancel_waits("s", Resolution("cancelled", 21.0), revoke=True)
    await finish(store, key, 50.0)
    cursor = (await store.waits.arrivals(None)).cursor
    await prune(file, 100.0, vacuum=True)

    assert await store.waits.remembered("s") == [decision]
    late = await write(store, "c2", None)
    stands = await store.waits.open_wait(Wait(WaitKey(late, "event", "e"), 11.0))
    assert stands.resolution == Resolution("cancelled", 21.0)
    other = await write(store, "c3", None, "free")
    await store.waits.resolve(WaitKey(other, "event", "e"), Resolution("ok", 60.0))
    assert [wait.key.call for wait in (await store.waits.arrivals(cursor)).resolved] == [other]
    await store.close()


@pytest.mark.promise("EFF-13")
async def test_a_call_that_was_pruned_runs_again_while_the_store_stays_open(file, open_runtime):
    ran = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    session = (await open_runtime(file, note)).session("s")
    call = ToolCall(id="c1", name="note", arguments={"n": 1})
    await session.run_batch([call])
    await session.run_batch([call])
    assert (await prune(file, float("inf"))).calls == 1
    (outcome,) = await session.run_batch([call])

    assert ran == [1, 1]
    assert not outcome.replayed


@pytest.mark.promise("EFF-13")
async def test_pruning_gives_space_back_when_it_is_asked_to(file):
    store = SqliteStore(file)
    for number in range(50):
        key = CallKey("s", "", f"c{number}")
        await store.journal.begin([intent(key)])
        await finish(store, key, 50.0, b'"%s"' % (b"x" * 50_000))
    kept = await write(store, "kept", 200.0)
    full = (await stats(file)).file_bytes
    await prune(file, 100.0)
    emptied = await stats(file)
    assert emptied.free_bytes > 2_000_000
    pruned = await prune(file, 100.0, vacuum=True)
    small = await stats(file)

    assert full > 2_500_000
    assert pruned.bytes > 2_000_000
    assert small.file_bytes < 400_000
    assert small.free_bytes == 0
    assert await store.waits.signals(WaitKey(kept, "signal", "go")) == [b"1", b"2"]
    await store.close()


@pytest.mark.promise("EFF-13")
async def test_nothing_is_pruned_unless_somebody_asks(file):
    store = SqliteStore(file)
    await write(store, "c1", 50.0)
    await store.close()
    forever, a_day = Retention(), Retention(seconds=86_400.0)

    assert await prune(file, forever.before(1e9)) == Pruned()
    assert await prune(file, a_day.before(86_450.0)) == Pruned()
    assert names(file) == {"c1"}
    assert (await prune(file, a_day.before(86_451.0))).calls == 1


@pytest.mark.parametrize(("before", "sessions"), [(float("nan"), None), ("yesterday", None), (1.0, "s")])
async def test_what_makes_no_sense_is_refused_and_prunes_nothing(file, before, sessions):
    store = SqliteStore(file)
    await write(store, "c1", 0.5)
    await store.close()
    with pytest.raises(ToolwrightError, match=r"; (use seconds since 1970|give a list of their ids)"):
        await prune(file, before, sessions=sessions)

    assert names(file) == {"c1"}


async def test_others_write_while_a_store_is_pruned(file, monkeypatch):
    monkeypatch.setattr(pruning, "CHUNK", 20)
    store = SqliteStore(file, sync="normal")
    for number in range(200):
        key = CallKey("s", "", f"old{number}")
        await store.journal.begin([intent(key)])
        await finish(store, key, 50.0)
    async with fail_after(30):
        at_work = asyncio.ensure_future(prune(file, 100.0, vacuum=True))
        await asyncio.gather(*(write(store, f"new{number}", None) for number in range(100)))
        pruned = await at_work
    await store.close()

    assert pruned.calls == 200
    assert len(names(file)) == 100
    assert await check(file) == []


@pytest.mark.promise("EFF-13")
async def test_stats_count_what_a_store_has(file):
    store, gone = SqliteStore(file), SqliteStore(file)
    await write(store, "c1", 50.0)
    await write(store, "c2", None)
    await write(gone, "c3", None, "another")
    await store.journal.begin([Intent(CallKey("s", "", "c4"), "b", 0, "t", "t", b"{}", "model", None, 5.0)])
    failed = ToolOutcome(call_id="c4", tool="t", status="failure")
    await store.journal.finish(CallKey("s", "", "c4"), failed, None, 60.0)
    await gone.close()
    found = await stats(file)
    await store.close()

    assert found.calls == {"success": 1, "failure": 1, "unfinished": 1, "cut off": 1}
    assert (found.sessions, found.effects, found.waits, found.open_waits, found.signals) == (2, 3, 3, 2, 6)
    assert (found.oldest, found.oldest_unfinished) == (5.0, 10.0)
    assert found.file_bytes >= 4096


async def test_an_empty_store_has_nothing_and_nothing_is_wrong_with_it(file):
    await SqliteStore(file).close()
    found = await stats(file)

    assert (found.calls, found.sessions, found.oldest) == ({}, 0, None)
    assert await check(file) == []


@pytest.mark.promise("EFF-13")
async def test_a_check_finds_rows_that_belong_to_no_call_and_open_waits_of_finished_calls(file):
    store = SqliteStore(file)
    await write(store, "gone", 50.0)
    await write(store, "done", 50.0)
    await store.close()
    rows(file, "DELETE FROM calls WHERE call_id = 'gone'")
    rows(file, "UPDATE waits SET open = 1 WHERE call_id = 'done'")

    assert await check(file) == [
        "1 effects belong to no call",
        "1 waits belong to no call",
        "2 signals belong to no call",
        "1 waits are open that are resolved, or whose calls are finished",
    ]


@pytest.mark.promise("EFF-13")
async def test_a_check_finds_damage(file):
    store = SqliteStore(file)
    for number in range(100):
        await write(store, f"c{number}", 50.0)
    await store.close()
    (page,) = rows(file, "SELECT rootpage FROM sqlite_schema WHERE name = 'arrived_waits'")[0]
    with open(file, "r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"\xff" * 4096)

    assert any("SQLite says" in told for told in await check(file))


@pytest.mark.parametrize("look", [stats, check, lambda path: prune(path, 1.0)])
async def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path, look):
    missing, other, old = tmp_path / "missing.db", tmp_path / "other.db", make_version_1(tmp_path / "old.db")
    rows(other, "CREATE TABLE notes (text)")
    with pytest.raises(StoreError, match=r"There is no store .*; check the path"):
        await look(missing)
    with pytest.raises(StoreError, match="belongs to another program; choose another file"):
        await look(other)
    with pytest.raises(StoreError, match=r"older toolwright .*; open it with a runtime once"):
        await look(old)
    with pytest.raises(StoreError, match="it is a directory; give the path of a file"):
        await look(tmp_path)

    assert not missing.exists()
    connection = apsw.Connection(str(old))
    assert connection.execute("PRAGMA user_version").fetchall() == [(1,)]
    connection.close()
