"""Our own stores pass the suite that ships with the package."""

import pytest

from tests.conformance.databases import InFile
from tests.support import fail_after
from toolwright.testing.conformance import (
    CALLS,
    CASES,
    EFFECTS,
    OWNERS,
    SESSION_WIDE,
    SIGNALS,
    WAITS,
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


@pytest.mark.promise("EFF-09", "EFF-02", "EFF-03")
@pytest.mark.parametrize("case", EFFECTS, ids=str)
async def test_every_store_keeps_effects(case, database):
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
