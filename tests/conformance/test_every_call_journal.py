"""The journals of calls, in memory and in a store, pass the same cases."""

from pathlib import Path

import pytest

from tests.support import fail_after
from toolwright import Runtime
from toolwright.testing.conformance import CALL_JOURNALS


@pytest.mark.promise("EFF-11", "EFF-15")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("case", CALL_JOURNALS, ids=str)
async def test_every_call_journal_remembers_the_calls_of_a_session(case, store, tmp_path: Path):
    place = ":memory:" if store == "memory" else tmp_path / "agent.db"
    async with fail_after(20), Runtime.open(place, sync="normal") as runtime:
        await case.run(runtime)


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in CALL_JOURNALS}) == len(CALL_JOURNALS) >= 12
