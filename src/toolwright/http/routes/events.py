"""The events of the store: as a stream, or page by page."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from toolwright.http.cursors import Limit
from toolwright.http.events import EventStream, Shown, Wanted, feed_of
from toolwright.http.operations import Operation, OtherAnswer, ServiceRequest
from toolwright.http.problems import Problem, invalid
from toolwright.http.sse import MEDIA_TYPE
from toolwright.stores.contracts.event_log import EVENT_GROUPS
from toolwright.tools.validation_messages import ArgumentProblem, preview

HEADER = "last-event-id"
_KIND = re.compile(rf"({'|'.join(EVENT_GROUPS)})\.(\*|[a-z_]+)")
LARGEST = 2**63 - 1
Number = Annotated[int, Meta(ge=0, le=LARGEST)]


class EventQuery(Struct, frozen=True, kw_only=True):
    """Which events are wanted, and from where on."""

    session: Annotated[str, Meta(min_length=1, max_length=500, description="Only events of this session.")] | None = (
        None
    )
    types: (
        Annotated[
            str,
            Meta(
                max_length=2_000, description="Kinds with commas between them; `run.*` is all that begin with `run.`."
            ),
        ]
        | None
    ) = None
    call: (
        Annotated[str, Meta(min_length=1, max_length=500, description="Only events of the call of this id.")] | None
    ) = None
    after: (
        Annotated[Number, Meta(description="Only events beyond this number; the header Last-Event-ID wins.")] | None
    ) = None
    limit: Limit = 100


class EventItem(Struct, frozen=True):
    """An event. It has more fields, which depend on its kind."""

    number: int
    kind: str
    session: str
    at: str


class EventItems(Struct, frozen=True):
    """Events in the order of their numbers."""

    items: list[EventItem]
    last: int
    """The number to continue from: `?after=`, or `Last-Event-ID` of a stream."""


async def events(request: ServiceRequest[None, EventQuery]) -> EventStream | dict[str, Any]:
    """Events of every process on the store.

    With `Accept: text/event-stream` they are sent as they happen: from `Last-Event-ID` or `after` on, or from now on.
    Otherwise the answer is a page of those that are there.
    """
    query = request.query
    request.require_scope_in(query.session)
    wanted = wanted_of(request)
    after = event_id(request.raw.headers.get(HEADER), query.after)
    if request.accepts(MEDIA_TYPE):
        feed = feed_of(request.runtime)
        await feed.join()
        return EventStream(feed, wanted, after)
    page = await request.runtime.event_log(after, limit=query.limit)
    items = [event.to_json() for event in page.events if wanted.takes(Shown.of(event))]
    return {"items": items, "last": page.last}


def wanted_of(request: ServiceRequest[None, EventQuery]) -> Wanted:
    """The events that a request asks for, and that its caller may see.

    Raises:
        Problem: no event has a kind like one that is asked for.
    """
    query = request.query
    named = [word.strip() for word in (query.types or "").split(",") if word.strip()]
    for word in named:
        if _KIND.fullmatch(word) is None:
            groups = ", ".join(f"{group}.*" for group in EVENT_GROUPS)
            expected = f"kinds such as 'call.finished', or one of {groups}"
            raise invalid(
                [ArgumentProblem("?types", f"no event has such a kind; use {expected}", preview(word), expected)]
            )
    return Wanted(
        request.sees,
        request.caller.sessions,
        query.session,
        frozenset(word for word in named if not word.endswith(".*")),
        tuple(word[:-1] for word in named if word.endswith(".*")),
        query.call,
    )


def event_id(header: str | None, after: int | None) -> int | None:
    """The number after which a client wants events.

    Raises:
        Problem: the header is not a number of an event.
    """
    if not header:
        return after
    if not header.isascii() or not header.isdecimal() or len(header) > 19 or int(header) > LARGEST:
        raise Problem(
            400, "bad_event_id", f"The Last-Event-ID {header!r:.50} is not the number of an event; send the last `id`"
        )
    return int(header)


OPERATIONS = (
    Operation(
        method="GET",
        path="/events",
        handler=events,
        scope="read",
        summary="Events of every process on the store, as they happen or page by page",
        tag="events",
        answer=EventItems,
        query=EventQuery,
        also=(OtherAnswer(status=200, says="Events as they happen.", media_type=MEDIA_TYPE),),
    ),
)
