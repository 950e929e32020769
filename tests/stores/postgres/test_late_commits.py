"""A commit that is on its way when its connection is lost: it does not arrive after the transaction was repeated."""

import asyncio

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
