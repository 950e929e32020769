"""The kill matrix on PostgreSQL: each fault, at each point of each kind of work, with a ledger outside of the store.

One round for each fault hits all work at all its points at once; a test judges one cell of it.
"""

import fcntl
import functools
import json
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.crash.pg_agent import POINTS, WORKS
from tests.crash.pg_judge import judge
from tests.crash.pg_rounds import FAULTS, Seen, play
from toolwright.testing import Zygote


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """The round of a fault, which is played once, also where several processes of the test run share its cells."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    @functools.cache
    def of(fault: str) -> Seen:
        folder = shared / f"pg-kills-{fault.replace(' ', '-')}"
        stage, found = folder / "stage", folder / "seen.json"
        stage.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any]
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not found.exists():
                with closing(Zygote("toolwright.stores.postgres.scheme")) as zygote:
                    try:
                        told = {"seen": play(fault, stage, zygote)}
                    except AssertionError as error:
                        told = {"wrong": str(error)}
                found.write_text(json.dumps(told))
        told = json.loads(found.read_text())
        assert "wrong" not in told, told["wrong"]
        return told["seen"]

    return of


@pytest.mark.promise("ENG-02", "EFF-12", "EFF-08", "WAIT-07")
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_repeated_after(seen, fault, point, work):
    judge(fault, point, work, seen(fault)[point][work])
