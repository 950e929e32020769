"""A journal in memory. Owns its verbs; their meaning is in the contracts.

It fulfils every promise of `JournalStore` and `WaitStore` except the one about crashes, and is small enough to read as
their model. Several stores may share one database, as several processes share a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from toolwright.effects.memory_rows import CallRow, MemoryDatabase
from toolwright.effects.wait_keys import was_answered
from toolwright.errors import StoreError
from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import (
    NO_CLAIMS,
    NOT_ALL,
    Begun,
    CallKey,
    Cursor,
    Ended,
    Entry,
    Holder,
    Intent,
    Kept,
)
from toolwright.stores.contracts.sessions import Sealed
from toolwright.stores.contracts.store import BackgroundStores
from toolwright.stores.contracts.waits import (
    APPROVALS,
    Arrivals,
    Decided,
    Refused,
    Remembered,
    Resolution,
    Standing,
    Wait,
    WaitKey,
    WaitKind,
)
from toolwright.tools.outcome import ToolOutcome

NOBODY = ""


class MemoryStore:
    """`Store`, `JournalStore` and `WaitStore` in memory, all in one. It keeps calls only."""

    services: BackgroundStores | None = None
    path: Path | None = None
    fingerprints: Sealed | None = None

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self._database = database = database or MemoryDatabase()
        self._calls = database.calls
        self._given_up: set[CallKey] = set()  # forgotten or released here, and not begun here since
        self.secret = database.secret
        self.owner = uuid7()
        self.longest_key: int | None = None
        self._writes = 0
        database.owners.add(self.owner)

    @property
    def journal(self) -> MemoryStore:
        return self

    @property
    def waits(self) -> MemoryStore:
        return self

    async def news(self, after: Cursor | None, patience: float, *, own: bool = False) -> Cursor:
        database, loop = self._database, asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            others = database.writes - self._writes
            if after is None:
                return f"{others} {self._writes}"
            seen, written = map(int, after.split())
            if others > seen or (own and self._writes > written):
                return f"{others} {self._writes}"
            if loop.time() >= until:
                return after
            await asyncio.wait({database.changed()}, timeout=until - loop.time())

    async def close(self) -> None:
        self._database.end(self.owner)

    def _wrote(self) -> None:
        self._writes += 1
        self._database.wrote()

    # --- calls that are stored elsewhere, and only their effects here

    def enter(self, key: CallKey) -> None:
        """A call that has no intent here begins to use effects."""
        call = self._calls.get(key)
        if call is None or call.over:  # and comes again, because it was stopped before it ran
            self._calls[key] = CallRow(self.owner)

    def leave(self, key: CallKey) -> None:
        """Such a call is finished."""
        call = self._calls.get(key)
        if call is not None and call.entry is None:
            call.over = True
            call.effects.clear()
            if not call.waits:
                del self._calls[key]

    def forget_session(self, session: str) -> None:
        """A session is deleted: its calls, their waits, and the decisions that were remembered for it."""
        for key in [key for key in self._calls if key.session == session]:
            del self._calls[key]
        database = self._database
        database.remembered[:] = [each for each in database.remembered if each.session != session]
        database.revoked.pop(session, None)

    # --- the journal

    async def begin(self, intents: Sequence[Intent], refused: Sequence[CallKey] = ()) -> Begun:
        if refused:
            rows = [self._calls.get(key) for key in refused]
            known_before = [
                None if row is None or row.entry is None else replace(row.entry, owner=row.owner) for row in rows
            ]
            begun = await self.begin(intents)
            return Begun([*begun, *known_before], begun.others)
        holders = self._holders({intent.key.session for intent in intents})
        known: dict[CallKey, Entry] = {}
        for intent in intents:
            call = self._calls.get(intent.key)
            if call is not None and call.entry is not None:
                known[intent.key] = replace(call.entry, owner=call.owner)
        others = {entry.owner for entry in known.values() if entry.outcome is None and entry.owner != self.owner}
        if others.isdisjoint(self._database.owners):
            self._wrote()
            self._given_up.difference_update(intent.key for intent in intents)
            for intent in intents:
                entry = known.get(intent.key)
                if entry is None:
                    written = replace(intent, starts_at=None, claims=None)  # these are kept apart
                    started_at = None if holders else intent.starts_at
                    self._calls[intent.key] = CallRow(
                        self.owner, Entry(written, self.owner, started_at=started_at), intent.claims
                    )
                elif entry.outcome is None:
                    call = self._calls[intent.key]
                    completion = call.waits.get(WaitKey(intent.key, "completion"))
                    self._count_crash(call, entry, intent.rerun)
                    known[intent.key] = replace(
                        entry,
                        owner=self.owner,
                        cut_off=entry.owner != self.owner,
                        pending=completion is not None
                        and (completion.opened_at is not None or was_answered(completion.resolution)),
                        crashes=call.crashes[0],
                    )
                    call.owner, call.claims = self.owner, NO_CLAIMS
        return Begun([known.get(intent.key) for intent in intents], holders)

    async def hold(self, claims: Sequence[tuple[CallKey, str]]) -> list[Holder]:
        holders = self._holders({key.session for key, _ in claims})
        for key, held in claims:
            call = self._mine(key)
            if call is not None:
                call.claims = held
        self._wrote()
        return holders

    async def holders(self, sessions: Collection[str]) -> list[Holder]:
        return self._holders(sessions)

    def _holders(self, sessions: Collection[str]) -> list[Holder]:
        others = self._database.owners - {self.owner}
        if not others:
            return []
        return [
            Holder(key, call.owner, intent.parent, intent.queued_at, intent.position, call.claims)
            for key, call in self._calls.items()
            if call.owner in others and call.entry is not None and call.entry.outcome is None
            if key.session in sessions and call.claims != NO_CLAIMS
            for intent in (call.entry.intent,)
        ]

    def _count_crash(self, call: CallRow, entry: Entry, may_rerun: bool) -> None:
        count, counted, steps = call.crashes
        started_at, key = entry.started_at, entry.intent.key
        ran = started_at != counted if started_at is not None else may_rerun and not count
        if call.owner in (self.owner, NOBODY) or not ran or self._is_waiting(key):
            return
        nested = self._nested(key).values()
        if any(_may_have_run(each, call.owner, started_at) for each in nested):
            return  # It counts for that one.
        done = sum(kept.done for kept in call.effects.values()) + sum(each.outcome is not None for _, each in nested)
        call.crashes = (count + 1 if done <= steps else 1, started_at, done)

    def _is_waiting(self, key: CallKey) -> bool:
        """True when a call waits for something outside, or a call that it made does."""
        left, seen = [key], {key}
        while left:
            each = left.pop()
            waits = self._calls[each].waits.values()
            if any(wait.resolution is None and wait.opened_at is not None for wait in waits):
                return True
            nested = {made for made, (_, entry) in self._nested(each).items() if entry.outcome is None} - seen
            seen |= nested
            left += nested
        return False

    def _nested(self, key: CallKey) -> dict[CallKey, tuple[CallRow, Entry]]:
        """The calls that a call made."""
        return {
            each: (row, row.entry)
            for each, row in self._calls.items()
            if row.entry is not None and row.entry.intent.parent == key.call_id and each[:2] == key[:2]
        }

    async def start(self, key: CallKey, started_at: float) -> bool:
        call = self._mine(key)
        if call is None or call.entry is None:
            return False
        call.entry = replace(call.entry, started_at=started_at)
        self._wrote()
        return True

    async def start_all(self, starts: Sequence[tuple[CallKey, float]]) -> None:
        if not all(self._mine(key) is not None for key, _ in starts):
            raise StoreError(NOT_ALL)
        for key, started_at in starts:
            await self.start(key, started_at)

    async def finish(self, key: CallKey, outcome: ToolOutcome, started_at: float | None, finished_at: float) -> bool:
        call = self._mine(key)
        if call is None or call.entry is None:
            before = self._calls.get(key)
            return before is not None and before.owner == self.owner and _is_finished(before, outcome)
        began = call.entry.started_at if started_at is None else started_at
        call.entry = replace(call.entry, outcome=outcome, started_at=began, finished_at=finished_at)
        call.over = True
        self._wrote()
        return True

    async def finish_all(self, ended: Sequence[Ended]) -> None:
        if not all(self._may_finish(end) for end in ended if end.intent is None):
            raise StoreError(NOT_ALL)
        for end in ended:
            if end.intent is not None:
                known = self._calls.get(end.key)
                if known is not None and known.entry is not None:
                    continue
                self._calls[end.key] = CallRow(self.owner, Entry(end.intent, self.owner))
            await self.finish(end.key, end.outcome, end.started_at, end.finished_at)

    def _may_finish(self, end: Ended) -> bool:
        call = self._calls.get(end.key)
        return call is not None and call.owner == self.owner and (not call.over or _is_finished(call, end.outcome))

    async def forget(self, key: CallKey) -> bool:
        if self._mine(key) is None:
            return key in self._given_up and key not in self._calls
        del self._calls[key]
        self._given_up.add(key)
        self._wrote()
        return True

    async def reopen(self, key: CallKey) -> bool:
        call = self._calls.get(key)
        outcome = None if call is None or call.entry is None else call.entry.outcome
        if call is None or call.entry is None:
            return False
        if outcome is None:
            return call.owner == self.owner and call.entry.started_at is None
        if outcome.status != "connection_required":
            return False
        call.entry = Entry(call.entry.intent, self.owner)
        call.owner, call.over, call.claims = self.owner, False, NO_CLAIMS
        self._wrote()
        return True

    async def release(self, key: CallKey) -> bool:
        call = self._calls.get(key)
        if call is None or call.over:
            return False
        if call.owner != self.owner:
            return call.owner == NOBODY and key in self._given_up
        call.owner = NOBODY
        self._given_up.add(key)
        self._wrote()
        return True

    async def unfinished(self, session: str | None = None) -> list[Entry]:
        found = [
            replace(call.entry, owner=call.owner)
            for key, call in self._calls.items()
            if call.entry is not None
            and call.entry.outcome is None
            and call.owner not in self._database.owners
            and (session is None or key.session == session)
        ]
        return sorted(found, key=lambda entry: (entry.intent.queued_at, entry.intent.position, entry.intent.key))

    async def effects(self, key: CallKey) -> list[Kept]:
        call = self._calls.get(key)
        return [] if call is None else list(call.effects.values())

    async def keep(self, key: CallKey, kept: Kept) -> bool:
        call = self._mine(key)
        if call is None:
            return False
        call.effects[kept.label] = kept
        self._wrote()
        return True

    async def keep_all(self, effects: Sequence[tuple[CallKey, Kept]]) -> None:
        if not all(self._mine(key) is not None for key, _ in effects):
            raise StoreError(NOT_ALL)
        for key, kept in effects:
            await self.keep(key, kept)

    # --- waits

    async def open_wait(self, wait: Wait) -> Wait | None:
        key = wait.key
        call = self._mine(key.call)
        if call is None:
            return None
        before = call.waits.get(key)
        if before is None:
            revoked = self._database.revoked.get(key.call.session)
            if revoked is not None:
                wait = replace(wait, resolution=revoked)
        elif before.opened_at is None:
            wait = replace(wait, resolution=before.resolution)
        else:
            wait = before
        call.waits[key] = wait
        self._wrote()
        return wait

    async def resolve(
        self, key: WaitKey, resolution: Resolution, remember: Remembered | None = None
    ) -> Standing | Refused:
        call = self._calls.get(key.call)
        if call is None:
            return Refused("unknown")
        before = call.waits.get(key)
        if before is not None and before.resolution is not None:
            return Standing(False, before.resolution)
        if key.call.session in self._database.revoked:
            return Refused("revoked")
        if call.over:
            return Refused("over")
        self._settle(call, key, resolution)
        if remember is not None:
            self._database.remembered.insert(0, remember)
        return Standing(True, resolution)

    async def end_wait(self, key: WaitKey, resolution: Resolution) -> Resolution | None:
        call = self._mine(key.call)
        if call is None:
            return None
        before = call.waits.get(key)
        if before is not None and before.resolution is not None:
            return before.resolution if was_answered(before.resolution) else None
        self._settle(call, key, resolution)
        return None

    async def cancel_waits(self, session: str, resolution: Resolution, *, revoke: bool = False) -> list[WaitKey]:
        cancelled = [
            (call, wait)
            for key, call in self._calls.items()
            if key.session == session and not call.over
            for wait in call.waits.values()
            if wait.resolution is None
        ]
        cancelled.sort(key=lambda pair: _age(pair[1]))
        for call, wait in cancelled:
            self._settle(call, wait.key, resolution)
        if revoke:
            self._database.revoked.setdefault(session, resolution)
        return [wait.key for _, wait in cancelled]

    def _settle(self, call: CallRow, key: WaitKey, resolution: Resolution) -> None:
        call.waits[key] = replace(call.waits.get(key) or Wait(key), resolution=resolution)
        self._database.resolved.add(call, key)
        self._wrote()

    async def arrivals(self, since: Cursor | None) -> Arrivals:
        database = self._database
        cursor = f"{database.resolved.last} {database.signalled.last}"
        resolved, signalled = map(int, (since or cursor).split())
        return Arrivals(
            cursor,
            [call.waits[key] for _, call, key in database.resolved.after(resolved)],
            [key for _, _, key in database.signalled.after(signalled)],
        )

    async def waiting(self, session: str | None = None, kinds: Sequence[WaitKind] = ()) -> list[Wait]:
        found = [
            wait
            for key, call in self._calls.items()
            if not call.over and (session is None or key.session == session)
            for wait in call.waits.values()
            if wait.opened_at is not None and wait.resolution is None and (not kinds or wait.key.kind in kinds)
        ]
        return sorted(found, key=_age)

    async def signal(self, key: WaitKey, payload: bytes, at: float) -> int | Refused:
        call = self._calls.get(key.call)
        if call is None:
            return Refused("unknown")
        if key.call.session in self._database.revoked:
            return Refused("revoked")
        if call.over:
            return Refused("over")
        sent = call.signals.setdefault(key, [])
        sent.append(payload)
        self._database.signalled.add(call, key)
        self._wrote()
        return len(sent)

    async def signals(self, key: WaitKey, after: int = 0) -> list[bytes]:
        call = self._calls.get(key.call)
        return [] if call is None else call.signals.get(key, [])[after:]

    async def waits_of(self, call: CallKey, kind: WaitKind) -> list[Wait]:
        row = self._calls.get(call)
        waits = () if row is None else row.waits.values()
        return sorted((wait for wait in waits if wait.key.kind == kind and wait.opened_at is not None), key=_age)

    async def decided(
        self, session: str | None, before: int | None, limit: int, kinds: Sequence[WaitKind] = APPROVALS
    ) -> list[Decided]:
        found: list[Decided] = []
        for number, call, key in self._database.resolved.newest_first():
            if len(found) == limit:
                break
            wait = call.waits.get(key)
            if (
                wait is not None
                and wait.opened_at is not None
                and key.kind in kinds
                and (before is None or number < before)
                and (session is None or key.call.session == session)
            ):
                found.append(Decided(number, wait))
        return found

    async def remembered(self, session: str) -> list[Remembered]:
        return [decision for decision in self._database.remembered if decision.session == session]

    def _mine(self, key: CallKey) -> CallRow | None:
        call = self._calls.get(key)
        return None if call is None or call.over or call.owner != self.owner else call


def _age(wait: Wait) -> tuple[float, WaitKey]:
    return (wait.opened_at or 0.0, wait.key)


def _is_finished(call: CallRow, outcome: ToolOutcome) -> bool:
    """True when a call has this outcome already."""
    before = None if call.entry is None else call.entry.outcome
    return before is not None and replace(before, cached_value=UNSET) == replace(outcome, cached_value=UNSET)


def _may_have_run(made: tuple[CallRow, Entry], owner: str, since: float | None) -> bool:
    """True when this owner may have run an unfinished call since an instant; a new call may have run without a
    start."""
    row, entry = made
    began = entry.intent.queued_at if entry.started_at is None else entry.started_at
    return entry.outcome is None and row.owner == owner and (since is None or began >= since)
