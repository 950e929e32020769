"""A PostgreSQL store that cannot be opened says why, and what to do."""

import asyncio
from contextlib import ExitStack

import psycopg
import pytest

from tests.postgres_server import PostgresServer
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores import inspect_store, open_store
from toolwright.stores.postgres.schema import VERSION
from toolwright.stores.postgres.store import PostgresStore


@pytest.fixture
def url(postgres: PostgresServer):
    with ExitStack() as stack:
        schema = stack.enter_context(postgres.schema())
        yield f"{postgres.url}?schema={schema}"


async def refusal(url: str) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await open_store(url)
    return raised.value


@pytest.mark.promise("ENG-01")
async def test_a_url_is_all_that_a_runtime_needs(url):
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    for replayed in (False, True):
        async with Runtime.open(url, tools=[add]) as runtime:
            (outcome,) = await runtime.session("s").run_batch(
                [ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})]
            )
            assert (outcome.value, outcome.replayed) == (3, replayed)


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("schema", ["", "x" * 64])
async def test_a_schema_without_a_usable_name_is_refused(postgres, schema):
    assert "is not usable" in str(await refusal(f"{postgres.url}?schema={schema}"))


@pytest.mark.promise("ENG-01")
async def test_a_schema_of_another_program_is_left_alone(postgres):
    postgres.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.things (a int)")
    try:
        error = await refusal(f"{postgres.url}?schema=theirs")
        assert "belongs to another program (it has 'things'); name another by ?schema=" in str(error)
    finally:
        postgres.execute("DROP SCHEMA theirs CASCADE")


@pytest.mark.promise("ENG-01")
async def test_a_store_of_a_newer_version_is_refused(postgres, url):
    await (await open_store(url)).close()
    schema = url.rpartition("=")[2]
    postgres.execute(f"UPDATE {schema}.toolwright_schema SET version = 99")
    try:
        assert "was written by a newer toolwright (schema 99" in str(await refusal(url))
    finally:
        postgres.execute(f"UPDATE {schema}.toolwright_schema SET version = {VERSION}")


COLUMNS = (
    "SELECT table_name, column_name, data_type, collation_name, is_nullable FROM information_schema.columns"
    " WHERE table_schema = '{0}' ORDER BY 1, 2"
)
INDEXES = "SELECT replace(indexdef, '{0}.', '') FROM pg_indexes WHERE schemaname = '{0}' ORDER BY 1"


@pytest.mark.promise("EFF-13", "ENG-01")
async def test_a_store_of_version_1_is_brought_up_to_date(postgres, url):
    @tool(readonly=True)
    async def add(a: int, b: int) -> int:
        return a + b

    schema = url.rpartition("=")[2]
    call = ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})
    async with Runtime.open(url, tools=[add]) as runtime:
        await runtime.session("s").run_batch([call])
    queries = [query.format(schema) for query in (COLUMNS, INDEXES)]
    new = [postgres.execute(query) for query in queries]
    columns = (
        "session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at, owner,"
        " started_at, finished_at, status, outcome, authority"
    )
    postgres.execute(
        f"SET search_path TO {schema}; DROP VIEW bundled_calls; DROP VIEW every_call; DROP INDEX unfinished_calls;"
        "ALTER TABLE calls DROP COLUMN claims; ALTER TABLE commits DROP COLUMN news; DROP TABLE server_starts;"
        "DROP INDEX calls_of_session, calls_by_status, processes_by_time, pending_processes;"
        "CREATE INDEX unfinished_calls ON calls (queued_at) WHERE outcome IS NULL;"
        f"CREATE VIEW every_call AS SELECT {columns} FROM calls;"
        "CREATE VIEW bundled_calls AS SELECT * FROM every_call WHERE false;"
        "UPDATE toolwright_schema SET version = 1; RESET search_path"
    )
    assert [postgres.execute(query) for query in queries] != new

    async with Runtime.open(url, tools=[add]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([call])
    assert (outcome.value, outcome.replayed) == (3, True)
    assert [postgres.execute(query) for query in queries] == new


@pytest.mark.promise("EFF-13", "ENG-02")
async def test_a_store_is_not_brought_up_to_date_while_a_program_that_is_stopped_has_it_open(postgres, url):
    schema = url.rpartition("=")[2]
    store = await PostgresStore.open(url)
    await asyncio.to_thread(store.life.stop)  # It gives no sign of life, and has its connections.
    postgres.execute(
        f"UPDATE {schema}.owners SET until = clock_timestamp(); DROP TABLE {schema}.server_starts;"
        f"UPDATE {schema}.toolwright_schema SET version = {VERSION - 1}"
    )
    assert "is of an older version" in str(await refusal(url))
    await store.close()
    await (await open_store(url)).close()


@pytest.mark.promise("ENG-01")
async def test_programs_that_open_a_new_store_at_once_make_it_once(postgres):
    url = f"{postgres.url}?schema=at_once"
    try:
        stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(4)))
        assert len({store.waits.secret for store in stores}) == 1
        await asyncio.gather(*(store.close() for store in stores))
    finally:
        postgres.execute("DROP SCHEMA IF EXISTS at_once CASCADE")


@pytest.mark.promise("ENG-01")
async def test_a_role_that_may_not_create_uses_a_store_that_is_there(postgres, url):
    schema = url.rpartition("=")[2]
    await (await open_store(url)).close()
    postgres.execute(
        f"CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA {schema} TO app;"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO app;"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO app"
    )
    try:
        mine = url.replace("postgres@", "app@")
        store = await PostgresStore.open(mine)
        assert await store.services.kv.list_keys("s", "") == []
        await store.close()
        error = await refusal(f"postgresql://app@127.0.0.1:{postgres.port}/postgres?schema=another")
        assert "this user may not do that" in str(error)
    finally:
        postgres.execute("DROP OWNED BY app; DROP ROLE app")


@pytest.mark.promise("ENG-01")
async def test_owners_that_died_long_ago_are_forgotten(postgres, url):
    schema = url.rpartition("=")[2]
    store = await PostgresStore.open(url)
    long_ago = "clock_timestamp() - interval '8 days'"
    postgres.execute(
        f"INSERT INTO {schema}.owners VALUES ('old', {long_ago}, 'x'), ('new', clock_timestamp(), 'x');"
        f"INSERT INTO {schema}.commits VALUES ('old', 1), ('new', 1)"
    )
    again = await PostgresStore.open(url)
    for table, column in (("owners", "name"), ("commits", "owner")):
        names = {name for (name,) in postgres.execute(f"SELECT {column} FROM {schema}.{table}")}
        assert names == {"new", store.owner, again.owner}
    await store.close()
    await again.close()


@pytest.mark.promise("ENG-01")
async def test_secrets_need_a_key_of_the_program(url):
    async with Runtime.open(url) as runtime:
        with pytest.raises(Exception, match="key"):
            await runtime.session("s").secrets.set("token", "value")


@pytest.mark.promise("ENG-01")
async def test_a_store_is_inspected_by_its_url(postgres, url):
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    schema = url.rpartition("=")[2]
    inspector = inspect_store(url)
    async with Runtime.open(url, tools=[add]) as runtime:
        calls = [ToolCall(id=str(n), name="add", arguments={"a": n, "b": 2}) for n in range(20)]
        await runtime.session("s").run_batch(calls)
        stats = await inspector.stats()
        assert stats.calls == {"success": 20}
        assert stats.file_bytes > 0
        (batch,) = await inspector.batches()
        assert batch.statuses == {"success": 20}
        assert [call.tool for call in await inspector.calls(batch=batch.batch)] == ["add"] * 20
        assert await inspector.check() == []
        assert await inspector.version() == VERSION
        assert (await inspector.prune(4e9, dry_run=True)).calls == 20
        assert (await inspector.prune(4e9, vacuum=True)).calls == 20
        assert (await inspector.stats()).calls == {}
    assert await inspector.migrate() == (VERSION, VERSION)
    assert await inspector.exists()
    assert not await inspect_store(f"{postgres.url}?schema=nowhere").exists()
    with pytest.raises(StoreError, match="There is no store"):
        await inspect_store(f"{postgres.url}?schema=nowhere").stats()
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'nowhere'").fetchone() is None
    assert schema
