"""What waits for people and programs: approvals and questions, who decided what, and the URLs of webhooks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.errors import KeyRefused
from toolwright.http.cursors import Cursor, Limit, Page, page_of, read_cursor, write_cursor
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.problems import Problem, invalid, not_found
from toolwright.runtime.runtime import Runtime, session_of_key
from toolwright.session.open_waits import Resolved
from toolwright.tools.outcome import CATEGORIES
from toolwright.tools.validation_messages import ArgumentProblem

_MOST_READS = 10
"""How many pages of decisions one request reads for a caller that sees only some sessions."""


class Waiting(Struct, frozen=True):
    """Something that waits for a person, or was decided by one: an approval or a question."""

    kind: Literal["approval", "question"]
    key: str
    """Names it in the paths that decide it."""
    session: str
    approval: Approval | None
    question: Question | None


class InboxQuery(Struct, frozen=True, kw_only=True):
    """Which requests are listed."""

    session: str | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class Approve(Struct, frozen=True, forbid_unknown_fields=True):
    """Let a call run, or answer a question."""

    arguments: dict[str, Any] | None = None
    """Other arguments for the call."""
    always: dict[str, Any] | None = None
    """Decide so for later calls of the tool in the session, too: {} for all, or patterns by argument."""
    answer: Any | UnsetType = UNSET
    """The answer to a question, which needs one."""


class Deny(Struct, frozen=True, forbid_unknown_fields=True):
    """Deny a call, or decline a question."""

    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    """The model reads it."""
    always: dict[str, Any] | None = None


class Completion(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of what a call waits for: a value, or an error."""

    value: Any | UnsetType = UNSET
    error: CompletionError | str | UnsetType = UNSET


class CompletionError(Struct, frozen=True, forbid_unknown_fields=True):
    """An error that the model reads."""

    message: Annotated[str, Meta(min_length=1, max_length=10_000)]
    code: Annotated[str, Meta(min_length=1, max_length=100)] = "rejected"
    category: str = "external"


# --- lists


async def list_approvals(request: ServiceRequest[None, InboxQuery]) -> dict[str, Any]:
    """What waits for a person, the oldest first."""
    query, runtime = request.query, request.runtime
    request.require_scope_in(query.session)
    place = read_cursor(query.cursor, tuple[float, str])
    found = [_approval(one) for one in await runtime.approvals(query.session)]
    found += [_question(one) for one in await runtime.questions(query.session)]
    seen = sorted((at, one["key"], one) for at, one in found if request.sees(one["session"]))
    rest = [item for item in seen if place is None or item[:2] > place]
    shown = rest[: query.limit]
    more = write_cursor(*shown[-1][:2]) if len(rest) > query.limit else None
    return page_of([one for _, _, one in shown], more)


async def list_decisions(request: ServiceRequest[None, InboxQuery]) -> dict[str, Any]:
    """Who decided what, the newest first: approved or denied, by whom, from where, and what was changed."""
    query, runtime = request.query, request.runtime
    request.require_scope_in(query.session)
    place = read_cursor(query.cursor, tuple[int])
    before, shown, more = None if place is None else place[0], list[dict[str, Any]](), True
    for _ in range(_MOST_READS):
        page = await _decided(runtime, query.session, query.limit + 1, before)
        more = len(page) > query.limit
        for number, one in page[: query.limit]:
            if len(shown) == query.limit:
                more = True
                break
            before = number
            if request.sees(one["session"]):
                shown.append(one)
        if not more or len(shown) == query.limit or request.caller.everywhere:
            break
    return page_of(shown, write_cursor(before) if more and before is not None else None)


async def _decided(
    runtime: Runtime, session: str | None, limit: int, before: int | None
) -> list[tuple[int, dict[str, Any]]]:
    approvals = await runtime.decisions(session, limit=limit, before=before)
    questions = await runtime.questions(session, decided=True, limit=limit, before=before)
    both = [(one.number or 0, _approval(one)[1]) for one in approvals]
    both += [(one.number or 0, _question(one)[1]) for one in questions]
    return sorted(both, key=lambda item: item[0], reverse=True)[:limit]


def _approval(one: Approval) -> tuple[float, dict[str, Any]]:
    told = {"kind": "approval", "key": one.key, "session": one.session, "approval": one.to_json(), "question": None}
    return one.requested_at, told


def _question(one: Question) -> tuple[float, dict[str, Any]]:
    told = {"kind": "question", "key": one.key, "session": one.session, "approval": None, "question": one.to_json()}
    return one.asked_at, told


# --- decisions


async def approve(request: ServiceRequest[Approve]) -> dict[str, Any]:
    """Let a call run, or answer a question. The first to decide wins."""
    key, session = _key(request)
    body, caller, runtime = request.body, request.caller, request.runtime
    if body.answer is not UNSET:
        decided = await runtime.answer(key, body.answer, by=caller.by, via=caller.via)
    else:
        decided = await runtime.approve(key, arguments=body.arguments, always=body.always, by=caller.by, via=caller.via)
    return await _stands(request, key, session, decided, "ok")


async def deny(request: ServiceRequest[Deny]) -> dict[str, Any]:
    """Deny a call, or decline a question. The first to decide wins."""
    key, session = _key(request)
    body, caller, runtime = request.body, request.caller, request.runtime
    try:
        decided = await runtime.deny(key, reason=body.reason, always=body.always, by=caller.by, via=caller.via)
    except KeyRefused as refused:
        if refused.why != "kind" or body.always is not None:
            raise
        decided = await runtime.decline(key, body.reason, by=caller.by, via=caller.via)
    return await _stands(request, key, session, decided, "error")


def _key(request: ServiceRequest[Any, Any]) -> tuple[str, str]:
    """The key in the path, and its session, in which the caller has the scope."""
    key = request.path["key"]
    session = session_of_key(request.runtime, key)
    request.require(session, not_found("There is no such request; GET /v1/approvals lists those that are open"))
    return key, session


async def _stands(
    request: ServiceRequest[Any, Any], key: str, session: str, decided: Resolved, meant: str
) -> dict[str, Any]:
    # A request that a crash cut off may have decided it, and comes again.
    ours = request.key is not None and request.key.again and decided.status == meant
    if decided.first or ours:
        return {**decided.to_json(), "first": True}
    stands = decided.to_json()
    for _, one in await _decided(request.runtime, session, 1_000, None):
        if one["key"] == key:
            stands["decision"] = (one["approval"] or one["question"])["decision"]
            break
    raise Problem(
        409, "already_decided", "Somebody else was first; `stands` is what was decided", members={"stands": stands}
    )


# --- webhooks


async def complete_wait(request: ServiceRequest[Completion]) -> dict[str, Any]:
    """Complete what a call waits for. The key is the authority: a client that has it may do that once."""
    key, body, runtime = request.path["key"], request.body, request.runtime
    if (body.value is UNSET) == (body.error is UNSET):
        given = "neither" if body.value is UNSET else "both"
        raise invalid([ArgumentProblem("$", "one of value and error is needed", given, "one of them")])
    if body.error is UNSET:
        decided = await runtime.resolve(key, body.value)
        same = decided.status == "ok" and decided.value == body.value
    else:
        error = CompletionError(body.error or "It failed") if isinstance(body.error, str) else body.error
        assert isinstance(error, CompletionError)
        if error.category not in CATEGORIES:
            known = ", ".join(sorted(CATEGORIES))
            raise invalid([ArgumentProblem("$.error.category", "it is not known", error.category[:100], known)])
        decided = await runtime.reject(key, code=error.code, message=error.message, category=error.category)
        failure = decided.failure
        same = failure is not None and (failure.code, failure.message) == (error.code, error.message)
    if decided.first or same:  # a webhook that is delivered twice is no conflict
        return decided.to_json()
    raise Problem(
        409,
        "already_decided",
        "It was completed before; `stands` is with what",
        members={"stands": {"status": decided.status, "at": decided.to_json()["at"]}},
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/approvals",
        handler=list_approvals,
        scope="read",
        summary="List what waits for a person",
        tag="approvals",
        query=InboxQuery,
        answer=Page[Waiting],
    ),
    Operation(
        method="POST",
        path="/approvals/{key}/approve",
        handler=approve,
        scope="approve",
        summary="Let a call run, or answer a question",
        tag="approvals",
        body=Approve,
        body_needed=False,
        answer=Resolved,
    ),
    Operation(
        method="POST",
        path="/approvals/{key}/deny",
        handler=deny,
        scope="approve",
        summary="Deny a call, or decline a question",
        tag="approvals",
        body=Deny,
        body_needed=False,
        answer=Resolved,
    ),
    Operation(
        method="GET",
        path="/decisions",
        handler=list_decisions,
        scope="read",
        summary="List who decided what",
        tag="approvals",
        query=InboxQuery,
        answer=Page[Waiting],
    ),
    Operation(
        method="POST",
        path="/waits/{key}",
        handler=complete_wait,
        scope=None,
        authority=lambda runtime, path: session_of_key(runtime, path["key"]),
        summary="Complete what a call waits for",
        description="The URL for a webhook: the key in it is its own authority, and needs no token.",
        tag="approvals",
        body=Completion,
        answer=Resolved,
    ),
)
