"""The records of calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from toolwright.http.calls_json import CallShown, CallWithParts, call_json, detail_json
from toolwright.http.cursors import Cursor, Limit, Page, page_of, read_cursor, write_cursor
from toolwright.http.operations import LONGEST_ID, SESSION, Id, Operation, ServiceRequest
from toolwright.http.problems import not_found
from toolwright.runtime.runtime import history_of
from toolwright.stores.contracts.call_history import CallFilters, Place, PlacedCall
from toolwright.stores.contracts.journal import CallKey

_MOST_READS = 10
"""How many pages of the store one request reads for a caller that sees only some sessions."""


class CallQuery(Struct, frozen=True, kw_only=True):
    """Which calls are listed: those that match all that is given."""

    session: Id | None = None
    tool: Id | None = None
    status: Literal["success", "failure", "cancelled", "running", "waiting", "cut off"] | None = None
    batch: Id | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class WhichScope(Struct, frozen=True, kw_only=True):
    """The scope of a call."""

    scope: Annotated[str, Meta(max_length=LONGEST_ID)] = ""


async def list_calls(request: ServiceRequest[None, CallQuery]) -> dict[str, Any]:
    """Calls, the newest first."""
    query = request.query
    request.require_scope_in(query.session)
    filters = CallFilters(session=query.session, tool=query.tool, status=query.status, batch=query.batch)
    shown, place = await seen_calls(request, filters, read_cursor(query.cursor, tuple[float, str]), query.limit)
    return page_of([call_json(one.call) for one in shown], None if place is None else write_cursor(*place))


async def seen_calls(
    request: ServiceRequest[Any, Any], filters: CallFilters, place: Place | None, limit: int
) -> tuple[list[PlacedCall], Place | None]:
    """Calls that match and that the caller may see, from a place on; and the place where the rest begins, or None."""
    history, shown, more = history_of(request.runtime), list[PlacedCall](), True
    for _ in range(_MOST_READS):
        found = await history.list_calls(filters, place, limit + 1)
        more = len(found) > limit
        for one in found[:limit]:
            if len(shown) == limit:
                more = True
                break
            place = one.place
            if request.sees(one.call.key.session):
                shown.append(one)
        else:
            if found.rest is not None:
                place, more = found.rest, True
        if not more or len(shown) == limit or request.caller.everywhere:
            break
    return shown, place if more else None


async def get_call(request: ServiceRequest[None, WhichScope]) -> dict[str, Any]:
    """One call, with its steps and waits."""
    session, id = request.path[SESSION], request.path["id"]
    found = await history_of(request.runtime).find_call(CallKey(session, request.query.scope, id))
    if found is None:
        raise not_found(f"Session {session!r:.200} has no call {id!r:.200} in this scope; GET /v1/calls lists them")
    return detail_json(found)


OPERATIONS = (
    Operation(
        method="GET",
        path="/calls",
        handler=list_calls,
        scope="read",
        summary="List calls",
        tag="calls",
        query=CallQuery,
        answer=Page[CallShown],
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/calls/{id}",
        handler=get_call,
        scope="read",
        summary="Look at a call",
        tag="calls",
        query=WhichScope,
        answer=CallWithParts,
    ),
)
