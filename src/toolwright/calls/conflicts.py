"""Who must wait for whom. Owns the index of claims; does not own slots, tasks or time.

Resources are places in one tree, so one rule covers everything: an exclusive call writes the whole tree, a parallel
one reads its root, a key and a path are places in it. A claim is met by looking at its own place, at tree claims on
the way up, and, for a tree claim, at what lies below. No pair of calls is ever compared.

A crowd is the set of unfinished tickets of one sort at one place. A ticket that must wait for a whole crowd does not
take an edge to each member: the crowd is folded into one knot that waits for its members and stands for them from then
on. So a ticket is folded at most once per place, and the number of edges stays in proportion to the number of tickets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolwright.tools.claims import Claim

Crowd = dict["Knot", None]


class Knot:
    """A point in the order of calls: it is untied when everything it waits for is."""

    # Defaults of the class: most knots never wait for anything, and none of this is written for them.
    blockers: set[Knot] | None = None
    followers: list[Knot] | None = None
    crowd: Crowd | None = None
    done = False

    def wait_for(self, other: Knot) -> None:
        """Do not untie before `other`."""
        if other.done or other is self:
            return
        if self.blockers is None:
            self.blockers = set()
        elif other in self.blockers:
            return
        self.blockers.add(other)
        if other.followers is None:
            other.followers = [self]
        else:
            other.followers.append(self)


def untie(knot: Knot) -> list[Knot]:
    """Mark a knot as done and return the tickets that nothing blocks any more, in order."""
    if knot.followers is None:
        knot.done = True
        return []
    free: list[Knot] = []
    stack = [knot]
    while stack:
        current = stack.pop()
        current.done = True
        followers = current.followers
        if followers is None:
            continue
        current.followers = None
        for follower in followers:
            blockers = follower.blockers
            if blockers is None or follower.done:
                continue
            blockers.discard(current)
            if not blockers:
                follower.blockers = None
                if type(follower) is Knot:
                    if follower.crowd is not None:
                        follower.crowd.pop(follower, None)
                    stack.append(follower)
                else:
                    free.append(follower)
    return free


class Place:
    """One resource: the claims on it alone, on it as a tree, and on what lies below it."""

    __slots__ = (
        "below_readers",
        "below_writers",
        "children",
        "name",
        "parent",
        "readers",
        "tree_readers",
        "tree_writers",
        "writers",
    )

    def __init__(self, parent: Place | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.children: dict[str, Place] = {}
        self.readers: Crowd = {}
        self.writers: Crowd = {}
        self.tree_readers: Crowd = {}
        self.tree_writers: Crowd = {}
        self.below_readers: Crowd = {}
        self.below_writers: Crowd = {}

    @property
    def empty(self) -> bool:
        return not (
            self.children
            or self.readers
            or self.writers
            or self.tree_readers
            or self.tree_writers
            or self.below_readers
            or self.below_writers
        )


class ClaimIndex:
    """The claims of unfinished tickets, found by resource."""

    __slots__ = ("_root", "exclusive", "shared")

    def __init__(self) -> None:
        self._root = Place(None, "")
        # The crowds of exclusive and of parallel calls, for the schedule's shortest way.
        self.exclusive = self._root.tree_writers
        self.shared = self._root.readers

    @property
    def empty(self) -> bool:
        """True when no ticket holds a claim."""
        return self._root.empty

    def add(self, ticket: Knot, claims: Iterable[Claim]) -> None:
        """Make `ticket` wait for the earlier tickets it conflicts with, and later ones for it."""
        root = self._root
        places = [root if not claim.resource else self._reach(claim.resource) for claim in claims]
        # First meet every claim, then take them: a ticket never waits for itself.
        for claim, place in zip(claims, places, strict=True):
            self._meet(ticket, claim, place)
        for claim, place in zip(claims, places, strict=True):
            self._take(ticket, claim, place)

    def remove(self, ticket: Knot, claims: Iterable[Claim]) -> None:
        """Give up the claims of a ticket that is untied."""
        for claim in claims:
            place = self._find(claim.resource)
            if place is None:
                continue
            if claim.tree:
                (place.tree_writers if claim.write else place.tree_readers).pop(ticket, None)
            else:
                (place.writers if claim.write else place.readers).pop(ticket, None)
            upper = place.parent
            while upper is not None:
                (upper.below_writers if claim.write else upper.below_readers).pop(ticket, None)
                upper = upper.parent
            if place.parent is not None:
                self._prune(place)

    def _meet(self, ticket: Knot, claim: Claim, place: Place) -> None:
        write = claim.write
        _wait_for_all(ticket, place.writers)
        if write:
            _wait_for_all(ticket, place.readers)
        if claim.tree:
            _wait_for_all(ticket, place.below_writers)
            if write:
                _wait_for_all(ticket, place.below_readers)
        upper: Place | None = place
        while upper is not None:
            _wait_for_all(ticket, upper.tree_writers)
            if write:
                _wait_for_all(ticket, upper.tree_readers)
            upper = upper.parent

    def _take(self, ticket: Knot, claim: Claim, place: Place) -> None:
        if claim.write:
            # Whoever conflicts with the earlier claims here conflicts with this one too, and this one waits for them.
            place.readers.clear()
            place.writers.clear()
            if claim.tree:
                place.below_readers.clear()
                place.below_writers.clear()
                place.tree_readers.clear()
                place.tree_writers.clear()
        if claim.tree:
            (place.tree_writers if claim.write else place.tree_readers)[ticket] = None
        else:
            (place.writers if claim.write else place.readers)[ticket] = None
        upper = place.parent
        while upper is not None:
            (upper.below_writers if claim.write else upper.below_readers)[ticket] = None
            upper = upper.parent

    def _reach(self, resource: tuple[str, ...]) -> Place:
        place = self._root
        for name in resource:
            child = place.children.get(name)
            if child is None:
                child = place.children[name] = Place(place, name)
            place = child
        return place

    def _find(self, resource: tuple[str, ...]) -> Place | None:
        place: Place | None = self._root
        for name in resource:
            if place is None:
                return None
            place = place.children.get(name)
        return place

    def _prune(self, place: Place) -> None:
        while place.parent is not None and place.empty:
            del place.parent.children[place.name]
            place = place.parent


def _wait_for_all(ticket: Knot, crowd: Crowd) -> None:
    if not crowd:
        return
    if len(crowd) > 1:
        fold = Knot()
        for member in crowd:
            fold.wait_for(member)
        if fold.blockers is None:
            crowd.clear()
            return
        crowd.clear()
        crowd[fold] = None
        fold.crowd = crowd
    for member in crowd:
        ticket.wait_for(member)


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


def describe(crowd: Iterable[Any], limit: int = 3) -> list[Any]:
    """The real tickets behind a set of knots, up to a few."""
    found: list[Any] = []
    seen: set[Knot] = set()
    stack = list(crowd)
    while stack and len(found) < limit:
        knot = stack.pop()
        if knot in seen:
            continue
        seen.add(knot)
        if type(knot) is Knot:
            stack.extend(knot.blockers or ())
        else:
            found.append(knot)
    return found
