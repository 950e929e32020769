"""Tools for background runs, which continue while the conversation does. Owns `spawn_background` and the model's access
to runs.

Each tool sees the runs of its session and the runs that were granted to it. A run of somebody else and a run that does
not exist get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import several, shape
from toolwright.errors import ScheduleError
from toolwright.tools.arguments import Arguments
from toolwright.tools.background_protocols import RunClient
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError
from toolwright.tools.tool import Tool

LONGEST_WAIT = 300
"""The longest time in seconds that `wait_run` waits: a model that waits longer shows nothing to anybody."""
LISTED = 50
"""How many runs `list_runs` shows at most."""

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "description": "The name of a tool that supports background runs."},
        "args": {"type": "object", "description": "The arguments of that tool."},
        "title": {
            "type": "string",
            "description": "The title of the run, for people; by default the tool's display name.",
        },
        "schedule": {
            "type": "object",
            "description": "When to run it, if not now: by cron_expression again and again, or once at scheduled_at.",
            "properties": {
                "cron_expression": {
                    "type": "string",
                    "description": "Five fields, such as '*/10 * * * *' for every ten minutes.",
                },
                "scheduled_at": {"type": "string", "description": "An instant, such as '2026-04-16T15:30:00Z'."},
                "timezone": {
                    "type": "string",
                    "description": "The IANA zone of the expression, such as 'Europe/Berlin'; UTC by default.",
                },
            },
            "additionalProperties": False,
        },
        "signal_on_completion": {
            "type": "boolean",
            "description": "Append a message to the session when the run is finished.",
            "default": True,
        },
    },
    "required": ["tool", "args"],
    "additionalProperties": False,
}


async def _spawn_background(arguments: Arguments, ctx: ToolContext) -> object:
    given: dict[str, Any] = dict(arguments)
    refusal = _refusal(given)
    if refusal is not None:
        raise ToolError(refusal, category="invalid_arguments", code="invalid_arguments")
    tool, args, title = given["tool"].strip(), given["args"], given.get("title")
    signals, timing = given.get("signal_on_completion", True), given.get("schedule")
    if timing is None:
        run = await ctx.runs.spawn(tool, args, title=title, signal_on_completion=signals)
        shown = run.to_json()
        return {
            "run_id": run.id,
            "resource_id": run.id,
            "title": shown["title"],
            "tool": shown["tool"],
            "status": shown["status"],
            "signal_on_completion": signals,
            "artifact_dir": shown["artifact_dir"],
            "log_path": shown["log_path"],
            "result_path": shown["result_path"],
        }
    try:
        schedule = await ctx.schedules.add(
            tool,
            args,
            cron=timing.get("cron_expression"),
            at=timing.get("scheduled_at"),
            timezone=timing.get("timezone"),
            title=title,
            signal_on_completion=signals,
        )
    except ScheduleError as error:
        # The refusal of a timing uses the parameter names of a program; its cause has the names that the model wrote.
        raise error.__cause__ if isinstance(error.__cause__, ScheduleError) else error from None
    shown = schedule.to_json()
    return {
        "created": True,
        "status": "scheduled",
        "title": shown["title"],
        "tool": shown["tool"],
        "signal_on_completion": signals,
        "schedule_id": schedule.id,
        "schedule_type": shown["schedule_type"],
        "cron_expression": shown["cron_expression"],
        "scheduled_at": shown["scheduled_at"],
        "timezone": shown["timezone"],
        "next_trigger_at": shown["next_trigger_at"],
        "enabled": shown["enabled"],
    }


def _refusal(given: Mapping[str, Any]) -> str | None:
    """The message about wrong arguments, where it comes from a known error."""
    tool = given.get("tool")
    if not isinstance(tool, str) or not tool.strip():
        return "Missing required parameter: tool"
    if not isinstance(given.get("args"), dict):
        return "Missing required parameter: args (object expected)"
    if "schedule" in given and not isinstance(given["schedule"], dict):
        return "schedule must be an object"
    return None


def _make_spawn_background() -> Tool:
    made = Tool.from_schema(
        name="spawn_background",
        description=(
            "Start a tool that supports background runs, and continue at once without waiting for it. The result has "
            "the id of the run and the files where its output and its result will be; a message says when it is "
            "finished. With a schedule, it is not started now but at the times of the schedule."
        ),
        input_schema=INPUT_SCHEMA,
        handler=_spawn_background,
        id="toolwright.builtin.spawn_background",
        display_name="Spawn Background",
        category="background",
        # The policy decides about the work of the run when it runs.
        destructive=False,
        open_world=False,
        parallel=True,
        # A run that was started before a crash is found again by the mark of this call.
        on_crash="rerun",
    )
    strict, any_object = made.validate, Tool.from_schema(name="any_object", handler=_spawn_background).validate

    def validate(raw: bytes) -> dict[str, Any]:
        # A known refusal passes here, so that the tool can report it.
        given = any_object(raw)
        return strict(raw) if _refusal(given) is None else given

    made.validate = validate
    return made


spawn_background = _make_spawn_background()

_RUN: dict[str, str | dict[str, Any]] = {
    "run_id": "string",
    "title": "string",
    "tool": "string",
    "status": "string",
    "status_text": "string",
    "progress": {"type": ["object", "null"]},
    "log_path?": "string",
    "result_path?": "string",
}
_SHOWN = tuple(name.rstrip("?") for name in _RUN)


def _show(run: RunClient) -> dict[str, Any]:
    shown = run.to_json()
    return {name: shown[name] for name in _SHOWN if name in shown}


@boxed(
    "List Runs",
    category="background",
    readonly=True,
    open_world=False,
    gives=shape({"runs": several(shape(_RUN)), "total": "integer"}),
)
async def list_runs(
    ctx: ToolContext, active: bool = False, limit: Annotated[int, Field(ge=1, le=LISTED)] = 20
) -> object:
    """List the background runs of this session, the newest first.

    Args:
        active: Only runs that are not finished.
        limit: How many to show at most; `total` says how many there are.
    """
    runs = await ctx.runs.list(active=active)
    return {"runs": [_show(run) for run in runs[:limit]], "total": len(runs)}


@boxed(
    "Wait for Run",
    category="background",
    readonly=True,
    open_world=False,
    polling=True,
    timeout=LONGEST_WAIT + 30,
    gives=shape({**_RUN, "over": "boolean", "outcome": {"type": ["string", "null"]}, "output_tail": "string"}),
)
async def wait_run(
    ctx: ToolContext, run_id: str, seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = 30.0
) -> object:
    """Wait until a background run is finished, or for some time; either way, see its progress and its latest output.

    Args:
        run_id: The id of the run.
        seconds: How long to wait at most. The run continues after that, and can be waited for again.
    """
    run = await ctx.runs.get(run_id)
    try:
        outcome = (await run.wait(seconds)).text
    except TimeoutError:
        outcome = None
    tail = run.to_json()["output_tail"]
    return {**_show(run), "over": outcome is not None, "outcome": outcome, "output_tail": tail}


@boxed(
    "Cancel Run",
    category="background",
    destructive=False,
    idempotent=True,
    open_world=False,
    parallel=True,
    gives=shape({"run_id": "string", "asked": "boolean", "status": "string"}),
)
async def cancel_run(
    ctx: ToolContext, run_id: str, reason: Annotated[str, Field(max_length=500)] = "the model cancelled it"
) -> object:
    """Ask a background run to stop, with all the runs that it started.

    `asked` is false when it was finished already. A running one stops within moments: wait_run shows when.

    Args:
        run_id: The id of the run.
        reason: Why, in a few words.
    """
    run = await ctx.runs.get(run_id)
    asked = await run.cancel(reason)
    return {"run_id": run.id, "asked": asked, "status": run.status}


@boxed(
    "Signal Run",
    category="background",
    destructive=False,
    open_world=False,
    parallel=True,
    gives=shape({"run_id": "string", "name": "string", "number": "integer"}),
)
async def signal_run(
    ctx: ToolContext, run_id: str, name: Annotated[str, Field(min_length=1, max_length=200)], payload: object = None
) -> object:
    """Send a signal to a background run whose tool takes signals. They arrive in the order they were sent.

    Args:
        run_id: The id of the run.
        name: The name of the signal, as the run's tool knows it.
        payload: The data to send with it.
    """
    run = await ctx.runs.get(run_id)
    return {"run_id": run.id, "name": name, "number": await run.signal(name, payload)}


_SCHEDULE: dict[str, str | dict[str, Any]] = {
    "schedule_id": "string",
    "title": "string",
    "tool": "string",
    "state": "string",
    "schedule_type": "string",
    "cron_expression": {"type": ["string", "null"]},
    "scheduled_at": {"type": ["string", "null"]},
    "timezone": {"type": ["string", "null"]},
    "next_trigger_at": {"type": ["string", "null"]},
}


@boxed(
    "List Schedules",
    category="background",
    readonly=True,
    open_world=False,
    gives=shape({"schedules": several(shape(_SCHEDULE)), "total": "integer"}),
)
async def list_schedules(
    ctx: ToolContext, active: bool = True, limit: Annotated[int, Field(ge=1, le=LISTED)] = 20
) -> object:
    """List the schedules of this session, the oldest first, with the next time that each starts its tool.

    Args:
        active: Only schedules that are active or paused.
        limit: How many to show at most; `total` says how many there are.
    """
    schedules = await ctx.schedules.list(active=active)
    shown = [schedule.to_json() for schedule in schedules[:limit]]
    return {"schedules": [{name: one[name] for name in _SCHEDULE} for one in shown], "total": len(schedules)}


@boxed(
    "Cancel Schedule",
    category="background",
    destructive=False,
    idempotent=True,
    open_world=False,
    parallel=True,
    gives=shape({"schedule_id": "string", "cancelled": "boolean", "state": "string"}),
)
async def cancel_schedule(ctx: ToolContext, schedule_id: str) -> object:
    """Cancel a schedule of this session: it starts nothing more. Runs that it started continue.

    `cancelled` is false when the schedule was finished already.

    Args:
        schedule_id: The id of the schedule; list_schedules shows it.
    """
    schedule = await ctx.schedules.get(schedule_id)
    cancelled = await schedule.cancel()
    return {"schedule_id": schedule.id, "cancelled": cancelled, "state": schedule.state}
