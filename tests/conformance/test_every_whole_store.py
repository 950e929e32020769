"""Our own store of calls and services passes the suites about both: the event log and the history of calls."""

from pathlib import Path

import pytest

from tests.conformance.databases import InBundles, InFile, InPostgres
from tests.support import fail_after
from toolwright.testing.conformance import EVENT_LOG, HISTORY, SERVICE_NEWS, WHOLE_STORE_CASES, Case, Database


@pytest.fixture(params=["sqlite", "sqlite with bundles", "postgres"])
def whole(request: pytest.FixtureRequest, tmp_path: Path, bundled: InBundles) -> Database:
    if request.param == "postgres":
        return InPostgres(request.getfixturevalue("postgres"))
    return InFile(tmp_path) if request.param == "sqlite" else bundled


async def check(case: Case[Database], database: Database) -> None:
    async with fail_after(20):
        await case.run(database)


@pytest.mark.promise("EFF-09", "HTTP-02")
@pytest.mark.parametrize("case", EVENT_LOG, ids=str)
async def test_every_store_tells_its_changes_in_one_order(case, whole):
    await check(case, whole)


@pytest.mark.promise("EFF-09", "HTTP-01")
@pytest.mark.parametrize("case", HISTORY, ids=str)
async def test_every_store_lists_its_calls(case, whole):
    await check(case, whole)


@pytest.mark.promise("EFF-09", "EFF-12", "EFF-21")
@pytest.mark.parametrize("case", SERVICE_NEWS, ids=str)
async def test_every_store_tells_who_waits_that_another_has_changed_something(case, whole):
    await check(case, whole)


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in WHOLE_STORE_CASES}) == len(WHOLE_STORE_CASES) >= 25
