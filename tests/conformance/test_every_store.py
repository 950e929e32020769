"""Our own stores pass the suite that ships with the package."""

import pytest

from tests.conformance.databases import InFile, InPostgres
from tests.support import fail_after
from toolwright.errors import StoreError
from toolwright.stores import SqliteStore
from toolwright.testing.conformance import (
    CALLS,
    CASES,
    CLAIMS,
    EFFECTS,
    LOST_CONNECTIONS,
    NEIGHBOURS,
    NEWS,
    OWNERS,
    REPEATED,
    SESSION_WIDE,
    SIGNALS,
    TEXT,
    WAITS,
    InMemory,
    play_random_verbs,
)


async def check(case, database):
    async with fail_after(20):
        await case.run(database)


@pytest.mark.promise("EFF-09", "EFF-04", "EFF-11")
@pytest.mark.parametrize("case", CALLS, ids=str)
async def test_every_store_keeps_calls(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-12")
@pytest.mark.parametrize("case", OWNERS, ids=str)
async def test_every_store_gives_each_call_one_owner(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-12")
@pytest.mark.parametrize("case", CLAIMS, ids=str)
async def test_every_store_has_one_order_of_claims_for_all_owners(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-02", "EFF-03")
@pytest.mark.parametrize("case", EFFECTS, ids=str)
async def test_every_store_keeps_effects(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-18")
@pytest.mark.parametrize("case", REPEATED, ids=str)
async def test_every_store_gives_the_answer_that_was_lost_when_a_verb_is_repeated(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-19")
@pytest.mark.parametrize("case", TEXT, ids=str)
async def test_every_store_keeps_text_with_every_character(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-12", "EFF-21")
@pytest.mark.parametrize("case", NEWS, ids=str)
async def test_every_store_tells_who_waits_that_another_has_written(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "WAIT-02", "EFF-10")
@pytest.mark.parametrize("case", WAITS, ids=str)
async def test_every_store_keeps_waits(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09")
@pytest.mark.parametrize("case", SESSION_WIDE, ids=str)
async def test_every_store_keeps_what_holds_for_a_session(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "WAIT-05")
@pytest.mark.parametrize("case", SIGNALS, ids=str)
async def test_every_store_hands_on_what_comes_in(case, database):
    await check(case, database)


@pytest.mark.promise("EFF-09", "EFF-19")
@pytest.mark.parametrize("case", NEIGHBOURS, ids=str)
@pytest.mark.parametrize("names", [("agent.db", "agent.db-2"), ("agent.db-1", "agent"), ("a", "a-owner-x")], ids=str)
async def test_two_stores_in_one_directory_share_nothing(case, names, tmp_path):
    first, second = (InFile(tmp_path, name) for name in names)
    async with fail_after(20):
        await case.run(first, second)


@pytest.mark.promise("EFF-09", "EFF-19")
@pytest.mark.parametrize("case", NEIGHBOURS, ids=str)
async def test_two_databases_in_memory_share_nothing(case):
    await case.run(InMemory(), InMemory())


@pytest.mark.promise("EFF-19")
@pytest.mark.parametrize("end", ["owner-5", "turns", "wal", "shm", "journal"])
async def test_a_store_does_not_take_the_name_of_a_file_beside_another(end, tmp_path):
    with pytest.raises(StoreError, match=rf"ends with '-{end}'.*choose another name"):
        SqliteStore(tmp_path / f"agent.db-{end}")


@pytest.mark.promise("EFF-19")
async def test_a_file_that_is_not_the_sign_of_an_owner_is_left_alone(tmp_path):
    other = tmp_path / "agent.db-owner-5"
    other.write_bytes(b"not empty")
    await SqliteStore(tmp_path / "agent.db").close()
    assert other.read_bytes() == b"not empty"


@pytest.mark.promise("EFF-09", "EFF-19", "ENG-01")
@pytest.mark.parametrize("case", NEIGHBOURS, ids=str)
async def test_two_stores_in_one_postgres_database_share_nothing(case, postgres):
    async with fail_after(60):
        await case.run(InPostgres(postgres), InPostgres(postgres))


@pytest.fixture(scope="module")
def second_database(postgres):
    return postgres.database("second")


@pytest.mark.promise("EFF-09", "EFF-19", "ENG-01")
@pytest.mark.parametrize("case", NEIGHBOURS, ids=str)
async def test_two_databases_of_one_postgres_server_share_nothing(case, postgres, second_database):
    async with fail_after(60):
        await case.run(InPostgres(postgres), InPostgres(second_database))


@pytest.mark.promise("EFF-09", "EFF-12", "ENG-02")
@pytest.mark.parametrize("case", LOST_CONNECTIONS, ids=str)
async def test_a_lost_connection_to_postgres_loses_and_repeats_nothing(case, postgres):
    async with fail_after(60):
        await case.run(InPostgres(postgres))


@pytest.mark.promise("EFF-09", "EFF-12", "ENG-01")
@pytest.mark.parametrize("seed", range(6))
async def test_postgres_answers_as_its_model_does(seed, postgres):
    async with fail_after(120):
        await play_random_verbs(InPostgres(postgres), seed=seed, steps=300)


@pytest.mark.promise("EFF-09", "EFF-12")
@pytest.mark.parametrize("seed", range(12))
async def test_sqlite_answers_as_its_model_does(seed, tmp_path):
    async with fail_after(60):
        await play_random_verbs(InFile(tmp_path), seed=seed, steps=400)


@pytest.mark.promise("EFF-09", "EFF-12")
@pytest.mark.parametrize("seed", range(24))
async def test_sqlite_answers_as_its_model_does_where_intents_are_in_bundles(seed, bundled):
    async with fail_after(60):
        await play_random_verbs(bundled, seed=seed, steps=400)


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 45
