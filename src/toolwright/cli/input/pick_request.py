"""Which request a person means. Owns reading a call's id, a number of the list, or a key; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.cli.exits import BadInput
from toolwright.stores.opening import inspect_store

_KEY = "twk1."


class Chosen(NamedTuple):
    """One request. `request` is None if it does not wait any more; `by_number` is true if it was named by a list
    number."""

    key: str
    call_id: str | None
    request: Approval | None = None
    by_number: bool = False


async def choose(store: str, requests: Sequence[Approval], word: str, session: str | None) -> Chosen:
    """The request that a word means. One that was decided meanwhile is found, too: then the decision is reported as
    late.

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
    decided = await inspect_store(store).decided_key(word, session)
    if decided is not None:
        return Chosen(decided, word)
    raise BadInput(f"Nothing that waits for a person is called {word!r}; toolwright approvals lists the requests")


def _described(request: Approval) -> str:
    scope = f", scope {request.scope!r}" if request.scope else ""
    arguments = jsonx.encode(request.arguments).decode()
    return f"{request.call_id} of session {request.session!r}{scope}: {request.tool} {arguments:.60}"
