"""Random programs of conflicting, nested, limited and cancelled calls, held against the model."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.calls.schedule.model import KEYS, PATHS, TOOLS, Node, Play
from toolwright import Policy


def nodes(depth: int) -> st.SearchStrategy[Node]:
    groups: Any = st.just([])
    if depth:
        batches = st.lists(nodes(depth - 1), min_size=1, max_size=2)
        some = st.lists(st.lists(batches, min_size=1, max_size=2), min_size=1, max_size=2)
        groups = st.just([]) | some
    return st.builds(
        Node,
        tool=st.sampled_from(TOOLS),
        paths=st.lists(st.sampled_from(PATHS), min_size=1, max_size=2).map(tuple),
        key=st.sampled_from(KEYS),
        groups=groups,
        elsewhere=st.sampled_from([False, False, False, True]),
        detached=st.sampled_from([False, False, False, True]),
    )


def programs(depth: int, batches: int, calls: int) -> st.SearchStrategy[list[tuple[str, list[Node]]]]:
    batch = st.tuples(st.sampled_from("sst"), st.lists(nodes(depth), min_size=1, max_size=calls))
    return st.lists(batch, min_size=1, max_size=batches)


def policies(limits: tuple[int, ...]) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        max_concurrency=st.sampled_from(limits),
        session_concurrency=st.sampled_from(limits),
        runtime_concurrency=st.sampled_from(limits),
        timeout=st.just(1000.0),
        on_loop=st.just("ignore"),
    )


def check(play: Play) -> None:
    asyncio.run(asyncio.wait_for(play.run(), 60))


many = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.promise("SCHED-01", "SCHED-03", "SCHED-04", "SCHED-05")
@many
@given(programs(depth=0, batches=5, calls=6), policies((1, 2, 3, 8)), st.data())
def test_calls_of_many_batches_overlap_as_far_as_they_may_and_no_further(program, policy, data):
    check(Play(program, policy, lambda options: data.draw(st.sampled_from(options))))


@pytest.mark.promise("SCHED-01", "SCHED-03", "SCHED-04", "SCHED-05", "SCHED-06")
@many
@given(programs(depth=3, batches=4, calls=3), policies((1, 2, 8)), st.data())
def test_nested_calls_overlap_as_far_as_they_may_and_no_further(program, policy, data):
    play = Play(program, policy, lambda options: data.draw(st.sampled_from(options)))
    check(play)
    event(f"{min(len(play.refused), 3)} calls were refused")


def random_program(chance: random.Random, depth: int) -> list[tuple[str, list[Node]]]:
    few = chance.random() < 0.5  # few names, so that nearly everything conflicts

    def node(depth: int) -> Node:
        nested = depth > 0 and chance.random() < 0.6
        return Node(
            tool=chance.choice(TOOLS),
            paths=tuple(chance.choices(PATHS[:2] if few else PATHS, k=chance.randint(1, 2))),
            key=chance.choice(KEYS),
            groups=[
                [[node(depth - 1) for _ in range(chance.randint(1, 3))] for _ in range(chance.randint(1, 2))]
                for _ in range(chance.randint(1, 2) if nested else 0)
            ],
            elsewhere=chance.random() < 0.2,
            detached=chance.random() < 0.15,
        )

    width = 6 - depth if depth else 12
    return [
        (chance.choice("sst"), [node(depth) for _ in range(chance.randint(1, width))])
        for _ in range(chance.randint(2, 8 - depth))
    ]


def random_policy(chance: random.Random) -> Policy:
    batch, session, runtime = (chance.choice([1, 2, 3, 8, 64]) for _ in range(3))
    return Policy(
        max_concurrency=batch,
        session_concurrency=session,
        runtime_concurrency=runtime,
        timeout=1000.0,
        on_loop="ignore",
    )


def check_many(times: int, depth: int, **options: Any) -> None:
    """Play programs that are larger than what hypothesis makes. A failure names the seed that brings it back."""
    for seed in range(1000 * depth, 1000 * depth + times):
        chance = random.Random(seed)
        try:
            check(Play(random_program(chance, depth), random_policy(chance), chance.choice, **options))
        except BaseException as error:
            error.add_note(f"seed {seed}, depth {depth}")
            raise


@pytest.mark.promise("SCHED-01", "SCHED-03", "SCHED-04", "SCHED-05", "SCHED-06")
@pytest.mark.parametrize(("depth", "times"), [(0, 60), (1, 60), (2, 50), (3, 40)])
def test_large_programs_keep_every_promise(depth, times):
    check_many(times, depth)


@pytest.mark.promise("SCHED-05", "SCHED-06")
@pytest.mark.parametrize("depth", [1, 3])
def test_every_promise_is_kept_too_where_slots_are_kept_for_calls_that_were_passed_over(depth, monkeypatch):
    monkeypatch.setattr("toolwright.calls.schedule.admission.PATIENCE", 0)
    check_many(40, depth, keeps_slots=True)
