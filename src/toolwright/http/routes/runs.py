"""Background runs: starting, listing and looking at them, their log as it is written, and what may be asked of them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from toolwright.background.handle import Run
from toolwright.errors import RunError
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.events import feed_of
from toolwright.http.operations import SESSION, Operation, OtherAnswer, ServiceRequest
from toolwright.http.problems import Problem, not_found
from toolwright.http.ranges import ContentAnswer, bytes_answer
from toolwright.http.routes.events import event_id
from toolwright.http.sse import MEDIA_TYPE, FollowStream, sse_event
from toolwright.stores.contracts.background_run import Status

MOST_LOOKED_AT = 10_000
"""Runs of the store that a list is made of, the newest."""
MOST_EVENTS = 200
"""Events that are shown with a run."""
_SHOWN_ALONE = frozenset({"output", "progress"})
"""Events that the log and the progress of a run show."""


class NewRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that is to be started."""

    tool: str
    arguments: dict[str, Any] = {}
    title: str | None = None
    """A title for people; by default the display name of the tool."""
    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Seconds that the whole run may take."""
    signal_on_completion: bool = False
    """Append a message to the session when it is finished."""
    disposition: Literal["resume", "rerun", "abandon"] = "resume"
    """What happens when its worker dies."""
    id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """A run of the same id and content is the same run."""


class RunItem(Struct, frozen=True):
    """A run."""

    run_id: str
    session: str
    tool: str
    title: str
    status: str
    status_text: str
    parent: str | None
    schedule: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    attempts: int
    progress: dict[str, Any] | None
    output_tail: str
    tracked: bool


class RunDetail(RunItem, frozen=True):
    """A run with its arguments, its outcome, and its events without output and progress."""

    arguments: Any
    outcome: Any
    worker: str | None
    cancel_reason: str | None
    events: list[dict[str, Any]]


class RunsQuery(PageQuery, frozen=True, kw_only=True):
    """Which runs are listed."""

    session: Annotated[str, Meta(min_length=1, max_length=500, description="Only runs of this session.")] | None = None
    status: Annotated[Status, Meta(description="Only runs with this status.")] | None = None
    active: Annotated[bool, Meta(description="Only runs that are not finished.")] = False


class SessionRunsQuery(PageQuery, frozen=True, kw_only=True):
    """Which runs of a session are listed."""

    status: Annotated[Status, Meta(description="Only runs with this status.")] | None = None
    active: Annotated[bool, Meta(description="Only runs that are not finished.")] = False


class CancelRun(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is to stop."""

    reason: Annotated[str, Meta(min_length=1, max_length=2_000)] = "the run was cancelled"


class Cancelled(Struct, frozen=True):
    """Whether a run was asked to stop: false when it was finished already."""

    cancelled: bool
    status: str


class Signal(Struct, frozen=True, forbid_unknown_fields=True):
    """A signal: any JSON."""

    payload: Any = None


class Sent(Struct, frozen=True):
    """How many signals of this name were sent to the run."""

    sent: int


async def start_run(request: ServiceRequest[NewRun, None]) -> dict[str, Any]:
    """Start a tool in the background. With an `Idempotency-Key` the same request is the same run."""
    body = request.body
    run = await request.session().spawn(
        body.tool,
        body.arguments,
        title=body.title,
        timeout=body.timeout,
        signal_on_completion=body.signal_on_completion,
        disposition=body.disposition,
        id=request.new_id(body.id, "bg_"),
    )
    return await _detail(await request.runtime.run(run.id))


async def list_runs(request: ServiceRequest[None, RunsQuery]) -> dict[str, Any]:
    """Runs, the newest first."""
    request.require_scope_in(request.query.session)
    return await _list(request, request.query.session, request.query.status, request.query.active)


async def list_session_runs(request: ServiceRequest[None, SessionRunsQuery]) -> dict[str, Any]:
    """The runs of a session, the newest first."""
    return await _list(request, request.path[SESSION], request.query.status, request.query.active)


async def _list(
    request: ServiceRequest[None, Any], session: str | None, status: str | None, active: bool
) -> dict[str, Any]:
    place = read_cursor(request.query.cursor, tuple[float, str]) or (math.inf, "")
    found = [
        run
        for run in await request.runtime.runs(session, active=active, limit=MOST_LOOKED_AT)
        if (run.record.created_at, run.id) < place
        and request.sees(run.record.session)
        and (status is None or run.status == status)
    ]
    found.sort(key=lambda run: (run.record.created_at, run.id), reverse=True)
    return page_from(found, request.query.limit, lambda run: (run.record.created_at, run.id))


async def show_run(request: ServiceRequest[None, None]) -> dict[str, Any]:
    """A run."""
    return await _detail(await run_of(request))


async def show_log(request: ServiceRequest[None, None]) -> ContentAnswer | FollowStream:
    """The output of a run: what there is, or with `Accept: text/event-stream` also what comes, until it is finished.

    The id of each event is its number among the events of the run; `Last-Event-ID` goes on after it.
    """
    run = await run_of(request)
    if request.accepts(MEDIA_TYPE):
        after = event_id(request.raw.headers.get("last-event-id"), None) or 0
        return FollowStream(_output(run, after), feed_of(request.runtime).stopped())
    headers = {"content-type": "text/plain; charset=utf-8"}
    return bytes_answer((await run.log()).encode("utf-8", "replace"), request.raw.headers.get("range"), headers)


async def _output(run: Run, after: int) -> AsyncIterator[bytes]:
    async for event in run.follow(after):
        if event.type == "output":
            yield sse_event({"stream": event.payload["stream"], "text": event.payload["text"]}, id=event.number)
    yield sse_event({"kind": "end", "status": run.status}, event="end")


async def cancel_run(request: ServiceRequest[CancelRun, None]) -> dict[str, Any]:
    """Ask a run and all that it started to stop."""
    run = await run_of(request)
    return {"cancelled": await run.cancel(request.body.reason), "status": run.status}


async def resume_run(request: ServiceRequest[None, None]) -> dict[str, Any]:
    """Let an abandoned run continue: the step in doubt may happen again."""
    run = await run_of(request)
    await run.resume(by=request.caller.by)
    return await _detail(run)


async def signal_run(request: ServiceRequest[Signal, None]) -> dict[str, Any]:
    """Send a signal to the tool of a run."""
    run = await run_of(request)
    require_not_in_doubt(request, "sent the signal; look whether it arrived, and send it again with another key")
    return {"sent": await run.signal(request.path["name"], request.body.payload)}


def require_not_in_doubt(request: ServiceRequest[Any, Any], did: str) -> None:
    """Refuse a request that a process which is gone had begun, and that cannot be done again without harm.

    Raises:
        Problem: it is such a request.
    """
    if request.key is not None and request.key.again:
        raise Problem(409, "in_doubt", f"A server ended while it worked on this request, and may have {did}")


async def run_of(request: ServiceRequest[Any, Any]) -> Run:
    """The run that the path names, if the caller has the scope in its session.

    Raises:
        Problem: there is none for this caller.
    """
    missing = not_found(f"There is no run {request.path['run']!r:.200}; list the runs")
    try:
        run = await request.runtime.run(request.path["run"])
    except RunError as error:
        raise missing from error
    request.require(run.record.session, missing)
    return run


async def _detail(run: Run) -> dict[str, Any]:
    record = run.record
    events: list[dict[str, Any]] = []
    async for event in run.events():
        if event.type not in _SHOWN_ALONE:
            events.append(event.to_json())
    return {
        **record.to_json(),
        "arguments": record.arguments,
        "outcome": None if record.outcome is None else record.outcome.to_json(),
        "worker": record.worker,
        "cancel_reason": record.cancel_reason,
        "events": events[-MOST_EVENTS:],
    }


_OF = "/sessions/{session}/runs"
OPERATIONS = (
    Operation(
        method="POST",
        path=_OF,
        handler=start_run,
        scope="run",
        summary="Start a tool in the background",
        tag="runs",
        body=NewRun,
        answer=RunDetail,
        status=201,
    ),
    Operation(
        method="GET",
        path=_OF,
        handler=list_session_runs,
        scope="read",
        summary="List the runs of a session",
        tag="runs",
        query=SessionRunsQuery,
        answer=Page[RunItem],
    ),
    Operation(
        method="GET",
        path="/runs",
        handler=list_runs,
        scope="read",
        summary="List runs",
        tag="runs",
        query=RunsQuery,
        answer=Page[RunItem],
    ),
    Operation(
        method="GET",
        path="/runs/{run}",
        handler=show_run,
        scope="read",
        summary="Look at a run",
        tag="runs",
        answer=RunDetail,
    ),
    Operation(
        method="GET",
        path="/runs/{run}/log",
        handler=show_log,
        scope="read",
        summary="Read the output of a run, or follow it",
        tag="runs",
        media_type="text/plain",
        also=(
            OtherAnswer(status=206, says="A part of the output.", media_type="text/plain"),
            OtherAnswer(status=200, says="The output as it is written.", media_type=MEDIA_TYPE),
        ),
    ),
    Operation(
        method="POST",
        path="/runs/{run}/cancel",
        handler=cancel_run,
        scope="run",
        summary="Ask a run to stop",
        tag="runs",
        body=CancelRun,
        body_needed=False,
        answer=Cancelled,
    ),
    Operation(
        method="POST",
        path="/runs/{run}/resume",
        handler=resume_run,
        scope="approve",
        summary="Let an abandoned run continue",
        tag="runs",
        answer=RunDetail,
    ),
    Operation(
        method="POST",
        path="/runs/{run}/signals/{name}",
        handler=signal_run,
        scope="run",
        summary="Send a signal to a run",
        tag="runs",
        body=Signal,
        body_needed=False,
        answer=Sent,
    ),
)
