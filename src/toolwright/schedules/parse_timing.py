"""Reading a timing. Owns which forms are accepted and the text of each refusal; does not own when a timing is due.

The refusals use `cron_expression` and `scheduled_at`, the names that a model writes. A program uses `cron` and `at`:
`in_words_of_a_program` puts these names in their place, and keeps the refusal as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from toolwright.errors import ScheduleError
from toolwright.schedules.expressions import never_fires, read_expression
from toolwright.schedules.time_zones import find_zone
from toolwright.schedules.timing import next_after
from toolwright.stores.contracts.schedule import Timing

NEITHER = "schedule must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"
BOTH = "schedule must not include both cron_expression and scheduled_at; provide exactly one"
NOT_AN_INSTANT = "scheduled_at must be RFC3339"
NOT_AN_OBJECT = "schedule must be an object"

_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6})\d{0,12})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


@contextmanager
def in_words_of_a_program() -> Iterator[None]:
    """Raise a refusal of a timing with the names that the parameters of a program have."""
    try:
        yield
    except ScheduleError as error:
        # Once each: the text that a refusal quotes stands behind the name.
        told = str(error).replace("cron_expression", "cron", 1).replace("scheduled_at", "at", 1)
        raise ScheduleError(told, error.code) from error


def read_timing(*, cron: object = None, at: object = None, timezone: object = None, now: float) -> Timing:
    """Return the timing that is meant by a cron expression, or by an instant: RFC 3339 text, or a datetime with a zone.

    Blank text counts as not given, and the zone is UTC unless it is.

    Raises:
        ScheduleError: both or neither are given, one is not right or never comes, or the zone is not known.
    """
    timing = read_form(cron=cron, at=at, timezone=timezone)
    require_next(timing, now)
    return timing


def read_form(*, cron: object = None, at: object = None, timezone: object = None) -> Timing:
    """Return the timing that is meant, as `read_timing` does, whether it is past or not.

    Raises:
        ScheduleError: both or neither are given, one is not right, or the zone is not known.
    """
    expression = _text("cron_expression", cron, "text such as '*/10 * * * *'")
    instant = at if isinstance(at, datetime) else _text("scheduled_at", at, "RFC3339 text or a datetime with a zone")
    # In this order an instant that can't be read is refused as such, whatever stands beside it.
    moment = _moment(instant) if instant is not None else None
    if expression is not None and moment is not None:
        raise ScheduleError(BOTH)
    if expression is None and moment is None:
        raise ScheduleError(NEITHER)
    zone = _text("timezone", timezone, "an IANA name such as 'Europe/Berlin'") or "UTC"
    find_zone(zone)
    if expression is not None:
        return Timing(cron=read_expression(expression), timezone=zone)
    assert moment is not None
    return Timing(at=moment.timestamp(), timezone=zone)


def require_next(timing: Timing, now: float) -> float:
    """Return the first instant of a timing after now.

    Raises:
        ScheduleError: there is none.
    """
    following = next_after(timing, now)
    if following is not None:
        return following
    if timing.cron is not None:
        raise never_fires(timing.cron)
    assert timing.at is not None
    moment = datetime.fromtimestamp(timing.at, UTC).isoformat()
    present = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    raise ScheduleError(f"scheduled_at {moment!r} is in the past; give an instant after {present!r}")


def read_schedule(schedule: object, now: float) -> Timing:
    """Return the timing in an object as a model writes it, with `cron_expression`, `scheduled_at` and `timezone`.

    Raises:
        ScheduleError: it is not an object, or `read_timing` refuses its content.
    """
    if not isinstance(schedule, Mapping):
        raise ScheduleError(NOT_AN_OBJECT)
    return read_timing(
        cron=schedule.get("cron_expression"),
        at=schedule.get("scheduled_at"),
        timezone=schedule.get("timezone"),
        now=now,
    )


def _text(name: str, value: object, remedy: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ScheduleError(f"{name} cannot be of type {type(value).__name__!r}; it must be {remedy}")
    return str(value.strip()) or None


def _moment(given: str | datetime) -> datetime:
    """Return an instant in UTC."""
    try:
        moment = given if isinstance(given, datetime) else _read_rfc3339(given)
        naive = moment.utcoffset() is None
        if not naive:
            return moment.astimezone(UTC)
    except Exception:  # the zone of a datetime is a program's code
        if isinstance(given, str):
            raise ScheduleError(NOT_AN_INSTANT) from None
        raise ScheduleError("scheduled_at has a time zone that cannot be read; give an instant in UTC") from None
    raise ScheduleError(
        f"scheduled_at {moment.isoformat()!r} has no time zone; give it one, as in datetime(2030, 1, 1, tzinfo=UTC)"
    )


def _read_rfc3339(text: str) -> datetime:
    # Python reads more than RFC 3339 has: weeks, dates without dashes, times without zones.
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, clock, fraction, zone = found.groups()
    return datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0').ljust(6, '0')}{zone.upper()}")
