"""Sessions and their conversations."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from toolwright.http.answers import JsonAnswer
from toolwright.http.cursors import Page, PageQuery, page_from, page_of, read_cursor, write_cursor
from toolwright.http.operations import SESSION, Id, Operation, OtherAnswer, ServiceRequest
from toolwright.http.problems import Problem, invalid, not_found
from toolwright.ids import uuid7
from toolwright.runtime.call_history import MemoryCallHistory
from toolwright.runtime.runtime import Runtime, history_of
from toolwright.runtime.used_sessions import used_session
from toolwright.stores.contracts.archives import SessionInfo
from toolwright.tools.service_protocols import Message, Sender
from toolwright.tools.validation_messages import ArgumentProblem, preview

_MOST_READS = 25
"""How often one request reads the store for a caller that sees only some sessions."""
_LEAST_READ = 200
"""How many sessions are read at once, at least, for such a caller."""


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    """A session that is to be made."""

    id: Id | None = None
    """Its name in every process; by default a new one."""
    title: Annotated[str, Meta(min_length=1)] | None = None
    """A title for people; by default its id."""
    locale: str | None = None
    """A language tag, such as "pt-BR"."""


class NewMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message that is to be appended. The model reads it in the next turn."""

    content: Any
    """Text, or any JSON."""
    sender: Sender = "user"
    metadata: dict[str, Any] | None = None


async def list_sessions(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The sessions that have records, by id."""
    place, limit = read_cursor(request.query.cursor, tuple[str]), request.query.limit
    after, found = "" if place is None else place[0], list[SessionInfo]()
    most = limit + 1 if request.caller.everywhere else max(limit + 1, _LEAST_READ)
    for _ in range(_MOST_READS):
        page = await _known(request.runtime, after=after, limit=most)
        found += [one for one in page if request.sees(one.id)]
        if len(found) > limit or len(page) < most:
            return page_from(found, limit, lambda one: (one.id,))
        after = page[-1].id
    return page_of([one.to_json() for one in found], write_cursor(after))


async def make_session(request: ServiceRequest[NewSession]) -> JsonAnswer:
    """Make a session. One of this id is left as it is, but for a title or locale that is given."""
    body = request.body
    id = request.new_id(body.id, "session_") or f"session_{uuid7()}"
    request.require_scope_in(id)
    for name, text in (("id", id), ("title", body.title)):
        if text is not None and not text.split():  # nothing would be recorded, and so there would be no session
            raise invalid([ArgumentProblem(f"$.{name}", "it has only spaces", preview(text), "visible text")])
    session, known = used_session(request.runtime, id), await _find(request.runtime, id)
    title = body.title
    if title is None and (known is None or known.title is None):
        title = id[:200]  # the id of a session may be longer than a title
    await session.details.set(title=title, locale=body.locale)
    info = await _find(request.runtime, id)
    return JsonAnswer.of((info or SessionInfo(id, 0, 0, {})).to_json(), 201 if known is None else 200)


async def get_session(request: ServiceRequest) -> dict[str, Any]:
    """One session."""
    id = request.path[SESSION]
    info = await _find(request.runtime, id)
    if info is None:
        raise _no_session(id)
    return info.to_json()


async def delete_session(request: ServiceRequest) -> JsonAnswer:
    """Remove a session that has nothing unfinished, with its calls, turns and contents."""
    id = request.path[SESSION]
    if not await request.runtime.delete_session(id):
        raise _no_session(id)
    return JsonAnswer(b"", 204)


async def list_messages(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The conversation, from its beginning."""
    place = read_cursor(request.query.cursor, tuple[int])
    limit = request.query.limit
    found = await request.session().messages.list(after=0 if place is None else place[0], limit=limit + 1)
    return page_from(found, limit, lambda one: (one.number,))


async def append_message(request: ServiceRequest[NewMessage]) -> dict[str, Any]:
    """Append a message, without asking the model."""
    body, messages, metadata = request.body, request.session().messages, request.body.metadata
    if request.key is not None:
        # With its key on it: a message that a crash cut off from its answer is found again, and not appended twice.
        metadata = {**(metadata or {}), "idempotency_key": request.key.derive("")}
        if request.key.again:
            for message in await messages.list():
                if message.metadata.get("idempotency_key") == metadata["idempotency_key"]:
                    return message.to_json()
    return (await messages.append(body.content, sender=body.sender, metadata=metadata)).to_json()


async def _find(runtime: Runtime, id: str) -> SessionInfo | None:
    return next(iter(await _known(runtime, id)), None)


async def _known(
    runtime: Runtime, only: str | None = None, *, after: str = "", limit: int | None = None
) -> list[SessionInfo]:
    """The sessions by id. In memory, those whose calls the log still has are among them."""
    history = history_of(runtime)
    if not isinstance(history, MemoryCallHistory):
        return await runtime.sessions(only, after=after, limit=limit)
    found = await runtime.sessions(only)
    known = {one.id: one for one in found}
    for id, (calls, unfinished) in history.sessions(only).items():
        info = known.get(id) or SessionInfo(id, 0, 0, {})
        known[id] = replace(info, calls=calls, unfinished=info.unfinished + unfinished)
    return [known[id] for id in sorted(known) if id > after][:limit]


def _no_session(id: str) -> Problem:
    return not_found(f"There is no session {id!r:.200}; GET /v1/sessions lists them")


OPERATIONS = (
    Operation(
        method="GET",
        path="/sessions",
        handler=list_sessions,
        scope="read",
        summary="List the sessions",
        tag="sessions",
        query=PageQuery,
        answer=Page[SessionInfo],
    ),
    Operation(
        method="POST",
        path="/sessions",
        handler=make_session,
        scope="run",
        summary="Make a session",
        tag="sessions",
        body=NewSession,
        body_needed=False,
        answer=SessionInfo,
        status=201,
        also=(OtherAnswer(status=200, says="It was there already.", type=SessionInfo),),
    ),
    Operation(
        method="GET",
        path="/sessions/{session}",
        handler=get_session,
        scope="read",
        summary="Look at a session",
        tag="sessions",
        answer=SessionInfo,
    ),
    Operation(
        method="DELETE",
        path="/sessions/{session}",
        handler=delete_session,
        scope="run",
        summary="Remove a session",
        tag="sessions",
        status=204,
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/messages",
        handler=list_messages,
        scope="read",
        summary="Read the conversation",
        tag="sessions",
        query=PageQuery,
        answer=Page[Message],
    ),
    Operation(
        method="POST",
        path="/sessions/{session}/messages",
        handler=append_message,
        scope="run",
        summary="Append a message",
        tag="sessions",
        body=NewMessage,
        answer=Message,
        status=201,
    ),
)
