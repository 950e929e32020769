"""The kill matrix on PostgreSQL: each fault, at each point of each kind of work, with a ledger outside of the store.

One round for each fault hits all work at all its points at once; a test judges one cell of it.
"""

import functools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.pg_agent import POINTS, WORKS
from tests.crash.pg_judge import judge
from tests.crash.pg_rounds import FAULTS, MODULES, Seen, play
from tests.rounds import play_once
from toolwright.testing import Zygote


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """The round of a fault, which is played once."""

    @functools.cache
    def of(fault: str) -> Seen:
        return play_once(tmp_path_factory, "pg-kills", fault, functools.partial(with_zygote, fault))

    return of


def with_zygote(fault: str, folder: Path) -> Seen:
    with closing(Zygote(*MODULES)) as zygote:
        return play(fault, folder, zygote)


@pytest.mark.promise("ENG-02", "EFF-12", "EFF-08", "WAIT-07")
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_repeated_after(seen, fault, point, work):
    judge(fault, point, work, seen(fault)[point][work])
