"""Finding sessions, calls and runs by a part of their names and ids, for a person who looks for one."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.routes.calls import seen_calls
from toolwright.runtime.runtime import history_of, stores_of
from toolwright.stores.contracts.call_history import CallFilters
from toolwright.stores.contracts.inspection import PastCall

MOST_RUNS = 10_000
"""Runs that are looked at, the newest."""


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What is looked for."""

    text: Annotated[
        str, Meta(max_length=200, description="A part of an id, a title, or the name of a tool, in any case.")
    ] = field(default="", name="q")
    limit: Annotated[int, Meta(ge=1, le=100, description="How many of each kind are found at most.")] = 20


class FoundSession(Struct, frozen=True):
    """A session that was found."""

    id: str
    title: str | None


class FoundCall(Struct, frozen=True):
    """A call that was found."""

    session: str
    scope: str
    call_id: str
    batch: str
    tool: str
    status: str


class FoundRun(Struct, frozen=True):
    """A run that was found."""

    run_id: str
    session: str
    tool: str
    title: str
    status: str


class Found(Struct, frozen=True):
    """What was found, the newest first; sessions by id."""

    sessions: list[FoundSession]
    calls: list[FoundCall]
    runs: list[FoundRun]


async def search(request: ServiceRequest[None, SearchQuery]) -> Found:
    """Sessions by id and title, calls by id, batch, tool and session, and runs by id, title and tool: those that have a
    text in one of them, among the newest 100,000 calls and 10,000 runs. No text finds nothing."""
    text, limit = request.query.text.strip(), request.query.limit
    if not text:
        return Found([], [], [])
    calls, _ = await seen_calls(request, CallFilters(text=text), None, limit)
    return Found(await _sessions(request, text, limit), [_call(one.call) for one in calls], await _runs(request, text))


async def _sessions(request: ServiceRequest[Any, Any], text: str, limit: int) -> list[FoundSession]:
    found: dict[str, str | None] = {}
    for name in await stores_of(request.runtime).archives.find_sessions(text):
        if request.sees(name.id):
            found[name.id] = name.title
            if len(found) == limit:
                break
    # A session that nobody gave a title and that stored nothing has calls only.
    for id in await history_of(request.runtime).find_sessions(text):
        if len(found) < limit and request.sees(id):
            found.setdefault(id, None)
    return [FoundSession(id, found[id]) for id in sorted(found)]


async def _runs(request: ServiceRequest[None, SearchQuery], text: str) -> list[FoundRun]:
    words, found = text.casefold(), list[FoundRun]()
    for run in await request.runtime.runs(limit=MOST_RUNS):
        record = run.record
        named = (run.id, record.title, record.tool)
        if any(words in name.casefold() for name in named) and request.sees(record.session):
            found.append(FoundRun(run.id, record.session, record.tool, record.title, run.status))
            if len(found) == request.query.limit:
                break
    return found


def _call(call: PastCall) -> FoundCall:
    key = call.key
    return FoundCall(key.session, key.scope, key.call_id, call.batch, call.tool, call.status)


OPERATIONS = (
    Operation(
        method="GET",
        path="/search",
        handler=search,
        scope="read",
        summary="Find sessions, calls and runs",
        tag="search",
        query=SearchQuery,
        answer=Found,
    ),
)
