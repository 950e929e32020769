"""Calls that would wait for each other for ever. Owns finding them, across the sessions of a runtime.

Does not own the reaction to one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from toolwright.calls.schedule.tickets import Limit, Ticket, offer, order_of

if TYPE_CHECKING:
    from toolwright.calls.schedule.admission import Admission

Needs = Callable[[Ticket], tuple[Collection[Ticket], bool]]
"""The tickets that must end before a ticket can, and whether all of them must or any one."""


def can_end(start: Ticket, needs: Needs) -> bool:
    """True unless `start` waits, in the end, for itself.

    `needs` returns the tickets that a ticket waits for, and whether for all of these or for any one. A ticket that
    waits for nothing can end, and so can a ticket that waits for such ones; the others wait for each other for ever.
    """
    missing: dict[Ticket, int] = {}
    behind: dict[Ticket, list[Ticket]] = {}
    ending: list[Ticket] = []
    stack = [start]
    while stack:
        current = stack.pop()
        if current in missing:
            continue
        others, every = needs(current)
        missing[current] = (len(others) if every else 1) if others else 0
        if not others:
            ending.append(current)
        for other in others:
            behind.setdefault(other, []).append(current)
            stack.append(other)
    while ending:
        current = ending.pop()
        if current is start:
            return True
        for waiter in behind.get(current, ()):
            missing[waiter] -= 1
            if missing[waiter] == 0:
                ending.append(waiter)
    return False


class RuntimeOrder:
    """The schedules of a runtime, with the counter that orders their tickets."""

    __slots__ = ("_admissions", "courteous", "favoured", "next_order")

    def __init__(self) -> None:
        # Each lives as long as its session or a ticket in it; in the order they were made.
        self._admissions: WeakValueDictionary[int, Admission] = WeakValueDictionary()
        self.next_order = count(1).__next__
        # The tickets that wait at the gate only to be fair, and the one for which slots are reserved.
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
        """The existing admissions."""
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
        """The tickets that must end before a ticket can, and whether all of them must or any one."""
        return self._needs(ticket, favours=True)

    def needs_strictly(self, ticket: Ticket) -> tuple[Collection[Ticket], bool]:
        """As `needs`, if no ticket waited to be fair and no slots were reserved."""
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
            # If there are fewer of them than slots in use, a slot is being released just now.
            return (holders, False) if len(holders) >= limit.in_use else ((), True)
        blockers: Collection[Ticket] = ticket.blockers or ()
        return (blockers if favours else [other for other in blockers if other not in ticket.courtesy]), True

    def drop_reserved(self, ticket: Ticket) -> tuple[Limit, ...]:
        """Release the slots that were reserved for a ticket, which it may take at once; else offer them."""
        reserved, ticket.reserved, ticket.passed_over = ticket.reserved, (), 0
        self.favoured = None
        for limit in reserved:
            limit.in_use -= 1
        return reserved

    def drop_favours(self) -> None:
        """Drop reservations, and let tickets that wait to be fair wait only for running ones."""
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
