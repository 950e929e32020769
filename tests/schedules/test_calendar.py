"""Which days an expression matches: month ends, leap years, the two day fields, and what has no end."""

import math
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.almanac import Expression, Field, draw_field, every, utc
from toolwright.schedules.timing import due_between, latest_due, next_after
from toolwright.stores.contracts.schedule import Timing

NEW_YEAR = utc("2026-01-01T00:00").timestamp()
DAY = 86_400


def dates(cron: str, after: str, most: int) -> list[str]:
    due = due_between(Timing(cron=cron), utc(after).timestamp(), math.inf, most)
    return [datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M") for instant in due]


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("0 9 31 * *", ["2026-01-31 09:00", "2026-03-31 09:00", "2026-05-31 09:00", "2026-07-31 09:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("59 23 L * *", ["2026-01-31 23:59", "2026-02-28 23:59", "2026-03-31 23:59"]),
        ("0 0 LW 2,5 *", ["2026-02-27 00:00", "2026-05-29 00:00"]),
        ("0 0 * * 5#2", ["2026-01-09 00:00", "2026-02-13 00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        # Either day field when none is a wildcard, both when one is.
        ("0 0 13 * FRI", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00", "2026-01-16 00:00"]),
        ("0 0 */12 * FRI", ["2026-02-13 00:00", "2026-03-13 00:00", "2026-05-01 00:00"]),
        ("0 0 30 2 MON", ["2026-02-02 00:00", "2026-02-09 00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("0 0 * * sun", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("0 0 1 jan-mar *", ["2026-02-01 00:00", "2026-03-01 00:00", "2027-01-01 00:00"]),
        ("5/20 3 1 1 *", ["2026-01-01 03:05", "2026-01-01 03:25", "2026-01-01 03:45", "2027-01-01 03:05"]),
    ],
)
def test_an_expression_is_due_on_its_days(cron, due):
    assert dates(cron, "2026-01-01T00:00", len(due)) == due


@pytest.mark.promise("CRON-03")
def test_there_is_no_leap_day_in_2100():
    assert dates("0 0 29 2 *", "2095-01-01T00:00", 3) == ["2096-02-29 00:00", "2104-02-29 00:00", "2108-02-29 00:00"]


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize("seed", range(60))
def test_the_days_of_three_years_are_those_that_a_walk_through_them_finds(seed):
    random = Random(seed)
    days = [1, 13, 28, 29, 30, 31]
    expression = Expression(
        minute=Field("30", frozenset({30})),
        hour=Field("5", frozenset({5})),
        day=random.choice([every(1, 31), draw_field(random, 1, 31, days)]),
        month=random.choice([every(1, 12), draw_field(random, 1, 12, [2, 4, 12])]),
        weekday=random.choice([every(0, 7), draw_field(random, 0, 7, [0, 5])]),
    )
    if not all((expression.day.values, expression.month.values, expression.weekday.values)):
        expression = Expression(expression.minute, expression.hour, every(1, 31), every(1, 12), every(0, 7))
    first = datetime(2027, 1, 1, 5, 30, tzinfo=UTC)
    walk = [first + timedelta(days=day) for day in range(3 * 365)]
    expected = [day.timestamp() for day in walk if expression.matches_day(day)]
    timing = Timing(cron=expression.text)
    assert due_between(timing, first.timestamp() - 1, walk[-1].timestamp(), 2000) == expected, expression.text


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    steps = st.builds(lambda start, step: f"{start}/{step}", st.sampled_from(["*", f"{low}-{high}"]), st.integers(1, 9))
    return st.one_of(st.just("*"), number.map(str), ranges, steps)


timings = st.builds(
    lambda fields, zone: Timing(cron=" ".join(fields), timezone=zone),
    st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Pacific/Chatham"]),
)
instants = st.floats(NEW_YEAR, NEW_YEAR + 900 * DAY)


@pytest.mark.promise("CRON-03")
@given(timings, instants, st.floats(0, 1))
def test_the_next_instant_lies_ahead_and_nothing_lies_before_it(timing, instant, part):
    found = next_after(timing, instant)
    assert found is not None
    assert found > instant
    assert found % 60 == 0
    between = instant + (found - instant) * part
    assert next_after(timing, between) == (found if between < found else next_after(timing, found))
    assert latest_due(timing, instant, between) == (found if between >= found else None)


@pytest.mark.promise("CRON-03")
@given(timings, instants, st.floats(0, 40 * DAY), st.integers(0, 50))
def test_what_is_due_between_two_instants_is_in_order_and_ends_with_the_latest(timing, after, length, most):
    until = after + length
    due = due_between(timing, after, until, most)
    assert due == sorted(set(due))
    assert len(due) <= most
    assert all(after < instant <= until for instant in due)
    if len(due) < most:
        assert latest_due(timing, after, until) == (due[-1] if due else None)


@pytest.mark.promise("CRON-03")
def test_an_instant_is_due_once():
    timing = Timing(at=1000.5)
    assert next_after(timing, 1000.4) == 1000.5
    assert next_after(timing, 1000.5) is None
    assert due_between(timing, 0, 2000, 10) == [1000.5]
    assert due_between(timing, 0, 1000, 10) == []
    assert latest_due(timing, 0, 2000) == 1000.5
    assert latest_due(timing, 1000.5, 2000) is None


@pytest.mark.parametrize("cron", ["* * * * *", "30 2 * * *", "0 0 29 2 *"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York"])
def test_the_calendar_ends_without_an_error(cron, zone):
    timing = Timing(cron=cron, timezone=zone)
    last = utc("9999-12-31T23:59").timestamp()
    for instant in (last, last + DAY, 1e18, math.inf):
        assert next_after(timing, instant) is None
