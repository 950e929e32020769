"""Our own stores of runs, schedules and triggers pass the suite that ships with the package."""

from pathlib import Path

import pytest

from tests.conformance.databases import BesideCalls, InFile, InPostgres
from tests.support import fail_after
from toolwright.testing.conformance import (
    BACKGROUND_CASES,
    ENDINGS,
    FIRINGS,
    LEASES,
    LIMITS,
    RUN_EVENTS,
    RUNS,
    SCHEDULES,
    SHARES,
    TAKEOVERS,
    TRIGGERS,
    Case,
    Database,
    InMemory,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgres":
        return InPostgres(request.getfixturevalue("postgres"))
    return BesideCalls() if request.param == "memory" else InFile(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A store of calls and services, which several processes share."""
    return InPostgres(request.getfixturevalue("postgres")) if request.param == "postgres" else InFile(tmp_path)


async def check(case: Case[Database], database: Database) -> None:
    async with fail_after(20):
        await case.run(database)


@pytest.mark.promise("EFF-09", "PROC-01", "PROC-03")
@pytest.mark.parametrize("case", RUNS, ids=str)
async def test_every_store_keeps_runs(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "PROC-06")
@pytest.mark.parametrize("case", LIMITS, ids=str)
async def test_every_store_counts_what_is_active(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "EFF-12", "PROC-04")
@pytest.mark.parametrize("case", LEASES, ids=str)
async def test_every_store_gives_each_run_one_worker(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "PROC-06", "PROC-14")
@pytest.mark.parametrize("case", SHARES, ids=str)
async def test_every_store_gives_sessions_fair_shares(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "PROC-02", "PROC-07")
@pytest.mark.parametrize("case", RUN_EVENTS, ids=str)
async def test_every_store_keeps_the_events_of_runs(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "PROC-08", "PROC-09")
@pytest.mark.parametrize("case", ENDINGS, ids=str)
async def test_every_store_ends_a_run_once(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "EFF-12", "PROC-04")
@pytest.mark.parametrize("case", TAKEOVERS, ids=str)
async def test_a_store_that_keeps_calls_and_runs_hands_both_on(case, whole):
    await check(case, whole)


@pytest.mark.promise("EFF-09", "CRON-02", "CRON-04")
@pytest.mark.parametrize("case", SCHEDULES, ids=str)
async def test_every_store_keeps_schedules(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "CRON-03", "CRON-04")
@pytest.mark.parametrize("case", FIRINGS, ids=str)
async def test_every_store_fires_an_instant_once(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "PROC-10")
@pytest.mark.parametrize("case", TRIGGERS, ids=str)
async def test_every_store_keeps_triggers_and_what_occurred(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09")
async def test_a_store_that_keeps_calls_only_is_told_that_the_cases_are_not_for_it():
    with pytest.raises(AssertionError, match="keeps calls only"):
        await RUNS[0].run(InMemory())


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in BACKGROUND_CASES}) == len(BACKGROUND_CASES) >= 90
