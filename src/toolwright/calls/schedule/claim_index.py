"""The index of claims: which call must wait for which. Does not own slots, tasks or time.

Resources are nodes of one tree, so one rule covers everything: an exclusive call writes the whole tree, a parallel one
reads its root, a key and a path are nodes in it. A claim stands in one line of its own node, by the kind of access, and
in one line of each node above, as a read or write below.

Lines are in call order. A ticket is blocked at a node while a line that conflicts with its own begins with an earlier
ticket, and may start when it is blocked nowhere. So tickets are not compared one by one: a ticket that joins checks
whether lines are empty, a ticket that leaves moves up the next ones. It may leave at any time, also while it waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from toolwright.tools.claims import Claim

READ: Final = 0
WRITE: Final = 1
READ_TREE: Final = 2
WRITE_TREE: Final = 3
READ_BELOW: Final = 4
WRITE_BELOW: Final = 5

CONFLICTS: Final = (
    (WRITE_TREE, WRITE),
    (WRITE, READ, WRITE_TREE, READ_TREE),
    (WRITE_BELOW, WRITE_TREE, WRITE),
    (WRITE_TREE, READ, WRITE_BELOW, READ_BELOW, WRITE, READ_TREE),
    (WRITE_TREE,),
    (WRITE_TREE, READ_TREE),
)
"""For each line of a place, the lines that conflict with it."""


class Claimant:
    """A holder of claims, or a waiter for them. `order` rises with each one that joins an index."""

    # Defaults of the class: most never wait for anything, and none of this is written for them.
    order = 0
    done = False
    held_up = 0
    spots: Sequence[Spot] = ()


Line = OrderedDict[Claimant, None]


class ResourceNode:
    """One resource, with the lines of claimants that access it, it and all below it, or something below it."""

    __slots__ = ("_spots", "children", "lines", "name", "parent", "waiting")

    def __init__(self, parent: ResourceNode | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.children: dict[str, ResourceNode] = {}
        self.lines: list[Line | None] = [None, None, None, None, None, None]
        # Of each line, the claimants that are blocked here.
        self.waiting: list[deque[Claimant] | None] = [None, None, None, None, None, None]
        self._spots: list[tuple[Spot, ...] | None] = [None, None, None, None]

    @property
    def empty(self) -> bool:
        return not self.children and not any(self.lines)

    def join(self, ticket: Claimant, number: int) -> None:
        """Put a ticket at the end of a line."""
        line = self.lines[number]
        if line is None:
            line = self.lines[number] = OrderedDict()
        line[ticket] = None

    def spots(self, claim: Claim) -> tuple[Spot, ...]:
        """Where a claim on this place stands: in one line here, and in one of each place above."""
        number = line_of(claim)
        spots = self._spots[number]
        if spots is None:
            made: list[Spot] = [(self, number)]
            upper = self.parent
            while upper is not None:
                made.append((upper, WRITE_BELOW if claim.write else READ_BELOW))
                upper = upper.parent
            spots = self._spots[number] = tuple(made)
        return spots


Spot = tuple[ResourceNode, int]


def line_of(claim: Claim) -> int:
    """The line of its own place that a claim stands in."""
    return (WRITE_TREE if claim.write else READ_TREE) if claim.tree else (WRITE if claim.write else READ)


class ClaimIndex:
    """The claims of unfinished tickets, found by resource."""

    __slots__ = ("exclusive", "root", "shared")

    def __init__(self) -> None:
        self.root = root = ResourceNode(None, "")
        # The lines of parallel and of exclusive calls, for the schedule's shortest way.
        self.shared: Line = OrderedDict()
        self.exclusive: Line = OrderedDict()
        root.lines[READ], root.lines[WRITE_TREE] = self.shared, self.exclusive

    @property
    def empty(self) -> bool:
        """True when no ticket holds a claim."""
        return self.root.empty

    def trim(self) -> None:
        """Give back the memory of lines in which nobody stands: a line keeps that of its longest time."""
        for line in (self.shared, self.exclusive):
            if not line:
                line.clear()

    def add(self, ticket: Claimant, claims: Sequence[Claim]) -> bool:
        """Let a ticket join; True when it conflicts with no other, and so is not blocked."""
        ticket.spots = spots = self.spots(claims)
        # First look everywhere, then join: a ticket never waits for itself.
        held_up: list[Spot] = []
        for spot in spots:
            lines = spot[0].lines
            for other in CONFLICTS[spot[1]]:
                if lines[other]:
                    held_up.append(spot)
                    break
        for node, number in spots:
            node.join(ticket, number)
        if not held_up:
            return True
        for node, number in held_up:
            waiting = node.waiting[number]
            if waiting is None:
                waiting = node.waiting[number] = deque()
            waiting.append(ticket)
        ticket.held_up = len(held_up)
        return False

    def remove(self, ticket: Claimant) -> list[Claimant]:
        """Let a ticket leave, whether it is blocked or not; return the tickets that are not blocked any more."""
        ticket.done = True
        freed: list[Claimant] = []
        for node, number in ticket.spots or ((self.root, READ),):
            self.withdraw(ticket, node, number)
            for other in CONFLICTS[number]:
                if node.waiting[other]:
                    _move_up(node, other, freed)
        return freed

    def spots(self, claims: Sequence[Claim]) -> tuple[Spot, ...]:
        """Where these claims stand, each spot once."""
        if len(claims) == 1:
            return self._reach(claims[0].resource).spots(claims[0])
        return tuple(dict.fromkeys(spot for claim in claims for spot in self._reach(claim.resource).spots(claim)))

    def withdraw(self, ticket: Claimant, node: ResourceNode, number: int) -> None:
        """Take a ticket out of one line, and forget empty nodes."""
        line = node.lines[number]
        assert line is not None
        del line[ticket]
        if not line:
            while node.parent is not None and node.empty:
                del node.parent.children[node.name]
                node = node.parent

    def ahead_of(self, ticket: Claimant, most: int = 3) -> list[Claimant]:
        """The tickets that block a ticket; of many, the latest few."""
        found: list[Claimant] = []
        for node, number in ticket.spots:
            for other in CONFLICTS[number]:
                line = node.lines[other]
                if line:
                    for earlier in reversed(line):
                        if earlier.order < ticket.order and earlier not in found:
                            found.append(earlier)
                            if len(found) == most:
                                return found
        return found

    def _reach(self, resource: tuple[str, ...]) -> ResourceNode:
        node = self.root
        for name in resource:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = ResourceNode(node, name)
            node = child
        return node


class Presence:
    """The claims of present tickets, in no order: for finding conflicts with a claim."""

    __slots__ = ("_index", "there")

    def __init__(self) -> None:
        self._index = ClaimIndex()
        # Public, so that the schedule can ask of each call whether anybody is there without a call of its own.
        self.there: dict[Claimant, tuple[Spot, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.there)

    def __iter__(self) -> Iterator[Claimant]:
        return iter(self.there)

    def add(self, ticket: Claimant, claims: Sequence[Claim]) -> None:
        """Let a ticket be there."""
        self.there[ticket] = spots = self._index.spots(claims)
        for node, number in spots:
            node.join(ticket, number)

    def discard(self, ticket: Claimant) -> None:
        """Let a ticket go, if it is there."""
        for node, number in self.there.pop(ticket, ()):
            self._index.withdraw(ticket, node, number)

    def conflicting(self, claims: Iterable[Claim]) -> Iterator[Claimant]:
        """The present tickets that conflict with these claims, some perhaps more than once."""
        for claim in claims:
            node = self._index.root
            below = CONFLICTS[WRITE_BELOW if claim.write else READ_BELOW]
            for name in claim.resource:
                for number in below:
                    yield from node.lines[number] or ()
                child = node.children.get(name)
                if child is None:
                    break
                node = child
            else:
                for number in CONFLICTS[line_of(claim)]:
                    yield from node.lines[number] or ()


def _move_up(node: ResourceNode, number: int, freed: list[Claimant]) -> None:
    """Release, in one line of a node, the claimants that now stand before all their conflicts here."""
    lines, waiting = node.lines, node.waiting[number]
    assert waiting is not None
    first: float = float("inf")
    for other in CONFLICTS[number]:
        line = lines[other]
        if line:
            order = next(iter(line)).order
            if order < first:
                first = order
    while waiting:
        head = waiting[0]
        if not head.done:
            # Equal: it stands there itself, with another of its claims.
            if head.order > first:
                return
            head.held_up -= 1
            if not head.held_up:
                freed.append(head)
        waiting.popleft()


def overlap(ours: Iterable[Claim], theirs: Iterable[Claim]) -> bool:
    """True when two sets of claims conflict; for the few pairs that the index does not cover."""
    return any(_conflict(one, other) for one in ours for other in theirs)


def _conflict(one: Claim, other: Claim) -> bool:
    if not (one.write or other.write):
        return False
    if one.resource == other.resource:
        return True
    shorter, longer = (one, other) if len(one.resource) <= len(other.resource) else (other, one)
    return shorter.tree and longer.resource[: len(shorter.resource)] == shorter.resource
