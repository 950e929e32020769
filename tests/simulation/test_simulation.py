"""Histories of many machines on one PostgreSQL server, each from a seed: no promise is broken in any of them.

The code is the real one; threads, clocks, the network and the server are simulated (decision 47). A seed that fails
prints the smallest history that still does. `TOOLWRIGHT_SEED=7 pytest tests/simulation` plays one again, and
`make soak ARGS=--simulate` plays new ones.
"""

import contextlib
import gc
import os
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.simulation.machines import SimulatedStore
from tests.simulation.network import SimulatedConnection
from tests.simulation.world import Plan, play, shrunk
from toolwright.stores.postgres import life, writer
from toolwright.stores.sql.calls.journal import SqlJournalStore

BLOCK = 25
ONE = os.environ.get("TOOLWRIGHT_SEED")
# A machine that is killed takes tasks with it that had not begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def check(plan: Plan) -> None:
    if play(plan).ledger.problems:
        world = shrunk(plan)
        story = "\n".join(world.ledger.story[-120:])
        pytest.fail(
            f"{world.ledger.problems[0]}\n{story}\n{world.plan}\nplay it again with TOOLWRIGHT_SEED={plan.seed}"
        )


@pytest.mark.promise("ENG-02", "ENG-04", "EFF-04", "EFF-05", "EFF-06", "EFF-12", "WAIT-02", "SCHED-01", "TURN-03")
@pytest.mark.parametrize("first", [int(ONE)] if ONE else range(0, 100, BLOCK))
def test_no_history_of_machines_and_a_server_breaks_a_promise(first):
    for seed in range(first, first + (1 if ONE else BLOCK)):
        check(Plan.of(seed))


@pytest.mark.promise("ENG-02")
def test_a_machine_that_loses_a_third_of_its_exchanges_is_not_taken_for_dead():
    check(Plan.of(5, machines=6, orders=24, faults=8, length=30.0))


@pytest.mark.promise("ENG-02")
def test_machines_that_find_a_replica_late_are_not_taken_for_dead_by_one_that_is_new():
    check(Plan.of(50032, machines=8, orders=16, faults=8))


@pytest.mark.promise("ENG-02")
def test_a_run_is_not_taken_from_a_worker_while_its_connections_to_a_server_that_is_gone_time_out():
    plan = Plan.of(2049056631)
    check(plan)
    with patch.object(SimulatedConnection, "abort", lambda self: None):
        assert play(plan).ledger.problems


@pytest.mark.promise("ENG-02")
def test_one_seed_gives_one_history_however_garbage_is_collected():
    plan = Plan.of(5, machines=6, orders=24, faults=8, length=30.0)
    story, threshold = play(plan).ledger.story, gc.get_threshold()
    gc.set_threshold(50)
    try:
        assert play(plan).ledger.story == story
    finally:
        gc.set_threshold(*threshold)


# --- code that is broken on purpose is noticed


def found(plans, broken) -> list[str]:
    """The first problems that a broken piece of code leads to; nothing if no plan shows any."""
    for plan in plans:
        with broken():
            problems = play(plan).ledger.problems
        if problems:
            return problems
    return []


def plans(*only, kinds=("run", "run", "message", "batch"), machines=2, orders=5, faults=2):
    return (
        Plan.of(seed, machines=machines, orders=orders, faults=faults, kinds=kinds, only=only)
        for seed in range(1_000, 1_060)
    )


@contextlib.contextmanager
def repeating_blindly():
    """Repeat a transaction whose answer was lost, without a look at whether it was committed."""
    with (
        patch.object(writer.Writer, "_last_number", lambda self, connection: None),
        patch.object(writer, "_NOTE", "UPDATE commits SET number = $1, news = $2 WHERE owner = $3"),
    ):
        yield


@contextlib.contextmanager
def no_grace():
    """Take others for dead at once after the server was away."""
    with patch.object(life, "GRACE", 0.0):
        yield


@contextlib.contextmanager
def slow_signs_of_life():
    """Come back with an exchange for each statement of the sign of life."""
    real = SimulatedConnection.later

    def later(self, statement, values=(), *, or_alone=False):
        if statement == life._ARRIVE or statement.startswith(("SET synchronous_commit", "SELECT pg_advisory_lock_s")):
            self.run(statement, values)
        else:
            real(self, statement, values, or_alone=or_alone)

    with patch.object(SimulatedConnection, "later", later):
        yield


@contextlib.contextmanager
def patient_signs_of_life():
    """Wait for a server that does not answer for as long as other connections do."""
    with patch.object(life, "ANSWERED", 15.0):
        yield


@contextlib.contextmanager
def clocks_of_workers():
    """Let leases of runs end by the clock of whoever asks."""
    real = SimulatedStore.__init__

    def made(self, url, **options):
        clock = options["clock"]
        real(self, url, **options | {"lease_time": lambda connection: clock.now()})

    with patch.object(SimulatedStore, "__init__", made):
        yield


@contextlib.contextmanager
def no_fence():
    """Let everybody write to the calls of others, as if they were dead."""
    with patch.object(life.Life, "dead_among", lambda self, owners, connection: owners):
        yield


@contextlib.contextmanager
def no_mark():
    """Run tools without the mark that they began."""
    begin = SqlJournalStore.begin

    def unmarked(self, intents, refused=()):
        return begin(self, [replace(intent, starts_at=None) for intent in intents], refused)

    async def started(self, *given):
        return True

    with (
        patch.object(SqlJournalStore, "begin", unmarked),
        patch.object(SqlJournalStore, "start", started),
        patch.object(SqlJournalStore, "start_all", started),
    ):
        yield


@pytest.mark.promise("ENG-02")
@pytest.mark.parametrize(
    ("broken", "given"),
    [
        (repeating_blindly, plans("drops", kinds=("message", "message", "run"), machines=3, orders=8, faults=5)),
        (no_grace, plans("failover", "restart", machines=3, faults=3)),
        (slow_signs_of_life, plans("drops", machines=6, faults=8)),
        (patient_signs_of_life, plans("failover", "open", "kill", machines=3, faults=5)),
        (clocks_of_workers, plans("clock", kinds=("run",), orders=8)),
        (no_fence, plans("kill", "freeze")),
        (no_mark, plans("kill", kinds=("run", "batch"), orders=10, faults=4)),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_code_that_is_broken_on_purpose_is_noticed(broken, given):
    assert found(given, broken)
