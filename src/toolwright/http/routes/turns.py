"""Turns: a message for the model, and its answer: in the response, later, or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from toolwright.errors import TurnError
from toolwright.http.answers import JsonAnswer
from toolwright.http.cursors import Cursor, Limit, Page, page_from, read_cursor
from toolwright.http.events import feed_of
from toolwright.http.operations import Operation, OtherAnswer, ServiceRequest
from toolwright.http.outcome_json import outcomes_json
from toolwright.http.problems import Problem, not_found
from toolwright.http.routes.batches import Cancel, Cancelled
from toolwright.http.sse import MEDIA_TYPE, FollowStream, sse_event
from toolwright.tools.outcome import Image
from toolwright.tools.turn_protocols import Budget, Delivery, TurnClient, TurnEvent, TurnInfo, TurnOutcome

Text = Annotated[str, Meta(min_length=1)]
_LAST = "last-event-id"
_ENDED = frozenset({"answered", "out_of_budget", "cancelled", "failed"})


class NewTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the model. What is left out is as the app has it."""

    message: Text
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """An id of the caller's choice: asked again with the same message, it is the same turn."""
    model: Text | None = None
    """Such as "openai:gpt-5"."""
    budget: BudgetGiven | None = None
    images: list[ImageGiven] = []
    tool_choice: Text = "auto"
    """"auto", "required", "none", or the name of the tool that the first answer must call."""
    parallel: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**31)] | None = None


class BudgetGiven(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much the turn may use. Null is no limit."""

    model_calls: Annotated[int, Meta(ge=0, le=2**31)] | None = 10
    tool_calls: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    tokens: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    cost: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    depth: Annotated[int, Meta(ge=0, le=1_000)] | None = 5


class ImageGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """A picture: base64 data and its media type."""

    data: bytes
    media_type: Annotated[str, Meta(pattern=r"^image/[a-z0-9.+-]{1,40}$")] = "image/png"


class TurnShown(Struct, frozen=True):
    """A turn as it is now; `outcome` is its end, or what it waits for."""

    turn: TurnInfo
    outcome: TurnOutcome | None


class Steer(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a turn that runs."""

    message: Text
    when: Delivery = "next_model_call"


class Steered(Struct, frozen=True):
    """The message reaches the model, unless the turn is cancelled, fails or uses up its budget before."""

    steered: bool


class TurnQuery(Struct, frozen=True, kw_only=True):
    """Which turns are listed."""

    active: bool = False
    """Only those that are not finished."""
    cursor: Cursor | None = None
    limit: Limit = 100


async def post_turn(request: ServiceRequest[NewTurn]) -> object:
    """Send a message to the model, run the tools that it calls, and answer with the outcome."""
    body, session = request.body, request.session()
    id = request.new_id(body.id, "turn_")
    turn = await session.start_turn(
        body.message,
        model=body.model,
        budget=None if body.budget is None else Budget(**_fields(body.budget)),
        images=[Image.from_bytes(image.data, image.media_type) for image in body.images],
        tool_choice=body.tool_choice,
        parallel=body.parallel,
        max_tokens=body.max_tokens,
        id=id,
    )
    where = {"Location": request.link("turns", turn.id)}
    if request.accepts(MEDIA_TYPE):
        return FollowStream(_events(turn, 0), feed_of(request.runtime).stopped(), where)
    if request.prefers("respond-async"):
        return await _unfinished(turn, {**where, "Preference-Applied": "respond-async"})
    try:
        async with asyncio.timeout(request.patience()):
            outcome = await turn
    except TimeoutError:
        return await _unfinished(turn, where)
    return JsonAnswer.of(turn_outcome(outcome), 202 if outcome.status == "waiting" else 200, where)


async def _unfinished(turn: TurnClient, headers: dict[str, str]) -> JsonAnswer:
    """The answer that a turn goes on."""
    return JsonAnswer.of({"turn": (await turn.info()).to_json(), "outcome": None}, 202, headers)


async def list_turns(request: ServiceRequest[None, TurnQuery]) -> dict[str, Any]:
    """The turns of a session, the newest first."""
    query = request.query
    place = read_cursor(query.cursor, tuple[int])
    before = None if place is None else place[0]
    found = await request.session().turns(active=query.active, limit=query.limit + 1, before=before)
    return page_from(found, query.limit, lambda one: (one.number,))


async def get_turn(request: ServiceRequest) -> object:
    """A turn as it is now; or its events, from `Last-Event-ID` on."""
    turn = await _find(request)
    if request.accepts(MEDIA_TYPE):
        return FollowStream(_events(turn, _last_seen(request)), feed_of(request.runtime).stopped())
    info = await turn.info()
    done = info.state in _ENDED or info.state == "waiting"
    return {"turn": info.to_json(), "outcome": turn_outcome(await turn) if done else None}


async def cancel_turn(request: ServiceRequest[Cancel]) -> dict[str, Any]:
    """Stop a turn, on whichever server or worker it runs."""
    turn = await _find(request)
    return {"cancelled": await turn.cancel(request.body.reason)}


async def steer_turn(request: ServiceRequest[Steer]) -> dict[str, Any]:
    """Send a message to a turn that runs."""
    turn = await _find(request)
    await turn.steer(request.body.message, when=request.body.when)
    return {"steered": True}


async def _find(request: ServiceRequest[Any, Any]) -> TurnClient:
    id = request.path["turn"]
    missing = not_found(f"There is no turn {id!r:.200}; GET /v1/sessions/{{session}}/turns lists them")
    try:
        turn = await request.runtime.turn(id)
    except TurnError:
        raise missing from None
    request.require(turn.session_id, missing)
    return turn


def _last_seen(request: ServiceRequest[Any, Any]) -> int:
    given = request.raw.headers.get(_LAST, "0") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise Problem(422, "invalid", "The Last-Event-ID is not the number of an event; pass on the last `id:`")
    return int(given)


async def _events(turn: TurnClient, after: int) -> AsyncIterator[bytes]:
    async for event in turn.follow(after):
        yield turn_event(event)


def turn_event(event: TurnEvent) -> bytes:
    """An event of a turn as it is sent."""
    return sse_event(event.to_json(), id=event.number, event=event.kind)


def turn_outcome(outcome: TurnOutcome) -> dict[str, Any]:
    """The outcome of a turn as JSON."""
    return {**outcome.to_json(), "calls": outcomes_json(outcome.calls)}


def _fields(given: BudgetGiven) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__struct_fields__}


OPERATIONS = (
    Operation(
        method="POST",
        path="/sessions/{session}/turns",
        handler=post_turn,
        scope="run",
        summary="Ask the model",
        description="""
            The answer comes in the response; with `Prefer: respond-async` at once, as 202, and the turn goes on; with
            `Accept: text/event-stream` as a stream of the events of the turn.
            """,
        tag="turns",
        body=NewTurn,
        answer=TurnOutcome,
        also=(
            OtherAnswer(status=202, says="It waits for something outside.", type=TurnOutcome),
            OtherAnswer(status=202, says="It goes on: as preferred, or since it takes long.", type=TurnShown),
            OtherAnswer(status=200, says="The events of the turn.", media_type=MEDIA_TYPE),
        ),
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/turns",
        handler=list_turns,
        scope="read",
        summary="List the turns of a session",
        tag="turns",
        query=TurnQuery,
        answer=Page[TurnInfo],
    ),
    Operation(
        method="GET",
        path="/turns/{turn}",
        handler=get_turn,
        scope="read",
        summary="Look at a turn, or follow it",
        tag="turns",
        answer=TurnShown,
        also=(OtherAnswer(status=200, says="The events of the turn.", media_type=MEDIA_TYPE),),
    ),
    Operation(
        method="POST",
        path="/turns/{turn}/cancel",
        handler=cancel_turn,
        scope="run",
        summary="Stop a turn",
        tag="turns",
        body=Cancel,
        body_needed=False,
        answer=Cancelled,
    ),
    Operation(
        method="POST",
        path="/turns/{turn}/steer",
        handler=steer_turn,
        scope="run",
        summary="Send a message to a turn that runs",
        tag="turns",
        body=Steer,
        answer=Steered,
    ),
)
