"""Tickets: calls that wait for admission. Owns tickets and limits; does not own the order, which is the schedule's."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from toolwright.calls.prepare.prepare import PreparedCall
from toolwright.calls.schedule.claim_index import Claimant, ClaimIndex
from toolwright.tools.claims import Claim

if TYPE_CHECKING:
    from toolwright.calls.schedule.admission import Admission


class Limit:
    """At most `capacity` tickets at once; waiting tickets are in order."""

    __slots__ = ("capacity", "in_use", "name", "reason", "waiting")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.reason = (name,)
        self.capacity = capacity
        self.in_use = 0
        self.waiting: deque[Ticket] = deque()

    def withdraw(self, ticket: Ticket) -> None:
        del self.waiting[bisect_left(self.waiting, ticket.order, key=order_of)]


class Ticket(PreparedCall, Claimant):
    """A call's place in the order, from its submission until its claims are free.

    Its state is one of: new, blocked (by the index), gate, slot (waits for one), running, paused (waits for something
    outside), lingering (given up, but its code still runs), refused, done.
    """

    claims: tuple[Claim, ...]
    limits: tuple[Limit, ...]
    parent: Ticket | None = None
    admission: Admission
    index: ClaimIndex
    state = "new"
    waiting_in: Limit | None = None
    waited_for: tuple[str, ...] = ()
    passed_over = 0
    reserved: tuple[Limit, ...] = ()
    rejoins = False  # True while it waits for the slots that it gave back when it paused.
    # Fields that only nested calls, and calls that meet them at the gate, need.
    children: dict[Ticket, None] | None = None
    nests: dict[Admission, ClaimIndex] | None = None
    blockers: set[Ticket] | None = None
    followers: list[Ticket] | None = None
    courtesy: frozenset[Ticket] = frozenset()

    def start(self) -> None:
        """Called by the schedule when the ticket is admitted."""
        raise NotImplementedError

    def rejoined(self) -> None:
        """Called by the schedule when a ticket that paused has its slots again."""
        raise NotImplementedError

    def refuse_deadlock(self, others: list[str]) -> None:
        """Called by the schedule when it can never be admitted."""
        raise NotImplementedError

    def ancestors(self) -> set[Ticket]:
        """The calls this one is part of."""
        found: set[Ticket] = set()
        upper = self.parent
        while upper is not None:
            found.add(upper)
            upper = upper.parent
        return found


def give_back(limits: tuple[Limit, ...]) -> None:
    """Free slots that were in use."""
    waited_for = False
    for limit in limits:
        limit.in_use -= 1
        if limit.waiting:
            waited_for = True
    if waited_for:
        offer(limits)


def offer(limits: tuple[Limit, ...]) -> None:
    """Hand freed slots to the longest-waiting tickets that can use them."""
    while True:
        best: Ticket | None = None
        for limit in limits:
            if limit.waiting and limit.in_use < limit.capacity:
                head = limit.waiting[0]
                if best is None or head.order < best.order:
                    best = head
        if best is None:
            return
        assert best.waiting_in is not None
        best.waiting_in.waiting.popleft()
        best.waiting_in = None
        best.admission.admit(best)  # the slot may go to another session
        if best.limits is limits and best.state == "running":
            return


def order_of(ticket: Claimant) -> int:
    """When a ticket came, compared with others."""
    return ticket.order
