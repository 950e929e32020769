"""A store with everything in it is copied, the copy is killed and continued, and work goes on at the other side."""

import contextlib
import hashlib
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from tests.crash.conftest import Crashes
from tests.crash.full_store import LARGE, add_schedule, fill, go_on, hang_again
from tests.postgres_server import PostgresServer
from toolwright import Runtime, StoreError
from toolwright.stores import check, copy_store, stats
from toolwright.stores.postgres.copying import PostgresCopyDatabase
from toolwright.stores.sql.admin import copying
from toolwright.stores.sql.admin.copying import NOT_COPIED
from toolwright.stores.sqlite.admin.copying import SqliteCopyDatabase
from toolwright.testing import CrashKit, Zygote, die, say

LEFT_OUT = ("owners", "workers", "bundles", "sqlite_sequence")


class Full(NamedTuple):
    """A full store, whose programs were killed, and the completion key of its call that waits."""

    store: Path
    pay_key: str


@pytest.fixture(scope="module")
def filled(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Full:
    with CrashKit(tmp_path_factory.mktemp("full"), zygote=zygote) as kit:
        ended = kit.start(fill, store=str(kit.store)).wait()
        assert ended.killed, ended.output
        assert kit.start(hang_again, store=str(kit.store)).wait().killed
        kit.run(add_schedule, store=str(kit.store))
        (pay_key,) = [said[2] for said in ended.said if said[0] == "key"]
        return Full(kit.store, pay_key)


@pytest.fixture
def full(filled: Full, crashes: Crashes) -> Full:
    for name in ("agent.db", "agent.db.key", "ledger"):
        shutil.copy(filled.store.with_name(name), crashes.folder)
    return filled._replace(store=crashes.store)


@pytest.fixture(params=["postgres", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "copy.db")
        return
    with new_schema(request.getfixturevalue("postgres")) as url:
        yield url


@contextlib.contextmanager
def new_schema(postgres) -> Iterator[str]:
    name = f"copy_{os.urandom(4).hex()}"
    yield f"{postgres.url}?schema={name}"
    postgres.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


def content(path: Path | str) -> dict[str, list[Any]]:
    """All rows of a SQLite store, but for those of programs that have it open."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found: dict[str, list[Any]] = {}
        for name in names:
            if name not in LEFT_OUT:
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
                columns = [str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))]
                if name == "calls":
                    rows = connection.execute("SELECT * FROM every_call").fetchall()
                if name == "events":
                    rows = [(*row[:5], *(None if value is None else str(value) for value in row[5:])) for row in rows]
                if name == "processes":
                    lease = columns.index("lease_until")
                    rows = [(*row[:lease], row[lease] is None, *row[lease + 1 :]) for row in rows]
                found[name] = sorted(rows, key=repr)
        found["order of calls"] = connection.execute(
            "SELECT call_id FROM calls WHERE outcome IS NOT NULL ORDER BY rowid"
        ).fetchall()
        found["signals given"] = connection.execute("SELECT seq FROM sqlite_sequence").fetchall()
        return found


@pytest.mark.promise("ENG-01")
def test_the_full_store_has_rows_in_every_table_of_the_schema(full: Full, crashes: Crashes):
    with crashes.look() as connection:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows = {name: connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchall() for name in names}
    # A new table must be filled by `full_store.py`: only then do these tests copy it.
    assert [name for name, found in rows.items() if not found] == []


@pytest.mark.promise("ENG-01")
async def test_every_table_of_both_schemas_is_copied_or_named_as_no_content(full: Full, postgres: PostgresServer):
    with new_schema(postgres) as url:
        copied = await copy_store(full.store, url)
        schema = url.partition("=")[2]
        there = postgres.execute(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    with contextlib.closing(apsw.Connection(str(full.store))) as connection:
        here = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    tables = {str(row[0]) for row in [*there, *here]}
    assert set(copied.tables) | set(NOT_COPIED) == tables
    assert [name for name, digest in copied.tables.items() if not digest.rows] == []


@pytest.mark.promise("ENG-01", "EFF-05", "WAIT-02")
async def test_work_goes_on_in_a_copy(full: Full, crashes: Crashes, target: str):
    await copy_store(full.store, target)
    crashes.store.rename(crashes.folder / "old.db")
    assert await check(target) == []
    before = crashes.ledger
    told = crashes.run(go_on, store=target, key_file=str(crashes.folder / "agent.db.key"), pay_key=full.pay_key).said
    assert told == [
        ["replayed", True, "charged 1"],
        ["fingerprint", True, "open"],
        ["remembered", False, "let through again"],
        ["recovered", "charge hangs", "interrupted"],
        ["recovered", "guarded open", "let through open"],
        ["recovered", "look hangs", "seen hangs"],
        ["recovered", "look twice hangs", "seen twice hangs"],
        ["recovered", "pay open", "paid"],
        *(["run", f"worked {key}"] for key in ("told", "cron", "trigger", "hangs")),
        ["fired", "worked due"],
        ["secret", "opensesame-123"],
        ["large", hashlib.sha256(LARGE).hexdigest()],
        ["odd", True],
        ["turn", "answered", True],
    ]
    since = crashes.ledger[len(before) :]
    assert "charge hangs" not in since
    assert [line for line in since if line.endswith(" hangs") and "look" not in line] == ["second hangs"]


@pytest.mark.promise("ENG-01")
async def test_there_and_back_gives_equal_content(full: Full, postgres: PostgresServer):
    back = full.store.with_name("back.db")
    with new_schema(postgres) as url:
        there = await copy_store(full.store, url)
        here = await copy_store(url, back)
    assert there.tables == here.tables
    with contextlib.closing(apsw.Connection(str(back))) as connection:
        # Anybody may take over the runs at once: an instant of the clock of another store means nothing.
        leases = connection.execute("SELECT DISTINCT lease_until FROM processes WHERE state = 'running'").fetchall()
    assert leases == [(0.0,)]
    before, after = content(full.store), content(back)
    for name, rows in before.items():
        assert after[name] == rows, name


async def killed_copy(source: str, target: str, how: str, nth: int) -> None:
    """Copy a store in very small pages, and be killed."""
    copying.MOST_ROWS, left = 3, nth

    def count(*given: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            die()

    def after(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            result = method(*given)
            count()
            return result

        return run

    def cut_short(finish: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(database: Any) -> None:
            transaction = database.transaction

            @contextlib.contextmanager
            def dies() -> Iterator[None]:
                with transaction():
                    yield
                    count()

            database.transaction = dies
            finish(database)

        return run

    for kind in (SqliteCopyDatabase, PostgresCopyDatabase):
        if how == "before a commit":
            kind.keep = after(kind.keep)  # type: ignore[method-assign]
        elif how == "when it is finished":
            kind.finish = after(kind.finish)  # type: ignore[method-assign]
        elif how == "before the last commit":
            kind.finish = cut_short(kind.finish)  # type: ignore[method-assign,assignment]
    await copy_store(source, target, tell=count if how == "after a commit" else None)


@pytest.mark.promise("ENG-01")
@pytest.mark.parametrize(
    ("how", "nth"),
    [
        ("before a commit", 1),
        ("before a commit", 2),
        ("before a commit", 60),
        ("after a commit", 90),
        ("after a commit", 180),
        ("before the last commit", 1),
        ("when it is finished", 1),
    ],
)
async def test_a_copy_that_a_kill_cuts_off_is_continued(full: Full, crashes: Crashes, target: str, how: str, nth: int):
    ended = crashes.start(killed_copy, source=str(full.store), target=target, how=how, nth=nth).wait()
    assert ended.killed, ended.output
    if how != "when it is finished" and (how, nth) != ("before a commit", 1):
        with pytest.raises(StoreError, match="is the unfinished copy of another store; run `toolwright db copy` again"):
            await Runtime.open(target)
        with pytest.raises(StoreError, match="unfinished copy"):
            await stats(target)
    copied = await copy_store(full.store, target)
    if how in ("before the last commit", "when it is finished"):
        assert copied.written == 0
    else:
        assert (copied.written < copied.rows) == ((how, nth) not in (("before a commit", 1), ("before a commit", 2)))
    again = await copy_store(full.store, target)
    assert (again.written, again.tables) == (0, copied.tables)
    back = full.store.with_name("back.db")
    await copy_store(target, back)
    assert content(back) == content(full.store)


@pytest.mark.promise("ENG-01")
async def test_a_source_that_was_used_since_a_copy_was_cut_off_is_copied_as_it_is_now(
    full: Full, crashes: Crashes, target: str
):
    given = {"source": str(full.store), "target": target, "how": "after a commit", "nth": 180}
    assert crashes.start(killed_copy, **given).wait().killed
    async with Runtime.open(full.store, worker=False) as runtime:
        session = runtime.session("s1")
        await session.kv.set("k", "changed")
        await session.files.delete("/notes/a.txt")
        await session.messages.append("one more")
    await copy_store(full.store, target)
    back = full.store.with_name("back.db")
    await copy_store(target, back)
    assert content(back) == content(full.store)


async def copy_large(small: str, large: str, server: str) -> None:
    """Copy a small store there and back, then a large one; say how much more memory that one took, in MB."""
    for source in (small, large):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        middle = f"{server}_{Path(source).stem}"
        await copy_store(source, middle)
        await copy_store(middle, f"{source}.back")
    say((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


@pytest.mark.promise("ENG-01")
async def test_a_copy_takes_no_more_memory_than_some_pages(crashes: Crashes, postgres: PostgresServer):
    piece = os.urandom(1024 * 1024)

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for number in range(size):
            yield number.to_bytes(4, "big") + piece[4:]

    stores = {name: crashes.folder / f"{name}.db" for name in ("small", "large")}
    for name, size in (("small", 1), ("large", 40)):
        async with Runtime.open(stores[name], worker=False) as runtime:
            await runtime.session("s1").files.write_stream("/large.bin", pieces(size))
    with new_schema(postgres) as url, contextlib.ExitStack() as stack:
        for name in stores:
            schema = f"{url}_{name}".partition("=")[2]
            stack.callback(postgres.execute, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        ended = crashes.run(copy_large, **{name: str(path) for name, path in stores.items()}, server=url)
    assert ended.said[0] < 20
