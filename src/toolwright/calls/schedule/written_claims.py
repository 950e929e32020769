"""Claims as the journal has them, for other processes. Owns their text, and when one call stands in the way of another
process's; does not own waiting.

All processes read the same order of a session from the journal. A call waits for those that came before it and conflict
with it. A nested call does not wait for a call that conflicts with one of its ancestors: that one came later than the
ancestor, waits for it, and so does not run. It waits for the nested call instead, should that outlive the ancestor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from toolwright.calls.schedule.admission import Ticket
from toolwright.calls.schedule.claim_index import overlap
from toolwright.stores.contracts.journal import CallKey, Holder
from toolwright.tools.claims import EXCLUSIVE, PARALLEL, Claim

_EXCLUSIVE = "*"


class _Written(msgspec.Struct, array_like=True):
    """`entry` counts how often the process put calls into the order: a call that enters again is behind others."""

    claims: tuple[Claim, ...]
    above: tuple[Claim, ...] = ()
    entry: int = 0
    at: float = 0.0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Written).decode


class Other(NamedTuple):
    """A call of another process that stands in the order. One that enters it again is another one.

    `above` are the claims of its ancestors, `at` is when it entered, by the clock of its process; what entered at once
    did so by `entry` and `position`.
    """

    key: CallKey
    owner: str
    at: float
    entry: int
    position: int
    parent: str | None
    claims: tuple[Claim, ...]
    above: tuple[Claim, ...]


def write_claims(claims: tuple[Claim, ...]) -> str:
    """The claims of a call that enters the order with its intent, and is not a parallel one."""
    return _EXCLUSIVE if claims is EXCLUSIVE else _text(_Written(claims))


def write_entry(ticket: Ticket, entry: int, at: float) -> str:
    """The claims of a call that enters the order after its intent was written, or again."""
    return _text(_Written(ticket.claims, above(ticket), entry, at))


def above(ticket: Ticket) -> tuple[Claim, ...]:
    """The claims of the ancestors of a nested call."""
    found = dict.fromkeys(claim for upper in ticket.ancestors() for claim in upper.claims)
    return EXCLUSIVE if EXCLUSIVE[0] in found else tuple(found)


def read_holders(holders: Iterable[Holder]) -> list[Other]:
    """The calls of other processes, with their claims."""
    found = []
    for one in holders:
        claims, above, entry, at = msgspec.structs.astuple(_read(one.claims))
        at = at if entry else one.queued_at
        found.append(Other(one.key, one.owner, at, entry, one.position, one.parent, claims, above))
    return found


def passes(ticket: Ticket, other: Other) -> bool:
    """True when a nested call does not wait for a call of another process, which waits for an ancestor of it."""
    return ticket.parent is not None and overlap(other.claims, above(ticket))


def is_passed_by(claims: Sequence[Claim], other: Other) -> bool:
    """True when a nested call of another process does not wait for a call with these claims."""
    return bool(other.above) and overlap(claims, other.above)


def _read(text: str | None) -> _Written:
    if text is None:
        return _Written(PARALLEL)
    try:
        return _Written(EXCLUSIVE) if text == _EXCLUSIVE else _decode(text)
    except msgspec.DecodeError:  # not written by this version: it may be anything
        return _Written(EXCLUSIVE)


def _text(written: _Written) -> str:
    try:
        return _encode(written).decode()
    except UnicodeEncodeError:  # a path or a key that has no form in UTF-8
        return _encode(_Written(EXCLUSIVE, EXCLUSIVE if written.above else (), written.entry, written.at)).decode()
