"""A server, a database or a URL that cannot be used is refused with the reason and the remedy, never with the
password."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from tests.postgres_server import PostgresServer
from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreDamaged, StoreError, StoreUnavailable
from toolwright.stores import inspect_store, open_store
from toolwright.stores.contracts.scheme import without_password
from toolwright.stores.postgres import address, schema
from toolwright.stores.postgres.store import PostgresStore

PASSWORD = "s3same"


async def refusal(url: str) -> StoreError:
    """Why a store is not opened; looking after it says the same."""
    async with fail_after(30):
        with pytest.raises(StoreError) as raised:
            await open_store(url)
        with pytest.raises(StoreError) as told:
            await inspect_store(url).stats()
    for error in (raised.value, told.value):
        assert PASSWORD not in str(error)
    return raised.value


@pytest.fixture(scope="module")
def roles(postgres: PostgresServer) -> Iterator[None]:
    """A role with a password, and some that may not come in."""
    postgres.execute(
        f"CREATE ROLE with_password LOGIN PASSWORD '{PASSWORD}'; CREATE ROLE not_let_in LOGIN; CREATE ROLE no_login"
    )
    postgres.execute("CREATE DATABASE for_others")
    postgres.execute("REVOKE CONNECT ON DATABASE for_others FROM PUBLIC")
    yield
    postgres.execute("DROP DATABASE for_others")
    postgres.execute("DROP OWNED BY with_password; DROP ROLE with_password, not_let_in, no_login")


REFUSED = {
    "with_password:wr0ng-s3same@{0}/postgres": "the password is wrong; check the URL, PGPASSWORD",
    "with_password@{0}/postgres?password=wr0ng-s3same": "the password is wrong; check the URL, PGPASSWORD",
    "with_password@{0}/postgres?password=s3same%zz": "the password is wrong",
    "with_password@{0}/postgres": "the server wants a password; put it into PGPASSWORD",
    "not_let_in:s3same@{0}/postgres": "pg_hba.conf rejects connection",
    "no_such_role:s3same@{0}/postgres": 'role "no_such_role" does not exist); check the user',
    "no_login:s3same@{0}/postgres": 'role "no_login" is not permitted to log in); check the user',
    "postgres:s3same@{0}/no%20database": "there is no such database; create it, or check the name",
    "with_password:s3same@{0}/for_others": "this user may not connect to the database; grant CONNECT",
    "postgres:s3same@{0}/template0": "the database takes no connections; allow them, or name another",
    "postgres:s3same@127.0.0.1:99999/postgres": 'invalid port number: "99999"; correct the URL',
    "postgres:s3same@{0}/postgres?sslmode=perhaps": 'invalid sslmode value: "perhaps"; correct the URL',
    "postgres:s3same@{0}/postgres?connect_timeout=long": "connect_timeout",
    "postgres:s3same@{0}/postgres?sslmode=require": "the server has no TLS, and the URL wants it",
    "postgres:s3same@{0}/postgres?colour=blue": 'invalid URI query parameter: "colour"',
    "postgres:s3same@{0}/postgres?options=-c%20colour%3Dblue": 'unrecognized configuration parameter "colour"',
    "postgres:s3same@{0}/postgres?options=-c%20default_transaction_read_only%3Don": "the server can only be read",
    "postgres:s3same@{0}/postgres?schema=pg_mine": "the schema cannot have this name",
    "postgres:s3same@{0}/postgres?schema=%ff": "not UTF-8",
    "postgres:s3same@{0}/postgres?schema=a%00b": "U+0000",
    "postgres:s3/same-s3same@{0}/postgres": "not encoded; write @ as %40",
    "postgres:s3@same-s3same@{0}/postgres": "not encoded; write @ as %40",
    "postgres:s3same?x@no/y@{0}/postgres": "not encoded; write @ as %40",
}


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("place", REFUSED)
async def test_what_the_server_or_the_url_does_not_allow_is_refused_with_the_remedy(postgres, roles, place):
    error = await refusal("postgresql://" + place.format(f"127.0.0.1:{postgres.port}"))
    assert REFUSED[place] in str(error)
    assert not isinstance(error, StoreUnavailable)


@pytest.mark.promise("ENG-01")
async def test_a_password_with_any_character_is_taken_from_the_url(postgres, roles):
    odd = "a@b/c?d&e=f#g%h:i j'k\"lü"
    doubled = odd.replace("'", "''")
    postgres.execute(
        f"ALTER ROLE with_password PASSWORD '{doubled}'; GRANT CREATE ON DATABASE postgres TO with_password"
    )
    place = f"127.0.0.1:{postgres.port}/postgres?schema=with_password"
    try:
        url = f"postgresql://with_password:{quote(odd, safe='')}@{place}"
        await (await open_store(url)).close()
        assert without_password(url) == f"postgresql://…@{place}"
        url = f"postgresql://with_password@{place}&password={quote(odd, safe='')}"
        await (await open_store(url)).close()
        assert without_password(url) == f"postgresql://…@{place}&password=…"
    finally:
        postgres.execute(f"DROP OWNED BY with_password; ALTER ROLE with_password PASSWORD '{PASSWORD}'")


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """An address where every connection gets this answer, and is closed; None for one that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    asked, _ = server.accept()
                except OSError:
                    return
                with asked:
                    if answer:
                        asked.recv(100)
                        asked.sendall(answer)

        thread = threading.Thread(target=serve)
        if answer is not None:
            thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            if answer is not None:
                thread.join()


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
async def test_a_port_of_another_program_is_refused(answer):
    with answering(answer) as place:
        error = await refusal(f"postgresql://postgres:{PASSWORD}@{place}/postgres")
    assert "what answers there is not PostgreSQL" in str(error)
    assert str(error).endswith("; check host and port")


AWAY = {
    "127.0.0.1:1/postgres": 'connection to server at "127.0.0.1", port 1 failed: Connection refused',
    "no-such-host.invalid/postgres": "failed to resolve host 'no-such-host.invalid'",
    "%2Fno%2Fsuch%2Ffolder/postgres": '"/no/such/folder/.s.PGSQL.5432" failed: No such file or directory',
}


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("place", AWAY)
async def test_a_server_that_is_not_there_is_unavailable(place):
    error = await refusal(f"postgresql://postgres:{PASSWORD}@{place}")
    assert isinstance(error, StoreUnavailable)
    assert AWAY[place] in str(error)
    assert str(error).endswith("; check that the server runs, and the address")


@pytest.mark.promise("ENG-01")
async def test_a_server_that_never_answers_is_waited_for_a_few_seconds(monkeypatch):
    monkeypatch.setattr(address, "CONNECT", 2)  # the shortest that libpq knows
    with answering(None) as place:
        error = await refusal(f"postgresql://postgres:{PASSWORD}@{place}/postgres")
    assert isinstance(error, StoreUnavailable)
    assert "connection timeout expired; check that the server runs" in str(error)


@pytest.mark.promise("ENG-01")
async def test_a_server_that_is_too_old_is_refused(postgres, monkeypatch):
    monkeypatch.setattr(address, "OLDEST", 990_000)
    error = await refusal(postgres.url)
    ((version,),) = postgres.execute("SELECT current_setting('server_version_num')::int / 10000")
    assert f"is on PostgreSQL {version}; version 99 is the oldest that can be used; upgrade the server" in str(error)


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "MULE_INTERNAL"])
async def test_a_database_that_cannot_hold_every_text_is_refused(postgres, encoding):
    postgres.execute(f"CREATE DATABASE encoded ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        error = await refusal(postgres.url.removesuffix("postgres") + "encoded")
        assert encoding in str(error)
        assert str(error).endswith("create one with ENCODING 'UTF8'")
    finally:
        postgres.execute("DROP DATABASE encoded")


@pytest.mark.promise("ENG-01")
async def test_any_name_of_a_user_a_database_and_a_schema_is_used_as_it_is(postgres):
    user, database, name = "Bö \"b'x", "Ünï \"co'de", "Sch \"e' %{}$1?:+a&=" + "ü" * 20
    quoted = {each: '"' + each.replace('"', '""') + '"' for each in (user, database)}
    postgres.execute(f"CREATE ROLE {quoted[user]} LOGIN")
    postgres.execute(f"CREATE DATABASE {quoted[database]} OWNER {quoted[user]}")
    url = "postgresql://{}@127.0.0.1:{}/{}?schema={}".format(
        quote(user, safe=""), postgres.port, quote(database, safe=""), quote(name, safe="")
    )

    @tool
    async def add(a: int) -> int:
        return a + 1

    try:
        for replayed in (False, True):
            async with Runtime.open(url, tools=[add]) as runtime:
                (outcome,) = await runtime.session("s").run_batch([ToolCall(id="1", name="add", arguments={"a": 1})])
                assert (outcome.value, outcome.replayed) == (2, replayed)
        assert (await inspect_store(url).stats()).calls == {"success": 1}
        assert await inspect_store(url).check() == []
        assert (await inspect_store(url).prune(4e9, vacuum=True)).calls == 1
    finally:
        postgres.execute(f"DROP DATABASE {quoted[database]}")
        postgres.execute(f"DROP ROLE {quoted[user]}")


SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    "default_transaction_isolation": "serializable",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Kathmandu",
    "datestyle": "German",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "statement_timeout": "300ms",
    "lock_timeout": "1ms",
    "idle_session_timeout": "300ms",
    "idle_in_transaction_session_timeout": "300ms",
    "transaction_timeout": "300ms",
    "synchronous_commit": "off",
    "client_encoding": "LATIN1",
    "escape_string_warning": "on",
}


@pytest.mark.promise("ENG-01")
async def test_the_settings_of_a_role_do_not_change_what_a_store_does(postgres):
    known = {name for (name,) in postgres.execute("SELECT lower(name) FROM pg_settings")}
    settings = "; ".join(
        f"ALTER ROLE peculiar SET {name} = {value}" for name, value in _literals(SETTINGS) if name in known
    )
    postgres.execute(f"CREATE ROLE peculiar LOGIN; GRANT CREATE ON DATABASE postgres TO peculiar; {settings}")
    url = f"postgresql://peculiar@127.0.0.1:{postgres.port}/postgres?schema=peculiar"
    text = "back\\slash 'quote' 日本 \0\x01 ü"

    @tool
    async def echo(text: str) -> str:
        return text

    try:
        async with fail_after(30), Runtime.open(url, tools=[echo]) as runtime:
            session = runtime.session(text)
            for n in range(5):  # also the plans that the server keeps
                await session.kv.set(f"k{n}", [text, n, 0.1 + 0.2])
            await asyncio.gather(
                *(session.run_batch([ToolCall(id=str(n), name="echo", arguments={"text": text})]) for n in range(20))
            )
            assert await session.kv.get("k4") == [text, 4, 0.1 + 0.2]
            connection = address.Address(url).connect()
            shown = "SELECT current_setting('synchronous_commit'), pg_sleep(0.5)"
            assert connection.execute(shown).fetchone()[0] == "on"
            connection.raw.close()
        async with Runtime.open(url, tools=[echo]) as runtime:
            (outcome,) = await runtime.session(text).run_batch(
                [ToolCall(id="7", name="echo", arguments={"text": text})]
            )
            assert (outcome.value, outcome.replayed) == (text, True)
        assert (await inspect_store(url).stats()).calls == {"success": 20}
    finally:
        postgres.execute("DROP OWNED BY peculiar; DROP ROLE peculiar")


def _literals(settings: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, value if name == "search_path" else f"'{value}'") for name, value in settings.items()]


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.schema() as name:
        yield f"{postgres.url}?schema={name}"


@pytest.fixture
async def app(postgres: PostgresServer, url: str) -> str:
    """The URL of a store that is there, for a role that may only use it."""
    await (await open_store(url)).close()
    name = url.rpartition("=")[2]
    postgres.execute(
        f"CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA {name} TO app;"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO app;"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO app"
    )
    return url.replace("postgres@", "app@")


@pytest.fixture
def without_app(postgres: PostgresServer) -> Iterator[None]:
    yield
    postgres.execute("DROP OWNED BY app; DROP ROLE app")


MISSING = {
    "INSERT ON {}.calls": "has not SELECT, INSERT, UPDATE, DELETE on 'calls' of the schema",
    "SELECT ON {}.every_call": "'every_call'",
    "USAGE ON SEQUENCE {}.event_numbers": "has not USAGE on 'event_numbers' of the schema",
    "USAGE ON SCHEMA {}": "this user may not use the schema",
}


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize("missing", MISSING)
async def test_a_privilege_that_is_missing_is_told_before_anything_is_written(postgres, without_app, app, missing):
    postgres.execute(f"REVOKE {missing.format(app.rpartition('=')[2])} FROM app")
    with pytest.raises(StoreError) as raised:
        await open_store(app)
    assert MISSING[missing] in str(raised.value)
    assert str(raised.value).endswith("as docs/postgres.md says")


NOW = schema.VERSION
"""The version of the schema, from which the tests go to the next one."""


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A version of toolwright whose schema has one more column; the statements of its migration."""
    statements = ["ALTER TABLE calls ADD COLUMN colour text"]
    monkeypatch.setattr(schema, "VERSION", NOW + 1)
    monkeypatch.setattr(schema, "_migrations", lambda: [(NOW + 1, "; ".join(statements))])
    return statements


@pytest.fixture
def as_before(postgres: PostgresServer, url: str) -> Iterator[None]:
    """The schema has its version again at the end, for other tests."""
    yield
    name = url.rpartition("=")[2]
    postgres.execute(
        f"ALTER TABLE {name}.calls DROP COLUMN IF EXISTS colour; UPDATE {name}.toolwright_schema SET version = {NOW}"
    )


@pytest.mark.promise("EFF-13", "ENG-01")
async def test_an_older_schema_is_brought_up_to_date_by_a_role_that_may(
    postgres, without_app, app, as_before, newer, url
):
    with pytest.raises(StoreError) as raised:
        await open_store(app)
    older = f"is of an older version (schema {NOW}, this one knows {NOW + 1}), and this user may not change it"
    assert older in str(raised.value)
    assert str(raised.value).endswith("run `toolwright db migrate` as its owner, and grant again what is new")
    with pytest.raises(StoreError, match="run `toolwright db migrate`"):
        await inspect_store(app).stats()
    assert await inspect_store(url).migrate() == (NOW, NOW + 1)
    await (await open_store(app)).close()


@pytest.mark.promise("EFF-13", "ENG-01")
async def test_a_migration_waits_until_nobody_has_the_older_store_open(postgres, url, as_before, monkeypatch):
    store = await PostgresStore.open(url)
    with monkeypatch.context() as newer:
        newer.setattr(schema, "VERSION", NOW + 1)
        with pytest.raises(StoreError, match="a program has it open; end that first"):
            await open_store(url)
        await store.close()
        await (await open_store(url)).close()


@pytest.mark.promise("EFF-13", "ENG-01")
async def test_a_migration_that_is_killed_in_the_middle_leaves_the_older_store(postgres, url, as_before, newer):
    with pytest.MonkeyPatch.context() as older:
        older.setattr(schema, "VERSION", NOW)
        store = await PostgresStore.open(url)
        await store.close()
    name = url.rpartition("=")[2]
    postgres.execute(f"INSERT INTO {name}.meta VALUES ('mine', 'x')")
    newer.append("SELECT pg_sleep(60)")
    going = asyncio.ensure_future(open_store(url))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with fail_after(30):
        while not await asyncio.to_thread(postgres.execute, kill):
            pass
        with pytest.raises(StoreUnavailable):
            await going
    assert postgres.execute(f"SELECT version FROM {name}.toolwright_schema") == [(NOW,)]
    column = f"SELECT 1 FROM pg_attribute WHERE attrelid = '{name}.calls'::regclass AND attname = 'colour'"
    assert postgres.execute(column) == []
    newer.pop()
    await (await open_store(url)).close()
    assert postgres.execute(column) == [(1,)]
    assert postgres.execute(f"SELECT value FROM {name}.meta WHERE name = 'mine'") == [(b"x",)]


@pytest.mark.promise("EFF-13", "ENG-01")
@pytest.mark.parametrize(
    ("lost", "what"),
    [("DELETE FROM {}.toolwright_schema", "its version"), ("DELETE FROM {}.meta", "the secret of its keys")],
)
async def test_a_schema_that_was_restored_without_its_rows_is_damaged(postgres, lost, what):
    await (await open_store(f"{postgres.url}?schema=restored")).close()
    try:
        postgres.execute(lost.format("restored"))
        with pytest.raises(StoreDamaged, match=f"lacks {what}; restore the whole schema from a backup"):
            await open_store(f"{postgres.url}?schema=restored")
    finally:
        postgres.execute("DROP SCHEMA restored CASCADE")
