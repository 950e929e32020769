"""Stage 3: schedule. Owns when a call may start: claims in call order, then slots; hands on a started `Ticket`.

A call waits for the earlier calls of its session that it conflicts with, then for a slot of its tool, batch, session
and runtime. A nested call belongs to a call that runs already: it ignores the claims of its ancestors, needs no slot
of the session or the runtime (its ancestors hold these), keeps the order within its own batch, and before it starts
looks at the calls that run. A nested call that could only wait for itself is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count

from toolwright.calls.conflicts import ClaimIndex, Knot, describe, overlap, untie
from toolwright.calls.prepare import PreparedCall
from toolwright.tools.claims import PARALLEL, Claim


class Limit:
    """At most `capacity` tickets at once; those that wait are kept in order."""

    __slots__ = ("capacity", "in_use", "name", "reason", "waiting")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.reason = (name,)
        self.capacity = capacity
        self.in_use = 0
        self.waiting: deque[Ticket] = deque()

    def insert(self, ticket: Ticket) -> None:
        """Let a ticket wait that is older than some that wait already."""
        waiting = self.waiting
        place = len(waiting)
        while place and waiting[place - 1].order > ticket.order:
            place -= 1
        waiting.insert(place, ticket)


class Ticket(PreparedCall, Knot):
    """A call's place in the order, from its submission until its claims are free."""

    claims: tuple[Claim, ...]
    limits: tuple[Limit, ...]
    parent: Ticket | None = None
    schedule: Schedule
    index: ClaimIndex
    order = 0
    state = "new"
    waiting_in: Limit | None = None
    waited_for: tuple[str, ...] = ()
    children: set[Ticket] | None = None

    def start(self) -> None:
        """Called by the schedule when the ticket's turn has come."""
        raise NotImplementedError

    def refuse_deadlock(self, others: list[str]) -> None:
        """Called by the schedule when its turn can never come."""
        raise NotImplementedError

    def ancestors(self) -> set[Ticket]:
        """The calls this one is part of."""
        found: set[Ticket] = set()
        upper = self.parent
        while upper is not None:
            found.add(upper)
            upper = upper.parent
        return found


class Running:
    """The schedules of a runtime, with the counter that orders their tickets."""

    __slots__ = ("next_order", "schedules")

    def __init__(self) -> None:
        self.schedules: list[Schedule] = []
        self.next_order = count(1).__next__

    def holders(self, limit: Limit) -> list[Ticket]:
        """The tickets that hold a slot of this limit."""
        return [
            ticket
            for schedule in self.schedules
            for ticket in (*schedule.running, *schedule.gated)
            if limit in ticket.limits and ticket.state in ("running", "gate")
        ]


class Schedule:
    """The order of one session's calls."""

    __slots__ = ("_index", "_nested", "_runtime", "gated", "running")

    def __init__(self, runtime: Running) -> None:
        self._runtime = runtime
        self._index = ClaimIndex()
        self.running: set[Ticket] = set()
        self.gated: set[Ticket] = set()
        self._nested: set[Ticket] = set()
        runtime.schedules.append(self)

    @property
    def idle(self) -> bool:
        """True when no ticket is left, running or waiting."""
        return self._index.empty and not self.running and not self._nested

    def submit(self, ticket: Ticket, siblings: ClaimIndex | None = None) -> None:
        """Put a call into the order; it starts now or when its turn comes.

        `siblings` is the index of a nested batch; calls of the session itself share one.
        """
        ticket.order = self._runtime.next_order()
        ticket.schedule = self
        index = ticket.index = self._index if siblings is None else siblings
        if ticket.claims is PARALLEL and not index.exclusive:
            index.shared[ticket] = None
        else:
            index.add(ticket, ticket.claims)
        parent = ticket.parent
        if parent is not None:
            if parent.children is None:
                parent.children = set()
            parent.children.add(ticket)
        if ticket.blockers is None:
            self._admit(ticket)
        else:
            ticket.state = "blocked"
            ticket.waited_for = _names(ticket.blockers)

    def finish(self, ticket: Ticket) -> None:
        """Free the claims and slots of a ticket, and start whatever waited for them."""
        if ticket.done or ticket.state == "withdrawn":
            return
        if not self._hand_over(ticket):
            self.free_slots(ticket)
        if ticket.followers is None and ticket.parent is None and not self.gated:
            self.running.discard(ticket)
            ticket.done = True
            ticket.state = "done"
            if ticket.claims is PARALLEL:
                ticket.index.shared.pop(ticket, None)
            else:
                ticket.index.remove(ticket, ticket.claims)
        else:
            self._untie(ticket)

    def _hand_over(self, ticket: Ticket) -> bool:
        """Give the slots straight to the next call of the same batch, when nobody else waits for any of them."""
        if ticket.state != "running" or self._nested:
            return False
        limits = ticket.limits
        queue: deque[Ticket] | None = None
        for limit in limits:
            if limit.waiting:
                if queue is not None:
                    return False
                queue = limit.waiting
        if queue is None or queue[0].limits is not limits:
            return False
        heir = queue.popleft()
        heir.waiting_in = None
        ticket.state = "lingering"
        heir.state = "running"
        self.running.add(heir)
        heir.start()
        return True

    def free_slots(self, ticket: Ticket) -> None:
        """Give back the slots and keep the claims: for a call that was given up and still runs."""
        if ticket.state != "running" and ticket.state != "gate":
            return
        ticket.state = "lingering"
        waited_for = False
        for limit in ticket.limits:
            limit.in_use -= 1
            if limit.waiting:
                waited_for = True
        if waited_for:
            self._offer(ticket.limits)

    def withdraw(self, ticket: Ticket) -> None:
        """Take a ticket that has not started out of the order; those behind it still wait for those before it."""
        if ticket.state == "blocked":
            ticket.state = "withdrawn"
            return
        if ticket.waiting_in is not None:
            ticket.waiting_in.waiting.remove(ticket)
            ticket.waiting_in = None
        self.finish(ticket)

    def _untie(self, ticket: Ticket) -> None:
        self.running.discard(ticket)
        self.gated.discard(ticket)
        pending = [ticket]
        while pending:
            current = pending.pop(0)
            freed = untie(current)
            current.state = "done"
            current.index.remove(current, current.claims)
            if current.parent is not None:
                self._nested.discard(current)
                if current.parent.children is not None:
                    current.parent.children.discard(current)
            if not freed:
                continue
            for follower in sorted(freed, key=_order):  # type: ignore[arg-type]
                assert isinstance(follower, Ticket)
                if follower.state == "withdrawn":
                    pending.append(follower)
                elif follower.state == "gate":
                    self._pass_gate(follower)
                else:
                    self._admit(follower)

    def _admit(self, ticket: Ticket) -> None:
        """Give the ticket its slots, or let it wait for the first that is taken."""
        limits = ticket.limits
        for limit in limits:
            if limit.in_use >= limit.capacity:
                if ticket.parent is not None and self._can_never_get(limit, ticket):
                    ticket.state = "refused"
                    ticket.refuse_deadlock([limit.name])
                    return
                waiting = limit.waiting
                if not waiting or waiting[-1].order < ticket.order:
                    waiting.append(ticket)
                else:
                    limit.insert(ticket)
                ticket.waiting_in = limit
                if ticket.state == "new":
                    ticket.waited_for = limit.reason
                ticket.state = "slot"
                return
        for limit in limits:
            limit.in_use += 1
        if ticket.parent is None and not self._nested:
            ticket.state = "running"
            self.running.add(ticket)
            ticket.start()
        else:
            self._pass_gate(ticket)

    def _offer(self, limits: Iterable[Limit]) -> None:
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
            best.schedule._admit(best)  # the slot may go to another session
            if best.limits is limits and best.waiting_in is None:
                return

    def _pass_gate(self, ticket: Ticket) -> None:
        """Start a ticket unless a running call conflicts with it: only nested calls make this possible."""
        parent = ticket.parent
        lineage = ticket.ancestors()
        among = self.running if parent is not None else self._nested
        ticket.state = "gate"
        self.gated.add(ticket)
        if parent is not None:
            self._nested.add(ticket)
        for other in list(among):
            if other is ticket or other in lineage or ticket in other.ancestors():
                continue
            if parent is not None and other.state not in ("running", "lingering"):
                continue
            if overlap(ticket.claims, other.claims):
                if lineage and self._stuck(other, lineage, set()):
                    ticket.refuse_deadlock([other.call_id])
                    return
                ticket.wait_for(other)
        if ticket.blockers is not None:
            ticket.waited_for = ticket.waited_for or _names(ticket.blockers)
            return
        self.gated.discard(ticket)
        ticket.state = "running"
        self.running.add(ticket)
        ticket.start()

    def _can_never_get(self, limit: Limit, ticket: Ticket) -> bool:
        lineage = ticket.ancestors()
        holders = self._runtime.holders(limit)
        return bool(holders) and all(self._stuck(other, lineage, set()) for other in holders)

    def _stuck(self, ticket: Knot, lineage: set[Ticket], visited: set[Knot]) -> bool:
        """True when `ticket` can not end before one of `lineage` does."""
        if ticket in lineage:
            return True
        if ticket in visited:
            return False
        visited.add(ticket)
        if any(self._stuck(blocker, lineage, visited) for blocker in ticket.blockers or ()):
            return True
        if not isinstance(ticket, Ticket):
            return False
        if ticket.waiting_in is not None:
            holders = self._runtime.holders(ticket.waiting_in)
            return bool(holders) and all(self._stuck(holder, lineage, visited) for holder in holders)
        return any(self._stuck(child, lineage, visited) for child in ticket.children or ())


def _order(ticket: Ticket) -> int:
    return ticket.order


def _names(blockers: Iterable[Knot]) -> tuple[str, ...]:
    return tuple(sorted(ticket.call_id for ticket in describe(blockers)))
