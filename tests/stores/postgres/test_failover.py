"""A replica that takes the place of its primary: nobody who had a lock there is taken for dead before it could come."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer, is_dead
from tests.support import fail_after, until
from toolwright.stores.postgres import life
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.cases import call, intent

GRACE = 2.0


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with PostgresServer(wal_level="replica", max_wal_senders="4", synchronous_standby_names="*") as primary:
        replica = primary.replica()
        try:
            replica.start()
            yield primary, replica
        finally:
            replica.remove()


def url_of(*servers: PostgresServer) -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/postgres?schema=failover"


@pytest.mark.promise("ENG-02")
async def test_a_process_that_opens_a_store_after_a_failover_waits_for_those_who_had_it_open(pair, monkeypatch):
    monkeypatch.setattr(life, "GRACE", GRACE)
    primary, replica = pair
    late = await PostgresStore.open(url_of(primary, replica))
    await asyncio.to_thread(late.life.stop)  # the network lets it come back later than others
    primary.execute(f"UPDATE failover.owners SET until = clock_timestamp() WHERE name = '{late.owner}'")
    old = f"SELECT clock_timestamp() > pg_postmaster_start_time() + interval '{GRACE} seconds'"
    await until(lambda: replica.execute(old) == [(True,)])  # it ran for long before it was needed
    await asyncio.to_thread(primary.stop, signal.SIGKILL)
    replica.execute("SELECT pg_promote()")

    async with fail_after(30):
        first = await PostgresStore.open(url_of(primary, replica))
        assert not await is_dead(late.owner, first)
        await until(lambda: is_dead(late.owner, first))  # it did not come
        since = "SELECT clock_timestamp() > seen + interval '{} seconds' FROM failover.server_starts"
        assert replica.execute(since.format(GRACE)) == [(True,)]
        # Whoever opens it from now on need not wait.
        second = await PostgresStore.open(url_of(primary, replica))
        assert await is_dead(late.owner, second)
        for store in (first, second, late):
            await store.close()


@pytest.mark.promise("ENG-02", "EFF-08")
async def test_a_commit_whose_connection_is_lost_is_acknowledged_when_the_replica_has_it(pair):
    primary, replica = pair
    store = await PostgresStore.open(url_of(primary))
    await asyncio.to_thread(replica.stop)
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with fail_after(60):
        begun = asyncio.ensure_future(store.journal.begin([intent(call())]))
        ((first,),) = await until(lambda: primary.execute(waits))
        primary.execute(f"SELECT pg_terminate_backend({first})")  # it is committed there, and nowhere else
        await until(lambda: begun.done() or primary.execute(f"{waits} AND pid <> {first}"))
        assert not begun.done()
        await asyncio.to_thread(replica.start)
        assert await begun == [None]
        await store.close()


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_who_waits_for_a_server_that_is_gone_goes_on_when_another_connection_found_the_new_one(pair):
    primary, replica = pair
    store = await PostgresStore.open(f"{url_of(primary, replica)}&connect_timeout=2")
    with primary.frozen():  # it takes what is sent, and never answers
        begun = asyncio.ensure_future(store.journal.begin([intent(call())]))
        await asyncio.to_thread(replica.execute, "SELECT pg_promote()")
        async with fail_after(30):
            found = await asyncio.to_thread(store.address.connect)
            assert await begun == [None]
        found.raw.close()
        await store.close()
    assert replica.execute("SELECT count(*) FROM failover.calls") == [(1,)]
