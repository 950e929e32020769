"""The background work of a whole store, for the owner of a runtime. Owns wiring processes and schedules into it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

from toolwright.argument_checks import require_count
from toolwright.background.background import Processes
from toolwright.background.handle import Run
from toolwright.background.spawn import limits_of
from toolwright.background.worker import Worker
from toolwright.calls.active_call import identity
from toolwright.calls.authorise.authority import Origin, RuleBook, origin_of, restrict
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.calls.policy import Policy
from toolwright.clock import Clock
from toolwright.effects.journal_controller import JournaledController
from toolwright.errors import ScheduleError
from toolwright.schedules.firing import Scheduler
from toolwright.schedules.schedules import ScheduleDesk, ScheduleHandle, Schedules
from toolwright.session.parts import Shared, Starter
from toolwright.session.services.quotas import Marker, Unmarked
from toolwright.session.session import Session, require_session_id
from toolwright.stores.contracts.run_store import Limits, RunStore
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import BackgroundStores, Store
from toolwright.stores.contracts.triggers import TriggerStore


class Working:
    """The part of a runtime that works in the background."""

    clock: Clock
    policy: Policy
    _shared: Shared
    _store: Store | None
    _sessions: dict[str, Session]
    _processes: Processes

    def _session_to_work(self, session_id: str) -> Session:
        """The session of a background run."""
        raise NotImplementedError

    def _wire_work(self, worker: bool | None) -> None:
        """Let sessions start work in the background, and run it here where this runtime is to be a worker."""
        shared = self._shared
        self._processes = Processes(_Place(self), worker, [self._fire_due])
        shared.runs = self._processes.runs
        shared.schedules = self._make_schedules
        shared.triggers = self._processes.triggers

    async def drain(self, bound: float) -> None:
        """Run nothing more in the background: what runs may end within `bound` seconds, the rest is left to others."""
        await self._processes.drain(bound)

    async def runs(self, session: str | None = None, *, active: bool = False, limit: int = 1_000) -> list[Run]:
        """The background runs of the store, or of one of its sessions, the newest first: all, or those not over."""
        self._shared.require_open()
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        return await self._processes.list(session, active=active, limit=limit)

    async def run(self, id: str) -> Run:
        """The handle of a background run of any session.

        Raises:
            RunError: there is none.
        """
        self._shared.require_open()
        return await self._processes.find(id)

    async def schedules(self, session: str | None = None, *, active: bool = False) -> list[ScheduleHandle]:
        """The schedules of the store, or of one of its sessions, the oldest first: all, or those not over."""
        self._shared.require_open()
        if session is not None:
            require_session_id(session)
        desk = self._schedule_desk(self._owner)
        found = await desk.store.list(session, active=active)
        return [ScheduleHandle(desk, schedule, Unmarked(), self._shared.tools.snapshot) for schedule in found]

    async def scheduled(self, id: str) -> ScheduleHandle:
        """The handle of a schedule of any session.

        Raises:
            ScheduleError: there is none.
        """
        self._shared.require_open()
        desk = self._schedule_desk(self._owner)
        found = await desk.store.find(id)
        if found is None:
            raise ScheduleError(f"There is no schedule {id!r} in the store; `schedules` lists them", "not_found")
        return ScheduleHandle(desk, found, Unmarked(), self._shared.tools.snapshot)

    @property
    def worker(self) -> Worker | None:
        """What runs background runs in this runtime, if something does."""
        return self._processes.worker

    async def occur(self, topic: str, payload: Any = None, *, key: str | None = None) -> list[Run]:
        """Say that something occurred: every trigger of its topic that matches starts its tool. Return these runs.

        With a key it occurs once: said again with the same payload, nothing starts, and the same runs are returned.
        What is over its session's limit waits in the store, and is not lost.

        Args:
            topic: what occurred, such as "order.created".
            payload: what there is to say of it, as JSON, up to 256 KiB.
            key: what tells it from others of the topic, such as the id of an order or of a delivery.

        Raises:
            RunError: the key was used for another payload ("conflict"), or something is not usable.
        """
        self._shared.require_open()
        return await self._processes.occur(topic, payload, key)

    @property
    def _stores(self) -> BackgroundStores:
        return cast("BackgroundStores", self._shared.stores())

    # --- schedules, as sessions and the worker need them

    @cached_property
    def _scheduler(self) -> Scheduler:
        return Scheduler(self._stores.schedules, self._queueing(self.policy))

    async def _fire_due(self, now: float) -> None:
        if await self._scheduler.fire_due(now):
            self._processes.poke()

    def _queueing(self, policy: Policy) -> Limits:
        """The limits under which what is due waits, and is never refused."""
        return limits_of(policy.but(on_background_limit="queue"), self._shared.quotas.resources)

    def _make_schedules(
        self, session: Starter, marker: Marker, origin: Origin, guard: Callable[[Any], Any]
    ) -> Schedules:
        desk = self._schedule_desk(origin, guard)
        return Schedules(
            desk,
            session.id,
            marker,
            session.all_tools,
            origin.policy.schedules_per_session,
            hides=session.hides,
            require_in_every_process=session.require_in_every_process,
        )

    def _schedule_desk(self, origin: Origin, guard: Callable[[Any], Any] = lambda store: store) -> ScheduleDesk:
        return ScheduleDesk(
            guard(self._stores.schedules),
            self.clock,
            self._queueing(origin.policy),
            self._processes.poke,
            origin,
            self._shared.rules,
        )

    @property
    def _owner(self) -> Origin:
        """The owner of the runtime, under its policy; or the call that asks, if a tool uses the runtime."""
        run = CURRENT.get()
        if run is None:
            return Origin("host", self.policy, restrict((), self.policy))
        asking = origin_of(run, identity(run))
        return Origin(asking.source, self.policy, restrict(asking.restrictions, self.policy), asking.call)


class _Place:
    """What the processes of a runtime need of it, when they need it."""

    def __init__(self, runtime: Working) -> None:
        self._runtime = runtime
        self.clock = runtime.clock
        self.policy = runtime.policy

    @property
    def rules(self) -> RuleBook:
        return self._runtime._shared.rules

    @property
    def run_store(self) -> RunStore:
        return self._runtime._stores.processes

    @property
    def trigger_store(self) -> TriggerStore:
        return self._runtime._stores.triggers

    @property
    def effects(self) -> JournaledController:
        return self._runtime._shared.effects

    @property
    def quotas(self) -> Quotas:
        return self._runtime._shared.quotas

    @property
    def alone(self) -> bool:
        return self._runtime._store is None

    def session_of(self, session_id: str) -> Session:
        return self._runtime._session_to_work(session_id)

    async def redacted(self, session_id: str, text: str) -> str:
        return await self._runtime._shared.redacted(session_id, text)

    def tool_names(self) -> list[str]:
        runtime = self._runtime
        names = set(runtime._shared.tools.snapshot())
        if not runtime._shared.kept_before:
            for session in runtime._sessions.values():
                names.update(session.tools.snapshot())
        return sorted(names)
