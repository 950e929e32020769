"""Batches: calls in our shape or any provider's, with results in the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.batch import Batch
from toolwright.calls.record import CallRecord
from toolwright.http.answers import JsonAnswer
from toolwright.http.batch_cancels import cancels_of
from toolwright.http.blocked_batches import NAMED, EarlierCall, blocked_calls, settle, waiting_elsewhere
from toolwright.http.calls_json import CallShown, call_json
from toolwright.http.checks import BodyCheck, not_json
from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.operations import LONGEST_ID, SESSION, Id, Operation, OtherAnswer, ServiceRequest
from toolwright.http.outcome_json import outcomes_json
from toolwright.http.problems import Problem, invalid, not_found
from toolwright.http.waited_for import recorded, waited_for
from toolwright.runtime.runtime import history_of
from toolwright.runtime.used_sessions import used_session
from toolwright.stores.contracts.inspection import PastBatch, PastCall
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.validation_messages import ArgumentProblem, preview
from toolwright.wire.detect import PROVIDERS, Provider, detect

MOST_CALLS = 10_000
"""Calls of one batch."""
Scope = Annotated[str, Meta(max_length=LONGEST_ID)]
_SOURCES = ("model", "user")
"""Who may have made a call that comes over HTTP."""


class BatchCall(Struct, frozen=True, forbid_unknown_fields=True):
    """One call."""

    name: Annotated[str, Meta(min_length=1)]
    """The name of a tool."""
    arguments: Any = None
    """An object, or the JSON text of one."""
    id: Id | None = None
    """Its id in the scope; the same id with the same content is the same call."""
    source: Literal["model", "user"] = "model"


class NewBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Calls that are to run as one batch."""

    calls: list[BatchCall]
    scope: Scope | None = None
    """What their ids are unique in. By default that of the session, or of the `Idempotency-Key`."""


class BatchDone(Struct, frozen=True):
    """A batch and its results, one for each call, in order. A call that still waits has the status "pending"."""

    batch: str
    session: str
    scope: str
    status: Literal["done", "waiting", "running"]
    """"waiting" where the rest waits for something outside, "running" where nobody waited for its end."""
    results: list[ToolOutcome]
    waited_for: list[EarlierCall] = []
    """The calls of earlier batches that hold it up: it continues when they have what they wait for."""


class BatchQuery(Struct, frozen=True, kw_only=True):
    """How a posted batch is read."""

    scope: Scope | None = None
    """The scope of calls in a provider's shape, which cannot name one."""
    provider: Literal["openai-chat", "openai-responses", "anthropic", "mcp", "plain"] | None = None
    """The shape, where it cannot be told from the body."""


class CallInBatch(CallShown, frozen=True, kw_only=True):
    """A call of a batch."""

    waited_for: list[str]
    """What it waited for before it ran: the ids of earlier calls, those that ended last first, or the name of a limit,
    such as "a slot of the batch". Of calls that ran in another process no limit is known, and earlier calls only where
    their tools are. While it is blocked by a call of an earlier batch that waits for something outside: that one."""


class BatchShown(Struct, frozen=True):
    """A batch with its calls."""

    batch: str
    session: str
    scope: str
    status: Literal["done", "unfinished"]
    calls: list[CallInBatch]


class WhichBatch(Struct, frozen=True, kw_only=True):
    """Which of the batches of an id: the same calls in another session or scope have the same id."""

    session: Id | None = None
    scope: Scope | None = None


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to stop something."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_000)] = "it was cancelled over HTTP"


class Cancelled(Struct, frozen=True):
    """Whether something was stopped; false where it had ended already."""

    cancelled: bool


class Posted(Struct, frozen=True, gc=False):
    """A batch that was posted: its calls, and the shape of its results, which is None for ours."""

    calls: list[ToolCall]
    scope: str | None
    shape: Provider | None


_ours = msgspec.json.Decoder(NewBatch).decode
_any = BodyCheck(object)


def read_batch(data: bytes) -> object:
    """A batch in our shape, or the JSON of another.

    Raises:
        Problem: it is not JSON, or has a number that nothing can hold.
    """
    try:
        if len(data) > jsonx.SHALLOW:
            jsonx.require_shallow(data)
        return _ours(data)
    except msgspec.ValidationError:
        return _any.read(data)  # a provider's shape
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(data, error) from None


def _posted(body: object, query: BatchQuery) -> Posted:
    if type(body) is NewBatch and query.provider in (None, "plain"):
        calls = [ToolCall(one.name, one.arguments, one.id, one.source) for one in body.calls]
        return Posted(calls, query.scope if body.scope is None else body.scope, None)
    scope = query.scope
    if type(body) is NewBatch:
        body = msgspec.to_builtins(body)
    wrapped = isinstance(body, dict) and "calls" in body and body.keys() <= {"calls", "scope"}
    if wrapped:
        assert isinstance(body, dict)
        scope = body.get("scope") if body.get("scope") is not None else scope
        body = body["calls"]
        if scope is not None and (not isinstance(scope, str) or len(scope) > LONGEST_ID):
            expected = f"text of up to {LONGEST_ID} characters"
            raise invalid([ArgumentProblem("$.scope", "the scope is not usable", preview(scope), expected)])
    name = query.provider or detect(body)
    shape = PROVIDERS[name]
    calls = shape.read_calls(body)
    if name == "mcp":  # as a server reads them: the service runs tools of any kind
        calls = [replace(call, kind=None) for call in calls]
    for place, call in enumerate(calls):
        if len(call.id or "") > LONGEST_ID:
            expected = f"at most {LONGEST_ID} characters"
            raise invalid([ArgumentProblem(f"$[{place}].id", "the id is too long", preview(call.id), expected)])
        if call.source not in _SOURCES:
            raise Problem(
                422, "invalid", f"Call {call.id!r:.200} has the source {call.source!r}; use 'model' or 'user'"
            )
    return Posted(calls, scope, None if wrapped and name == "plain" else shape)


async def post_batch(request: ServiceRequest[object, BatchQuery]) -> JsonAnswer:
    """Run calls, and answer with their results once each has one or waits for something outside."""
    posted, key = _posted(request.body, request.query), request.key
    calls, scope = posted.calls, posted.scope
    if len(calls) > MOST_CALLS:
        raise Problem(413, "too_large", f"The batch has {len(calls)} calls, and may have {MOST_CALLS}; send fewer")
    if key is not None:
        scope = key.derive("http-") if scope is None else scope
        named = key.derive("call_")
        calls = [call if call.id else replace(call, id=f"{named}-{place}") for place, call in enumerate(calls)]
    session = request.session()
    batch = session.start_batch(calls, scope=scope or "", at_once=True)
    if not batch.done:
        cancels_of(request.runtime).watch(batch)
    if request.prefers("respond-async") and not batch.done:
        status: Literal["done", "waiting", "running"] = "running"
    else:
        status = "done" if batch.done else await settle(batch, lambda: session.batches, request.patience())
    if status == "running":
        await batch.launched()  # what is acknowledged is in the store
        status = "done" if batch.done else "running"
    if status != "done":
        await cancels_of(request.runtime).ready()
    return _answer(request, scope or "", posted, calls, batch, await _outcomes(batch), status)


async def _outcomes(batch: Batch) -> list[ToolOutcome]:
    """The outcome of each call as it is now; "pending" where there is none."""
    if batch.done:
        return await batch.quiet()
    now = ((call, batch.outcome_of(place)) for place, call in enumerate(batch.calls))
    return [ToolOutcome(call.call_id, call.name, "pending") if one is None else one for call, one in now]


def _answer(
    request: ServiceRequest[object, BatchQuery],
    scope: str,
    posted: Posted,
    calls: list[ToolCall],
    batch: Batch,
    outcomes: list[ToolOutcome],
    status: Literal["done", "waiting", "running"],
) -> JsonAnswer:
    code, headers = (200, None) if status == "done" else (202, {"Location": request.link("batches", batch.id)})
    if posted.shape is not None:
        return JsonAnswer.of(posted.shape.write_results(outcomes, _with_ids(calls, outcomes)), code, headers)
    done = _Done(batch.id, request.path[SESSION], scope, status, outcomes_json(outcomes))
    if status == "waiting":
        behind = blocked_calls(batch, request.session().batches).values()
        done.waited_for = list(dict.fromkeys(call for calls in behind for call in calls))[:NAMED]
    return JsonAnswer.of(done, code, headers)


class _Done(Struct, gc=False, omit_defaults=True):
    """`BatchDone`, whose results are written already."""

    batch: str
    session: str
    scope: str
    status: str
    results: list[object]
    waited_for: list[EarlierCall] = []


def _with_ids(calls: list[ToolCall], outcomes: list[ToolOutcome]) -> list[ToolCall]:
    """The calls with the ids that they got."""
    return [
        call if call.id == outcome.call_id else replace(call, id=outcome.call_id)
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


async def list_batches(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The batches of a session, the newest first."""
    place = read_cursor(request.query.cursor, tuple[float, str])
    limit = request.query.limit
    found = await history_of(request.runtime).list_batches(request.path[SESSION], place, limit + 1)
    return page_from(found, limit, lambda one: (one.first_at, one.batch))


async def get_batch(request: ServiceRequest[None, WhichBatch]) -> dict[str, Any]:
    """A batch with its calls."""
    calls = await _calls_of(request, request.query)
    first, records = calls[0], recorded(request.runtime.log, calls)
    reasons = {id: record.waited_for for id, record in records.items()}
    reasons |= waited_for(calls, request.runtime.tools.snapshot())
    if any(call.outcome is None for call in calls):
        batches = used_session(request.runtime, first.key.session).batches
        for one in _running(batches, first):
            held = blocked_calls(one, batches)
            reasons |= {id: tuple(call.call_id for call in behind) for id, behind in held.items()}
            reasons |= waiting_elsewhere(one)
    return {
        "batch": first.batch,
        "session": first.key.session,
        "scope": first.key.scope,
        "status": "unfinished" if any(call.outcome is None for call in calls) else "done",
        "calls": [
            {**call_json(_as_recorded(call, records)), "waited_for": reasons.get(call.key.call_id, ())}
            for call in calls
        ],
    }


def _as_recorded(call: PastCall, records: Mapping[str, CallRecord]) -> PastCall:
    """A call with the instant of its start: that of a readonly tool is stored with the outcome, and not before."""
    record = records.get(call.key.call_id)
    if call.started_at is not None or record is None or record.started_at is None:
        return call
    return replace(call, started_at=record.started_at)


async def cancel_batch(request: ServiceRequest[Cancel, WhichBatch]) -> dict[str, Any]:
    """Stop a batch, on whichever server it runs."""
    calls = await _calls_of(request, request.query)
    key, id = calls[0].key, calls[0].batch
    running = _running(used_session(request.runtime, key.session).batches, calls[0])
    if not running and any(call.outcome is None and not call.cut_off for call in calls):
        asked = await cancels_of(request.runtime).ask(calls, request.body.reason)
        if asked is None:
            raise Problem(
                409,
                "elsewhere",
                f"The batch {id!r:.200} runs in another process that does not answer, as one that is no server does "
                "not; cancel it there, or ask again",
            )
        return {"cancelled": asked}
    for one in running:
        one.cancel(request.body.reason)
    return {"cancelled": bool(running)}


def _running(batches: Iterable[Batch], call: PastCall) -> list[Batch]:
    """The batch of a call, where it runs on this server."""
    return [one for one in batches if one.id == call.batch and one.scope == call.key.scope]


async def _calls_of(request: ServiceRequest[Any, Any], which: WhichBatch) -> list[PastCall]:
    """The calls of the newest batch of an id, as the caller may see it."""
    id = request.path["batch"]
    found = await history_of(request.runtime).batch_calls(id, which.session)
    mine = [
        call
        for call in found
        if request.sees(call.key.session) and (which.scope is None or call.key.scope == which.scope)
    ]
    if not mine:
        raise not_found(f"There is no batch {id!r:.200}; GET /v1/sessions/{{session}}/batches lists them")
    last = mine[-1].key
    return [call for call in mine if (call.key.session, call.key.scope) == (last.session, last.scope)]


OPERATIONS = (
    Operation(
        method="POST",
        path="/sessions/{session}/batches",
        handler=post_batch,
        scope="run",
        summary="Run calls",
        description="""
            Calls in our shape, or the answer of a model as its provider gave it: OpenAI chat, OpenAI responses,
            Anthropic, MCP. Results come in the same shape. A call that fails is a result, too.
            """,
        tag="batches",
        body=NewBatch,
        other_bodies=(dict[str, Any], list[Any]),
        reader=read_batch,
        query=BatchQuery,
        answer=BatchDone,
        also=(
            OtherAnswer(status=200, says="Messages in the provider's shape.", type=list[Any]),
            OtherAnswer(status=202, says="Some calls wait or run; the others have results.", type=BatchDone),
            OtherAnswer(status=202, says="The same in the provider's shape.", type=list[Any]),
        ),
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/batches",
        handler=list_batches,
        scope="read",
        summary="List the batches of a session",
        tag="batches",
        query=PageQuery,
        answer=Page[PastBatch],
    ),
    Operation(
        method="GET",
        path="/batches/{batch}",
        handler=get_batch,
        scope="read",
        summary="Look at a batch",
        tag="batches",
        query=WhichBatch,
        answer=BatchShown,
    ),
    Operation(
        method="POST",
        path="/batches/{batch}/cancel",
        handler=cancel_batch,
        scope="run",
        summary="Stop a batch",
        tag="batches",
        query=WhichBatch,
        body=Cancel,
        body_needed=False,
        answer=Cancelled,
    ),
)
