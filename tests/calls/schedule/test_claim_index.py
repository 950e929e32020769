"""The index of claims alone, against a comparison of every pair: more claims and deeper trees than a runtime sees."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwright.calls.schedule.claim_index import Claimant, ClaimIndex, Presence, overlap
from toolwright.tools.claims import EXCLUSIVE, PARALLEL, Claim

resources = st.lists(st.sampled_from("ab"), max_size=4).map(tuple)
claims = st.one_of(
    st.just(EXCLUSIVE),
    st.just(PARALLEL),
    st.lists(st.builds(Claim, resources, st.booleans(), st.booleans()), min_size=1, max_size=3).map(tuple),
)


def conflict(ours: tuple[Claim, ...], theirs: tuple[Claim, ...]) -> bool:
    """Two calls conflict when one writes what the other touches; a tree is its root and all below."""

    def touches(claim: Claim, place: tuple[str, ...]) -> bool:
        return place[: len(claim.resource)] == claim.resource if claim.tree else place == claim.resource

    return any(
        (one.write or other.write) and (touches(one, other.resource) or touches(other, one.resource))
        for one in ours
        for other in theirs
    )


class Holder(Claimant):
    def __init__(self, order: int, claims: tuple[Claim, ...]) -> None:
        self.order = order
        self.claims = claims
        self.free = False

    def __repr__(self) -> str:
        return f"{self.order}{'' if self.free else ' waits'}"


@pytest.mark.promise("SCHED-01")
@settings(max_examples=300, deadline=None)
@given(st.lists(claims, max_size=25), st.randoms(use_true_random=False))
def test_whoever_conflicts_with_nobody_before_them_is_free_and_nobody_else(arriving, chance: random.Random):
    index = ClaimIndex()
    present: list[Holder] = []
    waiting = list(enumerate(arriving))
    while waiting or present:
        if waiting and (not present or chance.random() < 0.6):
            newcomer = Holder(*waiting.pop(0))
            newcomer.free = index.add(newcomer, newcomer.claims)
            ahead = [other for other in present if conflict(other.claims, newcomer.claims)]
            assert newcomer.free == (not ahead)
            assert set(index.ahead_of(newcomer)) <= set(ahead)
            assert len(index.ahead_of(newcomer)) == min(3, len(ahead))
            present.append(newcomer)
        else:
            leaver = chance.choice(present)  # also one that waits
            present.remove(leaver)
            freed = index.remove(leaver)
            assert len(set(freed)) == len(freed)
            for other in freed:
                assert isinstance(other, Holder)
                assert not other.free, "freed once"
                other.free = True
        for number, one in enumerate(present):
            assert one.free == (not any(conflict(other.claims, one.claims) for other in present[:number]))
    assert index.empty


@pytest.mark.promise("SCHED-06")
@settings(max_examples=200, deadline=None)
@given(st.lists(claims, max_size=12), claims, st.randoms(use_true_random=False))
def test_whoever_is_present_and_conflicts_is_found(present, asking, chance: random.Random):
    presence = Presence()
    holders = [Holder(*one) for one in enumerate(present)]
    for holder in holders:
        presence.add(holder, holder.claims)
    while holders:
        assert set(presence) == set(holders)
        conflicting = {holder for holder in holders if conflict(holder.claims, asking)}
        assert set(presence.conflicting(asking)) == conflicting
        assert all(overlap(holder.claims, asking) == (holder in conflicting) for holder in holders)
        leaver = holders.pop(chance.randrange(len(holders)))
        presence.discard(leaver)
        presence.discard(leaver)
    assert not presence
    assert not set(presence.conflicting(EXCLUSIVE))
