"""What fires after time passed in which nothing ran, and when the clock is put forward or back."""

from itertools import pairwise
from random import Random

import pytest

from tests.schedules.almanac import utc
from toolwright.errors import ScheduleError
from toolwright.schedules.misfires import GRACE, MOST_CAUGHT_UP, Firing, after_pause, due_now, read_misfire
from toolwright.schedules.timing import next_after
from toolwright.stores.contracts.schedule import Timing
from toolwright.testing import FakeClock

NINE = utc("2026-06-01T09:00").timestamp()
HOUR = 3600
HOURLY = Timing(cron="0 * * * *")
POLICIES = ["skip", "once", "all"]


def fired(due) -> list[tuple[float, bool]]:
    """Hours since nine, and whether they were missed."""
    return [((firing.instant - NINE) / HOUR, firing.missed) for firing in due.firings]


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_fires_before_its_instant(policy):
    due = due_now(HOURLY, NINE, NINE - 0.001, policy)
    assert (due.firings, due.next, due.skipped) == ((), NINE, None)


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("late", [0, 1, 60])
def test_within_the_grace_an_instant_fires_as_on_time_under_every_policy(policy, late):
    due = due_now(HOURLY, NINE, NINE + late, policy)
    assert due.firings == (Firing(NINE, False),)
    assert (due.next, due.skipped) == (NINE + HOUR, None)


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("late", [60.001, 600, 3599])
def test_beyond_the_grace_an_instant_is_missed(late):
    for policy in ("once", "all"):
        due = due_now(HOURLY, NINE, NINE + late, policy)
        assert (fired(due), due.next, due.skipped) == ([(0, True)], NINE + HOUR, None)
    due = due_now(HOURLY, NINE, NINE + late, "skip")
    assert (fired(due), due.next, due.skipped) == ([], NINE + HOUR, NINE)


@pytest.mark.promise("CRON-04")
def test_after_a_night_skip_fires_none_once_the_latest_and_all_each():
    now = NINE + 10.5 * HOUR
    due = {policy: due_now(HOURLY, NINE, now, policy) for policy in POLICIES}
    assert fired(due["skip"]) == []
    assert fired(due["once"]) == [(10, True)]
    assert fired(due["all"]) == [(hour, True) for hour in range(11)]
    assert {policy: one.next for policy, one in due.items()} == dict.fromkeys(POLICIES, NINE + 11 * HOUR)
    assert [due[policy].skipped for policy in POLICIES] == [NINE, NINE, None]
    assert due_now(HOURLY, NINE, now) == due["once"]


@pytest.mark.promise("CRON-04")
def test_what_is_on_time_fires_beside_what_was_missed():
    now = NINE + 3 * HOUR + 30
    assert fired(due_now(HOURLY, NINE, now, "skip")) == [(3, False)]
    assert fired(due_now(HOURLY, NINE, now, "once")) == [(2, True), (3, False)]
    assert fired(due_now(HOURLY, NINE, now, "all")) == [(0, True), (1, True), (2, True), (3, False)]
    # Every minute: the grace holds two of them when both its ends are instants.
    minutely = Timing(cron="* * * * *")
    due = due_now(minutely, NINE, NINE + 600, "once")
    assert [(firing.instant - NINE, firing.missed) for firing in due.firings] == [
        (480, True),
        (540, False),
        (600, False),
    ]


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("cron", ["* * * * *", "*/7 3-5 * * *", "0 0 1 * *", "* * * 1 *"])
def test_catching_up_is_bounded_to_the_latest(cron):
    timing = Timing(cron=cron, timezone="Europe/Berlin")
    start = next_after(timing, NINE - 20 * 365 * 24 * HOUR)
    now = NINE + 30
    due = due_now(timing, start, now, "all")
    missed = [firing.instant for firing in due.firings if firing.missed]
    assert len(missed) == MOST_CAUGHT_UP
    assert due.skipped == start
    # None is left out between the first of them and now.
    for one, other in pairwise(missed):
        assert next_after(timing, one) == other
    following = next_after(timing, missed[-1])
    assert following is not None
    assert following >= now - GRACE


@pytest.mark.promise("CRON-04")
def test_one_instant_fires_late_or_not_at_all_and_is_over():
    once = Timing(at=NINE)
    assert due_now(once, NINE, NINE + 5, "skip").firings == (Firing(NINE, False),)
    for policy, firings in (("skip", ()), ("once", (Firing(NINE, True),)), ("all", (Firing(NINE, True),))):
        due = due_now(once, NINE, NINE + 365 * 24 * HOUR, policy)
        assert (due.firings, due.next) == (firings, None)


@pytest.mark.promise("CRON-04")
def test_what_passed_during_a_pause_is_not_missed():
    assert after_pause(HOURLY, NINE, NINE + 5.5 * HOUR) == NINE + 6 * HOUR
    assert after_pause(HOURLY, NINE, NINE) == NINE + HOUR
    assert after_pause(HOURLY, NINE, NINE - HOUR * 5) == NINE  # the clock was put back, and nine was not fired yet
    assert after_pause(Timing(at=NINE), NINE, NINE + 1) is None


@pytest.mark.promise("CRON-04")
@pytest.mark.parametrize("policy", ["", "ONCE", "twice", None, 3, ["once"], "x" * 10_000], ids=lambda p: repr(p)[:10])
def test_a_policy_that_is_not_known_is_refused(policy):
    with pytest.raises(ScheduleError, match=r"is not a policy; use 'skip', 'once', 'all'$") as caught:
        read_misfire(policy)
    assert len(str(caught.value)) < 150
    with pytest.raises(ScheduleError):
        due_now(HOURLY, NINE, NINE, policy)
    assert [read_misfire(known) for known in POLICIES] == POLICIES


class JumpingClock(FakeClock):
    """A fake clock whose wall clock can be set."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.shift = 0.0

    def now(self) -> float:
        return super().now() + self.shift


class Watcher:
    """Looks at a schedule now and then, fires what is due, and stores the next instant."""

    def __init__(self, timing: Timing, clock: FakeClock, policy: str) -> None:
        self.timing, self.clock, self.policy = timing, clock, policy
        self.stored: float | None = next_after(timing, clock.now())
        self.fired: list[float] = []
        self.missed = 0

    def look(self) -> None:
        if self.stored is None:
            return
        due = due_now(self.timing, self.stored, self.clock.now(), self.policy)
        self.fired += [firing.instant for firing in due.firings]
        self.missed += sum(firing.missed for firing in due.firings)
        assert due.next is None or due.next >= self.stored
        self.stored = due.next


@pytest.mark.promise("CRON-03", "CRON-04")
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_clock_that_is_put_back_fires_nothing_again(policy):
    clock = JumpingClock(NINE - 1)
    watcher = Watcher(HOURLY, clock, policy)
    for _ in range(3 * 60):
        await clock.advance(60)
        watcher.look()
    assert watcher.fired == [NINE, NINE + HOUR, NINE + 2 * HOUR]
    clock.shift -= 2.5 * HOUR
    for _ in range(2 * 60 + 29):
        await clock.advance(60)
        watcher.look()
    assert watcher.fired == [NINE, NINE + HOUR, NINE + 2 * HOUR]
    for _ in range(60):
        await clock.advance(60)
        watcher.look()
    assert watcher.fired == [NINE, NINE + HOUR, NINE + 2 * HOUR, NINE + 3 * HOUR]


@pytest.mark.promise("CRON-03", "CRON-04")
@pytest.mark.parametrize(("policy", "caught_up"), [("skip", []), ("once", [4]), ("all", [1, 2, 3, 4])])
async def test_a_clock_that_is_put_forward_and_back_catches_up_by_policy_and_fires_nothing_twice(policy, caught_up):
    clock = JumpingClock(NINE - 1)
    watcher = Watcher(HOURLY, clock, policy)
    await clock.advance(2)
    watcher.look()
    clock.shift += 4.5 * HOUR
    watcher.look()
    assert watcher.fired == [NINE, *(NINE + hour * HOUR for hour in caught_up)]
    clock.shift -= 4.5 * HOUR
    before = list(watcher.fired)
    for _ in range(4 * 60):
        await clock.advance(60)
        watcher.look()
    assert watcher.fired == before
    for _ in range(2 * 60):
        await clock.advance(60)
        watcher.look()
    assert watcher.fired == [*before, NINE + 5 * HOUR, NINE + 6 * HOUR]


@pytest.mark.promise("CRON-03", "CRON-04")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_clock_does_each_instant_fires_once_and_in_order(policy, seed):
    random = Random(seed)
    clock = JumpingClock(utc("2026-10-24T12:00").timestamp())
    watcher = Watcher(Timing(cron="17 * * * *"), clock, policy)
    first = latest = clock.now()
    for _ in range(300):
        await clock.advance(random.choice([1, 30, 60, 600]))
        if random.random() < 0.1:
            clock.shift += random.choice([-1, 1, 1]) * random.choice([30, 61, HOUR, 5 * HOUR, 24 * HOUR])
        watcher.look()
        latest = max(latest, clock.now())
    clock.shift += latest - clock.now() + 30.5 * HOUR  # at last, beyond all that was
    watcher.look()
    latest = clock.now()
    every_one = [first + 17 * 60 + hour * HOUR for hour in range(int(latest - first) // HOUR + 1)]
    passed = [instant for instant in every_one if instant <= latest]
    assert len(passed) >= 30
    assert watcher.fired == sorted(set(watcher.fired))
    if policy == "all":
        assert watcher.fired == passed
    else:
        assert set(watcher.fired) <= set(passed)
    assert (watcher.missed == 0) == (policy == "skip")
