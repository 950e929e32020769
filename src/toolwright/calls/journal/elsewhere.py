"""Calls of other processes that calls of this one wait for. Owns who waits for whom, and looking whether they ended.

The journal tells each batch which calls came first. Those of this process that conflict with them wait until the store
says that they ended, that they left the order, or that their process is dead. The store is asked from time to time, for
all calls that wait, and not at all while none does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from toolwright.calls.active_call import QUEUED, ActiveCall
from toolwright.calls.schedule.admission import Ticket
from toolwright.calls.schedule.claim_index import Claimant, Presence, overlap
from toolwright.calls.schedule.deadlock import can_end
from toolwright.calls.schedule.written_claims import Other, is_passed_by, passes, read_holders
from toolwright.effects.store_news import StoreNews
from toolwright.errors import StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import Holder, JournalStore

log = logging.getLogger("toolwright.calls")

FIRST_LOOK, LONGEST_LOOK = 0.01, 0.25
"""Seconds between two looks: at first, and at most. Each pause is half as long again as the one before."""
UNSURE = 5.0
"""Seconds within which clocks do not tell which of two other processes came first. A nested call that has waited so
long for the same calls is refused if it could never start in one of the two orders."""
MOST_AHEAD = 1_000
"""How many calls in the way of another one are looked at to find calls that wait for each other."""


class _Found(Claimant):
    """A call of another process, as it is found by its claims."""

    def __init__(self, other: Other) -> None:
        self.other = other


class Elsewhere:
    """The calls of this process that wait for calls of others. `live` gives the calls that run or wait here."""

    def __init__(self, store: JournalStore, news: StoreNews, live: Callable[[], Iterable[ActiveCall]]) -> None:
        self._store = store
        self._news = news
        self._live = live
        self._waiting: dict[ActiveCall, Callable[[], None]] = {}
        self._since: dict[ActiveCall, float] = {}  # when a nested one began to wait for the calls that it waits for
        self._is_unsure = False
        self._by_ticket: dict[Ticket, ActiveCall] = {}  # the same calls, while deadlocks are looked for
        self._others: dict[str, list[Other]] = {}  # by session, as far as somebody waits there
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._new: asyncio.Future[None] | None = None

    def meet(self, calls: Sequence[ActiveCall], holders: Sequence[Holder]) -> None:
        """These calls have entered the order after `holders`, all of one session: note for whom each must wait."""
        others = read_holders(holders)
        there, came_before = Presence(), frozenset(others)
        for other in others:
            there.add(_Found(other), other.claims)
        for call in calls:
            ticket = call.ticket
            if ticket is None:
                continue
            ticket.came_before = came_before
            found = {each.other for each in there.conflicting(ticket.claims) if isinstance(each, _Found)}
            call.elsewhere = {other for other in found if not passes(ticket, other)} or None
            if call.elsewhere is not None:
                self._others[call.env.session_id] = others

    def wait(self, call: ActiveCall, free: Callable[[], None]) -> None:
        """Call `free` when nobody is in the way of a call any more. A call that ends before is forgotten."""
        self._waiting[call] = free
        if self._new is not None and not self._new.done():
            self._new.set_result(None)
        loop = call.env.loop
        if self._task is None and not self._closed:
            self._task = loop.create_task(self._look())
        if call.ticket is not None and call.ticket.parent is not None:
            loop.call_soon(self._refuse_deadlocks)

    def close(self) -> None:
        """Look no more: the calls are being stopped."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        pause = FIRST_LOOK
        with self._news.bell() as bell:
            while self._forget_ended():
                self._new = asyncio.get_running_loop().create_future()
                await bell.wait(pause, self._new)
                pause = FIRST_LOOK if self._new.done() else min(1.5 * pause, LONGEST_LOOK)
                # Others may come to wait until the answer is there, for calls that it does not know.
                asked = list(self._waiting)
                try:
                    others = read_holders(await self._store.holders({call.env.session_id for call in asked}))
                except Exception as error:  # also from a store of another package, or a library
                    # They wait on: what they do next will fail, if the store is not there by then.
                    log.warning(
                        "The calls of other processes cannot be looked at: %s",
                        error,
                        exc_info=not isinstance(error, StoreError),
                        extra=log_fields("claims.not_read"),
                    )
                    pause = LONGEST_LOOK
                    continue
                self._tell(asked, others)
        self._task = None

    def _forget_ended(self) -> bool:
        """Forget the calls that wait no longer; True while there are others."""
        for call in [call for call in self._waiting if call.phase is not QUEUED or call.ticket is None]:
            del self._waiting[call]
        if not self._waiting:
            self._others.clear()
            self._since.clear()
        return bool(self._waiting)

    def _tell(self, asked: Sequence[ActiveCall], others: list[Other]) -> None:
        """Let those of the calls go on that nobody is in the way of any more."""
        for call in asked:
            self._others[call.env.session_id] = []
        for other in others:
            self._others[other.key.session].append(other)
        for call in asked:
            ticket = call.ticket
            if ticket is None or call.phase is not QUEUED or call not in self._waiting:
                continue  # it was stopped, or started over
            before, there = call.elsewhere or set(), self._others[call.env.session_id]
            call.elsewhere = {other for other in there if other in before or _is_ahead(other, ticket)} or None
            if call.elsewhere != before:
                self._since.pop(call, None)
            if call.elsewhere is None:
                self._waiting.pop(call)()
        self._refuse_deadlocks()

    # --- calls that could only wait for each other

    def _refuse_deadlocks(self) -> None:
        """End nested calls that wait for a call of another process which waits, in the end, for them."""
        self._forget_ended()
        self._by_ticket = {call.ticket: call for call in self._waiting if call.ticket is not None}
        for ticket, call in list(self._by_ticket.items()):
            if ticket.parent is None or call not in self._waiting or not call.elsewhere:
                continue
            now = call.env.monotonic()
            waited = now - self._since.setdefault(call, now)
            if self._never_starts(ticket, unsure=False) or (
                waited > UNSURE and self._never_starts(ticket, unsure=True)
            ):
                del self._waiting[call]
                ticket.refuse_deadlock(sorted({other.key.call_id for other in call.elsewhere}))

    def _never_starts(self, ticket: Ticket, *, unsure: bool) -> bool:
        start: Ticket | Other = ticket
        self._is_unsure = unsure
        return not can_end(start, self._needs) and self._reaches_itself(ticket)

    def _reaches_itself(self, ticket: Ticket) -> bool:
        seen: set[Ticket | Other] = set()
        left = list(self._needs(ticket)[0])
        while left:
            node = left.pop()
            if node is ticket:
                return True
            if node not in seen:
                seen.add(node)
                left += self._needs(node)[0]
        return False

    def _needs(self, node: Ticket | Other) -> tuple[Collection[Ticket | Other], bool]:
        """What must end before a call can, here or elsewhere, and whether all of that must or any one."""
        if isinstance(node, Other):
            return self._needs_elsewhere(node), True
        if node.state == "elsewhere":
            waiting = self._by_ticket.get(node)
            return (() if waiting is None else waiting.elsewhere or ()), True
        if node.state in ("running", "paused", "lingering"):
            return list(node.children or ()), True
        if node.state == "blocked":
            return [each for each in node.index.ahead_of(node, MOST_AHEAD) if isinstance(each, Ticket)], True
        return node.admission.needs(node)

    def _needs_elsewhere(self, one: Other) -> list[Ticket | Other]:
        """What a call of another process waits for, by the order that all processes know."""
        found: list[Ticket | Other] = [
            other
            for other in self._others.get(one.key.session, ())
            if other is not one and (_is_child(other, one) or self._waits(one, other))
        ]
        for call in self._live():
            ticket = call.ticket
            if ticket is not None and not ticket.done and call.env.session_id == one.key.session:
                conflicts = overlap(one.claims, ticket.claims) and not is_passed_by(ticket.claims, one)
                if conflicts and (passes(ticket, one) or one not in ticket.came_before):
                    found.append(ticket)
        return found

    def _waits(self, one: Other, other: Other) -> bool:
        """True when one call of other processes waits for another one, or may if that is not sure."""
        if not overlap(one.claims, other.claims) or is_passed_by(other.claims, one):
            return False
        if self._is_unsure and one.owner != other.owner and abs(one.at - other.at) < UNSURE:
            return True
        # By `at`, `entry` and `position`, which one process gives in its order.
        return is_passed_by(one.claims, other) or other[2:5] < one[2:5]


def _is_child(other: Other, one: Other) -> bool:
    return other.parent == one.key.call_id and other.key.scope == one.key.scope


def _is_ahead(other: Other, ticket: Ticket) -> bool:
    """True for a nested call of another process that came later, conflicts, and does not wait."""
    conflicts = is_passed_by(ticket.claims, other) and overlap(other.claims, ticket.claims)
    return conflicts and not passes(ticket, other)
