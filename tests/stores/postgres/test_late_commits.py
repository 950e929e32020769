"""A commit that is on its way: it does not arrive after its transaction was repeated, nor behind a reader of events."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after, until
from tests.tcp_proxy import TcpProxy
from toolwright.stores.postgres.store import PostgresStore
from toolwright.testing.conformance.cases import call, intent, success

WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.mark.promise("ENG-02")
async def test_a_commit_that_arrives_late_is_not_beside_the_one_that_repeats_it(postgres: PostgresServer):
    with postgres.schema() as schema, TcpProxy(postgres.port) as proxy:
        store = await PostgresStore.open(f"{postgres.url.replace(str(postgres.port), str(proxy.port))}?schema={schema}")
        async with fail_after(30):
            proxy.delay_commit()
            begun = asyncio.ensure_future(store.journal.begin([intent(call())]))
            assert await asyncio.to_thread(proxy.wait_lost, 20)
            # It is repeated on another connection.
            await until(lambda: begun.done() or postgres.execute(WAITS) != [(0,)])
            proxy.deliver()
            assert await begun == [None]
            assert await store.journal.finish(call(), success(call()), 1.0, 2.0)
            await store.close()
        assert postgres.execute(f"SELECT status FROM {schema}.calls") == [("success",)]


@contextmanager
def held_back(server: PostgresServer, schema: str, store: PostgresStore) -> Iterator[None]:
    """What a store writes meanwhile is not committed: its transactions wait at their end."""
    with psycopg.connect(server.url) as connection:
        connection.execute(f"SELECT FROM {schema}.commits WHERE owner = '{store.owner}' FOR UPDATE")
        yield


@pytest.mark.promise("ENG-02", "HTTP-02")
async def test_a_reader_of_events_that_begins_a_batch_misses_none_that_is_committed_late(postgres: PostgresServer):
    with postgres.schema() as schema:
        reads, late, third = [await PostgresStore.open(f"{postgres.url}?schema={schema}") for _ in range(3)]
        log = reads.services.events
        async with fail_after(60):
            await reads.journal.begin([intent(call("first"))])
            with held_back(postgres, schema, late):
                # Its event has a lower number than that of the third one, and is seen later.
                begun = asyncio.ensure_future(late.journal.begin([intent(call("late", "s2"))]))
                await until(lambda: postgres.execute(WAITS) == [(1,)])
                await third.journal.begin([intent(call("third", "s3"))])
                with held_back(postgres, schema, reads):
                    busy = asyncio.ensure_future(reads.journal.begin([intent(call("busy", "s4"))]))
                    await until(lambda: postgres.execute(WAITS) == [(2,)])
                    page = asyncio.ensure_future(log.after(0, 100))
                    await until(lambda: reads._writer.jobs.queued == 1)
                    beside = reads.journal.begin([intent(call("beside", "s5"))])
                    for _ in range(5):  # until both are handed to the thread of the writer
                        await asyncio.sleep(0)
                await until(lambda: page.done() or (busy.done() and postgres.execute(WAITS) == [(2,)]))
            await asyncio.gather(begun, busy, beside)
            seen = await page
            then = await log.after(seen.last, 100)
            for store in (reads, late, third):
                await store.close()
    assert {"s2", "s3"} <= {event.session for event in (*seen.events, *then.events)}
