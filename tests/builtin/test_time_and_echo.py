"""The time, an echo, progress."""

import pytest

from toolwright import Runtime
from toolwright.builtin.time_and_echo import echo, get_current_time, report_progress
from toolwright.events import CallProgress
from toolwright.testing import FakeClock


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize(
    ("zone", "said"), [("UTC", "2026-03-28T23:30:00+00:00"), ("Europe/Paris", "2026-03-29T00:30:00+01:00")]
)
async def test_the_time_is_that_of_the_runtimes_clock_in_the_zone_asked_for(open_runtime, zone, said):
    runtime = await open_runtime(":memory:", get_current_time, clock=FakeClock(1774740600.0))
    outcome = await runtime.session("s").call("get_current_time", timezone=zone)
    assert outcome.value == {
        "datetime": said,
        "timezone": zone,
        "unix": 1774740600.0,
        "weekday": "Saturday" if zone == "UTC" else "Sunday",
    }


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "America", "a\0b"], ids=repr
)
async def test_a_zone_that_is_not_known_is_refused(run, zone):
    outcome = await run(get_current_time, timezone=zone)
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "unknown_timezone")
    assert "Europe/Paris" in outcome.failure.message


@pytest.mark.promise("BLT-01")
async def test_an_echo_gives_the_message_and_its_length_in_characters(run):
    assert (await run(echo, message="héllo 🎉")).value == {"echoed": "héllo 🎉", "length": 7}
    assert (await run(echo, message="")).value == {"echoed": "", "length": 0}


async def test_progress_reaches_whoever_watches():
    async with Runtime.open(tools=[report_progress]) as runtime:
        session = runtime.session("s")
        with session.subscribe() as events:
            outcome = await session.call("report_progress", message="half way", current=1, total=2)
            seen = []
            while (event := events.take()) is not None:
                seen += [event] if isinstance(event, CallProgress) else []
    assert outcome.value == {"reported": True, "message": "half way", "percent": 50.0}
    assert [(event.current, event.total, event.label) for event in seen] == [(1, 2, "half way")]


@pytest.mark.parametrize(
    "arguments", [{"message": ""}, {"message": "x", "current": -1}, {"message": "x", "total": 0}, {"current": 1}]
)
async def test_progress_that_cannot_be_is_refused(run, arguments):
    outcome = await run(report_progress, **arguments)
    assert outcome.failure.category == "invalid_arguments"


async def test_progress_beyond_its_total_is_refused(run):
    outcome = await run(report_progress, message="x", current=3, total=2)
    assert outcome.failure.code == "wrong_range"
