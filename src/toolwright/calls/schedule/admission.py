"""Stage 3: schedule. Owns when a call may start: claims in call order, then slots; hands on a started `Ticket`.

A call waits for the earlier calls of its session that it conflicts with, then for a slot of its batch, session, runtime
and tool. While it waits it holds none of them, unless it was passed over too often.

A nested call belongs to a call that runs already. It ignores the claims of its ancestors, uses the slots they hold, and
keeps the order among its siblings. The session's index does not know it, so it goes through the gate: there a call
waits for those that run and conflict with it and, to be fair, for earlier ones that wait at the gate themselves. A
nested call that could only wait for itself is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from toolwright.calls.schedule.claim_index import Claimant, ClaimIndex, Presence, overlap
from toolwright.calls.schedule.deadlock import can_end
from toolwright.tools.claims import PARALLEL, Claim

PATIENCE = 100
"""How often a call may find one limit free and another one full before the free slots are reserved for it."""


class Limit:
    """At most `capacity` tickets at once; those that wait are kept in order."""

    __slots__ = ("capacity", "in_use", "name", "reason", "waiting")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.reason = (name,)
        self.capacity = capacity
        self.in_use = 0
        self.waiting: deque[Ticket] = deque()

    def withdraw(self, ticket: Ticket) -> None:
        del self.waiting[bisect_left(self.waiting, ticket.order, key=order_of)]


class Ticket(Claimant):
    """A call's place in the order, from its submission until its claims are free.

    Its state is one of: new, blocked (by the index), gate, slot (waits for one), running, paused (waits for something
    outside), elsewhere (waits for a call of another process), lingering (given up, but its code still runs), refused,
    done.
    """

    claims: tuple[Claim, ...] = PARALLEL
    limits: tuple[Limit, ...] = ()
    parent: Ticket | None = None
    admission: Admission
    index: ClaimIndex
    state = "new"
    waiting_in: Limit | None = None
    waited_for: tuple[str, ...] = ()
    passed_over = 0
    reserved: tuple[Limit, ...] = ()
    rejoins = False  # True while it waits for the slots that it gave back when it paused.
    # What only nested calls and those that meet them at the gate need.
    children: dict[Ticket, None] | None = None
    nests: dict[Admission, ClaimIndex] | None = None
    blockers: set[Ticket] | None = None
    followers: list[Ticket] | None = None
    courtesy: frozenset[Ticket] = frozenset()
    # The calls of other processes that were in the order of the session before it.
    came_before: frozenset[Any] = frozenset()

    @property
    def call_id(self) -> str:
        """The id of its call."""
        raise NotImplementedError

    def start(self) -> None:
        """Called by the admission when the call may start."""
        raise NotImplementedError

    def rejoined(self) -> None:
        """Called by the admission when a paused ticket has its slots again."""
        raise NotImplementedError

    def refuse_deadlock(self, others: list[str]) -> None:
        """Called by the admission when its turn can never come."""
        raise NotImplementedError

    def ancestors(self) -> set[Ticket]:
        """The calls this one is part of."""
        found: set[Ticket] = set()
        upper = self.parent
        while upper is not None:
            found.add(upper)
            upper = upper.parent
        return found


class Admission:
    """The order of one session's calls."""

    __slots__ = ("__weakref__", "_at_gate", "_index", "_nested", "_number", "_runtime", "gate", "running")

    def __init__(self, runtime: RuntimeOrder) -> None:
        self._runtime = runtime
        self._index, nested = ClaimIndex(), Presence()
        self.running: set[Ticket] = set()
        self.gate = Gate(runtime, self.running, nested)
        # The same dicts that the gate has. Only where one is not empty can a call that is not nested meet a nested one.
        self._nested, self._at_gate = nested.there, self.gate.waiting
        self._number = runtime.add(self)

    def close(self) -> None:
        """Nothing is submitted any more."""
        self._runtime.remove(self._number)

    @property
    def idle(self) -> bool:
        """True when no ticket is left, running or waiting."""
        return self._index.empty and not (self.running or self._nested or self._at_gate)

    def submit(self, ticket: Ticket, siblings: ClaimIndex | None = None) -> None:
        """Put a call into the order; it starts now or when it is admitted.

        `siblings` is an index for nested calls; all calls of one parent share the first.
        """
        ticket.order = self._runtime.next_order()
        ticket.admission = self
        parent, claims = ticket.parent, ticket.claims
        index = ticket.index = self._index if parent is None else self._nest(parent, ticket, siblings)
        if claims is PARALLEL and not index.exclusive:
            index.shared[ticket] = None
            self.admit(ticket)
        elif index.add(ticket, claims):
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
        held, index, nested = ticket.state == "running", ticket.index, ticket.parent is not None
        if not held and ticket.rejoins:
            self.stop_waiting_for_slots(ticket)  # Its code ended while a task that it left behind waited for them.
        ticket.state = "done"
        self.running.discard(ticket)
        freed: list[Any] | None = None
        if ticket.claims is PARALLEL and not index.exclusive:
            ticket.done = True
            del index.shared[ticket]
            if held and not nested and not self._at_gate:
                self._hand_over(ticket.limits)
                return
        else:
            freed = index.remove(ticket)
        if nested or self._at_gate:
            freed = [*(freed or ()), *self.gate.remove(ticket)]
        if freed:
            # Before the slots: tickets that are released may be older than those that wait for one.
            if len(freed) > 1:
                freed.sort(key=order_of)
            for follower in freed:
                if follower.state == "blocked" or follower.state == "gate":  # and not stopped by one before it
                    self.admit(follower)
        if held:
            if freed or nested:
                give_back(ticket.limits)
            else:
                self._hand_over(ticket.limits)

    def leave(self, ticket: Ticket) -> None:
        """As `finish`, for a call that lives on without claims and slots: there may be very many of them for long."""
        self.finish(ticket)
        self._index.trim()

    def _hand_over(self, limits: tuple[Limit, ...]) -> None:
        """Free slots; give them straight to the next call that needs the same, if no other call waits for any."""
        queue: deque[Ticket] | None = None
        for limit in limits:
            if limit.waiting:
                if queue is not None:
                    give_back(limits)
                    return
                queue = limit.waiting
        if queue is None:
            for limit in limits:
                limit.in_use -= 1
            return
        heir = queue[0]
        if heir.limits is not limits or heir.rejoins or heir.reserved or self._nested or self._at_gate:
            give_back(limits)
            return
        queue.popleft()
        heir.waiting_in = None
        heir.state = "running"
        self.running.add(heir)
        heir.start()

    def free_slots(self, ticket: Ticket) -> None:
        """Release the slots and keep the claims: for a call that was given up and still runs."""
        if ticket.state == "running":
            ticket.state = "lingering"
            give_back(ticket.limits)
        else:
            self.stop_waiting_for_slots(ticket)

    def pause(self, ticket: Ticket) -> None:
        """Release the slots and keep the claims, until `rejoin`: for a call that waits for something outside."""
        if ticket.state == "running":
            ticket.state = "paused"
            give_back(ticket.limits)

    def step_back(self, ticket: Ticket) -> None:
        """Release the slots of a call that may start here, and must wait for a call of another process first.

        It keeps its place in the order. `admit` lets it continue.
        """
        ticket.state = "elsewhere"
        self.running.discard(ticket)
        for follower in self.gate.step_back(ticket):
            if follower.state == "gate":
                self.admit(follower)
        give_back(ticket.limits)

    def needs(self, ticket: Ticket) -> tuple[Collection[Ticket], bool]:
        """What must end before a ticket can, and whether all of that must or any one."""
        return self._runtime.needs(ticket)

    def rejoin(self, ticket: Ticket) -> None:
        """Take the slots again, now or when they are free; the ticket is notified by `rejoined`."""
        ticket.rejoins = True
        self.admit(ticket)

    def stop_waiting_for_slots(self, ticket: Ticket) -> None:
        """Ask for no slots any more, if the call waits to rejoin: it was stopped, has ended, or waits outside again."""
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
        meets = self._nested or self._at_gate or ticket.parent is not None
        if meets and not ticket.rejoins and not self.gate.lets_pass(ticket, courtesy):
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
            self.gate.nested.add(ticket, ticket.claims)
        if self._at_gate:
            self.gate.forget(ticket)
        ticket.start()

    def _wait_for_slot(self, ticket: Ticket, limit: Limit) -> None:
        runtime, waiting, state = self._runtime, limit.waiting, ticket.state
        ticket.state = "slot"
        ticket.waiting_in = limit
        if state == "new":
            ticket.waited_for = limit.reason
            waiting.append(ticket)  # None came after it.
        else:
            if state == "slot":
                ticket.passed_over += 1
                if ticket.passed_over > PATIENCE and runtime.favoured is None:
                    runtime.favoured = ticket
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


# --- slots that are free again


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


# --- nested calls


class Gate:
    """The gate of one session's schedule. `running` are the calls that run and are not nested, `nested` those that
    are."""

    __slots__ = ("_running", "_runtime", "nested", "waiting")

    def __init__(self, runtime: RuntimeOrder, running: set[Ticket], nested: Presence) -> None:
        self._runtime = runtime
        self._running = running
        self.nested = nested
        # Calls that wait here, or did and have not started, by their index.
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
                if index is not ticket.index  # which keeps the order of its own
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
        """Forget a ticket that is over; return those that waited at the gate for it and nothing else."""
        parent = ticket.parent
        if parent is not None:
            self.nested.discard(ticket)
            if parent.children is not None:
                parent.children.pop(ticket, None)
        self.forget(ticket)
        ticket.blockers = None
        return _without(ticket)

    def step_back(self, ticket: Ticket) -> list[Ticket]:
        """A ticket runs no longer, and is not over; return those that waited at the gate for it and nothing else."""
        self.nested.discard(ticket)
        return _without(ticket)

    def forget(self, ticket: Ticket) -> None:
        """A ticket waits here no longer."""
        group = self.waiting.get(ticket.index)
        if group is not None:
            group.discard(ticket)
            if not group:
                del self.waiting[ticket.index]
        self._runtime.courteous.discard(ticket)

    def avoid_deadlock(self, ticket: Ticket, others: list[str] | None) -> None:
        """Check that a waiting ticket can continue at some time; if it cannot, drop courtesies or refuse it."""
        runtime, parent, limit = self._runtime, ticket.parent, ticket.waiting_in
        favours = bool(runtime.courteous) or runtime.favoured is not None
        if limit is not None and parent is not None and not favours:
            for sibling in parent.children or ():
                if sibling.state == "running" and limit in sibling.limits:
                    return  # Their parent waits for both, so this adds nothing to what waits for what.
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


def _without(ticket: Ticket) -> list[Ticket]:
    """Let nobody wait at the gate for a ticket; return those that waited for nothing else."""
    freed: list[Ticket] = []
    for follower in ticket.followers or ():
        if follower.blockers is not None:
            follower.blockers.discard(ticket)
            if not follower.blockers:
                follower.blockers = None
                freed.append(follower)
    ticket.followers = None
    return freed


def ids_of(tickets: Iterable[Claimant]) -> tuple[str, ...]:
    """What a record says of those that a call waited for."""
    return tuple(sorted(ticket.call_id for ticket in tickets if isinstance(ticket, Ticket))[:3])


# --- across the sessions of a runtime


class RuntimeOrder:
    """The schedules of a runtime, with the counter that orders their tickets."""

    __slots__ = ("_admissions", "courteous", "favoured", "next_order")

    def __init__(self) -> None:
        # Each lives as long as its session or a ticket in it; in the order they were made.
        self._admissions: WeakValueDictionary[int, Admission] = WeakValueDictionary()
        self.next_order = count(1).__next__
        # Those that wait for others at the gate only to be fair, and the one for which slots are reserved.
        self.courteous: set[Ticket] = set()
        self.favoured: Ticket | None = None

    def add(self, admission: Admission) -> int:
        """Know a schedule, for as long as somebody else does; the number to remove it by."""
        number = self.next_order()
        self._admissions[number] = admission
        return number

    def remove(self, number: int) -> None:
        """Know a schedule no longer."""
        self._admissions.pop(number, None)

    @property
    def admissions(self) -> list[Admission]:
        """Those that there are."""
        return list(self._admissions.values())

    def holders(self, limit: Limit) -> list[Ticket]:
        """The tickets that hold a slot of this limit."""
        return [
            ticket
            for admission in self.admissions
            for ticket in (*admission.running, *admission.gate.nested)
            if ticket.state == "running" and limit in ticket.limits
        ]

    def needs(self, ticket: Ticket) -> tuple[Collection[Ticket], bool]:
        """What must end before a ticket can, and whether all of that must or any one."""
        return self._needs(ticket, favours=True)

    def needs_strictly(self, ticket: Ticket) -> tuple[Collection[Ticket], bool]:
        """As `needs`, if nobody waited to be fair and no slots were reserved for anyone."""
        return self._needs(ticket, favours=False)

    def _needs(self, ticket: Ticket, *, favours: bool) -> tuple[Collection[Ticket], bool]:
        if ticket.state in ("running", "paused", "lingering"):
            # A blocked child waits for its siblings, which are looked at anyway.
            return [child for child in ticket.children or () if child.state != "blocked"], True
        limit = ticket.waiting_in
        if limit is not None:
            holders = self.holders(limit)
            if favours and self.favoured is not None and limit in self.favoured.reserved:
                holders.append(self.favoured)
            # With fewer of them than slots in use, one is being given back just now.
            return (holders, False) if len(holders) >= limit.in_use else ((), True)
        blockers: Collection[Ticket] = ticket.blockers or ()
        return (blockers if favours else [other for other in blockers if other not in ticket.courtesy]), True

    def drop_reserved(self, ticket: Ticket) -> tuple[Limit, ...]:
        """Give back the slots that were reserved for a ticket, which it may take at once; else offer them."""
        reserved, ticket.reserved, ticket.passed_over = ticket.reserved, (), 0
        self.favoured = None
        for limit in reserved:
            limit.in_use -= 1
        return reserved

    def drop_favours(self) -> None:
        """Reserve slots for nobody, and let those that wait to be fair wait only for what runs."""
        reserved = () if self.favoured is None else self.drop_reserved(self.favoured)
        courteous = sorted(self.courteous, key=order_of)
        self.courteous.clear()
        free: list[Ticket] = []
        for ticket in courteous:
            if ticket.blockers is not None:
                ticket.blockers -= ticket.courtesy
                if not ticket.blockers:
                    ticket.blockers = None
                    free.append(ticket)
            ticket.courtesy = frozenset()
        for ticket in free:
            if ticket.state == "gate" and ticket.blockers is None:
                ticket.admission.admit(ticket, courtesy=False)
        offer(reserved)
