"""Stage 3: schedule. Owns when a call may start: claims in call order, then slots; hands on a started `Ticket`.

A call waits for the earlier calls of its session that it conflicts with, then for a slot of its tool, batch, session
and runtime. A nested call belongs to a call that runs already: it ignores the claims of its ancestors, needs no slot
of the session or the runtime (its ancestors hold these), keeps the order within its own batch, and before it starts
looks at the calls that run. A nested call that could only wait for itself is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from toolwright.calls.conflicts import ClaimIndex, Knot, describe, overlap, untie
from toolwright.tools.claims import Claim


class Limit:
    """At most `capacity` tickets at once; those that wait are kept in order."""

    __slots__ = ("capacity", "in_use", "name", "waiting")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.in_use = 0
        self.waiting: deque[Ticket] = deque()

    def enqueue(self, ticket: Ticket) -> None:
        waiting = self.waiting
        if not waiting or waiting[-1].order < ticket.order:
            waiting.append(ticket)
            return
        place = len(waiting)
        while place and waiting[place - 1].order > ticket.order:
            place -= 1
        waiting.insert(place, ticket)


class Startable(Protocol):
    """What the schedule calls when a ticket's turn has come, or when it can never come."""

    call_id: str

    def start(self) -> None: ...

    def refuse_deadlock(self, others: list[str]) -> None: ...


class Ticket(Knot):
    """A call's place in the order, from its submission until its claims are free."""

    __slots__ = ("children", "claims", "index", "limits", "order", "owner", "parent", "schedule", "state", "waited_for", "waiting_in")

    def __init__(self, owner: Startable, claims: tuple[Claim, ...], limits: tuple[Limit, ...], parent: Ticket | None) -> None:
        self.blockers = None
        self.followers = None
        self.done = False
        self.owner = owner
        self.claims = claims
        self.limits = limits
        self.parent = parent
        self.order = 0
        self.state = "new"
        self.waiting_in: Limit | None = None
        self.waited_for: tuple[str, ...] = ()
        self.children: set[Ticket] | None = None
        self.index: ClaimIndex | None = None
        self.schedule: Schedule | None = None

    def ancestors(self) -> set[Ticket]:
        """The calls this one is part of."""
        found: set[Ticket] = set()
        upper = self.parent
        while upper is not None:
            found.add(upper)
            upper = upper.parent
        return found


class Running:
    """The tickets that hold slots anywhere in a runtime, with the counter that orders them."""

    __slots__ = ("_next", "tickets")

    def __init__(self) -> None:
        self.tickets: set[Ticket] = set()
        self._next = 0

    def next_order(self) -> int:
        self._next += 1
        return self._next


class Schedule:
    """The order of one session's calls."""

    __slots__ = ("_index", "_nested", "_runtime", "running")

    def __init__(self, runtime: Running) -> None:
        self._runtime = runtime
        self._index = ClaimIndex()
        self.running: set[Ticket] = set()
        self._nested: set[Ticket] = set()

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
        index.add(ticket, ticket.claims)
        parent = ticket.parent
        if parent is not None:
            if parent.children is None:
                parent.children = set()
            parent.children.add(ticket)
        blockers = ticket.blockers
        if blockers is None:
            self._admit(ticket)
        else:
            ticket.state = "blocked"
            ticket.waited_for = _names(blockers)

    def finish(self, ticket: Ticket) -> None:
        """Free the claims and slots of a ticket, and start whatever waited for them."""
        self.free_slots(ticket)
        self._untie(ticket)

    def free_slots(self, ticket: Ticket) -> None:
        """Give back the slots and keep the claims: for a call that was given up and still runs."""
        if ticket.state != "running" and ticket.state != "gate":
            return
        ticket.state = "lingering"
        self._runtime.tickets.discard(ticket)
        for limit in ticket.limits:
            limit.in_use -= 1
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
        pending = [ticket]
        while pending:
            current = pending.pop(0)
            freed = untie(current)
            current.state = "done"
            assert current.index is not None
            current.index.remove(current, current.claims)
            if current.parent is not None:
                self._nested.discard(current)
                if current.parent.children is not None:
                    current.parent.children.discard(current)
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
                    ticket.owner.refuse_deadlock([limit.name])
                    return
                limit.enqueue(ticket)
                ticket.waiting_in = limit
                if ticket.state == "new":
                    ticket.waited_for = (f"slot of {limit.name}",)
                ticket.state = "slot"
                return
        for limit in limits:
            limit.in_use += 1
        self._runtime.tickets.add(ticket)
        if ticket.parent is None and not self._nested:
            ticket.state = "running"
            self.running.add(ticket)
            ticket.owner.start()
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
            assert best.waiting_in is not None and best.schedule is not None
            best.waiting_in.waiting.popleft()
            best.waiting_in = None
            best.schedule._admit(best)  # the slot may go to another session

    def _pass_gate(self, ticket: Ticket) -> None:
        """Start a ticket unless a running call conflicts with it: only nested calls make this possible."""
        parent = ticket.parent
        lineage = ticket.ancestors()
        among = self.running if parent is not None else self._nested
        ticket.state = "gate"
        if parent is not None:
            self._nested.add(ticket)
        for other in list(among):
            if other is ticket or other in lineage or ticket in other.ancestors():
                continue
            if parent is not None and other.state not in ("running", "lingering"):
                continue
            if overlap(ticket.claims, other.claims):
                if lineage and self._stuck(other, lineage, set()):
                    ticket.owner.refuse_deadlock([other.owner.call_id])
                    return
                ticket.wait_for(other)
        if ticket.blockers is not None:
            ticket.waited_for = ticket.waited_for or _names(ticket.blockers)
            return
        ticket.state = "running"
        self.running.add(ticket)
        ticket.owner.start()

    def _can_never_get(self, limit: Limit, ticket: Ticket) -> bool:
        lineage = ticket.ancestors()
        holders = [other for other in self._runtime.tickets if limit in other.limits]
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
            holders = [other for other in self._runtime.tickets if ticket.waiting_in in other.limits]
            return bool(holders) and all(self._stuck(holder, lineage, visited) for holder in holders)
        return any(self._stuck(child, lineage, visited) for child in ticket.children or ())


_order: Callable[[Ticket], int] = lambda ticket: ticket.order  # noqa: E731


def _names(blockers: Iterable[Knot]) -> tuple[str, ...]:
    return tuple(sorted(ticket.owner.call_id for ticket in describe(blockers)))
