"""The processes of a runtime. Owns wiring their store, their handles and the worker of this runtime together."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import cached_property, partial
from typing import Any, Protocol

from toolwright.argument_checks import require_seconds
from toolwright.background.change_watch import Bell
from toolwright.background.claimed_run import Running
from toolwright.background.event_collector import Sink
from toolwright.background.handle import Desk, Run
from toolwright.background.spawn import LONGEST, Runs, limits_of, require_background
from toolwright.background.triggers import Triggers, occur
from toolwright.background.worker import Turn, Worker
from toolwright.calls.authorise.authority import Origin, RuleBook, origin_of
from toolwright.calls.batch import Batch
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.calls.policy import Policy
from toolwright.clock import Clock
from toolwright.effects.journal_controller import JournaledController
from toolwright.errors import RunError
from toolwright.session.parts import Starter
from toolwright.session.services.quotas import Marker, Marks, require_name
from toolwright.session.session import Session
from toolwright.stores.contracts.background_run import BackgroundRun, scope_of
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey
from toolwright.stores.contracts.run_store import Claimed, RunStore
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.triggers import TriggerStore
from toolwright.tools.call import ToolCall


class Place(Protocol):
    """What the processes of a runtime need of it."""

    clock: Clock
    policy: Policy

    @property
    def rules(self) -> RuleBook: ...

    @property
    def run_store(self) -> RunStore: ...

    @property
    def trigger_store(self) -> TriggerStore: ...

    @property
    def effects(self) -> JournaledController: ...

    @property
    def quotas(self) -> Quotas: ...

    @property
    def alone(self) -> bool:
        """True when no other process can see the store."""
        ...

    def session_of(self, session_id: str) -> Session: ...

    async def redacted(self, session_id: str, text: str) -> str: ...

    def tool_names(self) -> Sequence[str]: ...


class Processes:
    """Starts processes, and runs them here where the runtime has a worker.

    `worker` is True for one from the beginning, False for none, and None for one that begins when this runtime first
    starts a process or a schedule.
    """

    def __init__(self, place: Place, worker: bool | None, turns: Sequence[Turn] = ()) -> None:
        self._place = place
        self._wanted = worker
        self._turns = turns
        self._drained = False
        self.worker: Worker | None = None

    @cached_property
    def desk(self) -> Desk:
        """What handles of processes need."""
        place = self._place
        bell = Bell(place.run_store, place.clock, alone=place.alone)
        return Desk(
            place.run_store,
            bell,
            place.clock,
            place.quotas,
            place.effects,
            poke=self.poke,
            enter=self._enter,
            redacted=place.redacted,
            limits=limits_of(place.policy, place.quotas.resources),
            stop=self._stop,
            under=self._authority_of_caller,
        )

    def runs(self, session: Starter, marker: Marker, origin: Origin, guard: Callable[[Any], Any]) -> Runs:
        """The runs client of a session, for its host or for a call."""
        desk, parent, call = self.desk, None, origin.call
        if call is not None and isinstance(marker, Marks):
            desk = desk.guarded(guard(desk.store))
            parent = call.scope.removeprefix(RUN_SCOPE) if call.scope.startswith(RUN_SCOPE) else None
        return Runs(
            desk,
            session.id,
            marker,
            session.all_tools,
            origin,
            self._place.rules,
            parent=parent,
            hides=session.hides,
            entered=session.enter,
            require_in_every_process=session.require_in_every_process,
        )

    async def list(self, session: str | None, *, active: bool, limit: int) -> builtins.list[Run]:
        """The runs of a session or of all, the newest first, for the owner of the store."""
        return [Run(self.desk, process) for process in await self.desk.store.list(session, active=active, limit=limit)]

    async def find(self, id: str) -> Run:
        """The run of an id, whosever it is, for the owner of the store.

        Raises:
            RunError: there is none.
        """
        process = await self.desk.store.find(require_name("id of a run", id))
        if process is None:
            raise RunError(f"There is no run {id!r} in the store; `runs` lists those that there are", "not_found")
        return Run(self.desk, process)

    def triggers(
        self, session: Starter, marker: Marker, origin: Origin, guard: Callable[[Any], Any] = lambda store: store
    ) -> Triggers:
        """The triggers client of a session, for its host or for a call."""
        place = self._place
        store = guard(place.trigger_store)

        async def say(topic: str, payload: Any, key: str) -> builtins.list[Run]:
            return await self.occur(topic, payload, key, session.id)

        return Triggers(store, session, place.clock, origin, place.rules, marker, say)

    async def occur(self, topic: str, payload: Any, key: str | None, session: str | None = None) -> builtins.list[Run]:
        """Start what the triggers of a topic start for what occurred, of a session or of all."""
        under = self._authority_of_caller()
        ids = await occur(self._place.trigger_store, self._place, topic, payload, key, under, session)
        found = [process for process in [await self.desk.store.find(id) for id in ids] if process is not None]
        for process in found:
            if not process.over:
                self._place.session_of(process.session).enter(process.call)
        if found:
            self.poke()
        return [Run(self.desk, process) for process in found]

    def _authority_of_caller(self) -> bytes | None:
        """The authority of the call in which this is asked, if it is one."""
        calling = CURRENT.get()
        return None if calling is None else self._place.rules.write(origin_of(calling))

    def _enter(self, call: CallKey) -> None:
        if self._place.alone:  # a store that others see has its own way to know what is to come
            self._place.session_of(call.session).enter(call)

    async def _stop(self, id: str) -> None:
        if self.worker is not None:
            await self.worker.stop_cancelled(id)

    def open(self) -> None:
        """Begin to work, where the runtime was opened as a worker."""
        if self._wanted:
            self._work()

    def poke(self, begin: bool = True) -> None:
        """There may be something to do: for the worker of this runtime, which begins now if there is none and it may.

        Without `begin` nobody begins to work for this: what is only looked after here is for others to run.
        """
        if begin and self._wanted is not False and not self._drained:
            self._work()
        if self.worker is not None:
            self.worker.poke()

    async def close(self) -> None:
        """Stop working, and tell nobody any more what becomes of processes."""
        await self.drain()
        if "desk" in self.__dict__:
            self.desk.bell.close()

    async def drain(self, bound: float = 0.0) -> None:
        """Stop working: let what runs end within `bound` seconds, and leave the rest to others."""
        require_seconds("bound", bound)
        self._drained = True
        if self.worker is not None:
            await self.worker.close(bound)

    def _work(self) -> Worker:
        if self.worker is None:
            # Not inside the call that first started a run: what the worker runs is not part of that call.
            context = copy_context()
            context.run(CURRENT.set, None)
            self.worker = context.run(self._make_worker)
        return self.worker

    def _make_worker(self) -> Worker:
        place = self._place
        return Worker(
            self.desk.store,
            place.clock,
            self.desk.bell,
            capacity=place.policy.background_per_worker,
            tools=place.tool_names,
            start=self._start,
            turns=self._turns,
        )

    def _start(self, worker: Worker, claimed: Claimed) -> Running:
        place = self._place
        sink = Sink(claimed.process, place.clock, worker.reporting.dirty)
        return Running(
            claimed,
            self.desk.store,
            place.clock,
            place.effects.room.alarms,
            place.quotas,
            sink,
            start=partial(self._batch, worker, claimed.done),
            flush=worker.reporting.flush,
            max_crashes=place.policy.max_crashes,
        )

    def _batch(self, worker: Worker, done: bool, process: BackgroundRun, sink: Sink) -> Batch:
        session = self._place.session_of(process.session)
        if not done:
            require_background(session.tools_of_runs(), process.tool, session.policy)
        # What is done is only looked up: nothing of it can be refused any more.
        programs = (session.policy, self._place.policy)
        restrictions = () if done else self._place.rules.read(process.authority, programs)
        call = ToolCall(id=process.id, name=process.tool, arguments=process.arguments, source=process.source)
        keep_event = partial(worker.reporting.append, process, sink)
        own = process.options.timeout is not None

        def timeout(said: float | None) -> float:
            # That of the run holds, which its worker looks after; without one, that of the tool, and not the policy's.
            return LONGEST if own or said is None else said

        return session.start_apart(
            call, scope_of(process.id), sink.push, keep_event, timeout, restrictions, process.started_by
        )
