"""Programs of mixed tools are killed at any instant and at every point; `make soak` does the same for longer."""

import pytest

from tests.crash.story import ALL_POINTS, Story

SEEDS = range(15)
KILLS = 14


@pytest.mark.promise("EFF-04", "EFF-05", "EFF-08", "EFF-12")
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_anywhere_a_program_loses_nothing_it_acknowledged_and_repeats_nothing_it_must_not(crashes, seed):
    story = Story(crashes, seed)
    story.play(KILLS)
    assert story.kills.total() >= KILLS


@pytest.mark.promise("EFF-04", "EFF-05", "EFF-08")
@pytest.mark.parametrize("point", ALL_POINTS)
def test_the_same_holds_for_kills_at_each_point_of_a_call(crashes, point):
    story = Story(crashes, 0, point)
    story.play(4)
    assert story.kills[point] >= 4
