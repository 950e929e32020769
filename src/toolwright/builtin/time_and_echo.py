"""The simplest tools in the box: the time, an echo, and a word on progress."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import shape
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError


def instant(seconds: float) -> str:
    """An instant as a model reads it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@boxed(
    "Get Current Time",
    category="basics",
    readonly=True,
    polling=True,
    gives=shape({"datetime": "string", "timezone": "string", "unix": "number", "weekday": "string"}),
)
async def get_current_time(ctx: ToolContext, timezone: Annotated[str, Field(max_length=100)] = "UTC") -> object:
    """Tell the current date and time.

    Args:
        timezone: An IANA name, such as Europe/Paris.
    """
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):  # not known, not a name, or the name of a folder of zones
        raise ToolError(
            f"The time zone {timezone!r} is not known; use an IANA name such as 'Europe/Paris', or 'UTC'",
            category="invalid_arguments",
            code="unknown_timezone",
        ) from None
    now = datetime.fromtimestamp(ctx.now(), zone)
    return {
        "datetime": now.isoformat(timespec="seconds"),
        "timezone": timezone,
        "unix": round(now.timestamp(), 3),
        "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[now.weekday()],
    }


@boxed(
    "Echo",
    category="basics",
    readonly=True,
    idempotent=True,
    gives=shape({"echoed": "string", "length": "integer"}),
)
async def echo(message: str) -> object:
    """Give a message back as it is, with its length in characters. Good for trying out whether tools work.

    Args:
        message: The text to give back.
    """
    return {"echoed": message, "length": len(message)}


@boxed(
    "Report Progress",
    category="basics",
    readonly=True,
    idempotent=True,
    gives=shape({"reported": "boolean", "message": "string", "percent?": "number"}),
)
async def report_progress(
    ctx: ToolContext,
    message: Annotated[str, Field(min_length=1, max_length=2_000)],
    current: Annotated[float, Field(ge=0)] = 0,
    total: Annotated[float, Field(gt=0)] | None = None,
) -> object:
    """Report the progress of the work to the people who watch the session. It changes nothing.

    Args:
        message: What is being done, in a few words.
        current: How much of the work is done.
        total: How much there is in all, if that is known.
    """
    if total is not None and current > total:
        raise ToolError(
            f"The progress of {current:g} is more than the total of {total:g}; give a current of at most the total",
            category="invalid_arguments",
            code="wrong_range",
        )
    await ctx.progress(current, total, message)
    said: dict[str, object] = {"reported": True, "message": message}
    if total is not None:
        said["percent"] = round(100 * current / total, 1)
    return said
