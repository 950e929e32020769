"""Next instants where the clocks change, against a walk through every minute."""

from datetime import UTC, datetime
from random import Random

import pytest

from tests.schedules.almanac import Stretch, draw_expression, utc
from toolwright.schedules.timing import due_between, latest_due, next_after
from toolwright.stores.contracts.schedule import Timing

# Where and when the clocks changed: the first minute of the new time, in UTC. Lawmakers leave the past alone.
CHANGES = {
    "Europe/Berlin": ("2020-03-29T01:00", "2020-10-25T01:00"),
    "Europe/Dublin": ("2021-03-28T01:00", "2021-10-31T01:00"),
    "America/New_York": ("2020-03-08T07:00", "2020-11-01T06:00"),
    "America/St_Johns": ("2020-03-08T05:30", "2020-11-01T04:30"),
    "America/Sao_Paulo": ("2018-11-04T03:00", "2018-02-18T02:00"),  # at midnight
    "America/Havana": ("2020-03-08T05:00", "2020-11-01T05:00"),  # at midnight, to midnight
    "America/Santiago": ("2020-09-06T04:00", "2020-04-05T03:00"),
    "Africa/Casablanca": ("2020-05-31T02:00", "2020-04-19T02:00"),  # back for Ramadan, forward after it
    "Africa/Cairo": ("2024-04-25T22:00", "2024-10-31T21:00"),
    "Asia/Kathmandu": ("1985-12-31T18:30",),  # by fifteen minutes
    "Asia/Pyongyang": ("2018-05-04T15:00", "2015-08-14T15:00"),  # by thirty
    "Asia/Tehran": ("2022-03-21T20:30", "2022-09-21T19:30"),
    "Australia/Lord_Howe": ("2020-10-03T15:30", "2020-04-04T15:00"),  # by thirty
    "Australia/Sydney": ("2020-10-03T16:00", "2020-04-04T16:00"),
    "Pacific/Chatham": ("2020-09-26T14:00", "2020-04-04T14:00"),
    "Pacific/Apia": ("2011-12-30T10:00",),  # by a day
    "Antarctica/Troll": ("2020-03-29T01:00", "2020-10-25T01:00"),  # by two hours
    "UTC": ("2020-03-29T01:00",),
}
CASES = [(zone, change) for zone, changes in CHANGES.items() for change in changes]
DRAWN = 10


def all_due(timing: Timing, stretch: Stretch) -> list[float]:
    return due_between(timing, stretch.seconds[0], stretch.seconds[-1], 10_000)


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize(("zone", "change"), CASES)
def test_what_is_due_around_a_change_is_what_a_walk_through_its_minutes_finds(zone, change):
    random = Random(f"{zone} {change}")
    stretch = Stretch.around(zone, utc(change), days=2)
    middle = stretch.walls[len(stretch.walls) // 2]
    found = 0
    for _ in range(DRAWN):
        expression = draw_expression(random, middle)
        due = stretch.due(expression)
        timing = Timing(cron=expression.text, timezone=zone)
        assert all_due(timing, stretch) == due, expression.text
        found += len(due)
        # From anywhere, also from within an hour that comes twice, and between two minutes.
        for _ in range(8):
            start = random.choice(stretch.seconds) + random.choice([0, 0.5, 59])
            ahead = [second for second in due if second > start]
            behind = [second for second in due if second <= start]
            if ahead:
                assert next_after(timing, start) == ahead[0], (expression.text, start)
            assert latest_due(timing, stretch.seconds[0], start) == (behind[-1] if behind else None)
    assert found > DRAWN  # most of what is drawn has something to do


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize(("zone", "change"), CASES)
def test_every_minute_of_real_time_is_due_through_every_change(zone, change):
    stretch = Stretch.around(zone, utc(change), days=1)
    assert all_due(Timing(cron="* * * * *", timezone=zone), stretch) == list(stretch.seconds[1:])


@pytest.mark.parametrize(("zone", "change"), [case for case in CASES if case[0] != "UTC"])
def test_the_clocks_did_change_where_the_cases_say_so(zone, change):
    stretch = Stretch.around(zone, utc(change), days=1)
    middle = len(stretch.walls) // 2
    before, after = stretch.walls[middle - 1 : middle + 1]
    assert (after - before).total_seconds() != 60


def spelled(zone: str, cron: str, after: str, until: str) -> list[str]:
    """What is due, in UTC."""
    due = due_between(Timing(cron=cron, timezone=zone), utc(after).timestamp(), utc(until).timestamp(), 100)
    return [datetime.fromtimestamp(instant, UTC).strftime("%d %H:%M") for instant in due]


@pytest.mark.promise("CRON-03")
@pytest.mark.parametrize(
    ("zone", "cron", "after", "until", "due"),
    [
        # Skipped: at the end of the gap, once, and the day after as usual.
        ("Europe/Berlin", "30 2 * * *", "2020-03-28T12:00", "2020-03-30T12:00", ["29 01:00", "30 00:30"]),
        ("Europe/Berlin", "*/15 2 * * *", "2020-03-28T12:00", "2020-03-29T12:00", ["29 01:00"]),
        ("Europe/Berlin", "0 2,3 * * *", "2020-03-28T12:00", "2020-03-29T12:00", ["29 01:00"]),
        ("Europe/Berlin", "0 */2 * * *", "2020-03-28T22:00", "2020-03-29T03:00", ["28 23:00", "29 01:00", "29 02:00"]),
        ("Europe/Berlin", "59 1 * * *", "2020-03-28T12:00", "2020-03-29T12:00", ["29 00:59"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2020-10-03T12:00", "2020-10-04T18:00", ["03 15:30", "04 15:15"]),
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00", "2018-11-05T12:00", ["04 03:00", "05 02:00"]),
        # A day that was left out: its noon comes with the first minute of the next.
        ("Pacific/Apia", "0 12 * * *", "2011-12-29T00:00", "2011-12-31T00:00", ["29 22:00", "30 10:00", "30 22:00"]),
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00", "2012-06-01T00:00", ["30 10:00"]),
        # Repeated: the first time only.
        ("Europe/Berlin", "30 2 * * *", "2020-10-24T12:00", "2020-10-26T12:00", ["25 00:30", "26 01:30"]),
        ("Europe/Berlin", "30 2 * * *", "2020-10-25T01:10", "2020-10-26T12:00", ["26 01:30"]),
        ("Europe/Berlin", "*/30 2 * * *", "2020-10-24T12:00", "2020-10-25T12:00", ["25 00:00", "25 00:30"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2020-04-04T12:00", "2020-04-05T18:00", ["04 14:45", "05 15:15"]),
        ("America/Sao_Paulo", "30 23 * * *", "2018-02-17T12:00", "2018-02-19T12:00", ["18 01:30", "19 02:30"]),
        # A rhythm goes on in real time through both.
        (
            "Europe/Berlin",
            "*/20 * * * *",
            "2020-03-29T00:30",
            "2020-03-29T01:30",
            ["29 00:40", "29 01:00", "29 01:20"],
        ),
        (
            "Europe/Berlin",
            "30 * * * *",
            "2020-10-24T23:00",
            "2020-10-25T02:00",
            ["24 23:30", "25 00:30", "25 01:30"],
        ),
        ("Europe/Berlin", "0 0-23 * * *", "2020-10-25T00:30", "2020-10-25T02:30", ["25 01:00", "25 02:00"]),
        (
            "Australia/Lord_Howe",
            "40 * * * *",
            "2020-10-03T14:15",
            "2020-10-03T16:50",
            ["03 15:10", "03 15:40", "03 16:40"],
        ),
        (
            "Australia/Lord_Howe",
            "45 * * * *",
            "2020-04-04T14:00",
            "2020-04-04T16:30",
            ["04 14:45", "04 15:15", "04 16:15"],
        ),
    ],
)
def test_a_time_that_is_skipped_or_repeated_fires_once_and_a_rhythm_goes_on(zone, cron, after, until, due):
    assert spelled(zone, cron, after, until) == due
