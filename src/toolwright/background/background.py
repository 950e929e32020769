"""The background work of a runtime. Owns its stores, its watchers, and when the worker of this runtime begins and ends.
Handles, clients and triggers are made of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import cached_property

from toolwright.background.change_watch import ChangeWatch
from toolwright.background.desk import Duty, RuntimeDesk
from toolwright.background.offers import Offers
from toolwright.background.worker import Worker
from toolwright.calls.active_call import CURRENT
from toolwright.calls.suspend.context_services import origin_of
from toolwright.drivers.contract import Driver, WorkKind
from toolwright.effects.wait_keys import derived_key
from toolwright.session.open_sessions import OpenSessions
from toolwright.session.parts import SharedParts
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.run_store import RunStore
from toolwright.tools.turn_protocols import TurnAction


class Background:
    """The store of background runs, and the worker that runs them here, if this runtime has one.

    `worker` is True for a worker from the beginning, False for none, and None for one that begins when this runtime
    first starts a run or a schedule. `duties` is its work beside runs, and `next_duty` gives the instant of the next of
    it that no news tells of. `driver` brings work to it, and `cancel_run` cancels a run by its id.
    """

    def __init__(
        self,
        shared: SharedParts,
        sessions: OpenSessions,
        *,
        worker: bool | None,
        duties: Sequence[Duty],
        driver: Driver,
        cancel_run: Callable[[str, str], Awaitable[object]],
        next_duty: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.shared = shared
        self.sessions = sessions
        self.worker: Worker | None = None
        self.driver = driver
        self._wanted = worker
        self._duties = duties
        self._next_duty = next_duty
        self._drained = False
        desk = RuntimeDesk(
            lambda: derived_key(shared.effects.waits.secret, "driver").hex()[:16],
            lambda: self.store,
            sessions,
            duties,
            lambda: self.worker,
            cancel_run,
            lambda: self.poke(begin=False),
            shared.policy.background_per_worker,
        )
        driver.open(desk)
        self._offers = None if driver.claims else Offers(desk, driver, shared.clock)

    @cached_property
    def store(self) -> RunStore:
        """The runs, in the store of the runtime."""
        return self.shared.stores().runs

    @cached_property
    def watch(self) -> ChangeWatch:
        """Wakes the waiters for a run here when it changed."""
        return ChangeWatch(self.store, self.shared.clock, self.shared.news)

    def enter(self, call: CallKey) -> None:
        """Let the call of a run be sent signals, also before it begins."""
        if self.shared.alone:  # a store that others see knows by itself which runs are to come
            self.sessions.core(call.session).enter(call)

    def caller_authority(self) -> bytes | None:
        """The authority of the call in which this is asked; None outside of calls."""
        calling = CURRENT.get()
        return None if calling is None else self.shared.rules.write(origin_of(calling))

    # --- the worker of this runtime

    def open(self) -> None:
        """Begin to work, where the runtime was opened as a worker."""
        if self._wanted:
            self._begin_worker()

    def poke(self, begin: bool = True) -> None:
        """Tell the worker of this runtime that there may be work. It begins now, if it may and has not yet.

        Without `begin` no worker begins for this.
        """
        if begin and self._wanted is not False and not self._drained:
            self._begin_worker()
        if self.worker is not None:
            self.worker.poke()
        if self._offers is not None:
            self._offers.poke()

    def told_cancelled(self, kind: WorkKind, id: str, reason: str) -> None:
        """Tell the driver that some work is to be cancelled."""
        if self._offers is not None:
            self._offers.cancelled(kind, id, reason)

    def told_woken(self, kind: WorkKind, id: str) -> None:
        """Tell the driver that some work continues, which had waited."""
        if self._offers is not None:
            self._offers.woken(kind, id)

    def note_turn(self, action: TurnAction, turn: str, session: str) -> None:
        """Tell the worker of this runtime about a turn that it took."""
        if self.worker is not None:
            self.worker.note_turn(action, turn, session)

    async def stop(self, id: str) -> None:
        """Stop a run here that is to be cancelled, before the worker looks for that the next time."""
        if self.worker is not None:
            await self.worker.stop_cancelled(id)

    async def drain(self, bound: float = 0.0) -> None:
        """Stop working: let active runs end within `bound` seconds, and leave the rest to other workers."""
        self._drained = True
        if self.worker is not None:
            await self.worker.close(bound)

    async def close(self) -> None:
        """Stop working, and wake the tasks that still wait for a run here."""
        await self.drain()
        if self._offers is not None:
            await self._offers.close()
        if "watch" in self.__dict__:
            self.watch.close()

    def _begin_worker(self) -> None:
        if self.worker is None:
            # Not inside the call that first started a run: the worker's runs are not part of that call.
            context = copy_context()
            context.run(CURRENT.set, None)
            chores = [duty.take for duty in self._duties]
            self.worker = context.run(
                Worker, self.store, self.shared, self.sessions, self.watch, chores, self.driver, self._next_duty
            )
            context.run(self.driver.serve)
            if self._offers is not None:
                context.run(self._offers.sweep)
