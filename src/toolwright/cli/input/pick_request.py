"""Which request to a person is meant. Owns reading a call's id, a number of the list, or a key; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.cli.exits import BadInput
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.waits import WaitKind
from toolwright.stores.opening import inspect_store

_KEY = "twk1."

Request = Approval | Question
"""What waits for a person."""


class Chosen(NamedTuple):
    """One request. `request` is None if it does not wait any more; `by_number` is true if it was named by a list
    number."""

    key: str
    call_id: str | None
    request: Request | None = None
    by_number: bool = False


async def open_requests(runtime: Runtime, session: str | None) -> list[Request]:
    """The requests that wait for a person, oldest first: their places in the list are their numbers."""
    found: list[Request] = [*await runtime.approvals(session), *await runtime.questions(session)]
    return sorted(found, key=asked_at)


def asked_at(request: Request) -> float:
    """The instant of a request."""
    return request.requested_at if isinstance(request, Approval) else request.asked_at


def told_request(request: Request) -> str:
    """A request in one line: what would run, or what is asked."""
    if isinstance(request, Question):
        return f"{request.tool} asks: {request.message}"
    return f"{request.tool} {jsonx.encode(request.arguments).decode()}"


async def choose(
    store: str, requests: Sequence[Request], word: str, session: str | None, kinds: Sequence[WaitKind]
) -> Chosen:
    """The request that a word means. One of these kinds that was decided meanwhile is found, too: then the decision is
    reported as late.

    Raises:
        BadInput: there is none, or more than one.
    """
    found = {request.key: request for request in requests if word in (request.call_id, request.key)}
    place = int(word) if word.isdecimal() and word.isascii() and len(word) < 10 else 0
    counted = requests[place - 1] if 0 < place <= len(requests) else None
    if counted is not None:
        found.setdefault(counted.key, counted)
    if len(found) > 1:
        choices = "".join(f"\n  {_described(request)}\n    {request.key}" for request in found.values())
        raise BadInput(f"{len(found)} requests are called {word!r}; use a key, or add --session:{choices}")
    for key, request in found.items():
        return Chosen(key, request.call_id, request, by_number=word not in (request.call_id, key))
    if word.startswith(_KEY):
        return Chosen(word, None)
    decided = await inspect_store(store).decided_key(word, session, kinds)
    if decided is not None:
        return Chosen(decided, word)
    raise BadInput(f"Nothing that waits for a person is called {word!r}; toolwright approvals lists the requests")


def _described(request: Request) -> str:
    scope = f", scope {request.scope!r}" if request.scope else ""
    named = f", question {request.name!r}" if isinstance(request, Question) else ""
    return f"{request.call_id} of session {request.session!r}{scope}{named}: {told_request(request):.100}"
