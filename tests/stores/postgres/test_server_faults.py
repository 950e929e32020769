"""What a server cannot do for a while is told to the program's owner and is never an outcome; afterwards work goes on,
and nothing was lost or done twice."""

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import PostgresServer, is_dead
from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores import open_store
from toolwright.stores.contracts.archives import SessionRows
from toolwright.stores.contracts.sessions import Quota
from toolwright.stores.postgres import address
from toolwright.stores.postgres import writer as writers
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.cases import call, intent, success

WIDE = Quota(1_000, 1_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(max_connections="20") as server:
        server.execute("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app")
        yield server


def url_of(server: PostgresServer, schema: str) -> str:
    """For a role that may not use the connections that are left for the administrator."""
    return f"postgresql://app@127.0.0.1:{server.port}/postgres?schema={schema}"


@contextmanager
def no_connection_left(server: PostgresServer) -> Iterator[None]:
    """Use all connections that programs may have."""
    with ExitStack() as held:
        with suppress(psycopg.OperationalError):
            while True:
                held.callback(psycopg.connect(url_of(server, "x").partition("?")[0]).close)
        yield


@contextmanager
def setting(server: PostgresServer, name: str, value: str) -> Iterator[None]:
    """Change a setting of the running server, for all its connections."""
    before = server.execute(f"SHOW {name}")

    def wait(until: bool) -> None:
        while (server.execute(f"SHOW {name}") != before) is not until:
            pass

    server.execute(f"ALTER SYSTEM SET {name} = {value}")
    server.execute("SELECT pg_reload_conf()")
    wait(True)
    try:
        yield
    finally:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM RESET {name}")  # type: ignore[call-overload]
            connection.execute("SELECT pg_reload_conf()")
        wait(False)


def pauses_of_writers(patch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that writers make from now on."""
    made: list[float] = []
    sleep = time.sleep

    def note(seconds: float) -> None:
        if threading.current_thread().name == "toolwright-journal":
            made.append(seconds)
        sleep(seconds)

    patch.setattr(time, "sleep", note)
    return made


class Ledger:
    """A tool that tells how often it ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []

        @tool
        async def charge(number: int) -> int:
            self.ran.append(number)
            return number

        self.tool = charge


def charges(*numbers: int) -> list[ToolCall]:
    return [ToolCall(id=f"c{number}", name="charge", arguments={"number": number}) for number in numbers]


@pytest.mark.promise("ENG-01", "EFF-07")
async def test_a_store_without_a_connection_left_says_so_and_opens_when_there_is_one(server):
    url = url_of(server, "full_at_opening")
    async with fail_after(30):
        with no_connection_left(server), pytest.raises(StoreUnavailable) as raised:
            await open_store(url)
        assert "no connection is left (remaining connection slots are reserved" in str(raised.value)
        assert str(raised.value).endswith(
            "raise the limit (max_connections, or CONNECTION LIMIT), or use fewer processes"
        )
        await (await open_store(url)).close()


@pytest.mark.promise("ENG-02", "EFF-07")
async def test_a_connection_that_is_needed_later_is_waited_for(server, monkeypatch):
    url = url_of(server, "full_later")
    store, other = await PostgresStore.open(url), await PostgresStore.open(url)
    async with fail_after(60):
        await store.services.kv.set_value("s", "k", b"1", 1.0, WIDE, None)
        with no_connection_left(server):
            with monkeypatch.context() as short:
                short.setattr(writers, "PATIENCE", 0.2)
                with pytest.raises(StoreUnavailable, match="no connection is left"):
                    await store.services.kv.list_keys("s", "")
            # What needs no new connection goes on.
            assert await store.journal.begin([intent(call())]) == [None]
            reading = asyncio.ensure_future(store.services.kv.list_keys("s", ""))
            assert await store.journal.finish(call(), success(call()), 1.0, 2.0)
            assert not reading.done()
        assert len(await reading) == 1
        cursor = await store.news(None, 0.0)
        with no_connection_left(server):
            waiting = asyncio.ensure_future(store.news(cursor, 30.0))
            await other.services.kv.set_value("s", "l", b"1", 1.0, WIDE, None)
            assert await waiting != cursor  # it looks, where it cannot listen
        await store.close()
        await other.close()


@pytest.mark.promise("ENG-02", "EFF-07")
async def test_a_statement_that_an_administrator_cancels_is_repeated(server):
    ledger = Ledger()
    url = url_of(server, "cancelled")
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwright'"
        " AND wait_event = 'advisory'"
    )
    store = await PostgresStore.open(url)
    async with fail_after(60), Runtime.open(store, tools=[ledger.tool]) as runtime:
        session = runtime.session("s")
        with psycopg.connect(server.url) as holder:
            holder.execute(f"SELECT pg_advisory_lock({store.address.lock_key('writers')})")
            going = asyncio.ensure_future(session.run_batch(charges(1)))
            for _ in range(3):
                while not await asyncio.to_thread(server.execute, cancel):
                    pass
            assert not going.done()
        (outcome,) = await going
        assert (outcome.value, ledger.ran) == (1, [1])
        with psycopg.connect(server.url) as holder:
            holder.execute(f"SELECT pg_advisory_lock({store.address.lock_key('writers')})")
            going = asyncio.ensure_future(session.run_batch(charges(2)))
            while not going.done():
                await asyncio.to_thread(server.execute, cancel)
        with pytest.raises(StoreError, match=r"was told to cancel the statement .*; repeat it"):
            await going
        assert ledger.ran == [1]
        (outcome,) = await session.run_batch(charges(2))
        assert (outcome.value, ledger.ran) == (2, [1, 2])


@pytest.mark.promise("ENG-02")
async def test_a_change_of_a_session_is_repeated_or_tells_of_the_lock_that_it_waited_for(server, monkeypatch):
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    store = await PostgresStore.open(url_of(server, "waits"))
    async with fail_after(60), Runtime.open(store) as runtime:
        kv = runtime.session("s").kv
        with psycopg.connect(server.url) as holder:
            holder.execute(f"SELECT pg_advisory_lock({store.address.lock_key('writers')})")
            going = asyncio.ensure_future(kv.set("k", 1))
            while not await asyncio.to_thread(server.execute, cancel):
                pass
        await going
        assert await kv.get("k") == 1
    monkeypatch.setitem(address._SETTINGS, "lock_timeout", "100ms")
    async with fail_after(60), Runtime.open(url_of(server, "waits")) as runtime:
        kv = runtime.session("s").kv
        with psycopg.connect(server.url) as holder:
            holder.execute(f"SELECT pg_advisory_lock({store.address.lock_key('writers')})")
            with pytest.raises(StoreUnavailable, match="another program holds it; wait, or stop that program"):
                await kv.set("k", 2)
        await kv.set("k", 3)
        assert await kv.get("k") == 3


@pytest.mark.promise("ENG-01")
async def test_an_export_may_write_slowly_while_it_reads_one_moment_of_the_store(server, monkeypatch):
    monkeypatch.setitem(address._SETTINGS, "idle_in_transaction_session_timeout", "50ms")
    waited = (
        "SELECT count(*) FILTER (WHERE clock_timestamp() < state_change + interval '200 ms') = 0"
        " FROM pg_stat_activity WHERE application_name = 'toolwright' AND state = 'idle in transaction'"
    )

    def take(rows: SessionRows) -> list[str]:
        keys = [row.key for row in rows.rows("key_values")]
        while server.execute(waited) != [(True,)]:
            pass
        return [*keys, *(row.key for row in rows.rows("key_values"))]

    store = await PostgresStore.open(url_of(server, "slow_export"))
    async with fail_after(60):
        await store.services.kv.set_value("s", "k", b"1", 1.0, WIDE, None)
        assert await store.services.archives.read_session("s", take) == ["k", "k"]
        await store.close()


@pytest.mark.promise("ENG-02", "EFF-07")
async def test_a_lock_that_another_program_holds_for_too_long_is_told(server, monkeypatch):
    monkeypatch.setitem(address._SETTINGS, "lock_timeout", "100ms")
    ledger = Ledger()
    async with fail_after(60), Runtime.open(url_of(server, "locked"), tools=[ledger.tool]) as runtime:
        session = runtime.session("s")
        with psycopg.connect(server.url) as holder:
            holder.execute("LOCK TABLE locked.calls")
            with pytest.raises(StoreUnavailable, match="another program holds it; wait, or stop that program"):
                await session.run_batch(charges(1))
        assert ledger.ran == []
        (outcome,) = await session.run_batch(charges(1))
        assert (outcome.value, ledger.ran) == (1, [1])


@pytest.mark.promise("ENG-02", "EFF-07")
async def test_a_server_that_can_only_be_read_for_a_while_is_waited_for(server, monkeypatch):
    ledger = Ledger()
    url = url_of(server, "read_only")
    store = await PostgresStore.open(url)
    async with fail_after(60), Runtime.open(store, tools=[ledger.tool]) as runtime:
        session = runtime.session("s")
        await session.kv.set("k", 1)
        with setting(server, "default_transaction_read_only", "on"):
            with monkeypatch.context() as short:
                short.setattr(writers, "PATIENCE", 1.0)
                pauses = pauses_of_writers(short)
                with pytest.raises(StoreUnavailable, match="can only be read, as a replica or by a setting"):
                    await session.run_batch(charges(1))
                assert sum(pauses) > 0.1  # it does not ask without a break
                assert pauses == sorted(pauses)
                assert await session.kv.get("k") == 1
            with pytest.raises(StoreError, match="the server can only be read"):
                await open_store(url_of(server, "another"))
            going = asyncio.ensure_future(session.run_batch(charges(1, 2)))
            await asyncio.wait({going}, timeout=0.2)
            assert not going.done()
        assert [outcome.value for outcome in await going] == [1, 2]
        assert sorted(ledger.ran) == [1, 2]
        other = await PostgresStore.open(url)
        assert not await is_dead(store.owner, other)
        await other.close()


@pytest.mark.promise("ENG-02", "EFF-07")
async def test_a_commit_whose_answer_was_lost_is_unknown_when_the_server_then_refuses_this_user(server):
    store = await PostgresStore.open(url_of(server, "locked_out"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"

    def lock_out(connection):
        connection.execute("INSERT INTO meta (name, value) VALUES ('mine', 'x')")
        real = connection.run

        def lose(statement, values=()):
            rows = real(statement, values)
            if statement == "COMMIT":
                server.execute("ALTER ROLE app NOLOGIN")
                server.execute(kill)
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return rows

        connection.run = lose

    try:
        async with fail_after(30):
            with pytest.raises(StoreUnavailable, match="whether the last transaction was written is not known"):
                await store._writer.do(lock_out)
            with pytest.raises(StoreError, match="is not permitted to log in") as raised:
                await store.journal.begin([intent(call())])
            assert not isinstance(raised.value, StoreUnavailable)
    finally:
        server.execute("ALTER ROLE app LOGIN")
    async with fail_after(30):
        assert await store.journal.begin([intent(call())]) == [None]
        assert server.execute("SELECT name FROM locked_out.meta WHERE name = 'mine'") == [("mine",)]
        await store.close()


@contextmanager
def small_disk() -> Iterator[Path]:
    """A folder on a disk of its own, of a few megabytes, that the server may write to."""
    with PostgresServer.folder() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size=24m,uid={folder.stat().st_uid},mode=700", "small", str(folder)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("needs to mount a disk")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.promise("EFF-07", "ENG-02")
async def test_a_full_disk_of_the_server_is_told_and_nothing_is_lost_or_doubled(server):
    ran = []

    @tool
    async def write(number: int, size: int) -> str:
        ran.append(number)
        return os.urandom(size // 2).hex()

    def call_of(number: int, size: int) -> list[ToolCall]:
        return [ToolCall(id=f"c{number}", name="write", arguments={"number": number, "size": size})]

    with small_disk() as disk:
        server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        server.execute("CREATE DATABASE small TABLESPACE small OWNER app")
        url = url_of(server, "full").replace("/postgres?", "/small?")
        try:
            async with fail_after(60), Runtime.open(url, tools=[write]) as runtime:
                session = runtime.session("s")
                kept = []

                async def fill() -> None:
                    for number in range(200):
                        (outcome,) = await session.run_batch(call_of(number, 400_000))
                        kept.append(outcome.value)

                with pytest.raises(StoreError) as raised:
                    await fill()
                assert "could not write: the disk of the server is full; free some space" in str(raised.value)
                full = len(kept)
                assert (full > 3, ran) == (True, list(range(full + 1)))
                # Room is made by the one who keeps the server.
                larger = ["mount", "-o", "remount,size=64m", str(disk)]
                await asyncio.to_thread(subprocess.run, larger, check=True)
                for number in range(full):
                    (outcome,) = await session.run_batch(call_of(number, 400_000))
                    assert (outcome.replayed, outcome.value) == (True, kept[number])
                (later,) = await session.run_batch(call_of(500, 400_000))
                assert later.ok
                # The outcome that found no room is not known: the tool may not simply run again.
                (cut_off,) = await session.run_batch(call_of(full, 400_000))
                assert cut_off.failure is not None
                assert cut_off.failure.category == "interrupted"
                assert ran == [*range(full + 1), 500]
        finally:
            server.execute("DROP DATABASE small WITH (FORCE)")
            server.execute("DROP TABLESPACE small")
