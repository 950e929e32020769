"""Random programs on several processes in random order, each from a seed: no promise is broken in any of them.

A seed that fails prints its story. `TOOLWRIGHT_SEED=7 pytest tests/effects/test_interleavings.py` plays it again, and
`TOOLWRIGHT_SEEDS=100000` plays that many new ones.
"""

import os
import random

import pytest

from tests.effects.interleaving.play import World

BLOCK = 250
ONE = os.environ.get("TOOLWRIGHT_SEED")
MANY = int(os.environ.get("TOOLWRIGHT_SEEDS", "0"))
FIRST = random.SystemRandom().randrange(10**9) if MANY else 0
# A process that is killed here takes tasks with it that had not begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
BLOCKS = range(FIRST, FIRST + (MANY or 2_500), BLOCK)


def check(seed: int) -> None:
    world = World(seed)
    try:
        world.play()
        assert not world.ledger.problems
    except BaseException as error:
        story = "\n".join(world.ledger.story[-200:])
        error.add_note(f"{story}\n{world.specs}\nplay it again with TOOLWRIGHT_SEED={seed}")
        raise


@pytest.mark.promise(
    "EFF-04", "EFF-05", "EFF-06", "EFF-07", "EFF-10", "EFF-11", "EFF-12",
    "WAIT-01", "WAIT-02", "WAIT-05", "AUTH-03", "AUTH-04", "CANCEL-01", "RUN-09", "RUN-10",
)  # fmt: skip
@pytest.mark.parametrize("first", [int(ONE)] if ONE else BLOCKS)
def test_no_order_of_events_breaks_a_promise(first):
    for seed in range(first, first + (1 if ONE else BLOCK)):
        check(seed)
