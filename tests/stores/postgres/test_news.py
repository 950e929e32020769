"""How a process learns that another one has written: the server notifies it, between two signs of life."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.postgres_server import PostgresServer, is_listening
from tests.support import fail_after, until
from toolwright.stores.contracts.sessions import Quota
from toolwright.stores.postgres import life as lives
from toolwright.stores.postgres.listener import channel_of
from toolwright.stores.postgres.store import PostgresStore

WIDE = Quota(1_000, 1_000_000)


@asynccontextmanager
async def one_writes_and_one_waits(postgres: PostgresServer) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores of one schema."""
    with postgres.schema() as schema:
        url = f"{postgres.url}?schema={schema}"
        async with fail_after(20):
            writes, waits = await PostgresStore.open(url), await PostgresStore.open(url)
            try:
                yield writes, waits
            finally:
                await writes.close()
                await waits.close()


@pytest.mark.promise("ENG-02")
@pytest.mark.parametrize("others", [False, True], ids=["alone", "others notify"])
async def test_a_process_that_waits_is_notified_of_what_another_one_writes(postgres, monkeypatch, others):
    monkeypatch.setattr(lives, "EVERY", 1_000.0)  # With a sign of life it would look at the others.
    async with one_writes_and_one_waits(postgres) as (writes, waits):
        before = await waits.news(None, 0.0)
        heard = asyncio.ensure_future(waits.news(before, 60.0))
        await until(lambda: is_listening(postgres, waits))
        if others:  # any program of the database may notify something on the channel
            for text in ("", "somebody", f"{writes.owner} many", f"{writes.owner} {'9' * 7_000}", "a b c ²"):
                postgres.execute(f"SELECT pg_notify('{channel_of(waits.address)}', '{text}')")
        await writes.services.kv.set_value("s", "k", b"1", 1.0, WIDE, None)
        assert await asyncio.wait_for(heard, 10) != before
