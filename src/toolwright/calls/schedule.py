"""Stage 3: schedule. Owns when a call may start: claims in call order, then slots; hands on a started `Ticket`.

A call waits for the earlier calls of its session that it conflicts with, then for a slot of its tool, batch, session
and runtime. While it waits it holds none of them, unless it was passed over too often. A nested call belongs to a call that runs already: it ignores the
claims of its ancestors, needs no slot of the session or the runtime (its ancestors hold these), and keeps the order
among its siblings. The index of the session does not know it, so it goes through the gate: there a call waits for those
that run and conflict with it, and, to be fair, for earlier ones that wait at the gate themselves. A nested call that
could only wait for itself is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable
from itertools import count

from toolwright.calls.conflicts import Claimant, ClaimIndex, can_end, overlap
from toolwright.calls.prepare import PreparedCall
from toolwright.tools.claims import PARALLEL, Claim

PATIENCE = 100
"""How often a call may find one limit free and another one full before the free slots are kept for it."""


class Limit:
    """At most `capacity` tickets at once; those that wait are kept in order."""

    __slots__ = ("capacity", "in_use", "name", "reason", "waiting")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.reason = (name,)
        self.capacity = capacity
        self.in_use = 0
        self.waiting: deque[Ticket] = deque()

    def enqueue(self, ticket: Ticket) -> None:
        waiting = self.waiting
        if not waiting or waiting[-1].order < ticket.order:
            waiting.append(ticket)
        else:
            waiting.insert(bisect_left(waiting, ticket.order, key=_order), ticket)

    def leave(self, ticket: Ticket) -> None:
        del self.waiting[bisect_left(self.waiting, ticket.order, key=_order)]


class Ticket(PreparedCall, Claimant):
    """A call's place in the order, from its submission until its claims are free.

    Its state is one of: new, blocked (by the index), gate, slot (waits for one), running, lingering (given up, but its
    code still runs), refused, done.
    """

    claims: tuple[Claim, ...]
    limits: tuple[Limit, ...]
    parent: Ticket | None = None
    schedule: Schedule
    index: ClaimIndex
    state = "new"
    waiting_in: Limit | None = None
    waited_for: tuple[str, ...] = ()
    passed_over = 0
    kept: tuple[Limit, ...] = ()
    # What only nested calls and those that meet them at the gate need.
    children: dict[Ticket, None] | None = None
    nests: dict[Schedule, ClaimIndex] | None = None
    blockers: set[Ticket] | None = None
    followers: list[Ticket] | None = None
    courtesy: frozenset[Ticket] = frozenset()

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

    __slots__ = ("courteous", "favoured", "next_order", "schedules")

    def __init__(self) -> None:
        self.schedules: list[Schedule] = []
        self.next_order = count(1).__next__
        # Those that wait for others at the gate only to be fair, and the one for which slots are kept.
        self.courteous: set[Ticket] = set()
        self.favoured: Ticket | None = None

    def holders(self, limit: Limit) -> list[Ticket]:
        """The tickets that hold a slot of this limit."""
        return [
            ticket
            for schedule in self.schedules
            for ticket in schedule.running
            if ticket.state == "running" and limit in ticket.limits
        ]

    def needs(self, ticket: Claimant) -> tuple[Collection[Ticket], bool]:
        """What must end before a ticket can, and whether all of that must or any one."""
        return self._needs(ticket, favours=True)

    def needs_strictly(self, ticket: Claimant) -> tuple[Collection[Ticket], bool]:
        """As `needs`, if nobody waited to be fair and no slots were kept for anyone."""
        return self._needs(ticket, favours=False)

    def _needs(self, ticket: Claimant, *, favours: bool) -> tuple[Collection[Ticket], bool]:
        assert isinstance(ticket, Ticket)
        if ticket.state == "running" or ticket.state == "lingering":
            # A blocked child waits for its siblings, which are looked at anyway.
            return [child for child in ticket.children or () if child.state != "blocked"], True
        limit = ticket.waiting_in
        if limit is not None:
            holders = self.holders(limit)
            if favours and self.favoured is not None and limit in self.favoured.kept:
                holders.append(self.favoured)
            # With fewer of them than slots in use, one is being given back just now.
            return (holders, False) if len(holders) >= limit.in_use else ((), True)
        blockers: Collection[Ticket] = ticket.blockers or ()
        return (blockers if favours else [other for other in blockers if other not in ticket.courtesy]), True

    def drop_favours(self) -> None:
        """Keep slots for nobody, and let those that wait to be fair wait only for what runs."""
        kept = () if self.favoured is None else self.favoured.schedule._drop_kept(self.favoured)
        courteous = sorted(self.courteous, key=_order)
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
                ticket.schedule._admit(ticket, courtesy=False)
        offer(kept)


class Schedule:
    """The order of one session's calls."""

    __slots__ = ("_gated", "_index", "_nested", "_runtime", "running")

    def __init__(self, runtime: Running) -> None:
        self._runtime = runtime
        self._index = ClaimIndex()
        self.running: set[Ticket] = set()
        # Nested calls that run, and calls that wait at the gate or were there and have not started, by their index.
        self._nested: set[Ticket] = set()
        self._gated: dict[ClaimIndex, set[Ticket]] = {}
        runtime.schedules.append(self)

    @property
    def idle(self) -> bool:
        """True when no ticket is left, running or waiting."""
        return self._index.empty and not (self.running or self._nested or self._gated)

    def submit(self, ticket: Ticket, siblings: ClaimIndex | None = None) -> None:
        """Put a call into the order; it starts now or when its turn comes.

        `siblings` is an index for nested calls; all those of one parent share the first.
        """
        ticket.order = self._runtime.next_order()
        ticket.schedule = self
        parent = ticket.parent
        index = ticket.index = self._index if parent is None else self._nest(parent, ticket, siblings)
        if ticket.claims is PARALLEL and not index.exclusive:
            index.shared[ticket] = None
            self._admit(ticket)
        elif index.add(ticket, ticket.claims):
            self._admit(ticket)
        else:
            ticket.state = "blocked"
            ticket.waited_for = _names(index.ahead_of(ticket))

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
            freed: list[Claimant] | None = None
        else:
            freed = index.remove(ticket)
        if ticket.parent is not None or self._gated:
            freed = [*(freed or ()), *self._leave_gate(ticket)]
        if freed:
            # Before the slots: those that are freed may be older than those that wait for one.
            if len(freed) > 1:
                freed.sort(key=_order)
            for follower in freed:
                if follower.state == "blocked" or follower.state == "gate":  # type: ignore[attr-defined]
                    self._admit(follower)  # type: ignore[arg-type]
        if held:
            self._give_back(ticket.limits, hand_over=not freed and ticket.parent is None)

    def _give_back(self, limits: tuple[Limit, ...], hand_over: bool) -> None:
        queue: deque[Ticket] | None = None
        queues = 0
        for limit in limits:
            if limit.waiting:
                queue = limit.waiting
                queues += 1
        if queue is None:
            for limit in limits:
                limit.in_use -= 1
        elif (
            hand_over
            and queues == 1
            and queue[0].limits is limits
            and not (self._nested or self._gated or queue[0].kept)
        ):
            # The next call of the same batch, and nobody else waits for any of these slots: they stay in use.
            heir = queue.popleft()
            heir.waiting_in = None
            heir.state = "running"
            self.running.add(heir)
            heir.start()
        else:
            for limit in limits:
                limit.in_use -= 1
            offer(limits)

    def free_slots(self, ticket: Ticket) -> None:
        """Give back the slots and keep the claims: for a call that was given up and still runs."""
        if ticket.state == "running":
            ticket.state = "lingering"
            self._give_back(ticket.limits, hand_over=False)

    def withdraw(self, ticket: Ticket) -> None:
        """Take a ticket that has not started out of the order."""
        if ticket.waiting_in is not None:
            ticket.waiting_in.leave(ticket)
            ticket.waiting_in = None
        kept = self._drop_kept(ticket) if ticket.kept else ()
        self.finish(ticket)
        offer(kept)

    def _admit(self, ticket: Ticket, courtesy: bool = True) -> None:
        """Start a ticket that no earlier call conflicts with, or let it wait at the gate or for a slot."""
        if (self._nested or self._gated or ticket.parent is not None) and not self._pass_gate(ticket, courtesy):
            return
        limits = ticket.limits
        for limit in limits:
            if limit.in_use >= limit.capacity and limit not in ticket.kept:
                self._wait_for_slot(ticket, limit)
                return
        if ticket.kept:
            self._drop_kept(ticket)
        for limit in limits:
            limit.in_use += 1
        ticket.state = "running"
        self.running.add(ticket)
        if ticket.parent is not None:
            self._nested.add(ticket)
        if self._gated:
            self._ungate(ticket)
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
        limit.enqueue(ticket)
        if runtime.favoured is ticket:
            for other in ticket.limits:
                if other.in_use < other.capacity and other not in ticket.kept:
                    other.in_use += 1
                    ticket.kept += (other,)
        if ticket.parent is not None or runtime.courteous or runtime.favoured is not None:
            self._avoid_deadlock(ticket, [limit.name])

    def _drop_kept(self, ticket: Ticket) -> tuple[Limit, ...]:
        """Give back the slots that were kept for a ticket, which it may take in the next moment; else offer them."""
        kept, ticket.kept, ticket.passed_over = ticket.kept, (), 0
        self._runtime.favoured = None
        for limit in kept:
            limit.in_use -= 1
        return kept

    # --- nested calls, and those that meet them

    def _pass_gate(self, ticket: Ticket, courtesy: bool) -> bool:
        """True when the ticket conflicts with no call that runs and no earlier one at the gate; else it waits."""
        claims, lineage = ticket.claims, ticket.ancestors()
        among = self._nested if ticket.parent is None else self.running
        blockers = {other for other in among if other not in lineage and overlap(claims, other.claims)}
        if courtesy:
            ticket.courtesy = frozenset(
                other
                for index, group in self._gated.items()
                if index is not ticket.index  # which keeps the order of its own
                for other in group
                if other.order < ticket.order and overlap(claims, other.claims)
            )
            blockers |= ticket.courtesy
        self._runtime.courteous.discard(ticket)
        if not blockers:
            return True
        kept = self._drop_kept(ticket) if ticket.kept else ()
        ticket.state = "gate"
        ticket.blockers = blockers
        ticket.waited_for = ticket.waited_for or _names(blockers)
        for other in blockers:
            if other.followers is None:
                other.followers = []
            other.followers.append(ticket)
        self._gated.setdefault(ticket.index, set()).add(ticket)
        if ticket.courtesy:
            self._runtime.courteous.add(ticket)
        if ticket.parent is not None or self._runtime.courteous or self._runtime.favoured is not None:
            self._avoid_deadlock(ticket, None)
        offer(kept)
        return False

    def _leave_gate(self, ticket: Ticket) -> list[Ticket]:
        """Forget a ticket that is over; return those that waited at the gate for it and nothing else."""
        parent = ticket.parent
        if parent is not None:
            self._nested.discard(ticket)
            if parent.children is not None:
                parent.children.pop(ticket, None)
        self._ungate(ticket)
        freed: list[Ticket] = []
        for follower in ticket.followers or ():
            if follower.blockers is not None:
                follower.blockers.discard(ticket)
                if not follower.blockers:
                    follower.blockers = None
                    freed.append(follower)
        ticket.followers = ticket.blockers = None
        return freed

    def _ungate(self, ticket: Ticket) -> None:
        group = self._gated.get(ticket.index)
        if group is not None:
            group.discard(ticket)
            if not group:
                del self._gated[ticket.index]
        self._runtime.courteous.discard(ticket)

    def _avoid_deadlock(self, ticket: Ticket, others: list[str] | None) -> None:
        """Look whether a ticket that begins to wait can ever go on; drop courtesies or refuse it when it can not."""
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
            limit.leave(ticket)
            ticket.waiting_in = None
        kept = self._drop_kept(ticket) if ticket.kept else ()
        ticket.blockers = None
        ticket.state = "refused"
        self._ungate(ticket)
        ticket.refuse_deadlock(others)
        offer(kept)


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
        best.schedule._admit(best)  # the slot may go to another session
        if best.limits is limits and best.state == "running":
            return


def _order(ticket: Claimant) -> int:
    return ticket.order


def _names(tickets: Iterable[Claimant]) -> tuple[str, ...]:
    return tuple(sorted(ticket.call_id for ticket in tickets if isinstance(ticket, Ticket))[:3])
