"""What a copy refuses, and that nobody can use a store in the middle of it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.postgres_server import PostgresServer
from toolwright import Runtime, StoreError
from toolwright.errors import StoreUnavailable
from toolwright.stores import CopyProgress, copy_store, open_store, register_scheme
from toolwright.stores import opening as registry
from toolwright.stores.contracts.copying import CopyPage, CopyTable, packed_row, unpacked_row
from toolwright.stores.postgres import address
from toolwright.stores.postgres.copying import PostgresCopyDatabase
from toolwright.stores.postgres.schema import VERSION as POSTGRES_VERSION
from toolwright.stores.sql.admin.copying import SqlCopy
from toolwright.stores.sqlite.admin.copying import SqliteCopyDatabase
from toolwright.stores.sqlite.core.schema import VERSION

pytestmark = pytest.mark.promise("ENG-01")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    name = f"copy_{os.urandom(4).hex()}"
    yield f"{postgres.url}?schema={name}"
    postgres.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture(params=["postgres", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "copy.db") if request.param == "sqlite" else str(request.getfixturevalue("url"))


@pytest.fixture
async def source(file: Path) -> str:
    await fill(file)
    return str(file)


async def fill(place: str | Path, value: object = 1) -> None:
    async with Runtime.open(place, worker=False) as runtime:
        await runtime.session("s1").kv.set("k", value)


async def open_once(place: str) -> None:
    async with Runtime.open(place):
        pass


async def read(place: str | Path) -> object:
    async with Runtime.open(place, worker=False) as runtime:
        return await runtime.session("s1").kv.get("k")


async def test_a_store_that_a_program_has_open_is_neither_copied_nor_written_to(source: str, target: str):
    async with Runtime.open(source):
        with pytest.raises(StoreError, match="a program has it open; end that first"):
            await copy_store(source, target)
    await copy_store(source, target)
    async with Runtime.open(target):
        with pytest.raises(StoreError, match=r"a program.* has it open; end that first"):
            await copy_store(source, target)
        with pytest.raises(StoreError, match=r"a program.* has it open; end that first"):
            await copy_store(target, f"{source}.other")


async def test_a_target_with_other_content_is_refused_and_stays(source: str, target: str):
    await fill(target, "other")
    with pytest.raises(StoreError, match=r"is not a copy of the source; .* or name another target"):
        await copy_store(source, target)
    assert await read(target) == "other"


async def test_a_target_that_was_only_opened_is_filled_like_an_empty_one(source: str, target: str):
    await open_once(target)
    assert (await copy_store(source, target)).written
    assert await read(target) == 1
    assert (await copy_store(source, target)).written == 0


async def test_a_copy_is_whole_also_if_it_or_its_source_was_only_opened_since(source: str, target: str):
    await copy_store(source, target)
    for place in (source, target):
        await open_once(place)
        again = await copy_store(source, target)
        assert (again.written, again.tables["key_values"].rows) == (0, 1)


async def test_a_copy_that_was_used_is_refused_and_stays(source: str, target: str):
    await copy_store(source, target)
    await fill(target, 2)
    with pytest.raises(StoreError, match=r"'key_values'.* differ, since one of them was used after the copy"):
        await copy_store(source, target)
    assert await read(target) == 2


async def test_the_unfinished_copy_of_another_store_is_refused(source: str, target: str, tmp_path: Path):
    class Cut(Exception):
        pass

    def cut(progress: CopyProgress) -> None:
        if progress.table == "key_values":
            raise Cut

    with pytest.raises(Cut):
        await copy_store(source, target, tell=cut)
    await fill(tmp_path / "other.db")
    with pytest.raises(StoreError, match="it is the unfinished copy of another store"):
        await copy_store(tmp_path / "other.db", target)
    with pytest.raises(StoreError, match="unfinished copy"):
        await copy_store(target, tmp_path / "third.db")
    assert (await copy_store(source, target)).rows
    assert await read(target) == 1


async def test_a_target_of_another_program_is_refused(source: str, url: str, postgres: PostgresServer, tmp_path: Path):
    with contextlib.closing(apsw.Connection(str(tmp_path / "theirs.db"))) as connection:
        connection.execute("CREATE TABLE theirs (a); PRAGMA user_version = -3")
    with pytest.raises(StoreError, match="belongs to another program"):
        await copy_store(source, tmp_path / "theirs.db")
    schema = url.partition("=")[2]
    postgres.execute(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".theirs (a int)')
    with pytest.raises(StoreError, match="belongs to another program"):
        await copy_store(source, url)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(VERSION - 1, "run `toolwright db migrate`"), (VERSION + 1, "upgrade toolwright"), (-1, "remove it")],
)
async def test_a_file_of_another_version_is_refused_with_the_remedy(
    source: str, tmp_path: Path, version: int, remedy: str
):
    copy = str(tmp_path / "copy.db")
    await copy_store(source, copy)
    with contextlib.closing(apsw.Connection(copy)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    for ends in ((copy, f"{copy}.new"), (source, copy)):
        with pytest.raises(StoreError, match=remedy):
            await copy_store(*ends)
    assert not Path(f"{copy}.new").exists()


@pytest.mark.parametrize(
    ("version", "remedy"), [(0, "db migrate"), (POSTGRES_VERSION + 1, "upgrade toolwright"), (-99, "drop its schema")]
)
async def test_a_schema_of_another_version_is_refused_with_the_remedy(
    source: str, url: str, postgres: PostgresServer, version: int, remedy: str
):
    await copy_store(source, url)
    postgres.execute(f'UPDATE "{url.partition("=")[2]}".toolwright_schema SET version = {version}')
    with pytest.raises(StoreError, match=remedy):
        await copy_store(source, url)


async def test_nobody_opens_a_store_while_it_is_copied(
    source: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("toolwright.stores.sqlite.core.writer.BUSY", 50)
    monkeypatch.setattr("toolwright.stores.sqlite.admin.copying.BUSY", 50)
    monkeypatch.setattr("toolwright.stores.postgres.copying.PATIENCE", 0.1)
    monkeypatch.setitem(address._SETTINGS, "lock_timeout", "1s")
    await copy_store(source, url)
    for place, database in ((source, SqliteCopyDatabase(Path(source))), (url, PostgresCopyDatabase(url))):
        held = await SqlCopy.source(database)
        try:
            with pytest.raises(StoreError, match="another program"):
                await open_store(place)
            with pytest.raises(StoreError, match="another program"):
                await copy_store(place, tmp_path / "second.db")
        finally:
            await held.close()
        await (await open_store(place)).close()


async def test_a_store_is_not_copied_to_itself(source: str, tmp_path: Path):
    (tmp_path / "link.db").symlink_to(source)
    for other in (source, f"sqlite:///{source}", tmp_path / "link.db"):
        with pytest.raises(StoreError, match="cannot be copied to itself"):
            await copy_store(source, other)


async def test_a_copy_that_is_cancelled_continues_later(source: str, target: str):
    def cancel(progress: CopyProgress) -> None:
        if progress.table == "messages":
            copying.cancel()

    copying = asyncio.ensure_future(copy_store(source, target, tell=cancel))
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert (await copy_store(source, target)).rows
    assert await read(target) == 1


async def test_a_copy_whose_connection_is_lost_continues_later(source: str, url: str, postgres: PostgresServer):
    name = url.partition("=")[2]

    def cut(progress: CopyProgress) -> None:
        if progress.table == "messages":
            ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
            assert postgres.execute(ended) == [(True,)]

    target = f"{url}&application_name={name}"
    with pytest.raises(StoreUnavailable):
        await copy_store(source, target, tell=cut)
    with pytest.raises(StoreError, match="unfinished copy"):
        await open_store(url)
    assert (await copy_store(source, url)).written < (await copy_store(source, url)).rows
    assert await read(url) == 1


async def test_numbers_continue_behind_those_of_the_source(url: str, postgres: PostgresServer, file: Path):
    async with Runtime.open(file, worker=False) as runtime:
        await runtime.session("s1").kv.set("k", 1)
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        # As in a store that was opened hundreds of times: numbers jump at each time.
        connection.execute("INSERT INTO events (number, session, kind, at) VALUES (734000017, 's1', 'opened', 1)")
    await copy_store(file, url)
    async with Runtime.open(url, worker=False) as runtime:
        last = (await runtime.event_log()).last
        await runtime.session("s1").kv.set("k", 2)
        assert [event.kind for event in (await runtime.event_log(last)).events] == ["kv.set"]
        assert last == 734000017


def test_the_password_of_a_url_is_in_no_error():
    for url in ("postgresql://me:p@ss@nowhere.invalid/db", "postgresql://nowhere.invalid/db?password=p@ss"):
        with pytest.raises(StoreError) as told:
            asyncio.run(copy_store(url, "copy.db"))
        assert "p@ss" not in str(told.value)


class Shelf:
    """One end of a copy in a store of a third party."""

    finished = False

    def __init__(self, store_id: str, tables: list[CopyTable]) -> None:
        self.store_id, self.tables = store_id, tables
        self.kept: dict[str, list] = {table.name: [] for table in tables}
        self.positions: dict[str, bytes] = {}

    async def count(self, table: CopyTable) -> int:
        return len(self.kept[table.name])

    async def pages(self, table: CopyTable, after: bytes | None = None) -> AsyncIterator[CopyPage]:
        rows = self.kept[table.name]
        first = 0 if after is None else unpacked_row(after)[0]
        for place in range(first, len(rows), 2):
            yield CopyPage(rows[place : place + 2], packed_row((place + 2,)))

    async def write(self, table: CopyTable, page: CopyPage) -> None:
        self.kept[table.name] += page.rows
        self.positions[table.name] = page.position

    async def clear(self, table: CopyTable) -> None:
        self.kept[table.name], self.positions = [], {}

    async def finish(self) -> None:
        self.finished = True

    async def close(self) -> None:
        pass


class ShelfScheme:
    def __init__(self, tables: list[CopyTable]) -> None:
        self.tables = tables
        self.shelf: Shelf | None = None

    async def open(self, url, options): ...

    def inspect(self, url): ...

    async def copy_source(self, url: str) -> Shelf:
        assert self.shelf is not None
        return self.shelf

    async def copy_target(self, url: str, store_id: str) -> Shelf:
        self.shelf = self.shelf or Shelf(store_id, self.tables)
        return self.shelf


async def test_a_store_of_another_package_is_an_end_of_a_copy_if_its_scheme_offers_it(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "schemes", dict(registry.schemes))
    held = await SqlCopy.source(SqliteCopyDatabase(Path(source)))
    scheme = ShelfScheme(list(held.tables))
    await held.close()
    register_scheme("shelf", scheme)
    assert (await copy_store(source, "shelf://one")).written
    assert (await copy_store(source, "shelf://one")).written == 0
    await copy_store("shelf://one", tmp_path / "back.db")
    assert await read(tmp_path / "back.db") == 1
    scheme.shelf, scheme.tables = None, scheme.tables[:-1]
    with pytest.raises(StoreError, match="the table 'waits' is another one there"):
        await copy_store(source, "shelf://one")


async def test_a_scheme_that_offers_no_copies_is_an_error(source: str, monkeypatch: pytest.MonkeyPatch):
    class Plain:
        async def open(self, url, options): ...

        def inspect(self, url): ...

    monkeypatch.setattr(registry, "schemes", dict(registry.schemes))
    register_scheme("plain", Plain())
    with pytest.raises(StoreError, match="'plain://one' cannot be copied: its scheme does not offer that"):
        await copy_store(source, "plain://one")


async def test_a_row_that_the_target_changed_is_found(source: str, target: str, monkeypatch: pytest.MonkeyPatch):
    kind = SqliteCopyDatabase if target.endswith(".db") else PostgresCopyDatabase
    write = kind.write

    def wrong(self, table, rows):
        write(self, table, [(*row[:-1], b"2") for row in rows] if table.name == "key_values" else rows)

    monkeypatch.setattr(kind, "write", wrong)
    with pytest.raises(StoreError, match="'key_values' differ after they were written"):
        await copy_store(source, target)
    monkeypatch.undo()
    with pytest.raises(StoreError, match="unfinished copy"):
        await open_store(target)
    await copy_store(source, target)
    assert await read(target) == 1


async def test_a_key_that_a_file_holds_and_a_server_cannot_is_an_error(source: str, url: str):
    async with Runtime.open(source, worker=False) as runtime:
        await runtime.session(os.urandom(2_000).hex()).kv.set("k", 1)
    with pytest.raises(StoreError, match=r"cannot hold a record of 'events'|cannot hold a record of 'key_values'"):
        await copy_store(source, url)


async def test_tables_of_sqlite_itself_are_no_content(source: str, tmp_path: Path):
    with contextlib.closing(apsw.Connection(source)) as connection:
        connection.execute("ANALYZE")
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'").fetchall()
    assert not [name for name in (await copy_store(source, tmp_path / "copy.db")).tables if name.startswith("sqlite_")]


async def test_a_source_that_holds_another_type_than_its_column_is_damaged(source: str, tmp_path: Path):
    with contextlib.closing(apsw.Connection(source)) as connection:
        connection.execute("UPDATE key_values SET created_at = 'soon'")
    with pytest.raises(StoreError, match="the column 'created_at' of 'key_values' has a str"):
        await copy_store(source, tmp_path / "copy.db")


async def test_half_a_character_that_a_server_holds_and_a_file_cannot_is_an_error(url: str, tmp_path: Path):
    store = await open_store(url)
    await store.close()
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        schema = url.partition("=")[2]
        text = "a\x01\x03d800"  # as the store writes it
        connection.execute(f'INSERT INTO "{schema}".revoked VALUES (%s, %s)', (text, b"x"))
    with pytest.raises(StoreError, match="cannot hold a text of the source that has half a character"):
        await copy_store(url, tmp_path / "copy.db")
    second = f"{url}_2"
    try:
        assert (await copy_store(url, second)).rows
    finally:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{second.partition("=")[2]}" CASCADE')


async def test_a_store_in_memory_or_none_is_an_error(source: str, tmp_path: Path):
    for place in (":memory:", "", "nowhere://one"):
        with pytest.raises(StoreError):
            await copy_store(source, place)
    with pytest.raises(StoreError, match="There is no store"):
        await copy_store(tmp_path / "missing.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
