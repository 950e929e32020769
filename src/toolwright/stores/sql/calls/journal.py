"""The journal in a SQL store. Owns its queries; replay, crash policies and sharing are written once, above it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import operator
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import (
    NO_CLAIMS,
    NOT_ALL,
    RUN_SCOPE,
    Begun,
    CallKey,
    Ended,
    Entry,
    Holder,
    Intent,
    Kept,
)
from toolwright.stores.sql.calls.crash_counts import CrashCounter
from toolwright.stores.sql.calls.intent_bundles import (
    INTENT_COLUMNS,
    OF_INTENT,
    Bundle,
    Row,
    is_mine,
    remove,
    untie,
)
from toolwright.stores.sql.calls.waits import completion_came
from toolwright.stores.sql.codec import KEY, columns_of, encode, insert, insert_if_new, one, packed, put, unpacker
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sql.event_rows import note_batch, note_call, note_calls
from toolwright.stores.sql.jobs import JobQueue
from toolwright.stores.sql.liveness import Liveness
from toolwright.tools.call import CallSource
from toolwright.tools.outcome import Failure, ToolOutcome


class CallRow(NamedTuple):
    """A call as it is read, from `calls` or the view `every_call`."""

    session: str
    scope: str
    call_id: str
    batch: str
    position: int
    tool: str
    tool_id: str
    arguments: bytes
    source: CallSource
    parent: str | None
    queued_at: float
    owner: str
    started_at: float | None
    finished_at: float | None
    outcome: bytes | None
    authority: bytes | None


_COLUMNS = columns_of(CallRow)
_END = ("started_at", "finished_at", "status", "outcome")
"""The columns of a call that its end fills."""
# Only an unfinished call of this process is changed.
_OWN = f"WHERE {KEY} AND owner = ? AND outcome IS NULL"
_BEGIN = insert("calls", (*INTENT_COLUMNS, "started_at"))
_RESTRICT = f"UPDATE calls SET authority = ? WHERE {KEY}"
_TAKE_OVER = f"UPDATE calls SET owner = ?, claims = '{NO_CLAIMS}' WHERE {KEY}"
_WRITE = insert("calls", (*INTENT_COLUMNS, *_END, "authority"))
_REFUSE = (
    f"INSERT INTO calls ({', '.join((*INTENT_COLUMNS, *_END))})"
    f" SELECT {', '.join('?' * len((*INTENT_COLUMNS, *_END)))}"
    # The key comes first.
    " WHERE NOT EXISTS (SELECT 1 FROM bundled_calls WHERE session = ?1 AND scope = ?2 AND call_id = ?3)"
    " ON CONFLICT DO NOTHING"
)
_KEEP = put("effects", (*CallKey._fields, "label"), Kept.__struct_fields__[1:])
_TRACE = insert_if_new("traces", (*CallKey._fields, "trace"))
_START = f"UPDATE calls SET started_at = ? {_OWN}"
_HOLD = f"UPDATE calls SET claims = ? {_OWN}"
_HOLDING = "SELECT session, scope, call_id, owner, parent, queued_at, position, claims FROM "
# Not `owner <> ?2`, which would read all unfinished calls that this owner has in the session.
# Those with the claims of a parallel call are left out by the third value, where only parallel calls ask.
_OTHERS = " UNION ALL ".join(
    f"{_HOLDING} calls WHERE session = ?1 AND owner {other} ?2 AND outcome IS NULL"
    f" AND coalesce(claims, ?3) <> '{NO_CLAIMS}'"
    for other in "<>"
)
_BUNDLED_OTHERS = (
    f"{_HOLDING} bundled_calls WHERE session = ?1 AND owner <> ?2 AND coalesce(claims, ?3) <> '{NO_CLAIMS}'"
)
# With a row without an id for each bundle of others: one statement, where nearly always nothing is found.
_OTHERS_AND_BUNDLES = (
    f"{_OTHERS} UNION ALL SELECT session, scope, NULL, owner, NULL, queued_at, 0, NULL FROM bundles"
    " WHERE session = ?1 AND owner <> ?2"
)
_FINISH = (
    # A finished call needs no authority any more, unless it may be reopened.
    "UPDATE calls SET started_at = coalesce(?, started_at), finished_at = ?2, status = ?3, outcome = ?4,"
    " authority = CASE ?3 WHEN 'connection_required' THEN authority END"
    f" {_OWN}"
)
_IS_FINISHED = f"SELECT 1 FROM calls WHERE {KEY} AND owner = ? AND outcome = ?"
_FORGET = f"DELETE FROM calls {_OWN}"
_IS_KNOWN = f"SELECT 1 FROM calls WHERE {KEY}"
_CLOSE_WAITS = f"UPDATE waits SET open = 0 WHERE {KEY} AND open = 1"
_RELEASE = f"UPDATE calls SET owner = ? {_OWN}"
_IS_RELEASED = f"SELECT 1 FROM calls WHERE {KEY} AND owner = '' AND outcome IS NULL"
_IS_REOPENED = f"SELECT 1 FROM calls WHERE {KEY} AND owner = ? AND outcome IS NULL AND started_at IS NULL"
_HELD = (
    "SELECT 1 FROM processes JOIN workers ON workers.name = processes.worker"
    " WHERE processes.id = ? AND state IN ('running', 'waiting') AND workers.owner = ?"
)
MOST_GIVEN_UP = 10_000
"""How many calls that it forgot or released an owner remembers."""
NOBODY = ""
"""The owner of an unfinished call that was released."""
_outcome = unpacker(ToolOutcome)
_failure = unpacker(Failure)


_of_intent = operator.attrgetter(*OF_INTENT)
_session_of = operator.attrgetter("key.session")
_claims_of = operator.attrgetter("claims")
Bundled = tuple[Row, Bundle]
"""An intent and its bundle."""


Attempt = Callable[[Connection], bool]
"""Tries to write calls; False when nothing was written, since one of them is not as expected."""
Written = Literal["known", "alone", "beside others"]
BeginAttempt = Callable[[Connection], Written]
"""Tries to write intents. "known": nothing was written, since one of the calls is known. "beside others": other owners
have unfinished calls with claims in the session, or had when they died, and no call was marked as started."""


class WholeBatches(Protocol):
    """Statements of a store that write many calls at once. None where the calls are not for them."""

    def begin(self, intents: Sequence[Intent]) -> BeginAttempt | None:
        """Writes the intents of a batch, if none of its calls is known."""
        ...

    def start(self, starts: Sequence[tuple[CallKey, float]]) -> Attempt | None:
        """Writes that the tools of calls begin, if all are unfinished calls of this owner."""
        ...

    def finish(self, ended: Sequence[Ended], blobs: Sequence[bytes]) -> Attempt | None:
        """Writes the outcomes of calls, `blobs`, if all are unfinished calls of this owner."""
        ...


class SqlJournalStore:
    """`JournalStore` in a SQL store.

    The intents of a batch may be written in one row, or by the statements of `whole`, where the store has such.
    """

    def __init__(
        self,
        writer: JobQueue,
        liveness: Liveness,
        owner: str,
        whole: WholeBatches | None = None,
        longest_key: int | None = None,
    ) -> None:
        self._writer = writer
        self._liveness = liveness
        self.owner = owner
        self.longest_key = longest_key
        self._bundles = Bundles()
        self._whole = whole
        self._given_up: dict[CallKey, None] = {}  # used by the thread of the writer alone

    @property
    def bundled(self) -> int:
        """How many calls of this process are in a bundle, and not in rows of their own."""
        return len(self._bundles)

    def begin(self, intents: Sequence[Intent], refused: Sequence[CallKey] = ()) -> Awaitable[Begun]:
        batch = _BatchToBegin(intents, refused, self.owner)
        over = list[Bundle]()
        if batch.run is None:
            over = self._bundles.over()
            if self._whole is None:
                batch.bundle = (
                    Bundle.of([_intent_row(intent, self.owner) for intent in intents], batch.authority)
                    if batch.may_rerun
                    else None
                )
            elif not refused:  # those need to be looked up while no other process writes
                batch.attempt = self._whole.begin(intents)

        def work(connection: Connection) -> Begun:
            remove(connection, over)
            if not refused:
                return self._begin(connection, batch)
            found = _find(connection, list(refused), "every_call", traced=bool(batch.traced))
            begun = self._begin(connection, batch)
            return Begun([*begun, *map(found.get, refused)], begun.others)

        # If the power fails, a call that may simply run again is as good as never begun: its outcome was not told.
        synced = not batch.may_rerun
        if batch.run is not None:
            return self._begin_of_run(batch.run, work, synced)
        job = self._writer.do(work, synced=synced, shared=batch.attempt is not None, ordered=batch.sessions)
        if batch.bundle is not None:
            self._bundles.begin(batch.bundle, [intent.key for intent in intents], job)
        if over:
            self._bundles.put_back(over, job)
        return job

    def _begin(self, connection: Connection, batch: _BatchToBegin) -> Begun:
        """Write the intents. Nearly always none of the calls is there, so they are not looked for first."""
        if self._given_up:
            for intent in batch.intents:
                self._given_up.pop(intent.key, None)
        for session, scope in batch.places():
            untie(connection, session, scope)
        if batch.attempt is not None:
            written = batch.attempt(connection)
            others = [] if written == "alone" else self._others(connection, batch.sessions, batch.are_parallel)
            are_new = written != "known"
            if written == "beside others" and not others:
                # They are dead, or have ended since: this owner is told of none, and takes the calls for marked.
                batch.mark_starts(connection)
        else:
            others = self._others(connection, batch.sessions, batch.are_parallel)
            are_new = batch.write_if_new(connection, others)
        if not are_new:
            return self._begin_known(connection, batch, others)
        connection.executemany(_TRACE, batch.traced)
        return Begun([None] * len(batch.intents), others)

    def _begin_known(self, connection: Connection, batch: _BatchToBegin, others: Sequence[Holder]) -> Begun:
        """Take over the unfinished calls that the store knows, and write the new ones; do neither while a living owner
        has one of them."""
        intents = batch.intents
        known = _find(connection, [intent.key for intent in intents], traced=bool(batch.traced))
        unfinished = {key: entry for key, entry in known.items() if entry.outcome is None}
        owners = {entry.owner for entry in unfinished.values()} - {self.owner}
        dead = self._liveness.dead_among(owners, connection)
        if dead == owners:
            crashes = CrashCounter(connection, intents[0].queued_at if intents else 0.0)
            may_rerun = {intent.key for intent in intents if intent.rerun}
            for key, entry in unfinished.items():
                left = entry.owner in dead
                crashed = left and entry.owner != NOBODY
                known[key] = replace(
                    entry,
                    owner=self.owner,
                    cut_off=left,
                    pending=_is_pending(connection, key),
                    crashes=crashes.count(entry, crashed=crashed, may_rerun=key in may_rerun),
                )
            connection.executemany(_TAKE_OVER, [(self.owner, *key) for key in unfinished])
            new = [intent for intent in intents if intent.key not in known]
            batch.write(connection, new, others)
            # Of a call whose first execution was not traced, the one that continues it is.
            begun = {*unfinished, *(intent.key for intent in new)}
            connection.executemany(_TRACE, [row for row in batch.traced if row[:3] in begun])
        return Begun(map(known.get, [intent.key for intent in intents]), others)

    def hold(self, claims: Sequence[tuple[CallKey, str]]) -> Awaitable[list[Holder]]:
        sessions, held = {key.session for key, _ in claims}, dict(claims)
        bundles = self._bundles.of(held)

        def work(connection: Connection) -> list[Holder]:
            others = self._others(connection, sessions)
            there = {bundle for bundle in set(bundles) if bundle is not None and bundle.is_there(connection)}
            for bundle in there:
                bundle.hold(connection, held)
            alone = [key for key, bundle in zip(held, bundles, strict=True) if bundle not in there]
            for session, scope in _places(alone):
                untie(connection, session, scope)
            connection.executemany(_HOLD, [(held[key], *key, self.owner) for key in alone])
            return others

        return self._writer.do(work, synced=False, shared=True, ordered=sessions)

    def holders(self, sessions: Collection[str]) -> Awaitable[list[Holder]]:
        wanted = frozenset(sessions)
        return self._writer.read(lambda connection: self._others(connection, wanted))

    def _others(self, connection: Connection, sessions: Collection[str], are_parallel: bool = False) -> list[Holder]:
        """The calls of other owners that live, with claims in these sessions; nearly always none.

        Where those who ask `are_parallel`, without the parallel ones.
        """
        found: list[Holder] = []
        for session in sessions:
            asked = (session, self.owner, NO_CLAIMS if are_parallel else "")
            query = _OTHERS_AND_BUNDLES if connection.has_bundles else _OTHERS
            rows: list[Any] = connection.execute(query, asked).fetchall()
            if rows and rows[-1][2] is None:
                rows = [row for row in rows if row[2] is not None]
                rows += connection.execute(_BUNDLED_OTHERS, asked)
            found += [Holder(CallKey._make(row[:3]), *row[3:]) for row in rows]
        if found:
            dead = self._liveness.dead_among({holder.owner for holder in found}, connection)
            found = [holder for holder in found if holder.owner not in dead]
        return found

    async def _begin_of_run(self, id: str, work: Callable[[Connection], Begun], synced: bool) -> Begun:
        """Begin calls of a run while a worker of this owner holds it: a worker that was frozen begins nothing more."""

        def held(connection: Connection) -> Begun | None:
            return work(connection) if one(connection, _HELD, (id, self.owner)) is not None else None

        begun = await self._writer.do(held, synced=synced)
        if begun is None:
            raise StoreError(f"This worker no longer holds the run {id!r}, and begins no call")
        return begun

    def _require_held(self, connection: Connection, scopes: Iterable[str]) -> None:
        """Refuse to write for runs that no worker of this owner holds any more.

        Raises:
            StoreError: one of these scopes belongs to such a run.
        """
        for scope in scopes:
            id = scope.removeprefix(RUN_SCOPE)
            if id != scope and one(connection, _HELD, (id, self.owner)) is None:
                raise StoreError(f"This worker no longer holds the run {id!r}, and its calls are not written")

    def start(self, key: CallKey, started_at: float) -> Awaitable[bool]:
        values = (started_at, *key, self.owner)

        def work(connection: Connection) -> bool:
            changed = _change(key, _START, values, connection)
            if changed:
                note_call(connection, "call.started", key, started_at)
            return changed

        return self._writer.do(work, shared=True)

    def start_all(self, starts: Sequence[tuple[CallKey, float]]) -> Awaitable[None]:
        rows = [(started_at, *key, self.owner) for key, started_at in starts]

        def change(connection: Connection) -> bool:
            before = connection.total_changes()
            connection.executemany(_START, rows)  # no trigger stands on the table: each change is a call
            return connection.total_changes() - before == len(rows)

        attempt = None if self._whole is None else self._whole.start(starts)

        def work(connection: Connection) -> None:
            if attempt is not None and attempt(connection):
                return
            if not change(connection):
                for session, scope in _places(key for key, _ in starts):
                    untie(connection, session, scope)
                if not change(connection):
                    raise StoreError(NOT_ALL)
            _note_starts(connection, starts)

        return self._writer.do(work, shared=attempt is not None)

    def finish(
        self, key: CallKey, outcome: ToolOutcome, started_at: float | None, finished_at: float
    ) -> Awaitable[bool]:
        (blob,) = _packed([outcome])
        values = (started_at, finished_at, outcome.status, blob, *key, self.owner)
        self._bundles.take([key])

        def work(connection: Connection) -> bool:
            if not _change(key, _FINISH, values, connection):
                return one(connection, _IS_FINISHED, (*key, self.owner, blob)) is not None
            connection.execute(_CLOSE_WAITS, key)
            note_call(connection, "call.finished", key, finished_at)
            return True

        return self._writer.do(work, shared=True)

    def finish_all(self, ended: Sequence[Ended]) -> Awaitable[None]:
        blobs = _packed([end.outcome for end in ended])
        ends = [
            (end.started_at, end.finished_at, end.outcome.status, blob) for end, blob in zip(ended, blobs, strict=True)
        ]
        taken = self._bundles.take(end.key for end in ended)
        refused = [
            (*_intent_row(end.intent, self.owner), *values)
            for end, values in zip(ended, ends, strict=True)
            if end.intent is not None
        ]
        traced = [(*end.key, end.intent.trace) for end in ended if end.intent is not None and end.intent.trace]

        attempt = None if self._whole is None else self._whole.finish(ended, blobs)

        def work(connection: Connection) -> None:
            if attempt is not None and attempt(connection):
                connection.executemany(_CLOSE_WAITS, [end.key for end in ended if end.waited])
                return
            if refused:
                # They have no intent of this owner, so the lease of their run names the owner.
                self._require_held(connection, {end.key.scope for end in ended if end.intent is not None})
                connection.executemany(_REFUSE, refused)
                connection.executemany(_TRACE, traced)
            bundles = {bundled[1] for bundled in taken if bundled is not None}
            there = {bundle for bundle in bundles if bundle.is_there(connection)}
            begun, others, keys = list[Row](), list[Row](), list[CallKey]()
            for end, values, bundled in zip(ended, ends, taken, strict=True):
                if end.intent is not None:
                    continue
                if bundled is not None and bundled[1] in there:
                    reopens = end.outcome.status == "connection_required"
                    begun.append((*bundled[0], *values, bundled[1].authority if reopens else None))
                else:
                    others.append((*values, *end.key, self.owner))
                    keys.append(end.key)
            connection.executemany(_WRITE, begun)
            finished = [end.key for end in ended]
            if others:
                for session, scope in _places(keys):
                    untie(connection, session, scope)
                before = connection.total_changes()
                connection.executemany(_FINISH, others)  # no trigger stands on the table: each change is a call
                if connection.total_changes() - before != len(others):
                    self._require_finished(connection, others)
                    finished = [key for key in finished if key not in keys]  # the others had ended before
            if finished:
                note_calls(connection, "call.finished", finished, ended[0].finished_at)
            connection.executemany(_CLOSE_WAITS, [end.key for end in ended if end.waited])

        job = self._writer.do(work, synced=not all(end.rerun for end in ended), shared=attempt is not None)
        if any(taken):
            self._bundles.end(taken, job)
        return job

    def _require_finished(self, connection: Connection, ends: Iterable[Row]) -> None:
        """Refuse the values of `_FINISH` where their call did not get the outcome, now or before.

        Raises:
            StoreError: one did not.
        """
        for _, _, _, blob, *own in ends:
            if one(connection, _IS_FINISHED, (*own, blob)) is None:
                raise StoreError(NOT_ALL)

    def forget(self, key: CallKey) -> Awaitable[bool]:
        self._bundles.take([key])

        def work(connection: Connection) -> bool:
            if not _change(key, _FORGET, (*key, self.owner), connection):
                return key in self._given_up and one(connection, _IS_KNOWN, key) is None
            self._give_up(key)
            note_call(connection, "call.forgotten", key)
            for table in ("effects", "crashes", "waits", "signals", "traces"):
                # A run may be sent signals before its call begins: they are not forgotten with the call.
                if table != "signals" or not key.scope.startswith(RUN_SCOPE):
                    connection.execute(f"DELETE FROM {table} WHERE {KEY}", key)
            return True

        return self._writer.do(work)

    async def reopen(self, key: CallKey) -> bool:
        statement = (
            "UPDATE calls SET outcome = NULL, status = NULL, started_at = NULL, finished_at = NULL, owner = ?,"
            f" claims = '{NO_CLAIMS}' WHERE {KEY} AND status = 'connection_required'"
        )

        def work(connection: Connection) -> bool:
            untie(connection, key.session, key.scope)
            connection.execute(statement, (self.owner, *key))
            if connection.changes() == 1:
                note_call(connection, "call.reopened", key)
                return True
            return one(connection, _IS_REOPENED, (*key, self.owner)) is not None

        return await self._writer.do(work)

    def release(self, key: CallKey) -> Awaitable[bool]:
        self._bundles.take([key])

        def work(connection: Connection) -> bool:
            if not _change(key, _RELEASE, (NOBODY, *key, self.owner), connection):
                return key in self._given_up and one(connection, _IS_RELEASED, key) is not None
            self._give_up(key)
            note_call(connection, "call.released", key)
            return True

        return self._writer.do(work)

    def _give_up(self, key: CallKey) -> None:
        """Note that this owner forgot or released a call: where it repeats that, it is told the same."""
        self._given_up[key] = None
        if len(self._given_up) > MOST_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    async def unfinished(self, session: str | None = None) -> list[Entry]:
        # The plus prevents SQLite from reading all calls of the session, most of which are finished.
        only, values = ("", ()) if session is None else ("AND +session = ?", (session,))
        query = (
            f"SELECT {_COLUMNS} FROM every_call WHERE outcome IS NULL {only}"
            " ORDER BY queued_at, position, session, scope, call_id"
        )

        def work(connection: Connection) -> list[Entry]:
            entries = [_entry(row) for row in map(CallRow._make, connection.execute(query, values))]
            dead = self._liveness.dead_among({entry.owner for entry in entries} - {self.owner}, connection)
            return [entry for entry in entries if entry.owner in dead]

        return await self._writer.read(work)

    async def close(self) -> None:
        """Remove bundles that mean nothing any more; the store is still open."""
        over = self._bundles.over()
        if over:
            job = self._writer.do(lambda connection: remove(connection, over), synced=False)
            self._bundles.put_back(over, job)
            with contextlib.suppress(StoreError):
                await job

    def effects(self, key: CallKey) -> Awaitable[list[Kept]]:
        query = f"SELECT {columns_of(EffectRow)} FROM effects WHERE {KEY}"

        def work(connection: Connection) -> list[Kept]:
            return [_kept(row) for row in map(EffectRow._make, connection.execute(query, key))]

        return self._writer.read(work)

    def keep(self, key: CallKey, kept: Kept) -> Awaitable[bool]:
        values = _effect_row(key, kept)

        def work(connection: Connection) -> bool:
            if not is_mine(connection, self.owner, key):
                return False
            connection.execute(_KEEP, values)
            return True

        return self._writer.do(work, shared=True)

    def keep_all(self, effects: Sequence[tuple[CallKey, Kept]]) -> Awaitable[None]:
        rows = [_effect_row(key, kept) for key, kept in effects]
        bundles = self._bundles.of(key for key, _ in effects)

        def work(connection: Connection) -> None:
            # A bundle that is there has unfinished calls of this owner, whose effects need no rows of their calls.
            there = {bundle for bundle in set(bundles) if bundle is not None and bundle.is_there(connection)}
            others = [key for (key, _), bundle in zip(effects, bundles, strict=True) if bundle not in there]
            if not all(is_mine(connection, self.owner, key) for key in others):
                raise StoreError(NOT_ALL)
            connection.executemany(_KEEP, rows)

        return self._writer.do(work)


# --- intents, and the bundles that hold many of them


def _intent_row(intent: Intent, owner: str) -> Row:
    """The values of `INTENT_COLUMNS` for a call of an owner."""
    return (*intent.key, *_of_intent(intent), owner)


class _BatchToBegin:
    """The intents of a batch, as they are written. All of its calls have one scope and one authority."""

    __slots__ = (
        "are_parallel",
        "attempt",
        "authority",
        "bundle",
        "intents",
        "may_rerun",
        "owner",
        "run",
        "sessions",
        "traced",
    )

    def __init__(self, intents: Sequence[Intent], refused: Sequence[CallKey], owner: str) -> None:
        self.intents = intents
        self.owner = owner
        scope = intents[0].key.scope if intents else refused[0].scope if refused else ""
        self.run = scope.removeprefix(RUN_SCOPE) if scope.startswith(RUN_SCOPE) else None
        """The id of the background run that the calls belong to."""
        self.authority = intents[0].authority if intents else None
        self.traced = [(*intent.key, intent.trace) for intent in intents if intent.trace is not None]
        self.sessions = set(map(_session_of, intents)) if self.run is None else set[str]()
        """The sessions in whose order the calls stand; those of a run stand in none."""
        self.may_rerun = all(intent.rerun for intent in intents)
        self.are_parallel = not any(map(_claims_of, intents))
        self.bundle: Bundle | None = None
        self.attempt: BeginAttempt | None = None

    def places(self) -> Iterable[tuple[str, str]]:
        """The sessions and scopes of the calls."""
        return _places(intent.key for intent in self.intents) if self.bundle is None else (self.bundle.place,)

    def write_if_new(self, connection: Connection, others: Sequence[Holder]) -> bool:
        """Write the intents, in one row or in a row for each; False when one of the calls is known."""
        if self.bundle is not None and self.bundle.tie(connection):
            note_batch(connection, self.intents)
            return True
        try:
            with connection:  # a savepoint
                self.write(connection, self.intents, others)
        except connection.conflict:
            return False
        return True

    def mark_starts(self, connection: Connection) -> None:
        """Mark the calls as started that start with their intents, which are written without that."""
        starts = [(intent.key, intent.starts_at) for intent in self.intents if intent.starts_at is not None]
        connection.executemany(_START, [(at, *key, self.owner) for key, at in starts])
        _note_starts(connection, starts)

    def write(self, connection: Connection, intents: Sequence[Intent], others: Sequence[Holder]) -> None:
        """Write some of the intents in a row for each. None of the calls starts while others may be before it."""
        starts = [None if others else intent.starts_at for intent in intents]
        # One after the other: the rows of a very large batch would take more memory than its intents.
        rows = map(_intent_row, intents, itertools.repeat(self.owner))
        connection.executemany(_BEGIN, ((*row, at) for row, at in zip(rows, starts, strict=True)))
        note_batch(connection, intents)
        _note_starts(connection, [(one.key, at) for one, at in zip(intents, starts, strict=True) if at is not None])
        if self.authority is not None:
            connection.executemany(_RESTRICT, [(self.authority, *intent.key) for intent in intents])


class Bundles:
    """The bundles of this process, and which calls are in them: everything here may be forgotten without harm.

    A call that is found here is written with its outcome at once. For any other, its bundle is untied first, if it is
    in one: its bundle could not be written, or an outcome could not, or its caller did not wait for it.
    """

    def __init__(self) -> None:
        self._of: dict[CallKey, Bundled] = {}
        self._over: list[Bundle] = []

    def __len__(self) -> int:
        return len(self._of)

    def begin(self, bundle: Bundle, keys: Sequence[CallKey], job: asyncio.Future[Any]) -> None:
        """Take in a bundle that `job` writes, unless it finds that it must not."""
        self._of.update(zip(keys, zip(bundle.rows, itertools.repeat(bundle)), strict=True))

        def done(job: asyncio.Future[Any]) -> None:
            if not _succeeded(job) or not bundle.tied:
                for key in keys:
                    if key in self._of and self._of[key][1] is bundle:
                        del self._of[key]

        job.add_done_callback(done)

    def of(self, keys: Iterable[CallKey]) -> list[Bundle | None]:
        """The bundle that each of these calls is in, as far as is known here."""
        return [None if (bundled := self._of.get(key)) is None else bundled[1] for key in keys]

    def take(self, keys: Iterable[CallKey]) -> list[Bundled | None]:
        """Forget calls that are about to be written; the intent of each that was here, with its bundle."""
        return [self._of.pop(key, None) for key in keys]

    def end(self, taken: Sequence[Bundled | None], job: asyncio.Future[None]) -> None:
        """Count the calls that were taken as ended, when `job` has written their outcomes."""

        def done(job: asyncio.Future[None]) -> None:
            if _succeeded(job):
                for _, bundle in filter(None, taken):
                    bundle.left -= 1
                    if not bundle.left:
                        self._over.append(bundle)

        job.add_done_callback(done)

    def over(self) -> list[Bundle]:
        """The bundles whose calls have all ended, each once."""
        over, self._over = self._over, []
        return over

    def put_back(self, over: list[Bundle], job: asyncio.Future[Any]) -> None:
        """Give them out once more, if `job` fails to remove them."""

        def done(job: asyncio.Future[Any]) -> None:
            if not _succeeded(job):
                self._over += over

        job.add_done_callback(done)


def _succeeded(job: asyncio.Future[Any]) -> bool:
    return not job.cancelled() and job.exception() is None


# --- rows


def _note_starts(connection: Connection, starts: Sequence[tuple[CallKey, float]]) -> None:
    if starts:
        note_calls(connection, "call.started", [key for key, _ in starts], starts[0][1])


def _change(key: CallKey, statement: str, values: tuple[Any, ...], connection: Connection) -> bool:
    """Change a call of this process; False when it is not there."""
    untie(connection, key.session, key.scope)
    connection.execute(statement, values)
    return connection.changes() == 1


def _places(keys: Iterable[CallKey]) -> set[tuple[str, str]]:
    """The sessions and scopes of calls, in which there may be a bundle."""
    return {(key.session, key.scope) for key in keys}


def _packed(outcomes: Iterable[ToolOutcome]) -> list[bytes]:
    plain = [one if one.cached_value is UNSET else replace(one, cached_value=UNSET) for one in outcomes]
    try:
        return list(map(encode, plain))
    except (UnicodeEncodeError, OverflowError):
        return list(map(packed, plain))


def _find(
    connection: Connection, keys: list[CallKey], among: str = "calls", *, traced: bool = False
) -> dict[CallKey, Entry]:
    """The calls among these that are there; with the traces of their first executions, if `traced`."""
    ids: dict[tuple[str, str], list[str]] = {}  # nearly always of one session and scope
    for session, scope, call_id in keys:
        ids.setdefault((session, scope), []).append(call_id)
    found: dict[CallKey, Entry] = {}
    for (session, scope), wanted in ids.items():
        listed, values = "SELECT value FROM json_each(?)", [json.dumps(wanted)]
        if "\\u0000" in values[0]:  # from JSON, not every SQLite reads the character 0
            listed, values = ", ".join("?" * len(wanted)), wanted
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM {among} WHERE session = ? AND scope = ? AND call_id IN ({listed})",
            (session, scope, *values),
        )
        found.update((entry.intent.key, entry) for entry in map(_entry, map(CallRow._make, rows)))
    if traced:
        for key, entry in found.items():
            trace = one(connection, f"SELECT trace FROM traces WHERE {KEY}", key)
            found[key] = replace(entry, intent=replace(entry.intent, trace=trace))
    return found


def _is_pending(connection: Connection, key: CallKey) -> bool:
    query = f"SELECT 1 FROM waits WHERE {KEY} AND kind = 'completion' AND name = '' AND opened_at IS NOT NULL"
    return one(connection, query, key) is not None or completion_came(connection, key)


def _entry(row: CallRow) -> Entry:
    intent = Intent(
        key=CallKey(row.session, row.scope, row.call_id),
        batch=row.batch,
        position=row.position,
        tool=row.tool,
        tool_id=row.tool_id,
        arguments=row.arguments,
        source=row.source,
        parent=row.parent,
        queued_at=row.queued_at,
        authority=row.authority,
    )
    outcome = None if row.outcome is None else _outcome(row.outcome)
    return Entry(intent, row.owner, outcome, started_at=row.started_at, finished_at=row.finished_at)


class EffectRow(NamedTuple):
    """An effect as it is read."""

    label: str
    input: bytes
    at: float
    done: int
    payload: bytes
    failure: bytes | None


def _effect_row(key: CallKey, kept: Kept) -> Row:
    failure = None if kept.failure is None else packed(kept.failure)
    return (*key, kept.label, kept.input, kept.at, kept.done, kept.payload, failure)


def _kept(row: EffectRow) -> Kept:
    failure = None if row.failure is None else _failure(row.failure)
    return Kept(row.label, row.input, row.at, bool(row.done), row.payload, failure)
