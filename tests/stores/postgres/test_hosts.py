"""Of several hosts the one that can be written to is used; a replica alone is refused."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores import inspect_store, open_store

DOWN = "127.0.0.1:1"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(wal_level="replica", max_wal_senders="4") as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: PostgresServer) -> Iterator[PostgresServer]:
    server = primary.replica()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def url_of(*places: str | PostgresServer) -> str:
    hosts = ",".join(place if isinstance(place, str) else f"127.0.0.1:{place.port}" for place in places)
    return f"postgresql://postgres:s3same@{hosts}/postgres?schema=shared"


@tool
async def add(a: int) -> int:
    return a + 1


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_the_host_that_can_be_written_to_is_found_wherever_it_stands(primary, replica):
    for number, hosts in enumerate([(primary, replica), (replica, primary), (DOWN, primary), (DOWN, replica, primary)]):
        async with fail_after(60), Runtime.open(url_of(*hosts), tools=[add]) as runtime:
            call = ToolCall(id=str(number), name="add", arguments={"a": number})
            (outcome,) = await runtime.session("s").run_batch([call])
            assert outcome.value == number + 1
            await runtime.session("s").kv.set("k", number)
            assert await runtime.session("s").kv.get("k") == number


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_a_replica_alone_can_be_looked_at_and_not_be_opened(primary, replica):
    async with fail_after(60):
        await (await open_store(url_of(primary))).close()
        at_primary = (await inspect_store(url_of(primary)).stats()).calls
        while not await inspect_store(url_of(replica)).exists():
            pass  # it follows
        while (await inspect_store(url_of(replica)).stats()).calls != at_primary:
            pass
        for url in (url_of(replica), url_of(replica).replace("=shared", "=unknown")):
            with pytest.raises(StoreError, match="the server can only be read, as a replica") as raised:
                await open_store(url)
            assert not isinstance(raised.value, StoreUnavailable)
            assert "s3same" not in str(raised.value)


@pytest.mark.promise("ENG-01", "ENG-02")
async def test_hosts_of_which_none_can_be_used_are_all_named(replica):
    async with fail_after(60):
        for hosts in ((DOWN, "127.0.0.2:1"), (DOWN, replica), (replica, DOWN)):
            with pytest.raises(StoreUnavailable) as raised:
                await open_store(url_of(*hosts))
            told = str(raised.value)
            assert "no host can be used (" in told
            assert "'127.0.0.1', port: '1': Connection refused" in told
            if replica in hosts:
                assert f"port: '{replica.port}': session is read-only" in told
            assert told.endswith("check that the primary runs, and the addresses")
            assert "s3same" not in told
