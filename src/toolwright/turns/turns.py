"""The turns of a runtime. Owns the queue of each session in this process, who works on a turn here, its handles, and
continuing the turns of processes that died.

A session has one `SessionTurns` here while this process works on one of its turns, or has one in its queue. It runs one
turn at a time, in a task of its own, and has no task while its turn waits for something outside.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_seconds, require_text
from toolwright.calls.active_call import CURRENT, ActiveCall
from toolwright.calls.suspend.approvals import Asked
from toolwright.calls.suspend.steps import outside, recording
from toolwright.drivers.contract import HandedBack, Work, WorkResult
from toolwright.effects.store_news import Bell
from toolwright.effects.waiting_room import Watcher
from toolwright.errors import RuntimeClosed, StoreError, ToolwrightError, TurnError
from toolwright.ids import uuid7
from toolwright.log_fields import log_fields
from toolwright.session.core import SessionCore
from toolwright.session.open_sessions import OpenSessions
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.turns import ENDED, PREFIX, NewTurn, TurnRecord, TurnStore, written_caller
from toolwright.stores.contracts.waits import Resolution
from toolwright.tools.model import HoldsConnections, ModelClient, Usage
from toolwright.tools.outcome import Image, encodable
from toolwright.tools.turn_protocols import (
    AskOptions,
    Budget,
    Delivery,
    TurnAction,
    TurnEvent,
    TurnInfo,
    TurnOutcome,
    TurnWait,
)
from toolwright.turns.agents import Caller, caller_of, require_depth, require_price, tell_above, turn_id
from toolwright.turns.conversation import user_content
from toolwright.turns.event_log import TurnLog, read_chunk
from toolwright.turns.model_call import AbsentModel, is_opened_by_name, model_spec, server_of
from toolwright.turns.structured import AnswerForm
from toolwright.turns.turn_run import Progress, TurnOptions, TurnRun, TurnSetting, outcomes_of
from toolwright.turns.waiters import Waiters

log = logging.getLogger("toolwright.turns")

LOOK = 5.0
"""Seconds between two looks at a turn of another process, where the store tells nothing of it."""
NOT_AGAIN = 60.0
"""Seconds for which a worker leaves a turn to others that it could not continue."""
RETRY = 1.0
"""Seconds between two attempts to give back a turn, while the store cannot be written to."""
WRITE_EVERY = 0.1
"""Seconds between two writes of events while a model streams its answer."""
MOST_LOGS = 1_000
"""How many logs of turns that have ended are remembered, where no store has them."""
WATCH = 1.0
"""Seconds between two looks at a turn that was brought here."""
MOST_BROUGHT = 1_000
"""How many sessions are looked at for turns that no process has."""
LONGEST_MESSAGE = 4 * 1024 * 1024
"""Characters of a message."""


class TurnCannotContinue(TurnError):
    """A turn whose model this process does not have."""

    def __init__(self, message: str, turn_id: str) -> None:
        super().__init__(message, "cannot_continue")
        self.turn_id = turn_id


class LocalTurn:
    """A turn that this process queued or works on: its handles wait for it here."""

    __slots__ = (
        "__weakref__",
        "_waiters",
        "above",
        "cancelled",
        "error",
        "form",
        "id",
        "log",
        "model",
        "outcome",
        "run",
        "was_left",
    )

    def __init__(
        self,
        id: str,
        log: TurnLog,
        form: AnswerForm | None = None,
        model: ModelClient | None = None,
        above: TurnRun | None = None,
    ) -> None:
        self.id = id
        self.above = above
        """The turn that this one is part of, as the turn of a sub-agent."""
        self.log = log
        self.form = form
        self.model = model
        """The model that its caller gave as an object."""
        self.run: TurnRun | None = None
        """While it is worked on, or waits."""
        self.cancelled: str | None = None
        """Why it was cancelled before this process worked on it."""
        self.outcome: TurnOutcome | None = None
        """Its end; or "waiting", while it waits."""
        self.error: ToolwrightError | None = None
        """Why it cannot continue here."""
        self.was_left = False
        """True when this process left it while it waited, and has not claimed it since."""
        self._waiters = Waiters()

    @property
    def ended(self) -> bool:
        """True when it has its end."""
        return self.outcome is not None and self.outcome.status != "waiting"

    def changed(self) -> asyncio.Future[None]:
        """Done when it has an outcome, or begins to wait or to continue."""
        return self._waiters.add()

    def tell(self) -> None:
        """Wake the waiters."""
        self._waiters.wake()


class SessionTurns:
    """The turns of one session that this process has."""

    def __init__(self, turns: Turns, core: SessionCore) -> None:
        self._turns = turns
        self._core = core
        self._local: dict[str, LocalTurn] = {}
        self._task: asyncio.Task[None] | None = None
        self.waiting_turn: LocalTurn | None = None
        """The turn that waits for something outside."""
        self.only_ends = False
        """True when they are here only because one of them is to be cancelled: no other turn is claimed after it."""
        self.brought = 0
        """How many turns the worker of this runtime may claim here, because its driver brought them."""
        self.on_worker = False
        """True when the worker of this runtime took them: it has a place again when they have ended."""
        self._elsewhere = False
        self._waiters = Waiters()
        core.working_turns = self

    # --- for `wait_for_idle`

    @property
    def busy(self) -> bool:
        """True while a turn is worked on here, or is queued behind one that is."""
        return self._task is not None

    @property
    def at_work(self) -> bool:
        """True while a turn is worked on here; a turn that waits for one of another process is not."""
        return self._task is not None and not self._elsewhere

    def changed(self) -> asyncio.Future[None]:
        """Done when one of these may have changed."""
        return self._waiters.add()

    def cancel(self, reason: str) -> None:
        """Stop the turn that is worked on here, or waits."""
        for local in list(self._local.values()):
            if local.run is not None:
                self.stop(local.id, reason)

    # --- its turns

    def get(self, id: str) -> LocalTurn | None:
        """The turn of an id, if this process has it."""
        return self._local.get(id)

    def returned(self, local: LocalTurn) -> None:
        """Have a turn again that this process had left; it is the first one."""
        self._local[local.id] = local
        local.outcome = None

    def enter(self, local: LocalTurn, record: TurnRecord | None = None) -> None:
        """Take a turn that was queued. With `record`, it is begun already, and is to be worked on."""
        self._local[local.id] = local
        self.work(record)

    def work(self, record: TurnRecord | None = None) -> None:
        """Begin to work, unless a task does already, or the first turn waits."""
        if self._task is None and self.waiting_turn is None:
            self._begin(record)

    def _begin(self, record: TurnRecord | None) -> None:
        # Not inside the call that asked, if one did: the turn is not part of that call, but of the one that opened the
        # session, if one did.
        context = copy_context()
        context.run(CURRENT.set, self._core.opened_by)
        self._task = asyncio.get_running_loop().create_task(self._serve(record), context=context)

    def stop(self, id: str, reason: str) -> None:
        """Stop the turn of an id, if it is worked on here or waits."""
        local = self._local.get(id)
        if local is not None and local.run is not None:
            local.run.stop("cancelled", reason)
            if local is self.waiting_turn:
                self._continue()

    def stop_first(self, id: str, reason: str) -> bool | None:
        """Stop the turn of an id before the store is asked to: no call of it begins here after that.

        Returns whether it is stopped; False when its end is decided, and None when only the store knows.
        """
        local = self._local.get(id)
        if local is None:
            return None
        if local.run is None:
            local.cancelled = local.cancelled or reason
            return None
        if local.run.end is not None:
            return None if local.run.end == "cancelled" else False
        self.stop(id, reason)
        return True

    async def answer_known(self, id: str) -> None:
        """Wait while the answer of a turn is being written here: it may be its end, or not."""
        while (local := self._local.get(id)) is not None and local.run is not None and local.run.answering is not None:
            await asyncio.wait({local.run.answering})

    def signalled(self, id: str, reason: str | None) -> None:
        """The turn of an id is to stop, for a reason, or was steered."""
        if reason is not None:
            self.stop(id, reason)
            return
        local = self._local.get(id)
        if local is not None and local.run is not None:
            local.run.signalled = True

    def cancelled(self, record: TurnRecord) -> None:
        """A turn was cancelled in the store: stop it here, or take its end."""
        local = self._local.get(record.id)
        if local is not None and record.state in ENDED:
            local.outcome = read_outcome(record)
            del self._local[record.id]
            local.log.end()
            local.tell()
        else:
            self.stop(record.id, record.cancel_reason or "the turn was cancelled")

    async def close(self) -> None:
        """Stop working; the turns stay as they are in the store."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self._tell()  # the waiters for a turn that is queued, or waits for something outside, have no task

    async def _serve(self, record: TurnRecord | None) -> None:
        """Work on the turns of the session, in order, until there are none, or one waits."""
        turns = self._turns
        try:
            while True:
                local = self.waiting_turn
                if local is None:
                    if record is None and not self._may_claim():
                        return
                    record = record or await turns.store.claim(self._core.id, turns.clock.now(), turns.message_quota)
                    self.brought = 0
                    if record is None:
                        if not self._local:
                            return
                        self._wait_elsewhere(True)  # another process works on an earlier turn
                        with turns.shared.news.bell() as bell:
                            while record is None and self._local:
                                change = self.changed()
                                try:
                                    await bell.wait(LOOK, change)
                                finally:
                                    change.cancel()
                                await self._look_at_ended()
                                record = await turns.store.claim(self._core.id, turns.clock.now(), turns.message_quota)
                        if record is None:
                            continue
                    self._wait_elsewhere(False)
                    local = self._local.get(record.id)
                    if local is None:
                        local = self._local[record.id] = turns.local_turn(record)
                    local.log.last = max(local.log.last, record.events)
                    try:
                        local.run = turns.run(self._core, record, local)
                        if local.cancelled is not None:
                            local.run.stop("cancelled", local.cancelled)
                    except ToolwrightError:  # such as a model that is not here: another process may have it
                        await turns.store.release(record.id, record.token)
                        for queued in list(self._local.values()):
                            await turns.store.release(queued.id, 0)
                        raise
                record = self.waiting_turn = None
                if not await self._work_on(local):
                    return
        except asyncio.CancelledError:
            raise
        except ToolwrightError as error:  # the store failed, or the model of the turn is not here
            self._fail(error)
        except Exception as error:
            log.exception(
                "The turns of session %r cannot continue here",
                self._core.id,
                extra=log_fields("turn.not_continued", session=self._core.id),
            )
            self._fail(ToolwrightError(f"The turn cannot continue here: {type(error).__name__}; see the log"))
        finally:
            self._task = None
            self._elsewhere = False
            if self.on_worker:
                turns.worker_has_place()
            if not self._local and self.waiting_turn is None:
                turns.leave(self._core.id)
                self._core.working_turns = None
                turns.sessions().leave(self._core)
            elif self.waiting_turn is not None and len(self._local) == 1:
                turns.leave_waiting(self, self._core, self.waiting_turn)
            self._tell()

    def left(self) -> None:
        """This process has left the turn that waits, which was the only one."""
        self._local.clear()
        self.waiting_turn = None
        self._core.working_turns = None

    def _may_claim(self) -> bool:
        """True when there may be a turn to claim: one that was queued here, or one that the worker here may take."""
        return bool(self._local or self.brought) or (self._turns.takes_background and not self.only_ends)

    def _wait_elsewhere(self, waits: bool) -> None:
        """Its first turn is worked on by another process, or no longer."""
        if waits is not self._elsewhere:
            self._elsewhere = waits
            self._tell()

    async def _work_on(self, local: LocalTurn) -> bool:
        """Work on a turn; False when it waits now."""
        run = local.run
        assert run is not None
        if not self.on_worker:
            outcome = await self._turns.watched(local, run)
        else:
            note, left = self._turns.note, True
            note("started", local.id, self._core.id)
            try:
                outcome = await self._turns.watched(local, run)
                left = False
            finally:
                if left:
                    note("handed_back", local.id, self._core.id)
            note(outcome.status, local.id, self._core.id)
        local.outcome = outcome
        self._turns.ring(local.id)
        if outcome.status == "waiting":
            self.waiting_turn = local
            assert run.change is not None
            run.change.add_done_callback(self._continue)
            self._tell()
            return False
        del self._local[local.id]
        local.run = None
        local.tell()
        return True

    def _continue(self, change: asyncio.Future[None] | None = None) -> None:
        """A call that the waiting turn waits for has changed: look whether the turn can continue."""
        local = self.waiting_turn
        if local is not None and self._task is None and not self._core.shared.lifetime.closed:
            local.outcome = None
            self._begin(None)
            local.tell()
            if self.on_worker:
                self._turns.told_woken(local.id)

    async def _look_at_ended(self) -> None:
        """Take the ends of turns that another process worked on, or cancelled."""
        for local in list(self._local.values()):
            record = await self._turns.store.find(local.id)
            if record is not None and record.state in ENDED:
                local.outcome = read_outcome(record)
                del self._local[local.id]
                local.log.leave()  # what that process told is in the store
                local.tell()

    def _fail(self, error: ToolwrightError) -> None:
        """The turns cannot continue here: all waiters for them get the error. They stay in the store."""
        log.warning(
            "The turns of session %r cannot continue here: %s",
            self._core.id,
            error,
            extra=log_fields("turn.not_continued", session=self._core.id),
        )
        failed, self._local = self._local, {}
        if isinstance(error, StoreError):
            # The store has it that this process works on them: nobody else would.
            self._turns.give_back(
                [(local.id, 0 if local.run is None else local.run.token) for local in failed.values()]
            )
        else:
            self._turns.cannot(self._core.id)
        for local in failed.values():
            local.error = error
            local.run = None
            local.log.end()
            local.tell()

    def _tell(self) -> None:
        self._waiters.wake()
        for local in list(self._local.values()):
            local.tell()


class LeftTurn:
    """A turn that waits for the decisions of people, and that this process has left: the store has all of it.

    When one of them is there, or the turn is to stop, it is continued as after the end of a process. It is the
    `OtherWork` of its session until then.
    """

    __slots__ = ("_turns", "form", "model", "on_worker", "session", "turn", "watches")

    def __init__(self, turns: Turns, session: str, local: LocalTurn, on_worker: bool) -> None:
        self._turns = turns
        self.session = session
        self.turn = local.id
        self.form = local.form
        self.model = local.model
        self.on_worker = on_worker
        self.watches: builtins.list[Watcher] = []

    @property
    def busy(self) -> bool:
        """It only waits."""
        return False

    def changed(self) -> asyncio.Future[None]:
        """Never done: it is busy no more before it continues, and then it is another object."""
        return asyncio.get_running_loop().create_future()

    def cancel(self, reason: str) -> None:
        """Stop the turn."""
        self._turns.wake(self.session, reason)

    async def still_waits(self) -> bool:
        """True while none of the decisions is there."""
        return len(await self.waits()) == len(self.watches)

    async def waits(self) -> tuple[TurnWait, ...]:
        """What it waits for."""
        keys = {watch.key for watch in self.watches}
        return tuple(
            TurnWait(wait.key.call.call_id, jsonx.decode(wait.detail, type=Asked).tool, wait.key.kind, self.session)
            for wait in await self._turns.shared.effects.waits.waiting(self.session)
            if wait.key in keys
        )

    def decided(self, news: Resolution | Exception) -> None:
        """One of the decisions is there, or cannot be waited for."""
        self._turns.wake(self.session)


class Turns:
    """The turns of a runtime: one part of it, which its sessions and its worker use."""

    def __init__(
        self,
        shared: SharedParts,
        sessions: Callable[[], OpenSessions],
        store: Callable[[], TurnStore],
        *,
        poke_worker: Callable[[bool], None],
        has_worker: Callable[[], bool],
        note: Callable[[TurnAction, str, str], None],
        are_brought: bool = False,
        told_woken: Callable[[str], None] = lambda turn: None,
        told_cancelled: Callable[[str, str], None] = lambda turn, reason: None,
    ) -> None:
        self.clock = shared.clock
        self.shared = shared
        self.message_quota = shared.quotas.messages
        self.sessions = sessions
        self._store = store
        self._poke_worker = poke_worker
        self._has_worker = has_worker
        self.note = note
        """Tells the worker of this runtime about a turn that it took: an action, the turn and its session."""
        self._are_brought = are_brought
        """True when a driver brings turns to the worker, one by one, and it takes none by itself."""
        self.told_woken = told_woken
        """Tells the driver that a turn continues which had waited."""
        self.told_cancelled = told_cancelled
        """Tells the driver that a turn is to be cancelled, and why."""
        self._draining = False
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.followed: builtins.list[TurnLog] = []
        """The logs that are followed here, once for each follower."""
        self._bells: dict[str, builtins.list[Bell]] = {}
        """Those who wait for turns that any process may work on, by the ids of the turns."""
        self._active: dict[str, SessionTurns] = {}
        self._queued: dict[str, Callable[[TurnRecord], LocalTurn]] = {}
        """The turns that are being queued here, by their ids: their callers know more of them than the store."""
        self._left: dict[str, LeftTurn] = {}
        self._held: WeakValueDictionary[str, LocalTurn] = WeakValueDictionary()
        """The turns that were left, for those who still have a handle."""
        self._logs: OrderedDict[str, TurnLog] = OrderedDict()
        self._watcher: asyncio.Task[None] | None = None
        self._models: dict[str, ModelClient] = {}
        self._giving: set[asyncio.Task[None]] = set()
        self._not_here: dict[str, float] = {}
        self._made: TurnStore | None = None

    @property
    def store(self) -> TurnStore:
        """The turns, in the store of the runtime."""
        if self._made is None:
            self._made = self._store()
        return self._made

    # --- starting

    async def start(
        self,
        core: SessionCore,
        message: str,
        options: AskOptions,
        *,
        background: bool = False,
        has_handle: bool = True,
        caller: Caller | None = None,
    ) -> Turn:
        """Queue a turn, and begin it if it is the first of its session.

        `caller` is the call whose sub-agent it is. Without a handle, nobody can follow the turn from its beginning, and
        its calls are told more briefly.
        """
        self.shared.lifetime.require_open()
        core.require_outside("ask its own session: it would wait for itself")
        new, form = self._new_turn(core, message, options, background, caller)
        given = options.get("model")
        model = None if given is None or isinstance(given, str) else given
        queue = partial(self._queue, core, new, form, model, has_handle, None if caller is None else caller.above)
        try:
            return await queue()
        except asyncio.CancelledError:
            if not self.shared.lifetime.closed:
                await asyncio.shield(_queue_again(queue, has_handle))
            raise

    async def _queue(
        self,
        core: SessionCore,
        new: NewTurn,
        form: AnswerForm | None,
        model: ModelClient | None,
        has_handle: bool,
        above: TurnRun | None,
    ) -> Turn:
        def to_local(record: TurnRecord) -> LocalTurn:
            local = LocalTurn(new.id, self.new_log(record), form, model, above)
            local.log.has_handle = has_handle
            return local

        # From here on it may be claimed, by the task that works on the turns of its session.
        self._queued[new.id] = to_local
        try:
            record = await self.store.add(new, self.message_quota)
            if record.state in ENDED:
                return Turn(self, record.id, core.id, form=form)
            self.wake(core.id)  # The turn that waits is the first of the queue, and perhaps the one that is asked for.
            active = self._active.get(core.id)
            local = None if active is None else active.get(new.id)
            if local is None:
                if record.owner is None or new.anywhere:
                    # In memory nobody else can take it. Over a store a worker is wanted: this program may end any time.
                    self._poke_worker(not self.shared.durable)
                    return Turn(self, new.id, core.id, form=form)
                if record.state == "queued" and active is None:
                    await self._require_no_blocked_turn(core, record, new)
                local = to_local(record)
                # A turn that was there before must be claimed: the process that began it may have died, or still run.
                new_and_begun = record.state == "running" and record.token == 1 and record.created_at == new.at
                self._of(core).enter(local, record if new_and_begun else None)
            return Turn(self, new.id, core.id, local, form)
        finally:
            if self._queued.get(new.id) is to_local:
                del self._queued[new.id]

    def local_turn(self, record: TurnRecord) -> LocalTurn:
        """A turn that was claimed and that its session does not have here: one that is being queued, or another one."""
        to_local = self._queued.get(record.id)
        return LocalTurn(record.id, self.new_log(record)) if to_local is None else to_local(record)

    def _new_turn(
        self, core: SessionCore, message: str, options: AskOptions, background: bool, caller: Caller | None
    ) -> tuple[NewTurn, AnswerForm | None]:
        """The turn to queue, and the form of its answer.

        Raises:
            TurnError: the message or an option is not usable.
        """
        if not isinstance(message, str) or not message.strip():
            raise TurnError(f"The message {message!r:.200} is not usable; use text that is not empty")
        if len(message) > LONGEST_MESSAGE:
            raise TurnError(f"The message has {len(message)} characters; {LONGEST_MESSAGE} are possible", "too_long")
        given, kind = options.get("model"), options.get("answer")
        model = self.model(given, core.shared.model)
        form = None if kind is None else AnswerForm.of(kind)
        budget = _budget(options, model, core.shared.turn_defaults.budget)
        id = options.get("id")
        id = f"{PREFIX}{uuid7()}" if id is None else require_text("id of a turn", id)
        if not id or encodable(id) != id:
            raise TurnError(
                f"id={id!r:.200} is not usable; use text that is not empty and has a form in UTF-8, or None for an id"
                " of its own"
            )
        images = _images(options)
        choice, parallel, longest = _generation(options, core)
        if background and not (given is None or isinstance(given, str) or given is core.shared.model):
            raise TurnError(
                f"A turn for any worker cannot have the model object {model_spec(model)!r:.200}: a worker has only the "
                "model of its app; give the name of a model, or leave `model` out to use the model of the app"
            )
        stored = TurnOptions(
            model=model_spec(model),
            budget=budget,
            answer_schema=None if form is None else form.schema,
            tool_choice=choice,
            parallel=parallel,
            max_tokens=longest,
            by_name=is_opened_by_name(model),
            server=server_of(model),
            trace="" if self.shared.tracing is None else self.shared.tracing.current(),
        )
        new = NewTurn(
            id=id,
            session=core.id,
            message=user_content(encodable(message), images),
            options=msgspec.json.encode(stored),
            at=self.clock.now(),
            anywhere=background,
            caller=None if caller is None else written_caller(caller.key),
            above=None if caller is None else caller.scope,
        )
        return new, form

    async def ask(self, core: SessionCore, message: str, options: AskOptions) -> TurnOutcome:
        """Run a turn, and return its outcome once it has ended or waits. Cancelling the caller cancels the turn."""
        turn = await self.start(core, message, options, has_handle=False)
        try:
            return await turn
        except TurnCannotContinue as error:
            if error.turn_id != turn.id:  # nobody has a handle of this turn, which is queued behind the other
                await turn._cancel(str(error))
            raise
        except asyncio.CancelledError:
            await asyncio.shield(turn._cancel("its caller was cancelled"))
            raise

    async def _require_no_blocked_turn(self, core: SessionCore, record: TurnRecord, new: NewTurn) -> None:
        """Refuse a turn that was just queued behind one that nobody works on and that cannot continue here.

        Raises:
            TurnError: it cannot; the queued turn is cancelled, if this request queued it.
        """
        if core.id not in await self.store.ready(anywhere=True, limit=1_000_000):
            return
        head = (await self.store.list(core.id, active=True, limit=1_000_000))[-1]
        if head.id == record.id:
            return
        try:
            self._model_of(head, core, None)
        except TurnCannotContinue as error:
            if record.created_at == new.at:
                await Turn(self, record.id, core.id).cancel(str(error))
            raise

    async def ask_in_call(self, core: SessionCore, call: ActiveCall, message: str, options: AskOptions) -> TurnOutcome:
        """Run a turn as part of a call, and return its outcome once it has ended. While it waits, so does the call.

        Raises:
            TurnError: there is no model, sub-agents are nested too deeply, or something is not usable.
        """
        caller = caller_of(call, self.working_on)
        require_depth(caller)
        if options.get("model") is None:
            above = None if caller.above is None else caller.above.model
            options["model"] = core.shared.turn_defaults.model or above
        require_price(caller, self.model(options["model"], core.shared.model))
        options["id"] = turn_id(call, core.id, message, options)
        async with recording(call):
            turn = await self.start(core, message, options, has_handle=False, caller=caller)
            return await self._end_in_call(core, call, turn)

    async def _end_in_call(self, core: SessionCore, call: ActiveCall, turn: Turn) -> TurnOutcome:
        try:
            while True:
                outcome = await turn
                if outcome.status != "waiting":
                    return outcome
                async with outside(call, "agent", core.id) as opened:
                    opened(None)
                    await turn._continues()
        except RuntimeClosed:
            await asyncio.Event().wait()  # The call is about to be cut off: it has no outcome by that.
            raise
        except asyncio.CancelledError:
            if not self.shared.lifetime.closed:  # else the call continues in the next process, and the turn with it
                await asyncio.shield(turn._cancel(call.cancel_reason or "its call was cancelled"))
                await turn.wait()
            raise

    def working_on(self, session: str, id: str) -> TurnRun | None:
        """The turn of an id, if this process works on it or it waits here."""
        active = self._active.get(session)
        local = None if active is None else active.get(id)
        return None if local is None else local.run

    def model(self, given: object, default: ModelClient | None) -> ModelClient:
        """The model of a name, or the one that is given, or the default.

        Raises:
            TurnError: there is none.
        """
        if given is None:
            if default is None:
                raise TurnError(
                    "There is no model to ask; give one: App(model=...), or ask(..., model=...)", "no_model"
                )
            return default
        if isinstance(given, str):
            if default is not None and model_spec(default) == given:
                return default
            if given not in self._models:
                from toolwright.providers import open_model

                self._models[given] = opened = open_model(given)
                opened.hold()
            return self._models[given]
        if not _is_model(given):
            raise TurnError(f"model={given!r:.200} is not usable; use a name such as 'openai:gpt-5', or a Model")
        return given

    def _model_of(self, record: TurnRecord, core: SessionCore, given: ModelClient | None) -> ModelClient:
        """The model of a turn. One that is to be cancelled needs none.

        A model that was given as an object is never replaced by another one: only an object of the same name and
        server continues its turn.

        Raises:
            TurnCannotContinue: it is not here.
        """
        options = msgspec.json.decode(record.options, type=TurnOptions)
        if record.cancel_reason is not None:
            return AbsentModel(options.model)
        for model in (given, core.shared.model):
            if model is not None and model_spec(model) == options.model and server_of(model) == options.server:
                return model
        where = "" if options.server is None else f" at {options.server!r:.200}"
        why = f"its model {options.model!r:.200}{where} was given as an object, and is not here"
        if options.by_name:
            try:
                return self.model(options.model, None)
            except ToolwrightError as error:
                why = f"its model {options.model!r:.200} cannot be opened ({error})"
        raise TurnCannotContinue(
            f"The turn {record.id!r:.200} of session {record.session!r:.200} cannot continue here: {why}; open the app "
            f"with that model, or end the turn: `await (await runtime.turn({record.id!r:.200})).cancel()`",
            record.id,
        )

    # --- working

    def run(self, core: SessionCore, record: TurnRecord, local: LocalTurn) -> TurnRun:
        """The work on a claimed turn."""
        options = msgspec.json.decode(record.options, type=TurnOptions)
        form = local.form
        if form is None and options.answer_schema is not None:
            form = AnswerForm(options.answer_schema)
        setting = TurnSetting(
            store=self.store,
            model=self._model_of(record, core, local.model),
            instructions=core.shared.turn_defaults.instructions,
            context=core.shared.turn_defaults.context,
            form=form,
            durable=self.shared.durable,
        )
        run = TurnRun(core, record, setting, local.log, local.above, was_left=local.was_left)
        local.was_left = False
        if run.above is not None:
            run.above.add_agent(run)
        if core.opened_by is not None and record.above is not None:
            tell_above(run, core.opened_by, local.log)
        return run

    async def watched(self, local: LocalTurn, run: TurnRun) -> TurnOutcome:
        """Let a turn work, while its events are written and what others want of it is looked for."""
        if self.shared.durable and self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())
        return await run.work()

    async def _watch(self) -> None:
        """Write the events of all running turns, and stop those that another process cancelled."""
        looked = self.clock.monotonic()
        with self.shared.news.bell() as bell:
            while self._active or self._left:
                await self.clock.sleep(WRITE_EVERY)
                if bell.rung() or self.clock.monotonic() - looked >= LOOK:
                    looked = self.clock.monotonic()
                    await self._write_and_look(look=True)
                else:
                    await self._write_and_look(look=False)
        self._watcher = None

    async def _write_and_look(self, *, look: bool) -> None:
        """Write the events of all running turns; with `look`, also take what other processes want of them."""
        try:
            for local in self._running():
                await self._write_events(local)
            if look:
                signalled = await self.store.signalled()
                for id, reason in signalled.items():
                    for active in list(self._active.values()):
                        active.signalled(id, reason)
                for left in builtins.list(self._left.values()) if signalled else ():
                    if signalled.get(left.turn) is not None:
                        left.cancel(signalled[left.turn] or "")
        except Exception as error:  # also from a store of another package, or a library: the watch goes on
            log.warning(
                "Events of turns cannot be written: %s",
                error,
                exc_info=not isinstance(error, StoreError),
                extra=log_fields("turn.not_logged"),
            )

    def _running(self) -> builtins.list[LocalTurn]:
        return [local for active in self._active.values() for local in active._local.values() if local.run is not None]

    async def _write_events(self, local: LocalTurn) -> None:
        run, written, chunk = local.run, local.log.written, local.log.take()
        if run is None or chunk is None:
            return
        try:
            await self.store.log(local.id, run.token, chunk)
        except BaseException:
            if local.log.written == chunk.last:  # else later ones are written already, or on their way
                local.log.put_back(written)
            raise

    def new_log(self, record: TurnRecord) -> TurnLog:
        """The log of a turn that this process works on, or will."""
        found = self._logs.get(record.id)
        if found is None:
            found = TurnLog(record.events, self.clock, stored=self.shared.durable)
            if not self.shared.durable:
                self._logs[record.id] = found
                if len(self._logs) > MOST_LOGS:
                    self._drop_log()
        return found

    def _drop_log(self) -> None:
        for id, each in self._logs.items():
            if each.ended:
                del self._logs[id]
                return

    def log_of(self, id: str, session: str) -> TurnLog | None:
        """The log of a turn, if this process has it."""
        active = self._active.get(session)
        local = None if active is None else active.get(id)
        return self._logs.get(id) if local is None else local.log

    def _of(self, core: SessionCore) -> SessionTurns:
        active = self._active.get(core.id)
        if active is None:
            active = self._active[core.id] = SessionTurns(self, core)
            left = self._left.pop(core.id, None)
            if left is not None:
                self._return(active, left)
        return active

    # --- turns that wait for people

    def leave_waiting(self, active: SessionTurns, core: SessionCore, local: LocalTurn) -> None:
        """Leave a turn that waits for the decisions of people and for nothing else, where that is possible: with very
        many of them, each is a row and an entry here."""
        run, room = local.run, core.shared.effects.room
        if not self.shared.durable or core.shared is not self.shared or self.shared.lifetime.closed or run is None:
            return
        requests = run.requests()
        if not requests:
            return
        left = LeftTurn(self, core.id, local, active.on_worker)
        # Nothing is awaited here: a decision that comes is told to the turn, or to what stands for it.
        watches = room.take_over(requests, left, LeftTurn.decided)
        if watches is None:  # one of its calls is about to continue
            return
        left.watches = watches
        run.leave()
        local.run, local.was_left = None, True
        self._held[local.id] = local
        self._left[core.id] = left
        active.left()
        self.leave(core.id)
        self.sessions().hold_weakly(core)
        local.tell()

    def _return(self, active: SessionTurns, left: LeftTurn) -> None:
        """Have a turn that was left among those that are worked on here."""
        for watch in left.watches:
            watch.leave()
        local = self._local_of(left)
        del self._held[local.id]
        local.log.left = False
        active.on_worker = left.on_worker
        active.returned(local)

    def _local_of(self, left: LeftTurn) -> LocalTurn:
        """A turn that was left, as the handles of it that there are know it."""
        local = self._held.get(left.turn)
        if local is None:
            local = LocalTurn(left.turn, TurnLog(0, self.clock, stored=True), left.form, left.model)
            local.was_left = local.log.left = True
            self._held[local.id] = local
        return local

    def left_turn(self, session: str) -> LeftTurn | None:
        """The turn of a session that was left while it waits for people."""
        return self._left.get(session)

    def wake(self, session: str, cancelled: str | None = None) -> None:
        """Continue the turn of a session that was left; `cancelled` is why it is to stop."""
        left = self._left.get(session)
        if left is None or self.shared.lifetime.closed:
            return
        active = self._of(self.sessions().core(session))
        if cancelled is not None:
            active.stop_first(left.turn, cancelled)
        active.work()
        if left.on_worker:
            self.told_woken(left.turn)

    def active(self, session: str) -> SessionTurns | None:
        """The turns of a session that this process has."""
        return self._active.get(session)

    def leave(self, session: str) -> None:
        """A session has no more turns here."""
        self._active.pop(session, None)

    # --- after a crash, and for workers

    async def recover(self, session: str | None = None) -> builtins.list[Turn]:
        """Continue the turns that a crash cut off, of one session or of all; return their handles, in order."""
        continued: builtins.list[Turn] = []
        for each in await self.store.ready(anywhere=False, limit=1_000_000):
            if session is not None and each != session:
                continue
            unfinished = await self.store.list(each, active=True, limit=1_000_000)
            unfinished.reverse()
            active = self._of(self.sessions().open(each))
            for record in unfinished:
                if record.owner != unfinished[0].owner:  # a living process queued it
                    continue
                local = active.get(record.id) or LocalTurn(record.id, self.new_log(record))
                active.enter(local)
                continued.append(Turn(self, record.id, each, local))
        return continued

    async def take_free(self, at: float) -> bool:
        """The duty of a worker: continue turns that nobody works on, up to as many as it may; True if it took some."""
        # A turn that waits for something outside takes no place.
        most = self.shared.policy.background_per_worker - sum(active.busy for active in self._active.values())
        if most <= 0 or self.shared.model is None or self._draining:
            return False
        now = self.clock.monotonic()
        self._not_here = {each: until for each, until in self._not_here.items() if until > now}
        ready = await self.store.ready(anywhere=True, limit=most + len(self._not_here))
        if self._draining:
            return False
        taken = [each for each in ready if each not in self._not_here][:most]
        for each in taken:
            active = self._of(self.sessions().core(each))
            active.on_worker = True
            active.work()
        return bool(taken)

    # --- for a driver that brings turns

    async def waiting(self) -> builtins.list[Work]:
        """The turns that no living process has, of each session the first."""
        if self.shared.model is None:
            return []
        found = []
        for session in await self.store.ready(anywhere=True, limit=MOST_BROUGHT):
            unfinished = await self.store.list(session, active=True, limit=1_000_000)
            if unfinished:
                first = unfinished[-1]
                # A turn that somebody had may have waited since: then its workflow, or the like, is to be woken.
                found.append(Work(kind="turn", id=first.id, session=session, begun=first.token > 0))
        return found

    async def bring(self, id: str) -> WorkResult:
        """Work on a turn until it has ended or waits. While another process has it, watch it.

        Cancelling this does not stop the turn.

        Raises:
            HandedBack: it is to be brought to another worker.
        """
        while True:
            record = await self.store.find(id)
            if record is None or record.state in ENDED:
                return WorkResult(state="ended", status="removed" if record is None else record.state)
            active = self._active.get(record.session)
            if active is not None and active.busy:
                await self._first_of(WATCH, active.changed())
                continue
            left, waiting = self._left.get(record.session), None if active is None else active.waiting_turn
            if (left is not None and left.turn == id) or (waiting is not None and waiting.id == id):
                return WorkResult(state="waiting")
            if self._draining or self.shared.lifetime.closed:
                raise HandedBack("The worker stops, and takes no more turns")
            if self._not_here.pop(record.session, None) is not None:
                raise HandedBack(f"The turn {id!r} cannot continue on this worker; its log says why")
            if record.session not in await self.store.ready(anywhere=True, limit=1_000_000):
                if record.state == "waiting":
                    return WorkResult(state="waiting")  # at a living process, which continues it
                await self._first_of(WATCH)
                continue
            if waiting is not None:
                # Another process took that one over and ended it, and this one has not seen it.
                raise HandedBack(f"An earlier turn of session {record.session!r} still waits on this worker")
            active = self._of(self.sessions().core(record.session))
            active.on_worker, active.brought = True, 1
            active.work()

    async def end_abandoned(self, record: TurnRecord) -> None:
        """End a turn that is to be cancelled, if no process works on it."""
        session, claimed = record.session, None
        if record.caller is not None:  # It is continued by its call alone, and is not among those that are ready.
            claimed = await self.store.claim(session, self.clock.now(), self.message_quota)
            if claimed is None:
                return
        else:
            free = await self.store.ready(anywhere=True, limit=1_000_000)
            if session not in free and record.id not in await self.store.signalled():
                return
        if session in self._active:
            return
        active = self._of(self.sessions().core(session))
        active.only_ends = True
        local = LocalTurn(record.id, self.new_log(record))
        active.enter(local, claimed)
        await Turn(self, record.id, session, local).wait()

    async def end_agents(self, call: CallKey, reason: str) -> None:
        """End the unfinished turns of the sub-agents of a call that ends without them: nobody continues them after it.

        A turn that another process works on is asked to stop.
        """
        for record in await self.store.of_call(written_caller(call)):
            await Turn(self, record.id, record.session)._cancel(reason)

    @property
    def takes_background(self) -> bool:
        """True when turns that were left to any worker are to be taken here."""
        return not self._draining and not self._are_brought and (not self.shared.durable or self._has_worker())

    def worker_has_place(self) -> None:
        """Turns that the worker took have ended, or wait: it may take others now."""
        self._poke_worker(False)

    def cannot(self, session: str) -> None:
        """A turn of a session cannot continue here, such as one without its model: leave it to others for a while."""
        self._not_here[session] = self.clock.monotonic() + NOT_AGAIN

    def give_back(self, turns: Sequence[tuple[str, int]]) -> None:
        """Let any process continue turns, given by their ids and tokens, as soon as the store can be written to."""
        giving = asyncio.ensure_future(self._give_back(turns))
        self._giving.add(giving)
        giving.add_done_callback(self._giving.discard)

    async def _give_back(self, turns: Sequence[tuple[str, int]]) -> None:
        for id, token in turns:
            while not self._closing.done():
                try:
                    await self.store.release(id, token)
                    break
                except StoreError:
                    await self._first_of(RETRY)
        self._poke_worker(False)

    async def drain(self, bound: float) -> None:
        """Take no turn of others any more, and wait until no turn is worked on here, for `bound` seconds at most.

        Turns that this program starts still run: a sub-agent's is a part of one that is to end.
        """
        self._draining = True
        until = self.clock.monotonic() + bound
        while (working := [active for active in self._active.values() if active.at_work]) and not self._closing.done():
            left = until - self.clock.monotonic()
            if left <= 0:
                return
            await self._first_of(left, *(active.changed() for active in working))

    @contextmanager
    def bell(self, id: str) -> Iterator[Bell]:
        """Something to wait for a turn with: it rings at news, and at once when this process ends or parks the turn."""
        with self.shared.news.bell() as bell:
            self._bells.setdefault(id, []).append(bell)
            try:
                yield bell
            finally:
                self._bells[id].remove(bell)
                if not self._bells[id]:
                    del self._bells[id]

    def ring(self, id: str) -> None:
        """A turn of this process has ended or waits, and its state is in the store: tell those who look at it there."""
        for bell in self._bells.get(id, ()):
            bell.ring()

    async def look_later(self, bell: Bell) -> None:
        """Wait until it is time for the next look at the store, or the runtime closes."""
        await bell.wait(LOOK, self._closing)

    async def _first_of(self, seconds: float, *changes: asyncio.Future[None]) -> None:
        """Wait for some time, for the first of some changes, or for the closing."""
        late = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait({late, self._closing, *changes}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (late, *changes):
                each.cancel()

    async def close(self) -> None:
        """Stop working. Unfinished turns stay in the store, and are continued by the next process."""
        if not self._closing.done():
            self._closing.set_result(None)
        self._left.clear()
        for local in builtins.list(self._held.values()):
            local.tell()
        for log in self.followed:
            log.wake()
        for active in list(self._active.values()):
            await active.close()
        if self._giving:
            await asyncio.wait(self._giving)
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait({self._watcher})
        for model in self._models.values():
            if isinstance(model, HoldsConnections):
                await model.release()

    # --- looking

    async def get(self, id: str, session: str | None = None) -> Turn:
        """The handle of a turn.

        Raises:
            TurnError: there is none, or it is another session's.
        """
        record = await self.store.find(encodable(require_text("id of a turn", id)))
        if record is not None and session not in (None, record.session):
            raise TurnError(
                f"The turn {id!r:.200} belongs to session {record.session!r:.200}, not to {session!r:.200}; "
                f"use runtime.session({record.session!r:.200})",
                "not_found",
            )
        if record is None:
            raise TurnError(f"There is no turn {id!r:.200} here; `turns()` lists them", "not_found")
        left = self._left.get(record.session)
        waits = await left.waits() if left is not None and left.turn == id else ()
        active = self._active.get(record.session)  # Not before: it may have continued meanwhile.
        local = None if active is None else active.get(id)
        if local is None and left is not None and self._left.get(record.session) is left and left.turn == id:
            local = self._local_of(left)
            local.outcome = local.outcome or replace(waiting_outcome(record), waits=waits)
        return Turn(self, record.id, record.session, local)

    async def list(
        self,
        session: str | None,
        *,
        active: bool = False,
        limit: int = 100,
        prefix: str = "",
        before: int | None = None,
    ) -> builtins.list[TurnInfo]:
        """Turns, the newest first; with a prefix, those whose id begins with it; of a session, before a number."""
        records = await self.store.list(session, active=active, limit=limit, prefix=prefix, before=before)
        return [info_of(record, cut_off=cut_off) for record, cut_off in await self.with_cut_off(records)]

    async def with_cut_off(self, records: builtins.list[TurnRecord]) -> builtins.list[tuple[TurnRecord, bool]]:
        """The same records, each with whether the process that worked on it is gone."""
        gone: set[str] = set()
        if self.shared.durable and any(record.state == "running" for record in records):
            gone = set(await self.store.ready(anywhere=False, limit=1_000_000))
        return [(record, record.state == "running" and record.session in gone) for record in records]


class Turn:
    """The handle of a turn: await it, follow it, steer it, cancel it."""

    __slots__ = ("_form", "_local", "_turns", "id", "session_id")

    def __init__(
        self,
        turns: Turns,
        id: str,
        session_id: str,
        local: LocalTurn | None = None,
        form: AnswerForm | None = None,
    ) -> None:
        self._turns = turns
        self._local = local
        self._form = form
        self.id = id
        self.session_id = session_id

    def __repr__(self) -> str:
        return f"<Turn {self.id!r} of session {self.session_id!r}>"

    def __await__(self) -> Generator[Any, None, TurnOutcome]:
        """The outcome, once the turn has ended or waits for something outside; then it has the status "waiting"."""
        return self._in_form(to_the_end=False).__await__()

    async def wait(self, timeout: float | None = None) -> TurnOutcome | None:
        """The outcome once the turn has ended, also if it waits before; None if it has not after `timeout` seconds."""
        if timeout is None:
            return await self._in_form(to_the_end=True)
        require_seconds("timeout", timeout)
        rest = asyncio.ensure_future(self._in_form(to_the_end=True))
        late = asyncio.ensure_future(self._turns.clock.sleep(timeout))
        try:
            await asyncio.wait({rest, late}, return_when=asyncio.FIRST_COMPLETED)
            return await rest if rest.done() else None
        finally:
            for task in (rest, late):
                task.cancel()

    async def _continues(self) -> None:
        """Wait until the turn, which waits for something outside, has continued or ended."""
        local = self._local
        while local is not None and local.error is None and local.outcome is not None and not local.ended:
            await local.changed()

    async def _in_form(self, to_the_end: bool) -> TurnOutcome:
        """The outcome, with its value in the form that the holder of this handle asked for."""
        outcome, form, local = await self._rest(to_the_end), self._form, self._local
        if form is None or outcome.status != "answered" or (local is not None and local.form is form):
            return outcome
        try:
            value = _value(form, outcome)
        except ValueError as error:
            raise TurnError(
                f"The turn {self.id!r} has an answer of another form: {error}; ask with the form that it was asked for",
                "conflict",
            ) from None
        return replace(outcome, value=value)

    async def _rest(self, to_the_end: bool) -> TurnOutcome:
        with ExitStack() as bells:
            return await self._wait_for_rest(to_the_end, bells)

    async def _wait_for_rest(self, to_the_end: bool, bells: ExitStack) -> TurnOutcome:
        turns, bell = self._turns, None
        while True:
            turns.shared.lifetime.require_open()
            local = self._local
            if local is None:
                record = await self._record()
                if record.state in ENDED:
                    calls = await outcomes_of(turns.shared.effects.journal, turns.store, self.session_id, self.id)
                    return replace(read_outcome(record), calls=calls)
                if record.state == "waiting" and not to_the_end:
                    return waiting_outcome(record)
                bell = bell or bells.enter_context(turns.bell(self.id))
                await turns.look_later(bell)
                continue
            if local.error is not None:
                raise local.error
            if local.outcome is not None and local.ended:
                return local.outcome
            active = turns.active(self.session_id)
            left = turns.left_turn(self.session_id) if active is None else None
            if left is not None and left.turn == self.id and local.outcome is not None and not to_the_end:
                change = local.changed()
                if await left.still_waits() and local.outcome is not None:
                    change.cancel()
                    return local.outcome
                await change  # a decision of another process is about to be noticed
                continue
            other = None if active is None else active.waiting_turn
            if not to_the_end and other is not None and other.outcome is not None and other.run is not None:
                change = local.changed()
                if await other.run.still_waits() and other.outcome is not None:
                    change.cancel()
                    if other is local:
                        return other.outcome
                    return TurnOutcome(
                        turn_id=self.id,
                        session=self.session_id,
                        status="waiting",
                        reason=f"An earlier turn of the session, {other.id!r}, waits for something outside",
                        waits=other.outcome.waits,
                    )
                if active is not None and active.waiting_turn is other and not active.busy:
                    await change  # its calls are about to continue
                else:
                    change.cancel()
                continue
            await local.changed()

    async def follow(self, after: int = 0) -> AsyncGenerator[TurnEvent]:
        """The events beyond a number, in order, until the turn has ended; from any process, from any event on.

        The text of a model call that is asked again, after a fault or a crash, comes again: "model.retrying" or
        "turn.continued" comes before.

        Raises:
            RuntimeClosed: the runtime is closed, or closes before the turn has ended.
        """
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise TurnError(f"after={after!r:.200} is not usable; use the number of an event, or 0 for all")
        turns, number, bell = self._turns, after, None
        with ExitStack() as bells:
            while True:
                turns.shared.lifetime.require_open()
                events = turns.log_of(self.id, self.session_id)
                if events is not None and events.has_after(number):
                    async for event in _follow_here(turns, events, number):
                        number = event.number
                        yield event
                    if events.ended and number >= events.last:
                        return
                    if not events.left:
                        continue
                try:
                    ended = (await self._record()).state in ENDED
                    chunks = await turns.store.events(self.id, number)
                except StoreError:
                    turns.shared.lifetime.require_open()  # it may have been closed meanwhile, with its store
                    raise
                for chunk in chunks:
                    for event in read_chunk(chunk, number):
                        number = event.number
                        yield event
                if not chunks:
                    if ended:
                        return
                    bell = bell or bells.enter_context(turns.bell(self.id))
                    await turns.look_later(bell)

    async def steer(self, message: str, *, when: Delivery = "next_model_call") -> None:
        """Send a message while the turn runs: it reaches the model at its next call, or as the next turn.

        The turn does not answer before its model was given the message. When it is cancelled, fails or uses up its
        budget before that, the message is not delivered.

        Raises:
            TurnError: the turn has ended, or something is not usable.
            RuntimeClosed: the runtime is closed.
        """
        self._turns.shared.lifetime.require_open()
        if not isinstance(message, str) or not message.strip() or len(message) > LONGEST_MESSAGE:
            raise TurnError(f"The message {message!r:.200} is not usable; use text that is not empty")
        if when == "next_turn":
            await self._turns.start(self._turns.sessions().core(self.session_id), message, {})
        elif when == "next_model_call":
            if not await self._turns.store.steer(self.id, encodable(message), self._turns.clock.now()):
                raise TurnError(f"The turn {self.id!r} has ended; ask the session instead", "ended")
            active = self._turns.active(self.session_id)
            if active is not None:
                active.signalled(self.id, None)
        else:
            raise TurnError(f"when={when!r:.200} is not usable; use 'next_model_call' or 'next_turn'")

    async def cancel(self, reason: str = "the turn was cancelled") -> bool:
        """Stop the turn, in whichever process it is; False when it has ended already.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        self._turns.shared.lifetime.require_open()
        return await self._cancel(reason)

    async def _cancel(self, reason: str) -> bool:
        turns = self._turns
        reason = encodable(require_text("reason", reason))
        left = turns.left_turn(self.session_id)
        if left is not None and left.turn == self.id:
            left.cancel(reason)
        active = turns.active(self.session_id)
        if active is not None:
            await active.answer_known(self.id)
            active = turns.active(self.session_id)
        stopped = None if active is None else active.stop_first(self.id, reason)
        if stopped is False:
            return False
        outcome = TurnOutcome(turn_id=self.id, session=self.session_id, status="cancelled", reason=reason)
        record = await turns.store.cancel(self.id, reason, turns.clock.now(), jsonx.encode(outcome))
        turns.told_cancelled(self.id, reason)
        if record is None:
            return stopped is True  # it may have ended by that before the store had the request
        active = turns.active(self.session_id)
        if active is not None:
            active.cancelled(record)
        elif record.state not in ENDED and not turns.shared.lifetime.closed:
            await turns.end_abandoned(record)
        return True

    async def info(self) -> TurnInfo:
        """The turn as it is in the store now.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        self._turns.shared.lifetime.require_open()
        ((record, cut_off),) = await self._turns.with_cut_off([await self._record()])
        return info_of(record, cut_off=cut_off)

    async def _record(self) -> TurnRecord:
        record = await self._turns.store.find(self.id)
        if record is None:
            raise TurnError(f"The turn {self.id!r:.200} is no longer there", "not_found")
        return record


async def _queue_again(queue: Callable[[], Awaitable[Turn]], has_handle: bool) -> None:
    """Queue a turn whose caller was cancelled while it was queued. The store may have it, and nobody else would work
    on it: it begins as if its caller had been cancelled later. One of which nobody has a handle is cancelled."""
    with suppress(ToolwrightError):  # the caller is told that it was cancelled
        turn = await queue()
        if not has_handle:
            await turn._cancel("its caller was cancelled")


def _value(form: AnswerForm, outcome: TurnOutcome) -> object:
    """The value of an answer in a form. Not every value can be read again from its JSON, but from the model's text.

    Raises:
        ValueError: it has another form.
    """
    if form.is_text and outcome.value is not None:
        return form.read_value(outcome.value)
    try:
        return form.read(outcome.text)
    except ValueError:
        if outcome.value is None:
            raise
        return form.read_value(outcome.value)


async def _follow_here(turns: Turns, events: TurnLog, after: int) -> AsyncIterator[TurnEvent]:
    number, change = after, None
    events.followers += 1
    turns.followed.append(events)
    try:
        while events.has_after(number):
            change = events.changed()
            for event in events.after(number):
                number = event.number
                yield event
            if (events.ended or events.left) and number >= events.last:
                return
            turns.shared.lifetime.require_open()
            await change
    finally:
        if change is not None:
            change.cancel()
        events.followers -= 1
        turns.followed.remove(events)


class SessionTurnsClient:
    """`TurnsClient` of one session."""

    __slots__ = ("_core", "_turns")

    def __init__(self, turns: Turns, core: SessionCore) -> None:
        self._turns = turns
        self._core = core

    async def ask(self, message: str, options: AskOptions) -> TurnOutcome:
        """Run a turn, and return its outcome."""
        return await self._turns.ask(self._core, message, options)

    async def start(self, message: str, options: AskOptions, *, background: bool = False) -> Turn:
        """Queue a turn, and return its handle."""
        return await self._turns.start(self._core, message, options, background=background)

    async def ask_in_call(self, call: ActiveCall, message: str, options: AskOptions) -> TurnOutcome:
        """Run a turn as part of a running call."""
        return await self._turns.ask_in_call(self._core, call, message, options)

    async def list(
        self, *, active: bool = False, limit: int = 100, before: int | None = None
    ) -> builtins.list[TurnInfo]:
        """The turns of the session, the newest first, or those before a number."""
        return await self._turns.list(self._core.id, active=active, limit=limit, before=before)

    async def get(self, id: str) -> Turn:
        """The handle of a turn of the session."""
        return await self._turns.get(id, self._core.id)


# --- records, as others see them


def read_outcome(record: TurnRecord) -> TurnOutcome:
    """The outcome that is stored with a turn; without the outcomes of its calls."""
    assert record.outcome is not None
    return msgspec.convert(jsonx.decode(record.outcome), TurnOutcome)


def waiting_outcome(record: TurnRecord) -> TurnOutcome:
    """The outcome of a turn that waits in another process."""
    progress = msgspec.json.decode(record.progress, type=Progress)
    return TurnOutcome(
        turn_id=record.id,
        session=record.session,
        status="waiting",
        text=progress.text,
        usage=progress.total,
        usage_by_model=dict(progress.usage),
        model_calls=progress.model_calls + progress.agent_model_calls,
        reason="It waits for something outside",
    )


def info_of(record: TurnRecord, *, cut_off: bool = False) -> TurnInfo:
    """A turn as a list shows it."""
    options = msgspec.json.decode(record.options, type=TurnOptions)
    progress = msgspec.json.decode(record.progress, type=Progress)
    message: Any = jsonx.decode(record.message)
    caller = None if record.caller is None else jsonx.decode(record.caller)
    outcome = None if record.outcome is None else read_outcome(record)
    return TurnInfo(
        id=record.id,
        session=record.session,
        number=record.number,
        state=record.state,
        message=message if isinstance(message, str) else message["text"],
        model=options.model,
        model_calls=progress.model_calls + progress.agent_model_calls,
        tool_calls=progress.tool_calls + progress.agent_tool_calls,
        usage=sum(progress.usage.values(), Usage()),
        created_at=record.created_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        text=progress.text if outcome is None else outcome.text,
        reason=None if outcome is None else outcome.reason,
        cancel_reason=record.cancel_reason,
        cut_off=cut_off,
        parent_session=None if caller is None else caller[0],
        parent_call_id=None if caller is None else caller[2],
    )


# --- the options of a turn


def _budget(options: AskOptions, model: ModelClient, default: Budget) -> Budget:
    budget = options.get("budget")
    if budget is not None and not isinstance(budget, Budget):
        raise TurnError(f"budget={budget!r:.200} is not usable; use Budget(...)")
    budget = budget or default
    if budget.cost is not None and getattr(model, "price", None) is None:
        raise TurnError(f"The budget has a cost, and the model {model_spec(model)} has no price; give it one")
    return budget


def _images(options: AskOptions) -> Sequence[Image]:
    images = options.get("images", ())
    if images is None:
        return ()
    if not isinstance(images, Sequence) or not all(isinstance(image, Image) for image in images):
        raise TurnError(f"images={images!r:.200} is not usable; use a list of Image(...)")
    return images


def _generation(options: AskOptions, core: SessionCore) -> tuple[str, bool | None, int | None]:
    """The choice of tools, whether calls may be parallel, and the most tokens of an answer."""
    choice, parallel, longest = options.get("tool_choice", "auto"), options.get("parallel"), options.get("max_tokens")
    if choice not in ("auto", "required", "none") and (not isinstance(choice, str) or choice not in core.all_tools()):
        raise TurnError(
            f"tool_choice={choice!r:.200} is not usable; use 'auto', 'required', 'none', or the name of a tool"
        )
    if parallel is not None and not isinstance(parallel, bool):
        raise TurnError(f"parallel={parallel!r:.200} is not usable; use True, False or None")
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int) or longest < 1):
        raise TurnError(f"max_tokens={longest!r:.200} is not usable; use a whole number of at least 1, or None")
    return choice, parallel, longest


def _is_model(given: object) -> TypeGuard[ModelClient]:
    return callable(getattr(given, "complete", None))
