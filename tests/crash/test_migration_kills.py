"""A kill in the middle of a migration."""

import pytest

from tests.stores.sqlite.older_schemas import MARKS, SCHEMA, make_version_1, rows
from toolwright.stores.sqlite.core.schema import VERSION
from toolwright.stores.sqlite.store import SqliteStore

KILLED = """
import apsw
from toolwright.stores.sqlite.store import SqliteStore

def kill_later(connection):
    statements = 0

    def count(*_):
        nonlocal statements
        statements += 1
        if statements == at:
            die()
        return True

    connection.exec_trace = count

async def main():
    apsw.connection_hooks.append(kill_later)
    opened = SqliteStore(place)
    await opened.close()
    say("migrated")
"""


@pytest.mark.promise("EFF-13", "EFF-08")
@pytest.mark.parametrize("at", [7, 11, 16, 18, 21])
async def test_a_migration_that_a_kill_cuts_off_leaves_the_old_version_as_it_was(crashes, at):
    old = make_version_1(crashes.folder / "old.db")
    before = [rows(old, query) for query in (SCHEMA, MARKS, "SELECT * FROM calls")]
    assert crashes.crash(KILLED, place=str(old), at=at) == []
    after = [rows(old, query) for query in (SCHEMA, MARKS, "SELECT * FROM calls")]

    assert after == before
    await SqliteStore(old).close()
    assert rows(old, MARKS)[0][1] == VERSION


@pytest.mark.promise("EFF-13")
async def test_a_program_that_lives_through_all_statements_has_migrated(crashes):
    old = make_version_1(crashes.folder / "old.db")
    program = crashes.start(KILLED, place=str(old), at=10_000)

    assert program.wait().said == ["migrated"]
    assert rows(old, MARKS)[0][1] == VERSION
