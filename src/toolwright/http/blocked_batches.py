"""Batches that cannot continue. Owns finding the calls of other batches that block one, and waiting for the end of a
batch only as long as that makes sense: no request waits for a person who does not know of it.

A call that waits in the middle of its code keeps its claims, by design. A batch that comes later and conflicts with it
is not quiet, as it does not wait for something outside itself; but the client that posted it must hear that nothing
will happen until the earlier call has its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.batch import Batch
from toolwright.calls.schedule.claim_index import overlap
from toolwright.tools.claims import Claim

LOOK, LONGEST_LOOK = 0.1, 2.0
"""Seconds until the first look whether a batch is blocked, and between two of the last ones."""
NAMED = 10
"""How many calls are named at most."""
_MOST_CLAIMS = 200
"""How many different claims are compared with those of each call."""
_BLOCKED = ("blocked", "gate")
_HOLDS = ("paused", "running")


class EarlierCall(Struct, frozen=True):
    """A call that waits for something outside, and that later calls of its session wait for."""

    batch: str
    scope: str
    call_id: str
    tool: str


class _Blocked:
    """Calls that cannot continue before something comes from outside, with their claims."""

    def __init__(self) -> None:
        self._claims: dict[tuple[Claim, ...], list[ActiveCall]] = {}

    def add(self, claims: tuple[Claim, ...], behind: list[ActiveCall]) -> None:
        if len(self._claims) < _MOST_CLAIMS:
            known = self._claims.setdefault(claims, [])
            known += [call for call in behind[:NAMED] if call not in known]

    def before(self, claims: tuple[Claim, ...]) -> list[ActiveCall]:
        """The calls that calls with these claims wait for."""
        found = (calls for theirs, calls in self._claims.items() if overlap(claims, theirs))
        return list(dict.fromkeys(call for calls in found for call in calls))[:NAMED]


def blocked_calls(batch: Batch, batches: Iterable[Batch]) -> dict[str, list[EarlierCall]]:
    """By the id of each call that is blocked: the calls of other batches that wait for something outside, and that it
    waits for. Empty while some call of the batch can continue by itself."""
    if any(
        not _waits(call) and (call.ticket is None or call.ticket.state not in _BLOCKED) for call in batch.unfinished
    ):
        return {}
    blocked, found = _Blocked(), dict[str, list[EarlierCall]]()
    above = [one for one in batches if one.parent is None]  # a call waits with those that it made
    queued = [(call.ticket, call) for one in above for call in one.unfinished if call.ticket is not None]
    for ticket, call in sorted(queued, key=lambda each: each[0].order):
        if ticket.state in _HOLDS and _waits(call):
            blocked.add(ticket.claims, [call])
        elif ticket.state in _BLOCKED:
            behind = blocked.before(ticket.claims)
            if behind:
                blocked.add(ticket.claims, behind)
                found[call.call_id] = [_shown(each) for each in behind if each.owner is not batch]
            elif call.owner is batch:
                return {}  # the one before it runs
    ours = {call.call_id for call in batch.unfinished}
    return {id: behind for id, behind in found.items() if behind and id in ours}


def waiting_elsewhere(batch: Batch) -> dict[str, tuple[str, ...]]:
    """By the id of each call that waits for calls of other processes: some of these."""
    return {
        call.call_id: tuple(sorted({other.key.call_id for other in call.elsewhere})[:NAMED])
        for call in batch.unfinished
        if call.elsewhere and call.ticket is not None and call.ticket.state == "elsewhere"
    }


async def settle(
    batch: Batch, batches: Callable[[], Iterable[Batch]], seconds: float
) -> Literal["done", "waiting", "running"]:
    """Wait until each call of a batch has its outcome, or waits for something outside, itself or behind a call of any
    batch that does; at most so many seconds.

    Raises:
        StoreError: what happened cannot be recorded.
        MachineError: a call could not be run.
    """
    if batch.done:
        return "done"
    loop = asyncio.get_running_loop()
    end, pause, quiet = loop.time() + seconds, LOOK, asyncio.ensure_future(batch.quiet())
    try:
        while True:
            await asyncio.wait({quiet}, timeout=min(pause, max(0.0, end - loop.time())))
            pause = min(2 * pause, LONGEST_LOOK)
            if quiet.done():
                quiet.result()
                return "done" if batch.done else "waiting"
            if blocked_calls(batch, batches()):
                return "waiting"
            if loop.time() >= end:
                return "running"
    finally:
        quiet.cancel()


def _waits(call: ActiveCall) -> bool:
    """Whether a call waits for something outside, itself or in the calls that it made."""
    if call.suspension is not None and call.suspension.waiting:
        return True
    return any(all(map(_waits, nested.unfinished)) for nested in call.nested)


def _shown(call: ActiveCall) -> EarlierCall:
    return EarlierCall(call.owner.id, call.owner.scope, call.call_id, call.name)
