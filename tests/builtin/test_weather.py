"""Weather that is made up."""

import pytest

from toolwright.builtin.weather import get_forecast, get_weather
from toolwright.testing import FakeClock


@pytest.mark.promise("BLT-01")
async def test_a_place_has_the_same_weather_on_a_day_however_often_and_however_it_is_asked(run):
    first = await run(get_weather, location="New  York ", date="2026-03-28")
    second = await run(get_weather, location="new york", date="2026-03-28")
    assert first.value == {**second.value, "location": "New  York"}
    assert first.value["simulated"] is True
    # Written down once: another version of the program must not tell another weather.
    assert (first.value["condition"], first.value["low"], first.value["high"]) == ("partly cloudy", 11.4, 20.4)


async def test_places_and_days_differ(run):
    seen = {
        str((await run(get_weather, location=place, date=day)).value)
        for place in ("Rome", "Oslo")
        for day in ("2026-03-28", "2026-03-29")
    }
    assert len(seen) == 4


@pytest.mark.promise("BLT-01")
async def test_a_forecast_tells_the_weather_of_each_of_its_days(run):
    forecast = (await run(get_forecast, location="Rome", days=3, date="2026-12-30")).value
    assert [day["date"] for day in forecast["days"]] == ["2026-12-30", "2026-12-31", "2027-01-01"]
    for day in forecast["days"]:
        weather = (await run(get_weather, location="Rome", date=day["date"])).value
        assert day.items() <= weather.items()


async def test_without_a_date_it_is_the_weather_of_today(open_runtime):
    runtime = await open_runtime(":memory:", get_weather, get_forecast, clock=FakeClock(1774740600.0))
    assert (await runtime.session("s").call("get_weather", location="Rome")).value["date"] == "2026-03-28"
    days = (await runtime.session("s").call("get_forecast", location="Rome")).value["days"]
    assert (len(days), days[0]["date"]) == (5, "2026-03-28")


async def test_temperatures_come_in_the_unit_asked_for(run):
    cold = (await run(get_weather, location="Rome", date="2026-03-28")).value
    hot = (await run(get_weather, location="Rome", date="2026-03-28", unit="fahrenheit")).value
    assert (cold["unit"], hot["unit"]) == ("celsius", "fahrenheit")
    assert hot["high"] == pytest.approx(cold["high"] * 1.8 + 32, abs=0.2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"location": ""},
        {"location": "   "},
        {"location": "x" * 201},
        {"location": "Rome", "date": "tomorrow"},
        {"location": "Rome", "date": "2026-02-30"},
        {"location": "Rome", "date": "9999-12-31"},
        {"location": "Rome", "days": 0},
        {"location": "Rome", "days": 15},
        {"location": "Rome", "unit": "kelvin"},
    ],
    ids=str,
)
async def test_a_place_a_day_or_a_number_that_is_not_usable_is_refused(run, arguments):
    assert (await run(get_forecast, **arguments)).failure.category == "invalid_arguments"


@pytest.mark.parametrize("tool", [get_weather, get_forecast])
async def test_the_refusal_says_what_is_wrong(run, tool):
    for arguments, code in (
        ({"location": "   "}, "bad_location"),
        ({"location": "Rome", "date": "2026-02-30"}, "bad_date"),
    ):
        outcome = await run(tool, **arguments)
        assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", code)
