"""Nested calls. Owns their ids, and their use of their ancestors' claims and slots."""

from __future__ import annotations

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, nesting_of
from toolwright.calls.schedule.admission import Limit, Ticket
from toolwright.tools.outcome import Failure

LONGEST_ID = 400
"""The most characters of an id that is made of the id of the call above."""


def child_id(parent: ActiveCall, name: str, raw: bytes) -> str:
    """An id for a nested call that was given none: the same when its parent is run again after a crash."""
    stem = f"{parent.call_id}.{parent.attempt}.{name}.{jsonx.digest(raw)[:12]}"
    if len(stem) > LONGEST_ID:  # else the ids of deeply nested calls would take all memory
        stem = f"nested_{jsonx.digest(stem.encode())[:40]}"
    made = nesting_of(parent).calls
    made[stem] = count = made.get(stem, 0) + 1
    return stem if count == 1 else f"{stem}.{count}"


def nested_too_deeply(name: str, limit: int) -> Failure:
    """The failure of a call that has more calls above it than its policy allows."""
    return Failure(
        category="resource_limit",
        code="nested_too_deeply",
        message=f"Tool {name!r} may not run inside of more than {limit} calls of tools that each made the next",
        source="runtime",
    )


def nearest_running(parent: ActiveCall) -> Ticket | None:
    """The ticket of the nearest ancestor that still runs: what it holds serves the calls it made, directly or not."""
    nearest = parent.ticket
    while nearest is not None and nearest.done:
        nearest = nearest.parent
    return nearest


def not_held(limits: tuple[Limit, ...], parent: Ticket) -> tuple[Limit, ...]:
    """The limits that neither a call nor its ancestors have a slot of."""
    held = {limit for above in (parent, *parent.ancestors()) for limit in above.limits}
    return tuple(limit for limit in limits if limit not in held)
