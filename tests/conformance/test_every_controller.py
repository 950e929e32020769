"""Our own controller passes the suite that ships with the package, over every store."""

import pytest

from tests.support import fail_after
from toolwright.testing.conformance import CONTROLLER_CASES, REPLAY, TIME_AND_WAITS, OverStore


@pytest.mark.promise("EFF-09", "EFF-01", "EFF-02", "EFF-03", "EFF-05", "EFF-06", "EFF-12")
@pytest.mark.parametrize("case", REPLAY, ids=str)
async def test_every_controller_does_an_effect_once(case, database):
    async with fail_after(20):
        await case.run(OverStore(database))


@pytest.mark.promise("EFF-09", "EFF-10", "EFF-12", "WAIT-02", "WAIT-05")
@pytest.mark.parametrize("case", TIME_AND_WAITS, ids=str)
async def test_every_controller_waits_for_the_outside(case, database):
    async with fail_after(20):
        await case.run(OverStore(database))


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in CONTROLLER_CASES}) == len(CONTROLLER_CASES) >= 25
