"""A store behind PgBouncer: in session mode all holds; in the others it is refused before anything is set."""

import asyncio

import psycopg
import pytest

from tests.peers.pgbouncer import pooled
from tests.postgres_server import PostgresServer, is_dead, is_listening
from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores import inspect_store, open_store
from toolwright.stores.contracts.sessions import Quota
from toolwright.stores.postgres.store import PostgresStore

WIDE = Quota(1_000, 1_000_000)


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_a_store_behind_a_pooler_in_session_mode_has_its_locks_and_hears_others(server):
    @tool
    async def add(a: int) -> int:
        return a + 1

    with pooled(server, "session") as pool:
        url = f"{pool}?schema=by_session"
        store = await PostgresStore.open(url)
        async with fail_after(60), Runtime.open(store, tools=[add]) as runtime:
            calls = [ToolCall(id=str(n), name="add", arguments={"a": n}) for n in range(20)]
            for replayed in (False, True):
                outcomes = await runtime.session("s").run_batch(calls)
                assert [(outcome.value, outcome.replayed) for outcome in outcomes] == [
                    (n + 1, replayed) for n in range(20)
                ]
            # Its sign of life is a lock of a session of the server, seen by one that is connected directly.
            direct = await PostgresStore.open(f"{server.url}?schema=by_session")
            await asyncio.to_thread(store.life.stop)
            await asyncio.to_thread(server.execute, "UPDATE by_session.owners SET until = '-infinity'")
            assert not await is_dead(store.owner, direct)
            cursor = await store.news(None, 0.0)
            while not is_listening(server, store):
                await store.news(cursor, 0.1)
            await direct.services.kv.set_value("s", "k", b"1", 1.0, WIDE, None)
            assert await store.news(cursor, 30.0) != cursor
            assert is_listening(server, store)
            await direct.close()
        assert (await inspect_store(url).stats()).calls == {"success": 20}


@pytest.mark.promise("ENG-01", "ENG-02")
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_changes_sessions_is_refused_and_nothing_is_set_in_them(server, mode):
    with pooled(server, mode) as pool:
        url = f"{pool}?schema=by_{mode}"
        async with fail_after(60):
            for use in (open_store, lambda url: inspect_store(url).stats(), lambda url: inspect_store(url).exists()):
                with pytest.raises(StoreError) as raised:
                    await use(url)
                assert "a pooler stands before the server, and changes the session with each transaction" in str(
                    raised.value
                )
                assert "pool_mode = session" in str(raised.value)
        with psycopg.connect(pool, autocommit=True, prepare_threshold=None) as other:
            row = other.execute("SELECT current_setting('search_path'), current_setting('lock_timeout')").fetchone()
            assert row == ('"$user", public', "0")
    assert server.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = 'by_{mode}'") == []


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_a_busy_pooler_in_transaction_mode_is_refused_too(server):
    with pooled(server, "transaction", size=10) as pool:
        ended = asyncio.Event()

        async def use() -> None:
            connection = await psycopg.AsyncConnection.connect(pool, autocommit=True, prepare_threshold=None)
            async with connection:
                while not ended.is_set():
                    await connection.execute("SELECT 1")

        async with fail_after(60), asyncio.TaskGroup() as others:
            for _ in range(4):
                others.create_task(use())
            for _ in range(10):
                with pytest.raises(StoreError, match="a pooler stands before the server"):
                    await open_store(f"{pool}?schema=busy")
            ended.set()
