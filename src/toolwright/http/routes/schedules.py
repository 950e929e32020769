"""Schedules: adding, listing, looking at, pausing and cancelling them, and running one now."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from toolwright.clock import rfc3339
from toolwright.errors import ScheduleError
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.operations import SESSION, Operation, ServiceRequest
from toolwright.http.problems import Problem, not_found
from toolwright.http.routes.runs import require_not_in_doubt
from toolwright.schedules.schedules import ScheduleHandle
from toolwright.stores.contracts.schedule import Misfire, Overlap

UPCOMING = 5
"""The next instants that are shown with a schedule."""
HISTORY = 100
"""The latest firings that are shown with a schedule."""


class NewSchedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that is to be added. One of `cron` and `at` is needed."""

    tool: str
    arguments: dict[str, Any] = {}
    cron: str | None = None
    """Five fields, such as "*/10 * * * *"."""
    at: str | None = None
    """One instant, as RFC 3339 text."""
    timezone: str | None = None
    """The IANA name of the zone that `cron` is read in; by default UTC."""
    title: str | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Seconds that each run may take."""
    signal_on_completion: bool = False
    misfire: Misfire = "once"
    """What happens with instants at which no worker ran."""
    overlap: Overlap = "skip"
    """What happens at an instant while an earlier run is not finished."""
    id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """A schedule of the same id and content is the same schedule."""


class ScheduleItem(Struct, frozen=True):
    """A schedule."""

    schedule_id: str
    session: str
    tool: str
    title: str
    args: Any
    schedule_type: str
    cron_expression: str | None
    timezone: str
    next_trigger_at: str | None
    state: str
    misfire: str
    overlap: str
    created_at: str


class Firing(Struct, frozen=True):
    """The record of an instant: "fired" or "now", with its run, "skipped", or "missed"."""

    instant: str
    at: str
    what: str
    run: str | None


class ScheduleDetail(ScheduleItem, frozen=True):
    """A schedule with its next instants and its latest firings."""

    upcoming: list[str]
    history: list[Firing]


class SchedulesQuery(PageQuery, frozen=True, kw_only=True):
    """Which schedules are listed."""

    session: Annotated[str, Meta(min_length=1, max_length=500, description="Only those of this session.")] | None = None
    active: Annotated[bool, Meta(description="Only schedules that are not finished.")] = False


class SessionSchedulesQuery(PageQuery, frozen=True, kw_only=True):
    """Which schedules of a session are listed."""

    active: Annotated[bool, Meta(description="Only schedules that are not finished.")] = False


class ChangeSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """The state that a schedule is to have."""

    state: Literal["active", "paused"] | UnsetType = UNSET


class Started(Struct, frozen=True):
    """The run that was started."""

    run_id: str


async def add_schedule(request: ServiceRequest[NewSchedule, None]) -> dict[str, Any]:
    """Start a tool at an instant, or again and again."""
    body = request.body
    added = await request.session().schedule(
        body.tool,
        body.arguments,
        cron=body.cron,
        at=body.at,
        timezone=body.timezone,
        title=body.title,
        timeout=body.timeout,
        signal_on_completion=body.signal_on_completion,
        misfire=body.misfire,
        overlap=body.overlap,
        id=request.new_id(body.id, "sch_"),
    )
    return await _detail(await request.runtime.scheduled(added.id))


async def list_schedules(request: ServiceRequest[None, SchedulesQuery]) -> dict[str, Any]:
    """Schedules, the oldest first."""
    request.require_scope_in(request.query.session)
    return await _list(request, request.query.session, request.query.active)


async def list_session_schedules(request: ServiceRequest[None, SessionSchedulesQuery]) -> dict[str, Any]:
    """The schedules of a session, the oldest first."""
    return await _list(request, request.path[SESSION], request.query.active)


async def _list(request: ServiceRequest[None, Any], session: str | None, active: bool) -> dict[str, Any]:
    place = read_cursor(request.query.cursor, tuple[float, str])
    found = [
        one
        for one in await request.runtime.schedules(session, active=active)
        if request.sees(one.schedule.session) and (place is None or (one.schedule.created_at, one.id) > place)
    ]
    found.sort(key=lambda one: (one.schedule.created_at, one.id))
    return page_from(found, request.query.limit, lambda one: (one.schedule.created_at, one.id))


async def show_schedule(request: ServiceRequest[None, None]) -> dict[str, Any]:
    """A schedule, its next instants, and its latest firings."""
    return await _detail(await _schedule_of(request))


async def change_schedule(request: ServiceRequest[ChangeSchedule, None]) -> dict[str, Any]:
    """Pause a schedule, or let it continue. One that has the state already is not changed."""
    schedule = await _schedule_of(request)
    wanted = request.body.state
    if wanted is not UNSET and schedule.state != wanted:
        done = await (schedule.pause() if wanted == "paused" else schedule.resume())
        if not done and schedule.state != wanted:
            raise Problem(
                409,
                "conflict",
                f"The schedule {schedule.id!r:.200} is {schedule.state}; add another",
                members={"stands": schedule.to_json()},
            )
    return await _detail(schedule)


async def cancel_schedule(request: ServiceRequest[None, None]) -> None:
    """Fire nothing any more; runs that it started continue."""
    await (await _schedule_of(request)).cancel()


async def run_schedule_now(request: ServiceRequest[None, None]) -> dict[str, Any]:
    """Start a run beside its instants."""
    schedule = await _schedule_of(request)
    require_not_in_doubt(request, "started the run; look at the history, and run it with another key")
    return {"run_id": await schedule.run_now()}


async def _schedule_of(request: ServiceRequest[Any, Any]) -> ScheduleHandle:
    missing = not_found(f"There is no schedule {request.path['schedule']!r:.200}; list the schedules")
    try:
        found = await request.runtime.scheduled(request.path["schedule"])
    except ScheduleError as error:
        raise missing from error
    request.require(found.schedule.session, missing)
    return found


async def _detail(schedule: ScheduleHandle) -> dict[str, Any]:
    return {
        **schedule.to_json(),
        "upcoming": [rfc3339(instant) for instant in schedule.upcoming(UPCOMING)],
        "history": [fired.to_json() for fired in await schedule.history(HISTORY)],
    }


_OF = "/sessions/{session}/schedules"
OPERATIONS = (
    Operation(
        method="POST",
        path=_OF,
        handler=add_schedule,
        scope="run",
        summary="Start a tool at an instant, or again and again",
        tag="schedules",
        body=NewSchedule,
        answer=ScheduleDetail,
        status=201,
    ),
    Operation(
        method="GET",
        path=_OF,
        handler=list_session_schedules,
        scope="read",
        summary="List the schedules of a session",
        tag="schedules",
        query=SessionSchedulesQuery,
        answer=Page[ScheduleItem],
    ),
    Operation(
        method="GET",
        path="/schedules",
        handler=list_schedules,
        scope="read",
        summary="List schedules",
        tag="schedules",
        query=SchedulesQuery,
        answer=Page[ScheduleItem],
    ),
    Operation(
        method="GET",
        path="/schedules/{schedule}",
        handler=show_schedule,
        scope="read",
        summary="Look at a schedule",
        tag="schedules",
        answer=ScheduleDetail,
    ),
    Operation(
        method="PATCH",
        path="/schedules/{schedule}",
        handler=change_schedule,
        scope="run",
        summary="Pause a schedule, or let it continue",
        tag="schedules",
        body=ChangeSchedule,
        answer=ScheduleDetail,
    ),
    Operation(
        method="DELETE",
        path="/schedules/{schedule}",
        handler=cancel_schedule,
        scope="run",
        summary="Cancel a schedule",
        tag="schedules",
        status=204,
    ),
    Operation(
        method="POST",
        path="/schedules/{schedule}/run-now",
        handler=run_schedule_now,
        scope="run",
        summary="Run a schedule now, beside its instants",
        tag="schedules",
        answer=Started,
        status=201,
    ),
)
