"""Stores of older versions: brought up to date on opening, with nothing lost."""

from pathlib import Path

import pytest

from tests.stores.sqlite.older_schemas import MARKS, SCHEMA, make_version_1, rows
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite.core.owners import OwnerLock
from toolwright.stores.sqlite.core.schema import VERSION
from toolwright.stores.sqlite.core.store_file import StorePlace
from toolwright.stores.sqlite.store import SqliteStore


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return make_version_1(tmp_path / "old.db")


@pytest.mark.promise("EFF-13")
async def test_a_migrated_file_has_the_schema_of_a_new_one(old, file):
    for path in (old, file):
        await SqliteStore(path).close()

    assert rows(old, SCHEMA) == rows(file, SCHEMA)
    assert rows(old, MARKS) == rows(file, MARKS) == [(0x746F6F6C, VERSION)]
    names = "SELECT name, typeof(value), length(value) FROM meta ORDER BY name"
    expected = [("arrived", "integer", 1), ("changed", "integer", 1), ("secret", "blob", 32)]
    assert rows(old, names) == rows(file, names) == expected


@pytest.mark.promise("EFF-13")
async def test_a_migration_keeps_every_row(old):
    columns = ", ".join(name for _, name, *_ in rows(old, "PRAGMA table_info(calls)"))  # and not those that are added
    tables = (f"SELECT {columns} FROM calls ORDER BY session, scope, call_id", "SELECT * FROM owners WHERE number <= 2")
    before = [rows(old, query) for query in tables]
    await SqliteStore(old).close()

    assert [len(found) for found in before] == [6, 2]
    assert [rows(old, query) for query in tables] == before


@pytest.mark.promise("EFF-13", "EFF-05", "EFF-11")
async def test_calls_of_an_older_version_are_replayed_and_recovered(old):
    ran = []

    @tool(readonly=True)
    async def look(city: str) -> str:
        ran.append(city)
        return f"Rain in {city}"

    @tool
    async def pay(amount: int) -> str:
        raise AssertionError("It must not run again.")

    async with Runtime.open(old, tools=[look, pay]) as runtime:
        recovered = await runtime.recover()
        outcomes = await runtime.session("berlin").run_batch(
            [
                ToolCall(id="c1", name="look", arguments={"city": "Köln"}),
                ToolCall(id="c2", name="pay", arguments={"amount": 5}),
                ToolCall(id="c3", name="pay", arguments={"amount": -1}),
            ]
        )

    assert [(one.session, one.action, one.outcome.status) for one in recovered] == [
        ("rome", "rerun", "success"),
        ("paris", "interrupted", "failure"),
    ]
    assert ran == ["Rome"]
    assert all(outcome.replayed for outcome in outcomes)
    assert [outcome.value for outcome in outcomes[:2]] == ["Sunny in Köln ☀", {"paid": 5}]
    assert outcomes[2].failure.code == "nothing"


@pytest.mark.promise("EFF-13")
async def test_a_file_is_migrated_once_and_keeps_its_secret(old):
    first, second = SqliteStore(old), SqliteStore(old)
    await first.close()
    third = SqliteStore(old)
    await second.close()
    await third.close()

    assert first.waits.secret == second.waits.secret == third.waits.secret


@pytest.mark.promise("EFF-13", "EFF-12")
async def test_a_file_is_not_migrated_while_an_older_program_has_it_open(old):
    number = rows(old, "INSERT INTO owners (name) VALUES ('of an older version') RETURNING number")[0][0]
    lock = OwnerLock(StorePlace(old), number)
    before = rows(old, SCHEMA)
    with pytest.raises(StoreError, match="a program has it open; end that first"):
        SqliteStore(old)
    assert rows(old, SCHEMA) == before
    lock.release()
    await SqliteStore(old).close()
    assert rows(old, MARKS)[0][1] == VERSION
