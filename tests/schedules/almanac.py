"""An independent calculation of when an expression is due: every minute of a stretch of real time is looked at.

Owns drawing expressions together with the sets they stand for, so that nothing has to be parsed, and walking the clock
on the wall. Uses neither the code under test nor a cron library.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Expression:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in (self.minute, self.hour, self.day, self.month, self.weekday))

    @property
    def has_days(self) -> bool:
        """Whether one of its months is long enough; not so for a 30 February."""
        if not (self.day.starred or self.weekday.starred):
            return True
        return any(min(self.day.values) <= LONGEST[month - 1] for month in self.month.values)

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minute.values or wall.hour not in self.hour.values:
            return False
        return self.matches_day(wall)

    def matches_day(self, wall: datetime) -> bool:
        if wall.month not in self.month.values:
            return False
        day = wall.day in self.day.values
        sunday_first = (wall.weekday() + 1) % 7
        weekday = sunday_first in self.weekday.values or (sunday_first == 0 and 7 in self.weekday.values)
        return (day and weekday) if self.day.starred or self.weekday.starred else (day or weekday)


def every(low: int, high: int) -> Field:
    return Field("*", frozenset(range(low, high + 1)))


def draw_field(random: Random, low: int, high: int, likely: list[int], names: list[str] | None = None) -> Field:
    """A field that is written in one of the ways there are; `likely` values come up often."""

    def one() -> int:
        return random.choice(likely) if likely and random.random() < 0.7 else random.randint(low, high)

    kind = random.randrange(6)
    if kind == 0:
        value = one()
        if names and value - low < len(names) and random.random() < 0.5:
            name = names[value - low]
            return Field(random.choice([name, name.lower(), name.title()]), frozenset({value}))
        return Field(str(value), frozenset({value}))
    if kind == 1:
        chosen = [one() for _ in range(random.randint(2, 4))]
        return Field(",".join(map(str, chosen)), frozenset(chosen))
    if kind == 2:
        first, last = sorted((one(), one()))
        return Field(f"{first}-{last}", frozenset(range(first, last + 1)))
    if kind == 3:
        first, last = sorted((one(), random.randint(low, high)))
        step = random.randint(1, 5)
        return Field(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step) if last > first else ()))
    if kind == 4:
        step = random.randint(1, max(2, (high - low) // 2))
        return Field(f"*/{step}", frozenset(range(low, high + 1, step)))
    first, step = one(), random.randint(1, 20)
    return Field(f"{first}/{step}", frozenset(range(first, high + 1, step)))


def draw_expression(random: Random, near: datetime) -> Expression:
    """An expression that has something to do around a time of the wall clock."""
    minutes = [0, 15, 30, 45, 59, near.minute]
    hours = [(near.hour + shift) % 24 for shift in (-2, -1, 0, 1, 2)]
    days = [(near + timedelta(days=shift)).day for shift in (-1, 0, 1)]
    weekdays = [((near + timedelta(days=shift)).weekday() + 1) % 7 for shift in (-1, 0, 1)]
    while True:
        drawn = Expression(
            minute=draw_field(random, 0, 59, minutes),
            hour=every(0, 23) if random.random() < 0.3 else draw_field(random, 0, 23, hours),
            day=every(1, 31) if random.random() < 0.6 else draw_field(random, 1, 31, days),
            month=every(1, 12) if random.random() < 0.7 else draw_field(random, 1, 12, [near.month], MONTHS),
            weekday=every(0, 7) if random.random() < 0.6 else draw_field(random, 0, 7, weekdays, DAYS),
        )
        # A range of one value with a step is read in two ways by those who read it at all.
        fields = (drawn.minute, drawn.hour, drawn.day, drawn.month, drawn.weekday)
        if all(field.values for field in fields) and drawn.has_days:
            return drawn


@dataclass(frozen=True)
class Stretch:
    """The real minutes from one instant to another, each with what the clock on the wall shows."""

    zone: str
    seconds: tuple[int, ...]
    walls: tuple[datetime, ...]

    @classmethod
    def around(cls, zone: str, instant: datetime, days: int) -> "Stretch":
        first = instant - timedelta(days=days)
        moments = [first + MINUTE * step for step in range(days * 2 * 1440)]
        place = ZoneInfo(zone)
        return cls(
            zone,
            tuple(int(moment.timestamp()) for moment in moments),
            tuple(moment.astimezone(place).replace(tzinfo=None, fold=0) for moment in moments),
        )

    def due(self, expression: Expression) -> list[int]:
        """The seconds after the first minute at which the expression is due."""
        if len(expression.hour.values) == 24:
            shown = zip(self.seconds[1:], self.walls[1:], strict=True)
            return [second for second, wall in shown if expression.matches(wall)]
        found = []
        reached = self.walls[0]  # the latest time that the clock has shown; no time up to it counts again
        for second, wall in zip(self.seconds[1:], self.walls[1:], strict=True):
            fires = False
            while reached < wall:
                reached += MINUTE
                fires = fires or expression.matches(reached)
            if fires:
                found.append(second)
        return found


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
