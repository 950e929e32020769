"""What a timing may be given as, and the words of each refusal."""

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.almanac import utc
from toolwright.errors import ScheduleError, ToolwrightError
from toolwright.schedules.parse_timing import read_schedule, read_timing
from toolwright.stores.contracts.schedule import Timing

NOW = utc("2026-06-01T12:00").timestamp()
LATER = utc("2026-06-01T13:30").timestamp()


def refusal(**timing) -> str:
    with pytest.raises(ScheduleError) as caught:
        read_timing(now=NOW, **timing)
    return str(caught.value)


@pytest.mark.promise("CRON-01")
def test_a_schedule_recurs_by_a_cron_expression_in_a_zone():
    assert read_timing(cron="*/10 * * * *", now=NOW) == Timing(cron="*/10 * * * *", timezone="UTC")
    spaced = read_timing(cron="  0\t9  * * MON-FRI ", timezone=" Europe/Berlin ", now=NOW)
    assert spaced == Timing(cron="0 9 * * MON-FRI", timezone="Europe/Berlin")


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    "at",
    [
        "2026-06-01T13:30:00Z",
        " 2026-06-01t13:30:00.000z ",
        "2026-06-01 15:30:00+02:00",
        "2026-06-01T13:30:00.000000000-00:00",
        datetime(2026, 6, 1, 13, 30, tzinfo=UTC),
        datetime(2026, 6, 1, 15, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 6, 1, 19, 15, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    ],
    ids=repr,
)
def test_a_schedule_is_one_instant_however_it_is_written(at):
    assert read_timing(at=at, now=NOW) == Timing(at=LATER)
    assert read_timing(at=at, timezone="Asia/Kathmandu", now=NOW) == Timing(at=LATER, timezone="Asia/Kathmandu")


@pytest.mark.promise("CRON-01")
def test_parts_of_a_second_are_kept():
    assert read_timing(at="2026-06-01T13:30:00.25Z", now=NOW).at == LATER + 0.25
    assert read_timing(at="2026-06-01T13:30:00.123456789Z", now=NOW).at == pytest.approx(LATER + 0.123456, abs=1e-6)


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("blank", [None, "", " \n"], ids=repr)
def test_neither_and_both_are_refused(blank):
    neither = "schedule must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"
    assert refusal() == neither
    assert refusal(cron=blank, at=blank, timezone="UTC") == neither
    both = "schedule must not include both cron_expression and scheduled_at; provide exactly one"
    assert refusal(cron="* * * * *", at="2026-06-01T13:30:00Z") == both
    assert refusal(cron="nonsense", at="2020-01-01T00:00:00Z", timezone="Mars/Base") == both
    assert read_timing(cron="* * * * *", at=blank, timezone=blank, now=NOW) == Timing(cron="* * * * *")


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    "text",
    [
        "tomorrow at noon",
        "2026-06-01",
        "2026-06-01T13:30:00",
        "2026-06-01T13:30Z",
        "20260601T133000Z",
        "2026-W23-1T13:30:00Z",
        "2026-06-31T13:30:00Z",
        "2026-06-01T24:30:00Z",
        "2026-06-01T13:30:00+25:00",
        "2026-06-01T13:30:00.Z",
        "2026-06-01T13:30:00Z Z",
        "٢٠٢٦-06-01T13:30:00Z",
        "0001-01-01T00:00:00+14:00",
        "1790000000",
        "\0",
        "\ud800",
        "9" * 100_000,
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_text_that_is_not_an_instant_is_refused(text):
    assert refusal(at=text) == "scheduled_at must be RFC3339"
    assert refusal(at=text, cron="* * * * *") == "scheduled_at must be RFC3339"


@pytest.mark.promise("CRON-01")
def test_a_datetime_without_a_zone_is_refused():
    assert refusal(at=datetime(2030, 1, 1, 9)) == (
        "scheduled_at '2030-01-01T09:00:00' has no time zone; give it one, as in datetime(2030, 1, 1, tzinfo=UTC)"
    )


class Wrong(tzinfo):
    """A zone that says its offset in words."""

    def utcoffset(self, moment):
        return "two hours"

    tzname = dst = utcoffset


class Broken(Wrong):
    """A zone that does not say it at all."""

    def utcoffset(self, moment):
        raise NotImplementedError


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("zone", [Broken(), Wrong()], ids=["broken", "wrong"])
def test_a_datetime_whose_zone_fails_is_refused(zone):
    assert "has a time zone that cannot be read" in refusal(at=datetime(2030, 1, 1, tzinfo=zone))
    assert "cannot be read" in refusal(at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))))


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("seconds", [0, 0.001, 1, 86_400 * 365 * 50])
def test_an_instant_that_is_not_ahead_is_refused(seconds):
    at = datetime.fromtimestamp(NOW - seconds, UTC)
    assert refusal(at=at) == (
        f"scheduled_at {at.isoformat()!r} is in the past; give an instant after '2026-06-01T12:00:00+00:00'"
    )


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    ("cron", "count"),
    [("* * * *", 4), ("0 * * * * *", 6), ("@daily", 1), ("@reboot", 1), ("* * * * * 2026 *", 7), ("*", 1)],
)
def test_another_number_of_fields_than_five_is_refused(cron, count):
    assert refusal(cron=cron) == (
        f"cron_expression {cron!r} has {count} instead of five fields; "
        "use five fields (minute, hour, day of month, month, day of week), such as '*/10 * * * *'"
    )


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    ("cron", "field", "value"),
    [
        ("60 * * * *", "minute", "60"),
        ("-1 * * * *", "minute", "-1"),
        ("*/0 * * * *", "minute", "*/0"),
        ("1,,2 * * * *", "minute", "1,,2"),
        ("a b c d e", "minute", "a"),
        ("* 24 * * *", "hour", "24"),
        ("* 5-3 * * *", "hour", "5-3"),
        ("* ½ * * *", "hour", "½"),
        ("* * 0 * *", "day of month", "0"),
        ("* * 32 * *", "day of month", "32"),
        ("* * ? * *", "day of month", "?"),
        ("* * * 13 *", "month", "13"),
        ("* * 30 FEBRUARY *", "month", "FEBRUARY"),
        ("* * * * 8", "day of week", "8"),
        ("* * * * 1#6", "day of week", "1#6"),
        ("* * * * L", "day of week", "L"),
        ("0 0 30 2 MOON", "day of week", "MOON"),
    ],
)
def test_a_field_that_is_not_right_is_named(cron, field, value):
    assert refusal(cron=cron) == (
        f"cron_expression {cron!r} has a bad {field}, {value!r}; "
        "use five fields (minute, hour, day of month, month, day of week), such as '*/10 * * * *'"
    )


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * 30,31 2 */2", "* * */20 * 1L"])
def test_an_expression_that_never_fires_is_refused(cron):
    assert refusal(cron=cron) == f"cron_expression {cron!r} never fires; use a day that its months have"


@pytest.mark.promise("CRON-01")
def test_an_expression_that_is_too_long_is_refused():
    longest = "10," + "0," * 122 + "0 * * * *"
    assert len(longest) == 256
    assert read_timing(cron=f" {longest} ", now=NOW).cron == longest
    assert "has 257 characters, and at most 256 are taken" in refusal(cron=longest + "0")
    assert "has 1000009 characters, and at most 256 are taken" in refusal(cron="0," * 500_000 + "* * * * *")[:200]
    assert len(refusal(cron="* " * 500_000)) < 300


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("kathmando", "did you mean 'Asia/Kathmandu'?"),
        ("utc", "did you mean 'UTC'?"),
        ("Mars/Olympus_Mons", "use an IANA name, such as 'Europe/Berlin' or 'UTC'"),
        ("America", None),
        ("localtime", None),
        ("right/Europe/Berlin", None),
        ("posixrules", None),
        ("../../etc/passwd", None),
        ("/etc/localtime", None),
        ("Europe/../Europe/Berlin", None),
        ("Europe//Berlin", None),
        ("zone.tab", None),
        ("tzdata.zi", None),
        ("UTC\0", None),
        ("\ud800", None),
        (".", None),
        ("+02:00", None),
    ],
    ids=ascii,
)
def test_a_zone_that_is_not_known_is_refused(name, remedy):
    for timing in ({"cron": "* * * * *"}, {"at": "2026-06-01T13:30:00Z"}):
        message = refusal(timezone=name, **timing)
        assert message.startswith(f"timezone {name!r} is not known; ")
        assert remedy is None or message.endswith(remedy)


@pytest.mark.promise("CRON-01")
def test_the_name_of_a_zone_is_bounded():
    for name in ("Europe/" * 100_000, "Europe/" * 2_000 + "Berlin", "a" * 65):
        assert len(refusal(cron="* * * * *", timezone=name)) < 200


class Thing:
    def __repr__(self):
        raise RuntimeError("not shown")


@pytest.mark.promise("CRON-01")
@pytest.mark.parametrize(
    "junk",
    [0, 1.5, True, b"x", ["* * * * *"], {}, (), Thing(), date(2030, 1, 1)],
    ids=lambda junk: type(junk).__name__,
)
def test_what_is_not_text_is_refused_by_its_type(junk):
    kind = type(junk).__name__
    assert refusal(cron=junk) == (f"cron_expression cannot be of type {kind!r}; it must be text such as '*/10 * * * *'")
    assert refusal(at=junk) == (
        f"scheduled_at cannot be of type {kind!r}; it must be RFC3339 text or a datetime with a zone"
    )
    assert refusal(cron="* * * * *", timezone=junk) == (
        f"timezone cannot be of type {kind!r}; it must be an IANA name such as 'Europe/Berlin'"
    )


@pytest.mark.promise("CRON-01")
def test_a_model_writes_a_schedule_as_an_object():
    written = {"cron_expression": "*/10 * * * *", "timezone": "America/Chicago"}
    assert read_schedule(written, NOW) == Timing(cron="*/10 * * * *", timezone="America/Chicago")
    assert read_schedule({"scheduled_at": "2026-06-01T13:30:00Z"}, NOW) == Timing(at=LATER)
    for junk in (None, "* * * * *", 5, ["cron_expression"]):
        with pytest.raises(ScheduleError, match=r"^schedule must be an object$"):
            read_schedule(junk, NOW)
    with pytest.raises(ScheduleError, match=r"^schedule must include exactly one of"):
        read_schedule({"cron": "* * * * *"}, NOW)
    with pytest.raises(ScheduleError, match=r"^schedule must not include both"):
        read_schedule({"cron_expression": "*/10 * * * *", "scheduled_at": "2026-04-16T15:30:00Z"}, NOW)


anything = st.one_of(
    st.none(),
    st.text(),
    st.text("0123456789*/,-#LW ", max_size=30),
    st.from_regex(r"[0-9*/,-]{1,4}( [0-9*/,L#-]{1,4}){4}", fullmatch=True),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.integers() | st.floats() | st.binary() | st.lists(st.text()),
)


parts = st.sampled_from(
    ["Europe", "Berlin", "America", "tzdata", "zoneinfo", "__init__", "py", ".", "/", "..", "\0", "é"]
)


@pytest.mark.promise("CRON-01")
@given(st.lists(parts, min_size=1, max_size=6).map("".join).filter(lambda name: name != "Europe/Berlin"))
def test_no_other_name_of_a_file_is_a_zone(name):
    assert refusal(cron="* * * * *", timezone=name).startswith(f"timezone {name!r} is not known; ")


@pytest.mark.promise("CRON-01")
@given(anything, anything, anything)
def test_whatever_is_given_is_read_or_refused(cron, at, zone):
    refused = None
    try:
        timing = read_timing(cron=cron, at=at, timezone=zone, now=NOW)
    except ToolwrightError as error:
        refused = str(error)
    if refused is None:
        assert (timing.cron is None) != (timing.at is None)
    else:
        assert 0 < len(refused) < 6000
