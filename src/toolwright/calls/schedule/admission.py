"""Stage 3: schedule. Owns when a call may start: claims in call order, then slots; hands on a started `Ticket`.

A call waits for the earlier calls of its session that it conflicts with, then for a slot of its batch, session, runtime
and tool. While it waits it holds none of them, unless it was passed over too often. Nested calls, and calls that
conflict with them, go through the gate in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Any

from toolwright.calls.schedule.claim_index import ClaimIndex
from toolwright.calls.schedule.deadlock import RuntimeOrder, can_end
from toolwright.calls.schedule.nested_gate import Gate, ids_of
from toolwright.calls.schedule.tickets import Limit, Ticket, give_back, offer, order_of
from toolwright.tools.claims import PARALLEL

PATIENCE = 100
"""How often a call may find one limit free and another one full before the free slots are reserved for it."""


class Admission:
    """The order of one session's calls."""

    __slots__ = ("__weakref__", "_index", "_number", "_runtime", "gate", "running")

    def __init__(self, runtime: RuntimeOrder) -> None:
        self._runtime = runtime
        self._index = ClaimIndex()
        self.running: set[Ticket] = set()
        self.gate = Gate(runtime, self.running)
        self._number = runtime.add(self)

    def close(self) -> None:
        """Nothing is submitted any more."""
        self._runtime.remove(self._number)

    @property
    def idle(self) -> bool:
        """True when no ticket is left, running or waiting."""
        return self._index.empty and not (self.running or self.gate.nested.there or self.gate.waiting)

    def submit(self, ticket: Ticket, siblings: ClaimIndex | None = None) -> None:
        """Put a call into the order; it starts now or when it is admitted.

        `siblings` is an index for nested calls; all calls of one parent share the first.
        """
        ticket.order = self._runtime.next_order()
        ticket.admission = self
        parent = ticket.parent
        index = ticket.index = self._index if parent is None else self._nest(parent, ticket, siblings)
        if ticket.claims is PARALLEL and not index.exclusive:
            index.shared[ticket] = None
            self.admit(ticket)
        elif index.add(ticket, ticket.claims):
            self.admit(ticket)
        else:
            ticket.state = "blocked"
            ticket.waited_for = ids_of(index.ahead_of(ticket))

    def _nest(self, parent: Ticket, ticket: Ticket, siblings: ClaimIndex | None) -> ClaimIndex:
        if parent.children is None:
            parent.children = {}
        parent.children[ticket] = None
        if parent.nests is None:
            parent.nests = {}
        index = parent.nests.get(self)
        if index is None:
            index = parent.nests[self] = siblings or ClaimIndex()
        return index

    def finish(self, ticket: Ticket) -> None:
        """Free the claims and slots of a ticket, and start whatever waited for them."""
        if ticket.done:
            return
        held = ticket.state == "running"
        ticket.state = "done"
        self.running.discard(ticket)
        index = ticket.index
        if ticket.claims is PARALLEL and not index.exclusive:
            ticket.done = True
            del index.shared[ticket]
            freed: list[Any] | None = None
        else:
            freed = index.remove(ticket)
        if ticket.parent is not None or self.gate.waiting:
            freed = [*(freed or ()), *self.gate.remove(ticket)]
        if freed:
            # Before the slots: tickets that are released may be older than those that wait for one.
            if len(freed) > 1:
                freed.sort(key=order_of)
            for follower in freed:
                if follower.state == "blocked" or follower.state == "gate":  # and not stopped by one before it
                    self.admit(follower)
        if held and (freed or ticket.parent is not None or not self._hand_over(ticket.limits)):
            give_back(ticket.limits)

    def _hand_over(self, limits: tuple[Limit, ...]) -> bool:
        """Give the slots straight to the next call that needs the same, when no other call waits for any of them."""
        queue: deque[Ticket] | None = None
        for limit in limits:
            if limit.waiting:
                if queue is not None:
                    return False
                queue = limit.waiting
        if (
            queue is None
            or queue[0].rejoins
            or queue[0].limits is not limits
            or self.gate.nested.there
            or self.gate.waiting
            or queue[0].reserved
        ):
            return False
        heir = queue.popleft()
        heir.waiting_in = None
        heir.state = "running"
        self.running.add(heir)
        heir.start()
        return True

    def free_slots(self, ticket: Ticket) -> None:
        """Release the slots and keep the claims: for a call that was given up and still runs."""
        if ticket.state == "running":
            ticket.state = "lingering"
            give_back(ticket.limits)

    def pause(self, ticket: Ticket) -> None:
        """Release the slots and keep the claims, until `rejoin`: for a call that waits for something outside."""
        if ticket.state == "running":
            ticket.state = "paused"
            give_back(ticket.limits)

    def rejoin(self, ticket: Ticket) -> None:
        """Take the slots again, now or when they are free; the ticket is notified by `rejoined`."""
        ticket.rejoins = True
        self.admit(ticket)

    def stop_waiting_for_slots(self, ticket: Ticket) -> None:
        """Ask for no slots any more: the call was stopped while it waited to rejoin."""
        if ticket.rejoins and ticket.waiting_in is not None:
            ticket.waiting_in.withdraw(ticket)
            ticket.waiting_in = None
            ticket.state = "paused"
            offer(self._runtime.drop_reserved(ticket) if ticket.reserved else ())

    def withdraw(self, ticket: Ticket) -> None:
        """Take a ticket that has not started out of the order."""
        if ticket.waiting_in is not None:
            ticket.waiting_in.withdraw(ticket)
            ticket.waiting_in = None
        reserved = self._runtime.drop_reserved(ticket) if ticket.reserved else ()
        self.finish(ticket)
        offer(reserved)

    def admit(self, ticket: Ticket, courtesy: bool = True) -> None:
        """Start a ticket that no earlier call conflicts with, or let it wait at the gate or for a slot."""
        gate = self.gate
        meets = gate.nested.there or gate.waiting or ticket.parent is not None
        if meets and not ticket.rejoins and not gate.lets_pass(ticket, courtesy):
            return
        limits = ticket.limits
        for limit in limits:
            if limit.in_use >= limit.capacity and limit not in ticket.reserved:
                self._wait_for_slot(ticket, limit)
                return
        if ticket.reserved:
            self._runtime.drop_reserved(ticket)
        for limit in limits:
            limit.in_use += 1
        ticket.state = "running"
        if ticket.rejoins:
            ticket.rejoins = False
            ticket.rejoined()
            return
        if ticket.parent is None:
            self.running.add(ticket)
        else:
            gate.nested.add(ticket, ticket.claims)
        if gate.waiting:
            gate.forget(ticket)
        ticket.start()

    def _wait_for_slot(self, ticket: Ticket, limit: Limit) -> None:
        runtime = self._runtime
        if ticket.state == "new":
            ticket.waited_for = limit.reason
        elif ticket.state == "slot":
            ticket.passed_over += 1
            if ticket.passed_over > PATIENCE and runtime.favoured is None:
                runtime.favoured = ticket
        ticket.state = "slot"
        ticket.waiting_in = limit
        waiting = limit.waiting
        if not waiting or waiting[-1].order < ticket.order:
            waiting.append(ticket)
        else:
            waiting.insert(bisect_left(waiting, ticket.order, key=order_of), ticket)
        if runtime.favoured is ticket:
            for other in ticket.limits:
                if other.in_use < other.capacity and other not in ticket.reserved:
                    other.in_use += 1
                    ticket.reserved += (other,)
        if ticket.rejoins:
            if not can_end(ticket, runtime.needs):
                self._rejoin_at_once(ticket, limit)
        elif ticket.parent is not None or runtime.courteous or runtime.favoured is not None:
            self.gate.avoid_deadlock(ticket, [limit.name])

    def _rejoin_at_once(self, ticket: Ticket, limit: Limit) -> None:
        """Let a call continue beyond its limits: the holders of the slots wait, in the end, for this one."""
        limit.withdraw(ticket)
        ticket.waiting_in = None
        reserved = self._runtime.drop_reserved(ticket) if ticket.reserved else ()
        for taken in ticket.limits:
            taken.in_use += 1
        ticket.state = "running"
        ticket.rejoins = False
        ticket.rejoined()
        offer(reserved)
