"""A server that goes away for a while is not seen: nothing is lost, nothing is done twice, nobody is taken for dead."""

import asyncio
import signal

import psycopg
import pytest

from tests.postgres_server import PostgresServer, is_dead
from tests.support import fail_after, until
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores import copy_store
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.sessions import Quota
from toolwright.stores.postgres import life as lives
from toolwright.stores.postgres import writer as writers
from toolwright.stores.postgres.connection import PostgresConnection
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.background import registration
from toolwright.testing.conformance.cases import call, intent, success

WIDE = Quota(1_000, 1_000_000)


@pytest.fixture(scope="module")
def server():
    # What was written without waiting for the disk stays in memory for as long as the tests take.
    with PostgresServer(fsync="on", full_page_writes="on", wal_writer_delay="10s") as server:
        yield server


def cut(server: PostgresServer, *, but_for: str = "") -> None:
    """End all connections of stores."""
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwright'"
        f" AND pid <> pg_backend_pid() {but_for}"
    )


@pytest.mark.promise("ENG-01")
async def test_cut_connections_are_not_seen(server):
    store = await PostgresStore.open(f"{server.url}?schema=cut")
    async with fail_after(60):
        for number in range(5):
            await asyncio.to_thread(cut, server)
            assert await store.journal.begin([intent(call(str(number)))]) == [None]
            assert await store.journal.finish(call(str(number)), success(call(str(number))), 1.0, 2.0)
            await store.services.kv.set_value("s", str(number), b"1", 1.0, WIDE, None)
        await asyncio.to_thread(cut, server)
        assert len(await store.services.kv.list_keys("s", "")) == 5
        await store.close()


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_server_that_is_restarted_is_not_seen(server, how):
    charged = []

    @tool
    async def charge(number: int) -> int:
        charged.append(number)
        return number

    url = f"{server.url}?schema=restart_{how.name.lower()}"
    store, other = await PostgresStore.open(url), await PostgresStore.open(url)
    async with fail_after(120), Runtime.open(store, tools=[charge]) as runtime:
        session = runtime.session("s")
        await session.run_batch([ToolCall(id="first", name="charge", arguments={"number": 0})])
        await asyncio.to_thread(server.stop, how)
        going = asyncio.ensure_future(
            session.run_batch([ToolCall(id=str(n), name="charge", arguments={"number": n}) for n in range(1, 21)])
        )
        await asyncio.to_thread(server.start)
        assert [outcome.value for outcome in await going] == list(range(1, 21))
        assert sorted(charged) == list(range(21))
        assert not await is_dead(store.owner, other)
        await other.close()


@pytest.mark.promise("ENG-01")
async def test_a_commit_whose_answer_was_lost_is_not_repeated(server, monkeypatch):
    store = await PostgresStore.open(f"{server.url}?schema=lost")
    made = 0

    def add(connection):
        nonlocal made
        made += 1
        connection.execute("INSERT INTO firings (schedule, instant, at, what) VALUES ('s', ?, 0, 'x')", (made,))
        return made

    real = PostgresConnection.run
    struck = False

    def lose(self, statement, values=()):
        nonlocal struck
        rows = real(self, statement, values)
        if not struck and made and statement == "COMMIT":
            struck = True
            self.raw.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    monkeypatch.setattr(PostgresConnection, "run", lose)
    async with fail_after(60):
        assert await store._writer.do(add) == 1
        assert struck
        assert server.execute("SELECT instant FROM lost.firings") == [(1.0,)]
        await store.close()


@pytest.mark.promise("ENG-01")
async def test_a_server_that_stays_away_is_unavailable(server, monkeypatch):
    store = await PostgresStore.open(f"{server.url}?schema=away")
    monkeypatch.setattr(writers, "PATIENCE", 0.5)
    await asyncio.to_thread(server.stop)
    try:
        async with fail_after(60):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await store.journal.begin([intent(call())])
    finally:
        await asyncio.to_thread(server.start)
    assert await store.journal.begin([intent(call())]) == [None]
    await store.close()


@pytest.mark.promise("ENG-01", "EFF-12")
async def test_an_owner_is_dead_when_neither_its_lock_nor_its_row_is_there(server, monkeypatch):
    url = f"{server.url}?schema=alive"
    monkeypatch.setattr("toolwright.stores.postgres.life.GRACE", 0.0)
    first, second = await PostgresStore.open(url), await PostgresStore.open(url)

    assert not await is_dead(first.owner, second)
    await asyncio.to_thread(first.life.stop)
    past = f"UPDATE alive.owners SET until = '-infinity' WHERE name = '{first.owner}'"
    await asyncio.to_thread(server.execute, past)
    assert not await is_dead(first.owner, second)  # its lock is there
    await asyncio.to_thread(first.life._connection.raw.close)
    async with fail_after(20):
        while not await is_dead(first.owner, second):
            pass  # the server sees the end of a connection after a moment
    await first.close()
    await second.close()


@pytest.mark.promise("ENG-02", "EFF-11")
async def test_what_a_crash_of_the_server_lost_of_a_living_process_is_written_again(server, monkeypatch):
    monkeypatch.setattr(writers, "UNSAFE", 1e9)
    ran, entered, leave = [], asyncio.Event(), asyncio.Event()

    @tool(readonly=True)
    async def look(number: int) -> int:
        ran.append(number)
        if number % 5 == 4:
            entered.set()
        await leave.wait()  # an outcome would wait for the disk
        return number

    store = await PostgresStore.open(f"{server.url}?schema=living")
    async with fail_after(120), Runtime.open(store, tools=[look]) as runtime:
        session, lost = runtime.session("s"), 0
        await asyncio.to_thread(store.life.stop)  # which waits for the disk now and then
        for crash in range(20):  # a server that has time writes everything to the disk
            if lost:
                break
            entered.clear()
            leave.clear()
            numbers = range(5 * crash, 5 * crash + 5)
            calls = [ToolCall(id=str(number), name="look", arguments={"number": number}) for number in numbers]
            going = asyncio.ensure_future(session.run_batch(calls))
            await entered.wait()
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            await asyncio.to_thread(server.start)
            ((left,),) = server.execute("SELECT count(*) FROM living.calls")
            lost = 5 * crash + 5 - left
            leave.set()
            assert [outcome.value for outcome in await going] == list(numbers)
            again = await session.run_batch(calls)
            assert [(outcome.value, outcome.replayed) for outcome in again] == [(n, True) for n in numbers]
        assert lost, "The server lost nothing, though it was killed twenty times."
        assert sorted(ran) == list(range(numbers.stop))


@pytest.mark.promise("ENG-02", "HTTP-02")
async def test_numbers_of_events_that_were_shown_are_not_given_again_after_a_crash_of_the_server(server):
    url = f"{server.url}?schema=numbers"
    writing, reading = await PostgresStore.open(url, sync="normal"), await PostgresStore.open(url)
    async with fail_after(120):
        last = (await reading.services.events.after(None, 1)).last
        for crash in range(2):
            keys = [call(f"{crash}-{number}") for number in range(40)]
            for key in keys:
                await writing.journal.begin([intent(key)])
            shown = await reading.services.events.after(last, 100)
            assert len(shown.events) == 40
            await writing.journal.begin([intent(call(f"{crash}-lost"))])  # nobody has seen that
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            await asyncio.to_thread(server.start)
            assert (await reading.services.events.after(last, 100)).events == shown.events
            assert await writing.journal.begin([intent(call(f"{crash}-next"))]) == [None]
            later = await reading.services.events.after(shown.last, 100)
            assert [event.data["calls"][0][0] for event in later.events] == [f"{crash}-lost", f"{crash}-next"]
            last = later.last
        await writing.close()
        await reading.close()


@pytest.mark.promise("ENG-02", "EFF-12")
async def test_a_process_whose_machine_is_gone_does_not_keep_its_lock_for_hours(server):
    store = await PostgresStore.open(f"{server.url}?schema=keepalive")
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    connection = store.address.connect()
    idle, interval, count = (int(connection.run(f"SHOW {name}").fetchone()[0]) for name in names)
    assert 0 < idle + interval * count < 20
    connection.raw.close()
    await store.close()


@pytest.mark.promise("ENG-02", "PROC-04")
async def test_leases_that_pass_while_the_server_is_away_are_not_taken_before_they_could_be_renewed(
    server, monkeypatch
):
    monkeypatch.setattr(lives, "GRACE", 3_600.0)
    url = f"{server.url}?schema=leases"
    first, second = await PostgresStore.open(url), await PostgresStore.open(url)
    mine, theirs = first.services.runs, second.services.runs
    async with fail_after(60):
        await mine.register([registration("r")], Limits(), None)
        await mine.renew("w1", [], 1.0, 0.001, 5)
        (held,) = await mine.claim("w1", ["work"], 1.0, 0.001, 5)
        await asyncio.to_thread(server.stop, signal.SIGKILL)  # the lease passes while it is away
        await asyncio.to_thread(server.start)
        assert not await theirs.work_waits("w2", ["work"], 1.0)
        assert await theirs.claim("w2", ["work"], 1.0, 1.0, 5) == []
        assert await theirs.unclaimed(["work"], 1.0, 5) == []
        assert (await mine.renew("w1", [("r", held.run.token)], 1.0, 60.0, 5)).lost == []
        monkeypatch.setattr(lives, "GRACE", 0.0)
        third = await PostgresStore.open(url)  # It comes when the server is no longer new.
        late = third.services.runs
        assert await late.claim("w3", ["work"], 1.0, 1.0, 5) == []
        # A worker that does not come back loses its runs when the time to do so is over.
        assert (await mine.renew("w1", [("r", held.run.token)], 1.0, 0.0, 5)).lost == []
        (taken,) = await until(lambda: late.claim("w3", ["work"], 1.0, 1.0, 5))
        assert (taken.run.id, taken.before) == ("r", "w1")
        for store in (first, second, third):
            await store.close()


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_a_store_is_copied_after_a_restart_of_the_server_that_ended_all_programs(server, tmp_path, monkeypatch):
    monkeypatch.setattr(lives, "GRACE", 0.5)
    url = f"{server.url}?schema=all_ended"
    store = await PostgresStore.open(url)
    await store.services.kv.set_value("s", "k", b"1", 1.0, WIDE, None)
    await asyncio.to_thread(store.life.stop)
    await asyncio.to_thread(server.stop, signal.SIGKILL)
    await asyncio.to_thread(server.start)

    with pytest.raises(StoreError, match="one that was killed counts as alive"):
        await copy_store(url, tmp_path / "copy.db")

    async def is_copied() -> bool:
        try:
            copied = await copy_store(url, tmp_path / "copy.db")
        except StoreError:
            return False
        return copied.tables["key_values"].rows == 1

    assert await until(is_copied)
    await store.close()
