"""Why the calls of a batch waited. Owns naming the earlier calls that they had conflicts with, from what is stored, and
finding what the log of this process knows of them.

The schedule knows the reason while it runs calls, and stores nothing of it. Conflicts follow from the claims of the
calls, which their tools and arguments give, and from when each started and ended. Only the log of the process that ran
a call knows that it waited for a limit.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from toolwright import jsonx
from toolwright.calls.record import CallRecord, MemoryCallLog
from toolwright.calls.schedule.claim_index import overlap
from toolwright.stores.contracts.inspection import PastCall
from toolwright.tools.claims import Claim
from toolwright.tools.tool import Tool

NAMED = 3
"""How many calls are named at most."""
_LOOK = 64
"""How many calls that ended shortly before another started are compared with it."""
_AT_ONCE = 0.001
"""Seconds within which a call starts that waited for nothing."""


def recorded(log: object, calls: Sequence[PastCall]) -> dict[str, CallRecord]:
    """By call id, what the log of this process says of the calls of a batch; it may have none of them."""
    if not isinstance(log, MemoryCallLog) or not log.records:
        return {}
    first, ends = calls[0], [call.finished_at for call in calls]
    if all(at is not None and at < log.records[0].queued_at for at in ends):
        return {}  # the whole log is newer; do not go through it
    key = first.key
    found = log.query(session=key.session, batch=first.batch, scope=key.scope, limit=len(calls))
    return {record.call_id: record for record in found}


def waited_for(calls: Sequence[PastCall], tools: Mapping[str, Tool]) -> dict[str, tuple[str, ...]]:
    """By the id of each call that waited: the calls of the batch before it whose claims conflict with its own and which
    ended last before it started; for a call that has not started, those that are unfinished."""
    claims = _claims_of(tools)
    ended = sorted((call.finished_at, place) for place, call in enumerate(calls) if call.finished_at is not None)
    ends = [at for at, _ in ended]
    unfinished = [place for place, call in enumerate(calls) if call.finished_at is None][:_LOOK]
    found: dict[str, tuple[str, ...]] = {}
    for place, call in enumerate(calls):
        start = call.started_at if call.started_at is not None else call.finished_at
        if call.waits_for or (start if start is not None else time.time()) - call.queued_at < _AT_ONCE:
            continue
        if start is None:
            before = unfinished
        else:
            last = bisect_right(ends, start + _AT_ONCE)
            near = reversed(ended[max(0, last - _LOOK) : last])
            before = [other for at, other in near if at > call.queued_at]
        ours = claims(call)
        named = [calls[other] for other in before if other < place and overlap(ours, claims(calls[other]))][:NAMED]
        if named:
            found[call.key.call_id] = tuple(one.key.call_id for one in named)
    return found


def _claims_of(tools: Mapping[str, Tool]) -> Callable[[PastCall], tuple[Claim, ...]]:
    known: dict[str, tuple[Claim, ...]] = {}

    def claims(call: PastCall) -> tuple[Claim, ...]:
        id = call.key.call_id
        if id not in known:
            known[id] = _claims(call, tools.get(call.tool))
        return known[id]

    return claims


def _claims(call: PastCall, tool: Tool | None) -> tuple[Claim, ...]:
    if tool is None:
        return ()
    declared = tool.claims
    if not callable(declared):
        return declared
    arguments = jsonx.decode(call.arguments)
    if not isinstance(arguments, dict):
        return ()
    try:
        return declared(arguments)
    except Exception:  # code of a tool, on arguments that may not fit it
        return ()
