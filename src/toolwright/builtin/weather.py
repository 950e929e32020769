"""Weather that is made up. Owns the simulation: the same place and day always have the same weather."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import one_of, several, shape
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError

Unit = Literal["celsius", "fahrenheit"]
Place = Annotated[str, Field(min_length=1, max_length=200)]
Day = Annotated[str, Field(max_length=10)]

CONDITIONS = ("sunny", "partly cloudy", "cloudy", "light rain", "rain", "thunderstorm", "fog", "windy")
LAST = date(9999, 12, 1)

_DAY: dict[str, Any] = {
    "date": "string",
    "condition": one_of(*CONDITIONS),
    "low": "number",
    "high": "number",
    "humidity_percent": "integer",
    "wind_kph": "integer",
}
_ABOUT: dict[str, Any] = {"location": "string", "unit": one_of("celsius", "fahrenheit"), "simulated": "boolean"}


def weather_on(place: str, day: date, unit: Unit) -> dict[str, Any]:
    """The weather of a place on a day, however the place is spelled."""
    name = " ".join(place.casefold().split())
    seed = hashlib.sha256(f"{name}\n{day.isoformat()}".encode()).digest()
    # A place has its climate, and a year has its seasons; the day adds the rest.
    climate = 4 + hashlib.sha256(name.encode()).digest()[0] % 22
    season = -8 * math.cos(2 * math.pi * day.timetuple().tm_yday / 365.25)
    high = climate + season + seed[0] % 9
    low = high - 3 - seed[1] % 8
    return {
        "date": day.isoformat(),
        "condition": CONDITIONS[seed[2] % len(CONDITIONS)],
        "low": _degrees(low, unit),
        "high": _degrees(high, unit),
        "humidity_percent": 30 + seed[3] % 66,
        "wind_kph": seed[4] % 61,
    }


def _degrees(celsius: float, unit: Unit) -> float:
    return round(celsius if unit == "celsius" else celsius * 9 / 5 + 32, 1)


def _first_day(given: str | None, ctx: ToolContext) -> date:
    if given is None:
        return datetime.fromtimestamp(ctx.now(), UTC).date()
    try:
        day = date.fromisoformat(given)
    except ValueError:
        day = None
    if day is None or day > LAST:
        raise ToolError(
            f"The date {given!r} is not usable; write it as in '2026-03-28'",
            category="invalid_arguments",
            code="bad_date",
        )
    return day


def _place(given: str) -> str:
    if not given.strip():
        raise ToolError("The location is empty; name a place", category="invalid_arguments", code="bad_location")
    return given.strip()


@boxed(
    "Get Weather",
    category="weather",
    readonly=True,
    idempotent=True,
    gives=shape({**_ABOUT, **_DAY}),
)
async def get_weather(ctx: ToolContext, location: Place, date: Day | None = None, unit: Unit = "celsius") -> object:
    """Tell the weather of a place on one day. It is simulated: made up, and the same each time.

    Args:
        location: The name of a place.
        date: A day such as 2026-03-28; today if it is left out.
        unit: The unit of the temperatures.
    """
    place = _place(location)
    return {"location": place, "unit": unit, "simulated": True, **weather_on(place, _first_day(date, ctx), unit)}


@boxed(
    "Get Forecast",
    category="weather",
    readonly=True,
    idempotent=True,
    gives=shape({**_ABOUT, "days": several(shape(_DAY))}),
)
async def get_forecast(
    ctx: ToolContext,
    location: Place,
    days: Annotated[int, Field(ge=1, le=14)] = 5,
    date: Day | None = None,
    unit: Unit = "celsius",
) -> object:
    """Tell the weather of a place for several days. It is simulated: made up, and the same each time.

    Args:
        location: The name of a place.
        days: How many days, from 1 to 14.
        date: The first of them, such as 2026-03-28; today if it is left out.
        unit: The unit of the temperatures.
    """
    place, first = _place(location), _first_day(date, ctx)
    forecast = [weather_on(place, first + timedelta(days=ahead), unit) for ahead in range(days)]
    return {"location": place, "unit": unit, "simulated": True, "days": forecast}
