"""The gate: where nested calls, and calls that conflict with them, wait for each other. Owns who may pass, and
deadlocks.

A nested call belongs to a call that runs already. It ignores the claims of its ancestors, uses the slots they hold, and
keeps the order among its siblings. The session's index does not know it, so it goes through the gate: there a call
waits for running calls that conflict with it and, to be fair, for earlier ones that wait at the gate themselves. A
nested call that could only wait for itself is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.calls.schedule.claim_index import Claimant, ClaimIndex, Presence, overlap
from toolwright.calls.schedule.deadlock import RuntimeOrder, can_end
from toolwright.calls.schedule.tickets import Ticket, offer


class Gate:
    """The gate of one session's schedule. `running` are the calls that run and are not nested."""

    __slots__ = ("_running", "_runtime", "nested", "waiting")

    def __init__(self, runtime: RuntimeOrder, running: set[Ticket]) -> None:
        self._runtime = runtime
        self._running = running
        # Nested calls that run; and calls that wait here, or did and have not started, by their index.
        self.nested = Presence()
        self.waiting: dict[ClaimIndex, set[Ticket]] = {}

    def lets_pass(self, ticket: Ticket, courtesy: bool) -> bool:
        """True when the ticket conflicts with no call that runs and no earlier one at the gate; else it waits."""
        claims = ticket.claims
        blockers: set[Any] = set(self.nested.conflicting(claims))
        if ticket.parent is not None:
            blockers.update(other for other in self._running if overlap(claims, other.claims))
            blockers -= ticket.ancestors()
        if courtesy:
            ticket.courtesy = frozenset(
                other
                for index, group in self.waiting.items()
                if index is not ticket.index  # which has an order of its own
                for other in group
                if other.order < ticket.order and overlap(claims, other.claims)
            )
            blockers |= ticket.courtesy
        self._runtime.courteous.discard(ticket)
        if not blockers:
            return True
        reserved = self._runtime.drop_reserved(ticket) if ticket.reserved else ()
        ticket.state = "gate"
        ticket.blockers = blockers
        ticket.waited_for = ticket.waited_for or ids_of(blockers)
        for other in blockers:
            if other.followers is None:
                other.followers = []
            other.followers.append(ticket)
        self.waiting.setdefault(ticket.index, set()).add(ticket)
        if ticket.courtesy:
            self._runtime.courteous.add(ticket)
        if ticket.parent is not None or self._runtime.courteous or self._runtime.favoured is not None:
            self.avoid_deadlock(ticket, None)
        offer(reserved)
        return False

    def remove(self, ticket: Ticket) -> list[Ticket]:
        """Forget a finished ticket; return the tickets that waited at the gate for it alone."""
        parent = ticket.parent
        if parent is not None:
            self.nested.discard(ticket)
            if parent.children is not None:
                parent.children.pop(ticket, None)
        self.forget(ticket)
        freed: list[Ticket] = []
        for follower in ticket.followers or ():
            if follower.blockers is not None:
                follower.blockers.discard(ticket)
                if not follower.blockers:
                    follower.blockers = None
                    freed.append(follower)
        ticket.followers = ticket.blockers = None
        return freed

    def forget(self, ticket: Ticket) -> None:
        """A ticket waits here no longer."""
        group = self.waiting.get(ticket.index)
        if group is not None:
            group.discard(ticket)
            if not group:
                del self.waiting[ticket.index]
        self._runtime.courteous.discard(ticket)

    def avoid_deadlock(self, ticket: Ticket, others: list[str] | None) -> None:
        """Check whether a ticket that begins to wait can ever continue; if not, drop courtesies or refuse it."""
        runtime, parent, limit = self._runtime, ticket.parent, ticket.waiting_in
        favours = bool(runtime.courteous) or runtime.favoured is not None
        if limit is not None and parent is not None and not favours:
            for sibling in parent.children or ():
                if sibling.state == "running" and limit in sibling.limits:
                    return  # Their parent waits for both, so this adds no new dependency.
        if can_end(ticket, runtime.needs):
            return
        if parent is None or (favours and can_end(ticket, runtime.needs_strictly)):
            runtime.drop_favours()
            return
        if others is None:
            blockers = ticket.blockers or set()
            others = sorted(other.call_id for other in blockers if not can_end(other, runtime.needs))
        if limit is not None:
            limit.withdraw(ticket)
            ticket.waiting_in = None
        reserved = self._runtime.drop_reserved(ticket) if ticket.reserved else ()
        ticket.blockers = None
        ticket.state = "refused"
        self.forget(ticket)
        ticket.refuse_deadlock(others)
        offer(reserved)


def ids_of(tickets: Iterable[Claimant]) -> tuple[str, ...]:
    """The ids in a record of the calls that a call waited for."""
    return tuple(sorted(ticket.call_id for ticket in tickets if isinstance(ticket, Ticket))[:3])
