"""The journal over a store. Owns the state of a call with a past: fresh, finished, running, or cut off.

Intent before effect: a batch's intents are one commit, before any of its tools runs. Outcome before answer: a call's
outcome is committed before its caller sees it, and before a call that had to wait for it begins: not later than the
start of that call, in the same commit where they come together. A fault of the store is raised in the task that awaits
the batch, and never becomes an outcome.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from toolwright.calls.active_call import NEW, OVER, STARTED, ActiveCall, OwnerBatch, Past, identity
from toolwright.calls.conclude import lose
from toolwright.calls.journal.crash_policy import recover
from toolwright.calls.journal.elsewhere import Elsewhere
from toolwright.calls.journal.replay import require_same
from toolwright.calls.journal_contract import Concluded, Entered, Started
from toolwright.calls.redact import written_arguments
from toolwright.calls.schedule.written_claims import write_claims, write_entry
from toolwright.calls.suspend.connection_wait import restore_connections
from toolwright.clock import Clock, Timer
from toolwright.effects.store_news import StoreNews
from toolwright.errors import StoreError
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import (
    NO_CLAIMS,
    RUN_SCOPE,
    Begun,
    CallKey,
    Ended,
    Entry,
    Holder,
    Intent,
    JournalStore,
)
from toolwright.stores.contracts.turns import TURN_SCOPE
from toolwright.tools.claims import PARALLEL
from toolwright.tools.outcome import Failure, ToolOutcome

log = logging.getLogger("toolwright.calls")

LONGEST_LOOK = 5.0
"""Seconds between two looks at a call that runs in another process, where the store tells nothing of it."""
LOST_LOOK = 0.05
"""Seconds between two looks at an execution in this process that was taken over by another, and stops."""
RETRY = 1.0
"""Seconds between two attempts to release calls that could not be released."""
_MOST_OF_CHARACTER = 4
"""The most bytes of one character in a key."""
Then = Concluded[ActiveCall]


_key = functools.partial(tuple.__new__, CallKey)
"""As `CallKey._make`, in a third of its time: there is one for each call of a batch."""


class StoreJournal:
    """The journal of a runtime, in a store that outlives the process."""

    def __init__(self, store: JournalStore, clock: Clock, news: StoreNews) -> None:
        self._store = store
        self._clock = clock
        self._news = news
        self._live: dict[CallKey, ActiveCall] = {}
        self._beginning: dict[CallKey, list[Intent]] = {}  # the calls that are being begun, each with its batch
        self._unreleased = _Unreleased(store, clock, self._live, self._is_beginning)
        self._order = _Order()
        self._elsewhere = Elsewhere(store, news, self._live.values)
        self._next_entry = itertools.count(1).__next__
        self._tick = _TickWriter(store, clock, self._finish_alone, self._written_outcome)
        self._closing = False

    async def admit(self, calls: Sequence[ActiveCall]) -> None:
        """Write the intents of a batch's calls in one commit, and compare each with its past."""
        owner, now = calls[0].owner, self._clock.now()
        session, scope, batch = calls[0].env.session_id, owner.scope, owner.id
        # The authority of a run is stored with the run.
        under = None if scope.startswith(RUN_SCOPE) else owner.context.written_authority
        if (most := self._store.longest_key) is not None:
            _refuse_long_keys(calls, session, scope, most)
        waiting = [call for call in calls if call.outcome is None and call.tool is not None]
        refused: Sequence[ActiveCall] = ()
        if len(waiting) < len(calls):
            # The call of a background run itself is decided by the end of the run, and may run when that is reopened.
            is_run = scope.startswith(RUN_SCOPE) and owner.depth == 0
            refused = [call for call in calls if call.outcome is not None and not call.repeated and not is_run]
        if not waiting and not refused:
            return
        in_order = not scope.startswith(RUN_SCOPE)  # calls of a run have an order of their own
        # The keys first, beside each other: they stay, and the memory of the intents can be given back as a whole.
        keys = [_key((session, scope, call.call_id)) for call in waiting]
        intents = [_intent(call, key, batch, now, under, in_order) for call, key in zip(waiting, keys, strict=True)]
        refusals = [_intent(call, _key((session, scope, call.call_id)), batch, now) for call in refused]
        unmet, left, bell = waiting, intents, None
        with ExitStack() as bells:
            while True:
                unmet, left, is_lost = await self._meet_live(unmet, left)
                if not is_lost and ((not unmet and not refused) or await self._written(unmet, left, refused, refusals)):
                    break
                left = _out_of_order(owner, waiting, left)
                if bell is None:
                    bell = bells.enter_context(self._news.bell())
                else:
                    await bell.wait(LOST_LOOK if is_lost else LONGEST_LOOK)
        for call, intent in zip(waiting, intents, strict=True):
            if call.outcome is not None and call.outcome.status == "connection_required":
                await self._run_again(call, intent.key, call.outcome)
            if call.past is not None and call.past.recovered == "left":
                await recover(call, call.past, intent.key, self._store)
        for call in waiting:
            if call.phase in OVER and call.key is not None and not call.handed_over:  # cancelled before it had its key
                job = asyncio.ensure_future(self._take_back(call))
                # When it is done, and no earlier: an earlier answer of the store may be that it belongs to this
                # process.
                job.add_done_callback(functools.partial(self._drop, call))
                try:
                    await job
                except StoreError:
                    self._unreleased.add(call.key)
                    raise
                for sharer in call.sharers:
                    if not sharer.concluded:
                        sharer.owner.start_over(sharer)

    async def _run_again(self, call: ActiveCall, key: CallKey, before: ToolOutcome) -> None:
        """Let a call that ended because a connection was missing run once more, if there is one now."""
        if before.provider is None or await call.env.connected_since(before.provider) is None:
            return
        call.outcome = None
        other = self._live.get(key)
        if other is not None:
            call.shares = other
            other.sharers = (*other.sharers, call)
            return
        # Before the store answers: another run of this call in the meantime shares it.
        call.key, call.past, self._live[key] = key, Past("again", before=before), call
        if await self._store.reopen(key):
            restore_connections(call, await self._store.effects(key))
            return
        # Another process was faster: its work stands.
        self._drop(call)
        call.key = call.past = None
        sharers, call.sharers = call.sharers, ()
        for sharer in sharers:
            sharer.owner.start_over(sharer)
        await self.admit([call])

    async def _meet_live(
        self, waiting: list[ActiveCall], intents: list[Intent]
    ) -> tuple[list[ActiveCall], list[Intent], bool]:
        """Let calls that run here meet that execution, and return the others, which are to be begun.

        They are only looked up, and never begun again: an execution that was taken over by another process would own
        its call once more, and what it writes would be taken for that of the call's present execution. It is stopped;
        the last part of the result is then True, and the call is to be begun when that execution has ended.
        """
        is_lost = False
        while not is_lost and (here := [intent.key for intent in intents if self._is_live(intent.key)]):
            # While it waits for the answer, others could begin after it here, and before it in the store.
            intents = _out_of_order(waiting[0].owner, waiting, intents)
            entries = dict(zip(here, await self._store.begin((), here), strict=True))
            unmet: list[tuple[ActiveCall, Intent]] = []
            for call, intent in zip(waiting, intents, strict=True):
                entry, running = entries.get(intent.key), self._live.get(intent.key)
                if entry is not None:
                    before = entry.intent
                    require_same(call, before.tool, before.tool_id, before.arguments)
                    is_own = entry.owner == self._store.owner and running is not None
                    if entry.outcome is not None or is_own:
                        self._claim(call, intent.key, entry)
                        continue
                if intent.key in entries and running is not None:
                    is_lost = True
                    if running.phase is not NEW and not running.handed_over:
                        lose(running, _taken_over(running))
                unmet.append((call, intent))
            waiting, intents = [call for call, _ in unmet], [intent for _, intent in unmet]
            # A store in memory answers at once, before the execution that is just being begun could go on.
            await asyncio.sleep(0)
        return waiting, intents, is_lost

    async def _written(
        self, waiting: list[ActiveCall], intents: list[Intent], refused: Sequence[ActiveCall], refusals: list[Intent]
    ) -> bool:
        """Write the intents and let each call meet its past; False while another process runs one of them."""
        for intent in intents:
            self._beginning[intent.key] = intents
        begun = self._store.begin(intents, [one.key for one in refusals]) if refusals else self._store.begin(intents)
        job = asyncio.ensure_future(begun)
        # When it is done, and no later: the next answer of the store may be that one of these calls is finished.
        job.add_done_callback(functools.partial(self._meet, waiting, intents))
        stopped: asyncio.CancelledError | None = None
        while not job.done():
            # A written intent must be known here, or it could not be taken back: stopping waits for it.
            try:
                await asyncio.shield(job)
            except asyncio.CancelledError as error:
                stopped = error
            except Exception:
                break
        entries = job.result()[: len(waiting)]
        if refusals:
            self._meet_refused(refused, refusals, job.result()[len(waiting) :])
        if any(entries):  # else none has a past, as nearly always
            for call, entry in zip(waiting, entries, strict=True):
                if entry is not None:
                    before = entry.intent
                    require_same(call, before.tool, before.tool_id, before.arguments)
        if stopped is not None:
            raise stopped
        return not self._run_elsewhere(entries)

    def _meet(self, waiting: list[ActiveCall], intents: list[Intent], job: asyncio.Future[Begun]) -> None:
        for intent in intents:
            if self._beginning.get(intent.key) is intents:
                del self._beginning[intent.key]
        if not self._beginning:
            self._beginning = {}  # An empty dict keeps the memory of its fullest time.
        if job.cancelled() or job.exception() is not None:
            # It may have been written after all, and say of some that they started.
            for intent in intents:
                self._unreleased.add(intent.key, intent)
            return
        begun = job.result()
        entries = begun[: len(waiting)]
        if not self._run_elsewhere(entries):
            if begun.others:
                self._elsewhere.meet([call for call in waiting if call.ticket is not None], begun.others)
            for call, intent, entry in zip(waiting, intents, entries, strict=True):
                if entry is None:
                    call.key = key = intent.key
                    self._live[key] = call
                    if intent.starts_at is not None and not begun.others:
                        call.start_written = True
                else:
                    self._claim(call, intent.key, entry)

    def _meet_refused(
        self, refused: Sequence[ActiveCall], refusals: Sequence[Intent], entries: Sequence[Entry | None]
    ) -> None:
        """Let calls that cannot run meet their past: an outcome that was told stands, and so will this one."""
        for call, intent, entry in zip(refused, refusals, entries, strict=True):
            if entry is None:
                call.key, call.refused = intent.key, intent
                continue
            before = entry.intent
            require_same(call, before.tool, before.tool_id, before.arguments)
            if entry.outcome is not None:
                call.outcome = replace(entry.outcome, replayed=True)
                _link(call, entry)
            elif entry.started_at is not None and call.outcome is not None:
                # It is unfinished: a process that can run it decides how it continues.
                call.outcome = _in_doubt(call.outcome)

    def _run_elsewhere(self, entries: list[Entry | None]) -> bool:
        """True when another process runs one of the calls."""
        known = filter(None, entries)
        return any(entry.outcome is None and entry.owner != self._store.owner for entry in known)

    def _claim(self, call: ActiveCall, key: CallKey, entry: Entry) -> None:
        """Decide which execution a call with a past belongs to: this one, or another that has or will have the
        outcome."""
        call.owner.leave_queue((call,))  # at once: a call that it shares may end before the batch continues
        other = self._live.get(key)
        if entry.outcome is not None:
            call.outcome = replace(entry.outcome, replayed=True)
            _link(call, entry)
        elif other is not None:
            call.shares = other
            other.sharers = (*other.sharers, call)
            if call.span is not None and other.span is not None:
                call.span.link(other.span.mark, "shared")
        else:
            _link(call, entry)
            call.key = key
            self._live[key] = call
            # What another process wrote since is true.
            never_began = not entry.cut_off and self._unreleased.never_began(entry)
            began = None if never_began else entry.started_at
            call.past = Past("left", began, entry.pending, entry.crashes, key_out=True)

    def _drop(self, call: ActiveCall, _: object = None) -> None:
        if call.key is not None and self._live.get(call.key) is call:
            del self._live[call.key]

    @property
    def lasting(self) -> bool:
        return True

    def leave(self, call: ActiveCall) -> None:
        self._drop(call)

    def uses_effects(self, key: CallKey) -> None:
        pass  # The store has the intent of the call, and that is enough.

    def forget_finished(self) -> None:
        pass  # Calls are in the store, which is asked to forget them.

    def is_known(self, call: ActiveCall) -> bool:
        return call.key is not None or call.shares is not None

    def started(self, call: ActiveCall, then: Started[ActiveCall]) -> bool:
        before = self._order.ending(call)
        if not _needs_start(call):
            if not before:
                return True
            self._order.when_recorded(before, functools.partial(then, call, None))
            return False
        if before:

            def then_in_order(call: ActiveCall, fault: Exception | None) -> None:
                self._order.when_recorded(before, functools.partial(then, call, fault))

            self._tick.add_start(call, then_in_order)
        else:
            self._tick.add_start(call, then)
        return False

    def enter_order(self, calls: Sequence[ActiveCall], then: Entered[ActiveCall]) -> None:
        entered, now, claims = list(calls), self._clock.now(), list[tuple[CallKey, str]]()
        for call in entered:
            assert call.ticket is not None
            claims.append((identity(call), write_entry(call.ticket, self._next_entry(), now)))

        def done(job: asyncio.Future[list[Holder]]) -> None:
            fault: BaseException | None = StoreError("The journal was closed before it could write the claims of calls")
            if not job.cancelled():
                fault = job.exception()
            if fault is None:
                self._elsewhere.meet(entered, job.result())
            for call in entered:
                then(call, fault if isinstance(fault, Exception) else None)

        asyncio.ensure_future(self._store.hold(claims)).add_done_callback(done)

    def wait_elsewhere(self, call: ActiveCall, free: Callable[[], None]) -> None:
        self._elsewhere.wait(call, free)

    def concluded(self, call: ActiveCall, outcome: ToolOutcome, then: Concluded[ActiveCall]) -> bool:
        if call.key is None:
            return True
        self._finish(call, outcome, then)
        return False

    def _finish(self, call: ActiveCall, outcome: ToolOutcome, then: Then) -> None:
        assert call.key is not None
        call.handed_over = True
        self._order.ends(call)
        if outcome.status != "cancelled" and call.fault is None:
            self._tick.add_outcome(call, outcome, then)
            return
        job: Awaitable[bool]
        if not self.will_record(call, outcome):
            # Cut off by the end of the program or by a fault, as by a crash: its crash policy decides, the next time.
            job = self._store.release(call.key)
        elif outcome.may_have_run and call.ran:
            self._finish_alone(call, outcome, then)
            return
        else:
            job = self._take_back(call)
        self._when_done(call, job, functools.partial(self._committed, call, outcome, then))

    def will_record(self, call: ActiveCall, outcome: ToolOutcome) -> bool:
        left = call.asked or call.waiting or call.ran
        stopped = self._closing or call.owner.fault is not None
        return call.fault is None and not (stopped and outcome.status == "cancelled" and left)

    def _finish_alone(self, call: ActiveCall, outcome: ToolOutcome, then: Then) -> None:
        job: Awaitable[bool]
        try:
            if call.refused is not None:
                job = self._refuse_alone(call, call.refused, outcome)
            else:
                job = self._store.finish(identity(call), outcome, call.record.started_at, self._clock.now())
        except Exception as error:  # from a value that a tool put into its outcome
            told = StoreError(
                f"The outcome of call {call.call_id!r} cannot be written: {type(error).__name__}: {error}"
            )
            job = asyncio.get_running_loop().create_future()
            job.set_exception(told)
        self._when_done(call, job, functools.partial(self._committed, call, outcome, then))

    async def _refuse_alone(self, call: ActiveCall, intent: Intent, outcome: ToolOutcome) -> bool:
        await self._store.finish_all([Ended(intent.key, outcome, None, self._clock.now(), intent=intent)])
        return True

    def _committed(self, call: ActiveCall, outcome: ToolOutcome, then: Then, fault: Exception | None) -> None:
        self._drop(call)
        if fault is not None and call.key is not None:
            self._unreleased.add(call.key)
        then(call, outcome, fault)
        self._order.recorded(call)  # last: a fault stops the calls that follow

    def _written_outcome(self, call: ActiveCall, outcome: ToolOutcome, then: Then) -> None:
        self._committed(call, outcome, then, None)

    def _take_back(self, call: ActiveCall) -> Awaitable[bool]:
        """A call was stopped before this process ran it: it may run another time."""
        assert call.key is not None
        past = call.past
        if past is not None and past.before is not None:
            return self._store.finish(call.key, past.before, None, self._clock.now())
        if past is None or past.recovered == "run":
            return self._store.forget(call.key)
        # It was cut off before, and may have run then: its steps, its waits and the doubt stay for the next time.
        return self._store.release(call.key)

    def _is_live(self, key: CallKey) -> bool:
        return key in self._live or key in self._beginning

    def _is_beginning(self, key: CallKey) -> bool:
        return key in self._beginning  # which is replaced when it is empty

    def live_calls(self) -> list[CallKey]:
        """The calls that this process runs."""
        return list(self._live)

    def close(self) -> None:
        self._closing = True
        self._elsewhere.close()
        self._unreleased.close()

    def _when_done(self, call: ActiveCall, job: Awaitable[bool], then: Callable[[Exception | None], None]) -> None:
        asyncio.ensure_future(job).add_done_callback(lambda job: then(_fault_of(call, job)))


def _fault_of(call: ActiveCall, job: asyncio.Future[bool]) -> Exception | None:
    """Why something about a call could not be written; None when it is."""
    if job.cancelled():
        return StoreError(f"The journal was closed before it could write about call {call.call_id!r}")
    fault: Exception | None = job.exception()  # type: ignore[assignment]
    if fault is None and not job.result():
        fault = _taken_over(call)
    return fault


def _taken_over(call: ActiveCall) -> StoreError:
    return StoreError(
        f"The call {call.call_id!r} was taken over by another process, which believes that this one "
        "is gone: it stood still for longer than its lease, or a file beside the store was removed"
    )


def _needs_start(call: ActiveCall) -> bool:
    """True for a call of which it must be known after a crash whether it had started, and is not written yet.

    A tool that may simply run again needs no start, unless the call was cut off before: it may be the one that ends the
    process, and its crashes are counted by its starts.
    """
    return call.key is not None and not call.start_written and not (call.plan.rerun and call.past is None)


def _link(call: ActiveCall, entry: Entry) -> None:
    """Link the span of a call to the span of its first execution, if both were traced."""
    trace = entry.intent.trace
    if call.span is not None and trace is not None:
        call.span.link(trace, "replay" if entry.outcome is not None else "takeover" if entry.cut_off else "continued")


def _refuse_long_keys(calls: Sequence[ActiveCall], session: str, scope: str, most: int) -> None:
    """Refuse the calls whose ids the store cannot hold beside their session and scope."""
    room = most - _size(session) - _size(scope)
    for call in calls:
        if _MOST_OF_CHARACTER * len(call.call_id) > room and (size := _size(call.call_id)) > room:
            call.owner.leave_queue((call,))
            call.repeated = True  # It is not in the journal.
            if call.outcome is None:
                call.fail(_too_long(most - room + size, most))


def _size(text: str) -> int:
    """The bytes of text in a store that cannot hold some characters as they are, as `longest_key` counts them."""
    return len(text.encode("utf-8", "surrogatepass")) + text.count("\0") + text.count("\1")


def _too_long(size: int, most: int) -> Failure:
    return Failure(
        category="invalid_arguments",
        code="unusable_id",
        message=f"The call was not run: its id has {size:,} bytes together with its session and scope, and this store "
        f"takes at most {most:,}; use shorter ones",
        source="runtime",
        data={"most_bytes": most},
    )


def _out_of_order(owner: OwnerBatch, waiting: Sequence[ActiveCall], intents: list[Intent]) -> list[Intent]:
    """Take calls out of the order that have to wait before they are begun; their intents, which say so."""
    owner.leave_queue(waiting)
    return [replace(one, starts_at=None, claims=NO_CLAIMS) for one in intents]


def _intent(
    call: ActiveCall, key: CallKey, batch: str, now: float, under: bytes | None = None, in_order: bool = False
) -> Intent:
    trace = None if call.span is None else call.span.trace or None
    if call.tool is None:
        return Intent(
            key, batch, call.position, call.name, "", call.raw, call.source, call.parent_id, now, True, trace=trace
        )
    about = call.tool.definition
    arguments = call.raw if about.secret is None and call.parent_id is None else written_arguments(call)
    rerun = about.on_crash == "rerun"
    starts_at = now if call.phase is STARTED and not rerun else None
    # A call that is queued later gets its claims then.
    claims: str | None = NO_CLAIMS
    if call.ticket is not None and in_order:
        claims = None if call.ticket.claims is PARALLEL else write_claims(call.ticket.claims)
    return Intent(
        key,
        batch,
        call.position,
        call.name,
        about.id,
        arguments,
        call.source,
        call.parent_id,
        now,
        rerun,
        under,
        starts_at,
        trace,
        claims,
    )


def _is_lasting_later(call: ActiveCall) -> bool:
    """True for a plain call of a turn that may simply run again.

    Only the turn gets its outcome, and writes it down with the next answer of the model, or with its end. A power cut
    before that leaves neither, and the call runs again.
    """
    return (
        call.parent_id is None
        and call.tool is not None
        and call.tool.definition.on_crash == "rerun"
        and call.past is None
        and call.suspension is None
        and call.refused is None
        and call.owner.scope.startswith(TURN_SCOPE)
    )


class _TickWriter:
    """Writes the outcomes and the starts of calls that come in one tick of the loop: the outcomes first, so that a call
    that waited for another is marked as started when the other has its outcome, or in the same commit.

    `alone` writes the outcome of one call; `written` is called for each call whose outcome was written here.
    """

    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        alone: Callable[[ActiveCall, ToolOutcome, Then], None],
        written: Callable[[ActiveCall, ToolOutcome, Then], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._alone = alone
        self._written = written
        self._ended: list[tuple[ActiveCall, ToolOutcome, Then]] = []
        self._starts: list[tuple[ActiveCall, Started[ActiveCall]]] = []

    def add_outcome(self, call: ActiveCall, outcome: ToolOutcome, then: Then) -> None:
        """Write the outcome of a call, at the end of this tick of the loop."""
        if not (self._ended or self._starts):
            call.env.loop.call_soon(self._write)
        self._ended.append((call, outcome, then))

    def add_start(self, call: ActiveCall, then: Started[ActiveCall]) -> None:
        """Write that a call starts, at the end of this tick of the loop."""
        if not (self._ended or self._starts):
            call.env.loop.call_soon(self._write)
        self._starts.append((call, then))

    def _write(self) -> None:
        ended, self._ended = self._ended, []
        starts, self._starts = self._starts, []
        if ended:
            self._write_outcomes(ended)
        if starts:
            self._write_starts(starts)

    def _write_outcomes(self, calls: list[tuple[ActiveCall, ToolOutcome, Then]]) -> None:
        now = self._clock.now()

        def each_alone() -> None:
            for call, outcome, then in calls:
                self._alone(call, outcome, then)

        def done(job: asyncio.Future[None]) -> None:
            if job.cancelled() or job.exception() is not None:
                # One of them is at fault: the others must not suffer for it.
                each_alone()
                return
            for call, outcome, then in calls:
                self._written(call, outcome, then)

        ended = [
            Ended(
                call.key or identity(call),
                outcome,
                None if call.started is None else call.started + call.record.offset,
                now,
                call.suspension is not None or call.past is not None,
                call.refused,
                _is_lasting_later(call),
            )
            for call, outcome, _ in calls
        ]
        try:
            job = asyncio.ensure_future(self._store.finish_all(ended))
        except Exception:  # from a value that a tool put into its outcome
            each_alone()
        else:
            job.add_done_callback(done)

    def _write_starts(self, calls: list[tuple[ActiveCall, Started[ActiveCall]]]) -> None:
        starts = [(call.key or identity(call), (call.started or 0.0) + call.record.offset) for call, _ in calls]

        def done(job: asyncio.Future[None]) -> None:
            if not job.cancelled() and job.exception() is None:
                for call, then in calls:
                    then(call, None)
                return
            for (call, then), (key, started_at) in zip(calls, starts, strict=True):
                alone = asyncio.ensure_future(self._store.start(key, started_at))
                alone.add_done_callback(functools.partial(_tell_start, call, then))

        asyncio.ensure_future(self._store.start_all(starts)).add_done_callback(done)


def _tell_start(call: ActiveCall, then: Started[ActiveCall], job: asyncio.Future[bool]) -> None:
    then(call, _fault_of(call, job))


class _Order:
    """The calls whose outcome is being written while others have their claims already: a call that had to wait for
    them begins when they are recorded."""

    def __init__(self) -> None:
        self._ending: dict[str, dict[ActiveCall, None]] = {}
        self._followers: dict[str, list[tuple[set[ActiveCall], Callable[[], None]]]] = {}

    def ends(self, call: ActiveCall) -> None:
        """The outcome of a call is being written. Parallel calls keep nobody waiting."""
        if call.ticket is not None and call.ticket.claims is not PARALLEL:
            self._ending.setdefault(call.env.session_id, {})[call] = None

    def ending(self, call: ActiveCall) -> tuple[ActiveCall, ...]:
        """The calls of a call's session whose outcome is being written."""
        ending = self._ending.get(call.env.session_id)
        return () if ending is None else tuple(ending)

    def when_recorded(self, calls: tuple[ActiveCall, ...], go: Callable[[], None]) -> None:
        """Call `go` when the outcomes of these calls of a session are recorded, as they may be now."""
        session = calls[0].env.session_id
        left = self._ending.get(session, {}).keys() & calls
        if left:
            self._followers.setdefault(session, []).append((left, go))
        else:
            go()

    def recorded(self, call: ActiveCall) -> None:
        """The outcome of a call is recorded, or will not be."""
        session = call.env.session_id
        ending = self._ending.get(session)
        if ending is None or call not in ending:
            return
        del ending[call]
        if not ending:
            del self._ending[session]
        followers = self._followers.pop(session, ())
        for left, go in followers:
            left.discard(call)
            if left:
                self._followers.setdefault(session, []).append((left, go))
            else:
                go()


class _Unreleased:
    """Calls that this process owns and does not run: as long as it lives, every other one would wait for it.

    A call that is `live` runs here again, and its new execution will write about it. One that is `beginning` is kept
    until the store has answered: what is known of it here is needed then.
    """

    def __init__(
        self, store: JournalStore, clock: Clock, live: Container[CallKey], beginning: Callable[[CallKey], bool]
    ) -> None:
        self._store = store
        self._clock = clock
        self._live = live
        self._is_beginning = beginning
        self._keys: dict[CallKey, Intent | None] = {}
        """With the intent of those that never began, which may not have been written."""
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, key: CallKey, unwritten: Intent | None = None) -> None:
        """Release a call as soon as that can be written, or forget it if it never began."""
        self._keys[key] = unwritten
        if self._timer is None and not self._closed:
            self._timer = self._clock.call_at(self._clock.monotonic() + RETRY, self._try)

    def never_began(self, entry: Entry) -> bool:
        """True for a call that the store may call started, though it was not. One that was there before, and that this
        process only took over, may have been."""
        unwritten = self._keys.get(entry.intent.key)
        return unwritten is not None and unwritten.queued_at == entry.intent.queued_at

    def close(self) -> None:
        """Try no more: with its owner gone, the call is anybody's."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        self._task = asyncio.ensure_future(self._let_go())

    async def _let_go(self) -> None:
        try:
            for group in self._groups():
                await self._let_go_of(group)
        except StoreError:
            pass  # not yet
        except Exception:  # from a store of another package, or a library: no other process could run these calls
            log.exception("Calls cannot be released", extra=log_fields("call.not_released"))
        finally:
            self._timer = None
        for key, intent in list(self._keys.items()):
            self.add(key, intent)

    def _groups(self) -> list[dict[CallKey, Intent | None]]:
        """What is to be released now, by sessions and scopes: a store looks up calls of one of these at once."""
        groups: dict[tuple[str, str], dict[CallKey, Intent | None]] = {}
        for key, intent in self._keys.items():
            groups.setdefault((key.session, key.scope), {})[key] = intent
        return list(groups.values())

    async def _let_go_of(self, group: dict[CallKey, Intent | None]) -> None:
        unwritten = [key for key, intent in group.items() if intent is not None]
        found = dict(zip(unwritten, await self._store.begin((), unwritten), strict=True)) if unwritten else {}
        for key, intent in group.items():
            if self._is_beginning(key):
                continue
            entry = found.get(key)
            if key not in self._live:
                if intent is None:
                    await self._store.release(key)
                elif entry is not None and entry.outcome is None and entry.owner == self._store.owner:
                    await (self._store.forget(key) if self.never_began(entry) else self._store.release(key))
            if self._keys.get(key) is intent:
                del self._keys[key]


def _in_doubt(outcome: ToolOutcome) -> ToolOutcome:
    """The refusal of a call that began in an earlier process: what that did is not known here."""
    failure = outcome.failure
    if failure is not None:
        said = f"{failure.message}. The call began before a crash, and may have run"
        failure = replace(failure, message=said)
    return replace(outcome, failure=failure, may_have_run=True)
