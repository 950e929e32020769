"""Workers on one file are killed at any instant and at every point; `make soak ARGS="--workers 3"` goes on longer."""

import pytest

from tests.crash.worker_story import ALL_POINTS, WorkerStory

KILLS = 5


@pytest.mark.promise("PROC-01", "PROC-02", "PROC-04", "PROC-06", "PROC-08")
@pytest.mark.parametrize(("hands", "seed"), [(2, 0), (2, 1), (3, 0), (3, 1)])
def test_killed_anywhere_workers_lose_no_run_and_complete_none_twice(crashes, hands, seed):
    story = WorkerStory(crashes, seed, hands)
    story.play(KILLS)
    assert story.kills.total() >= KILLS


@pytest.mark.promise("PROC-04", "PROC-06", "PROC-08")
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_anywhere_workers_that_rob_each_other_complete_nothing_twice(crashes, seed):
    story = WorkerStory(crashes, seed, 3, robbers=True)
    story.play(KILLS)
    assert story.kills.total() >= KILLS


@pytest.mark.promise("PROC-04", "PROC-06", "PROC-08")
@pytest.mark.parametrize("point", ALL_POINTS)
def test_the_same_holds_for_kills_at_each_point_of_a_run(crashes, point):
    story = WorkerStory(crashes, 0, 2, point)
    story.play(2)
    assert story.kills[point] >= 2
