"""Our own stores of turns pass the suite that ships with the package."""

from pathlib import Path

import pytest

from tests.conformance.databases import BesideCalls, InFile, InPostgres, TurnsInMemory
from tests.support import fail_after
from toolwright.testing.conformance import STORED_TURNS, TURN_CASES, TURN_OWNERS, TURNS, Case, Database, InMemory


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgres":
        return InPostgres(request.getfixturevalue("postgres"))
    databases = {"memory": TurnsInMemory, "sqlite in memory": BesideCalls}
    return databases[request.param]() if request.param in databases else InFile(tmp_path)


async def check(case: Case[Database], database: Database) -> None:
    async with fail_after(20):
        await case.run(database)


@pytest.mark.promise("EFF-09", "TURN-03", "TURN-11")
@pytest.mark.parametrize("store", ["memory", "sqlite in memory", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("case", TURNS, ids=str)
async def test_every_store_keeps_turns(case, store):
    await check(case, store)


@pytest.mark.promise("EFF-09", "TURN-06", "TURN-07")
@pytest.mark.parametrize("store", ["sqlite in memory", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("case", STORED_TURNS, ids=str)
async def test_every_database_keeps_the_events_and_the_history_of_turns(case, store):
    await check(case, store)


@pytest.mark.promise("EFF-09", "EFF-12", "TURN-03")
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("case", TURN_OWNERS, ids=str)
async def test_a_store_of_several_processes_gives_each_turn_one_owner(case, store):
    await check(case, store)


@pytest.mark.promise("EFF-09")
async def test_a_store_that_keeps_calls_only_is_told_that_the_cases_are_not_for_it():
    with pytest.raises(AssertionError, match="keeps calls only"):
        await TURNS[0].run(InMemory())


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in TURN_CASES}) == len(TURN_CASES) >= 40
