"""What is wrong with a store is told to the program's owner, and is never an outcome."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.effects.watching import until_shared
from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores.sqlite.core import writer
from toolwright.stores.sqlite.core.faults import reason
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FakeClock
from toolwright.testing.sqlite_store import run_on_connection


@tool
async def book(flight: str) -> str:
    return flight


async def refusal(store, kind=StoreError) -> str:
    with pytest.raises(kind) as raised:
        await Runtime.open(store, tools=[book])
    return str(raised.value)


@pytest.mark.promise("EFF-07")
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(file):
    file.write_text("Dear diary,\n" * 200)

    assert await refusal(file) == (
        f"The store {str(file)!r} cannot be opened: it is not a SQLite database; choose another file"
    )
    assert file.read_text() == "Dear diary,\n" * 200
    assert os.listdir(file.parent) == ["agent.db"]


@pytest.mark.promise("EFF-07")
async def test_the_database_of_another_program_is_refused_and_left_as_it_is(file):
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE notes (text)")
    other.commit()
    other.close()
    before = file.read_bytes()

    assert await refusal(file) == f"The store {str(file)!r} belongs to another program; choose another file"
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["agent.db"]


@pytest.mark.promise("EFF-07")
async def test_an_empty_file_is_a_new_store(file):
    file.touch()
    for _ in range(2):
        async with Runtime.open(file, tools=[book]) as runtime:
            (outcome,) = await runtime.session("s").run_batch(
                [ToolCall(id="c1", name="book", arguments={"flight": "LH1"})]
            )
    assert (outcome.value, outcome.replayed) == ("LH1", True)


@pytest.mark.promise("EFF-13")
async def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(file):
    await (await Runtime.open(file)).close()
    newer = apsw.Connection(str(file))
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = file.read_bytes()

    told = await refusal(file)
    assert str(file) in told
    assert told.endswith("upgrade toolwright")
    assert "schema 99" in told
    assert file.read_bytes() == before


@pytest.mark.promise("EFF-07")
async def test_a_path_that_cannot_be_a_file_is_refused_with_the_reason(tmp_path):
    nowhere = tmp_path / "missing" / "agent.db"

    assert f"there is no directory {str(nowhere.parent)!r}; make it first" in await refusal(nowhere)
    assert "it is a directory; give the path of a file" in await refusal(tmp_path)
    assert "has the scheme 'mysql', which is not known" in await refusal("mysql://host/db")


@pytest.mark.promise("EFF-07")
async def test_a_store_that_another_program_holds_is_refused_with_the_remedy(file, monkeypatch):
    await (await Runtime.open(file)).close()
    monkeypatch.setattr(writer, "BUSY", 50)
    holder = apsw.Connection(str(file))
    holder.execute("BEGIN IMMEDIATE")

    told = await refusal(file, StoreUnavailable)  # which may be repeated
    holder.close()

    assert told == (f"The store {str(file)!r} cannot be opened: another program holds it; wait, or stop that program")


@pytest.mark.promise("EFF-07")
async def test_calls_during_a_lock_fail_together_as_faults_and_run_when_it_is_gone(file, monkeypatch, open_runtime):
    ran = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    monkeypatch.setattr(writer, "BUSY", 50)
    session = (await open_runtime(file, note)).session("s")
    holder = apsw.Connection(str(file))
    holder.execute("BEGIN IMMEDIATE")
    batches = [session.start_batch([ToolCall(id=f"c{n}", name="note", arguments={"n": n})]) for n in range(50)]
    async with fail_after(5):  # and not fifty times as long as one
        for batch in batches:
            with pytest.raises(StoreError, match="another program holds it"):
                await batch
    assert ran == []
    holder.close()
    (outcome,) = await session.run_batch([ToolCall(id="c7", name="note", arguments={"n": 7})])

    assert (outcome.value, outcome.replayed) == (7, False)
    assert ran == [7]


@pytest.mark.promise("EFF-07")
@pytest.mark.parametrize("error", [apsw.ReadOnlyError, apsw.CantOpenError])
def test_the_file_that_cannot_be_written_to_is_named(tmp_path, error):
    store, log, index = (tmp_path / name for name in ("agent.db", "agent.db-wal", "agent.db-shm"))
    for path in (store, log, index):
        path.touch()

    def said(*closed: Path) -> str:
        return reason(store, error(), writable=lambda path: path not in closed)

    assert said(store) == "it cannot be written to; check its permissions"
    assert said(index) == f"{str(index)!r} beside it cannot be written to; check the permissions"
    assert said(log, index).startswith(f"{str(log)!r} and {str(index)!r} beside it cannot be written to")
    assert said(tmp_path) == f"its directory {str(tmp_path)!r} cannot be written to; check its permissions"
    assert said().endswith("; check the permissions of the file and its directory")
    index.unlink()
    assert said(index) == said()


@pytest.mark.promise("EFF-07")
@pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs to become somebody else")
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("file", "it cannot be written to"),
        ("folder", "its directory"),
        ("hidden", "its directory"),
        ("log", "agent.db-shm' beside it cannot be written to"),
    ],
)
def test_a_store_that_may_not_be_written_is_refused_with_the_remedy(tmp_path, what, said):
    assert said in _as_nobody(tmp_path, what)


def _as_nobody(folder: Path, what: str) -> str:
    store = folder / "agent.db"
    program = f"""
import asyncio, os
from toolwright import Runtime
from toolwright.errors import StoreError, StoreUnavailable
import toolwright.stores.sqlite.store, toolwright.runtime.runtime
async def main():
    await (await Runtime.open({str(store)!r})).close()
    os.chmod({str(folder)!r}, {{"folder": 0o755, "hidden": 0o700}}.get({what!r}, 0o777))
    os.chmod({str(store)!r}, 0o444 if {what!r} == "file" else 0o666)
    if {what!r} == "log":
        for ending in ("-wal", "-shm"):
            open({str(store)!r} + ending, "w").close()
            os.chmod({str(store)!r} + ending, 0o444)
    for path in {[str(parent) for parent in folder.parents]!r}[:3]:
        os.chmod(path, os.stat(path).st_mode | 0o011)
    os.setuid(65534)
    try:
        await Runtime.open({str(store)!r})
    except StoreError as error:
        assert "permissions" in str(error) and {str(store)!r} in str(error), error
        print(error)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FULL = """
import asyncio, resource, signal, sys
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreError, StoreUnavailable

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ran = []

@tool
async def grow(n: int) -> str:
    ran.append(n)
    return str(n) * 20_000

async def main():
    async with Runtime.open(sys.argv[1], tools=[grow]) as runtime:
        session = runtime.session("s")
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        done = []
        try:
            for n in range(1000):
                (outcome,) = await session.run_batch([ToolCall(id=f"c{n}", name="grow", arguments={"n": n})])
                assert outcome.ok, outcome
                done.append(n)
        except StoreError as error:
            print(error)
        print(len(done), len(ran))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for n in (0, len(done) - 1, len(done) + 1):
            (outcome,) = await session.run_batch([ToolCall(id=f"c{n}", name="grow", arguments={"n": n})])
            print(n, outcome.replayed, outcome.value == str(n) * 20_000)
        (outcome,) = await session.run_batch([ToolCall(id=f"c{len(done)}", name="grow", arguments={"n": len(done)})])
        print(outcome.failure.category if outcome.failure else "success")

asyncio.run(main())
"""


@pytest.mark.promise("EFF-07", "EFF-08")
@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on the size of files")
def test_a_full_disk_is_raised_and_what_was_acknowledged_stays(file):
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told, counts, first, last, later, cut_off = done.stdout.splitlines()
    acknowledged, ran = map(int, counts.split())

    assert told.startswith(f"The store {str(file)!r} could not write: the disk ")
    assert acknowledged > 3
    assert ran - acknowledged in (0, 1)
    assert first == "0 True True"
    assert last == f"{acknowledged - 1} True True"
    assert later == f"{acknowledged + 1} False True"
    # Whether the disk was full before the tool ran or after it depends on the sizes of pages.
    assert cut_off == ("success" if ran == acknowledged else "interrupted")


@pytest.mark.promise("EFF-07")
async def test_an_outcome_that_cannot_be_written_is_a_fault_for_all_who_share_it(file, open_runtime):
    entered, leave, ran = asyncio.Event(), asyncio.Event(), []

    @tool
    async def grow() -> str:
        ran.append(1)
        entered.set()
        await leave.wait()
        return "x" * 1_000_000

    store = SqliteStore(file)
    session = (await open_runtime(store, grow)).session("s")
    first = session.start_batch([ToolCall(id="c1", name="grow")])
    async with fail_after(5):
        await entered.wait()
        second = session.start_batch([ToolCall(id="c1", name="grow")])
        await until_shared([second])
        await run_on_connection(store, lambda connection: connection.execute("PRAGMA max_page_count = 40").fetchall())
        leave.set()
        for batch in (first, second):
            with pytest.raises(StoreError, match="the disk is full; free some space"):
                await batch
        await run_on_connection(store, lambda connection: connection.execute("PRAGMA max_page_count = 9999").fetchall())
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="grow")])

    assert ran == [1]
    assert outcome.failure is not None
    assert outcome.failure.category == "interrupted"


@pytest.mark.promise("EFF-07")
async def test_an_effect_that_cannot_be_written_is_a_fault_for_all_who_share_the_call():
    class Failing(MemoryStore):
        async def keep(self, key, kept):
            await until_shared([second])
            raise StoreError("the disk is full")

    @tool
    async def work(ctx: ToolContext) -> int:
        return await ctx.step("pay", lambda: 1)

    async with fail_after(10), Runtime.open(Failing(), tools=[work]) as runtime:
        calls = [ToolCall(id="c1", name="work", arguments={})]
        first = runtime.session("s").start_batch(calls)
        second = runtime.session("s").start_batch(calls)
        for batch in (first, second):
            with pytest.raises(StoreError, match="the disk is full"):
                await batch


@pytest.mark.promise("EFF-07")
async def test_a_fault_that_one_call_meets_is_not_the_outcome_of_the_others_in_its_batch():
    begun, ran = asyncio.Event(), []

    class Failing(MemoryStore):
        fails = True

        async def keep(self, key, kept):
            await begun.wait()
            if self.fails:
                raise StoreError("the disk is full")
            return await super().keep(key, kept)

    @tool(idempotent=True, parallel=True)
    async def pay(ctx: ToolContext) -> int:
        return await ctx.step("pay", asyncio.sleep, 0)

    @tool(idempotent=True, parallel=True)
    async def read() -> int:
        ran.append(1)
        begun.set()
        if len(ran) == 1:
            await asyncio.Event().wait()
        return len(ran)

    store = Failing()
    async with fail_after(10), Runtime.open(store, tools=[pay, read]) as runtime:
        calls = [ToolCall(id=name, name=name, arguments={}) for name in ("pay", "read")]
        with pytest.raises(StoreError, match="the disk is full"):
            await runtime.session("s").run_batch(calls)
        store.fails = False
        outcomes = await runtime.session("s").run_batch(calls)
    assert [outcome.value for outcome in outcomes] == [None, 2]


@pytest.mark.promise("EFF-07", "EFF-12")
async def test_a_call_whose_outcome_could_not_be_written_is_let_go_of_for_other_processes():
    class Failing(MemoryStore):
        fails = True

        async def finish(self, *args, **options):
            if self.fails:
                raise StoreError("the disk is full")
            return await super().finish(*args, **options)

        async def release(self, key):
            if self.fails:
                raise StoreError("the disk is full")
            return await super().release(key)

    clock, rows = FakeClock(), MemoryDatabase()
    store = Failing(rows)
    calls = [ToolCall(id="c1", name="book", arguments={"flight": "LH1"})]
    async with (
        fail_after(10),
        Runtime.open(store, tools=[book], clock=clock) as first,
        Runtime.open(MemoryStore(rows), tools=[book], clock=clock) as second,
    ):
        with pytest.raises(StoreError, match="the disk is full"):
            await first.session("s").run_batch(calls)
        batch = second.session("s").start_batch(calls)
        await clock.advance(5)
        assert not batch.done
        store.fails = False
        await clock.advance(2)
        (outcome,) = await batch
    assert outcome.failure.code == "interrupted"


@pytest.mark.promise("EFF-07")
async def test_an_outcome_that_cannot_be_written_leaves_those_written_with_it_as_they_are():
    class Picky(MemoryStore):
        async def finish(self, key, *rest):
            if key.call_id == "c1":
                raise StoreError("the outcome is too large")
            return await super().finish(key, *rest)

        async def finish_all(self, ended):
            if any(end.key.call_id == "c1" for end in ended):
                raise StoreError("one of the outcomes is too large")
            await super().finish_all(ended)

    ran = []

    @tool(readonly=True)
    async def read(n: int) -> int:
        ran.append(n)
        return n

    rows = MemoryDatabase()
    calls = [ToolCall(id=f"c{n}", name="read", arguments={"n": n}) for n in range(4)]
    async with fail_after(10), Runtime.open(Picky(rows), tools=[read]) as runtime:
        with pytest.raises(StoreError, match="the outcome is too large"):
            await runtime.session("s").run_batch(calls)
    async with fail_after(10), Runtime.open(MemoryStore(rows), tools=[read]) as runtime:
        outcomes = await runtime.session("s").run_batch(calls)
    assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [(0, True), (1, False), (2, True), (3, True)]
    assert ran == [0, 1, 2, 3, 1]


@pytest.mark.promise("EFF-07")
async def test_a_fault_under_a_nested_call_is_not_the_outcome_of_the_one_that_made_it():
    ran = []

    class Failing(MemoryStore):
        fails = True

        async def begin(self, intents, refused=()):
            if self.fails and intents[0].parent is not None:
                raise StoreError("the disk is full")
            return await super().begin(intents, refused)

    @tool(idempotent=True)
    async def trip(ctx: ToolContext) -> str:
        ran.append("trip")
        try:
            return (await ctx.call("book", flight="LH1")).value
        except Exception:
            return "as if nothing had happened"

    store = Failing()
    async with fail_after(10), Runtime.open(store, tools=[book, trip]) as runtime:
        calls = [ToolCall(id="c1", name="trip", arguments={})]
        with pytest.raises(StoreError, match="the disk is full"):
            await runtime.session("s").run_batch(calls)
        store.fails = False
        (outcome,) = await runtime.session("s").run_batch(calls)
    assert (outcome.value, ran) == ("LH1", ["trip", "trip"])


@pytest.mark.promise("EFF-07")
async def test_a_runtime_that_could_not_open_leaves_nothing_running(file):
    file.write_text("not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(StoreError):
        async with Runtime.open(file, recover=True):
            pytest.fail("It opened.")
