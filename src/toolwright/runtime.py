"""The one place that opens, wires and closes everything. Owns `Runtime`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from toolwright.calls.approvals import Approval
from toolwright.calls.hooks import AfterHook, BeforeHook, Hooks, Projector
from toolwright.calls.memory_journal import MemoryJournal
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog, MemoryCallLog
from toolwright.calls.store_journal import StoreJournal
from toolwright.clock import Clock, SystemClock
from toolwright.effects.effect import CallKey
from toolwright.effects.journaled import JournaledController
from toolwright.effects.memory import MemoryStore
from toolwright.effects.store import Store
from toolwright.errors import ScheduleError, StoreError, ToolwrightError
from toolwright.hub import Subscription
from toolwright.processes.processes import Processes
from toolwright.processes.run import Run
from toolwright.processes.runs import limits_of
from toolwright.processes.store import Limits, ProcessStore
from toolwright.processes.triggers import TriggerStore
from toolwright.processes.worker import Worker
from toolwright.schedules.firing import Scheduler
from toolwright.schedules.schedules import ScheduleDesk, ScheduleHandle, Schedules
from toolwright.session.archive import Exported, Imported, SessionInfo
from toolwright.session.inbox import Inbox, Resolved
from toolwright.session.kept import KeptSessions
from toolwright.session.keys import KeyProvider, default_keys
from toolwright.session.recovery import Recovered, recover
from toolwright.session.secrets import rotate
from toolwright.session.services import ServiceStores
from toolwright.session.session import Session, require_session_id
from toolwright.session.shared import Shared, Starter
from toolwright.session.store import Marker, Quotas, Unmarked
from toolwright.session.vault import Vault
from toolwright.sinks import JsonLinesSink
from toolwright.tools.capability import Beneath, Capability, activate, add_tools
from toolwright.tools.clients import ModelClient
from toolwright.tools.registry import ToolRegistry, ToolSource

if TYPE_CHECKING:
    from toolwright.blocking import BlockingRuntime
    from toolwright.stores.sqlite.services import SqliteServiceStores


class Runtime:
    """Runs tools. Open one, take sessions from it, and close it; `async with Runtime.open(...)` does all three."""

    def __init__(
        self,
        *,
        tools: Iterable[Any] | ToolSource,
        policy: Policy,
        hooks: Hooks,
        call_log: CallLog | None,
        clock: Clock | None,
        quotas: Quotas,
        master_key: KeyProvider | None,
        capabilities: Iterable[str | Capability] = (),
        automatic: Iterable[Capability] | None = None,
        model: ModelClient | None,
        worker: bool | None,
    ) -> None:
        own: Any = tools if hasattr(tools, "snapshot") else ToolRegistry(tools)
        self.tools = own
        self.capabilities = active = _active(own, capabilities, automatic)
        # What is followed is its owner's, and stays as it is: the tools of capabilities lie beneath it.
        all_tools = add_tools(active, to=Beneath(own) if active and own is tools else own)
        hooks = Hooks(
            (*(hook for one in active for hook in one.before), *hooks.before),
            (*(hook for one in active for hook in one.after), *hooks.after),
            hooks.project,
        )
        self.policy = policy
        self.clock: Clock = clock or SystemClock()
        self.log: Any = MemoryCallLog() if call_log is None else call_log
        self._hooks = hooks
        self._shared = Shared(all_tools, policy, self.clock, self.log, quotas)
        self._shared.model = model
        self._shared.open_child = self._open_child
        place = _Place(self)
        self._processes = Processes(place, worker, [self._fire_due])
        self._shared.runs = self._processes.runs
        self._shared.schedules = self._make_schedules
        self._shared.triggers = self._processes.triggers
        self._sessions: dict[str, Session] = {}
        self._worked: set[str] = set()  # those that nobody but the worker has asked for yet
        # They live as long as their calls, or whoever else has taken one of them.
        self._children: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._sinks: list[JsonLinesSink] = []
        self._store: Store | None = None
        self._journal: StoreJournal | None = None
        self._memory_stores: SqliteServiceStores | None = None
        self._ended = asyncio.Event()
        self._master_key = master_key
        self._use_memory()

    @staticmethod
    def open(
        store: str | Path | Store = ":memory:",
        *,
        tools: Iterable[Any] | ToolSource = (),
        policy: Policy | None = None,
        before: Iterable[BeforeHook] = (),
        after: Iterable[AfterHook] = (),
        projector: Projector | None = None,
        call_log: CallLog | None = None,
        events_file: str | Path | None = None,
        clock: Clock | None = None,
        sync: Literal["full", "normal"] = "full",
        recover: bool = False,
        quotas: Quotas | None = None,
        master_key: KeyProvider | None = None,
        capabilities: Iterable[str | Capability] = (),
        automatic: Iterable[Capability] | None = None,
        model: ModelClient | None = None,
        worker: bool | None = None,
    ) -> Opening:
        """Open a runtime: `async with` the result, or await it and close the runtime later.

        Args:
            store: where what happened is kept: the path of a file, or ":memory:" for the life of the runtime. A store
                that is open already will do, and is closed with the runtime.
            tools: the tools that every session has; a registry, a scope or a view is used as it is, and followed.
            policy: the owner's decisions; the defaults are those of `Policy()`.
            before: hooks that see each call before it is authorised.
            after: hooks that see each outcome before it is final.
            projector: turns an outcome into what the model reads.
            call_log: takes the records; by default the last 100,000 are kept in memory.
            events_file: a file that gets every event as a line of JSON.
            clock: where time comes from.
            sync: "full" survives a power cut; "normal" survives a killed process, and is faster.
            recover: finish what a crash cut off before anything else, as `recover` does.
            quotas: how much each session may keep.
            master_key: what secrets are sealed with. By default the keys in TOOLWRIGHT_MASTER_KEY if it is set, else
                those in a file beside the store, named after it and `.key`; in memory, one of the process.
            capabilities: what comes together, by name or as a `Capability`: tools, prompt, hooks.
            automatic: capabilities that come by themselves when one of the tools calls for them; by default those of
                the box.
            model: what tools ask with `ctx.complete`.
            worker: run background runs and schedules of the store here. By default that begins when this runtime first
                starts one itself; False leaves them to others.
        """
        runtime = Runtime(
            tools=tools,
            policy=policy or Policy(),
            hooks=Hooks(tuple(before), tuple(after), projector),
            call_log=call_log,
            clock=clock,
            quotas=quotas or Quotas(),
            master_key=master_key,
            capabilities=capabilities,
            automatic=automatic,
            model=model,
            worker=worker,
        )
        return Opening(runtime, store, sync, recover, events_file)

    @staticmethod
    def open_blocking(store: str | Path | Store = ":memory:", **options: Any) -> BlockingRuntime:
        """Open a runtime for code that is not async: the same methods, each waiting for its result."""
        from toolwright.blocking import BlockingRuntime

        return BlockingRuntime(lambda: Runtime.open(store, **options))

    def session(self, session_id: str, *, policy: Policy | None = None, projector: Projector | None = None) -> Session:
        """The session of this id, made when it is first asked for; later calls give the same one."""
        self._require_open()
        session = self._sessions.get(session_id) or self._children.get(session_id)
        if session is None:
            require_session_id(session_id)
            hooks = self._hooks if projector is None else Hooks(self._hooks.before, self._hooks.after, projector)
            session = Session(self._shared, session_id, policy or self.policy, hooks)
        elif policy is not None or projector is not None:
            if session_id not in self._worked:
                raise ToolwrightError(
                    f"The session {session_id!r} is open already; give its policy when it is first made"
                )
            session.set_up(policy or session.policy, projector)
        self._worked.discard(session_id)
        self._sessions[session_id] = session
        return session

    def _session_to_work(self, session_id: str) -> Session:
        """The session of a background run: whoever asks for it later may still say how it is to be."""
        known = session_id in self._sessions and session_id not in self._worked
        session = self.session(session_id)
        if not known:
            self._worked.add(session_id)
        return session

    def _open_child(self, parent: Session, session_id: str, policy: Policy) -> Session:
        session = self._sessions.get(session_id) or self._children.get(session_id)
        if session is None:
            session = self._children[session_id] = parent.child(session_id, policy)
        session.follow(policy)
        return session

    @property
    def prompt(self) -> str:
        """What a model should be told of the active capabilities."""
        return "\n\n".join(one.prompt.strip() for one in self.capabilities if one.prompt.strip())

    async def recover(self) -> list[Recovered]:
        """Finish what a crash cut off, each call by its tool's crash policy; say what was done for each.

        The same happens to a call when its batch is run again. It returns when every call has its outcome or waits
        for something outside; those that wait go on in this process.
        """
        self._require_open()
        return [] if self._store is None else await recover(self._store.journal, self.session)

    @cached_property
    def _scheduler(self) -> Scheduler:
        stores: Any = self._shared.stores()
        return Scheduler(stores.schedules, self._queueing(self.policy))

    async def _fire_due(self, now: float) -> None:
        if await self._scheduler.fire_due(now):
            self._processes.poke()

    def _queueing(self, policy: Policy) -> Limits:
        """The limits under which what is due waits, and is never refused."""
        return limits_of(policy.but(on_background_limit="queue"), self._shared.quotas.resources)

    def _make_schedules(
        self, session: Starter, marker: Marker, call: CallKey | None, policy: Policy, guard: Callable[[Any], Any]
    ) -> Schedules:
        desk = self._schedule_desk(policy, guard)
        origin = {"by": "host"} if call is None else {"by": "call", "scope": call.scope, "call_id": call.call_id}
        most = policy.schedules_per_session
        return Schedules(desk, session.id, marker, session.all_tools, most, origin=origin, hides=session.hides)

    def _schedule_desk(self, policy: Policy, guard: Callable[[Any], Any] = lambda store: store) -> ScheduleDesk:
        stores: Any = self._shared.stores()
        return ScheduleDesk(guard(stores.schedules), self.clock, self._queueing(policy), self._processes.poke)

    async def drain(self, bound: float) -> None:
        """Run nothing more in the background: what runs may end within `bound` seconds, the rest is left to others."""
        await self._processes.drain(bound)

    async def runs(self, session: str | None = None, *, active: bool = False, limit: int = 1_000) -> list[Run]:
        """The background runs of the store, or of one of its sessions, the newest first: all, or those not over."""
        self._require_open()
        return await self._processes.list(session, active=active, limit=limit)

    async def run(self, id: str) -> Run:
        """The handle of a background run of any session.

        Raises:
            ProcessError: there is none.
        """
        self._require_open()
        return await self._processes.find(id)

    async def schedules(self, session: str | None = None, *, active: bool = False) -> list[ScheduleHandle]:
        """The schedules of the store, or of one of its sessions, the oldest first: all, or those not over."""
        self._require_open()
        desk = self._schedule_desk(self.policy)
        found = await desk.store.list(session, active=active)
        return [ScheduleHandle(desk, schedule, Unmarked()) for schedule in found]

    async def scheduled(self, id: str) -> ScheduleHandle:
        """The handle of a schedule of any session.

        Raises:
            ScheduleError: there is none.
        """
        self._require_open()
        desk = self._schedule_desk(self.policy)
        found = await desk.store.find(id)
        if found is None:
            raise ScheduleError(f"There is no schedule {id!r} in the store; `schedules` lists them", "not_found")
        return ScheduleHandle(desk, found, Unmarked())

    @property
    def worker(self) -> Worker | None:
        """What runs background runs in this runtime, if something does."""
        return self._processes.worker

    # --- whole sessions

    async def sessions(self) -> list[SessionInfo]:
        """Every session that keeps something or has calls in the store, by id; in memory calls are not counted."""
        self._require_open()
        return await self._shared.stores().archives.list_sessions()

    async def export_session(self, session_id: str, path: str | Path, *, replace: bool = False) -> Exported:
        """Write all that a session keeps into one archive, as it is at one moment; secrets stay sealed in it.

        Its calls, runs and schedules are not part of it: what was imported does nothing by itself.

        Raises:
            ArchiveError: the file exists and is not to be replaced, or can not be written.
            ServiceError: there is no such session.
        """
        self._require_open()
        return await self._sessions_kept.export(session_id, Path(path), replace)

    async def import_session(self, path: str | Path, *, as_id: str | None = None, replace: bool = False) -> Imported:
        """Make a session of an archive, all of it or nothing, under its own id or another.

        Secrets come with it only under its own id, and where those of this store are sealed by the same master key:
        the others are left out, and named in what is returned. `replace` removes a session of this id first, with its
        calls.

        Raises:
            ArchiveError: it is not an archive of a session, or not what it says it is.
            ServiceError: the session exists, or something in the archive is not usable or too much.
        """
        self._require_open()
        return await self._sessions_kept.import_(Path(path), as_id, replace)

    async def delete_session(self, session_id: str) -> bool:
        """Remove a session that has nothing unfinished, with its calls and all it keeps; False when there is none.

        Sessions that its tools opened stay.

        Raises:
            ServiceError: something of it is unfinished.
        """
        self._require_open()
        return await self._sessions_kept.delete(session_id)

    @property
    def _sessions_kept(self) -> KeptSessions:
        return KeptSessions(self._shared.stores().archives, self._sessions, self.clock, self._shared.quotas)

    # --- what the outside world says

    async def occur(self, topic: str, payload: Any = None, *, key: str | None = None) -> list[Run]:
        """Say that something occurred: every trigger of its topic that matches starts its tool. Return these runs.

        With a key it occurs once: said again with the same payload, nothing starts, and the same runs are returned.
        What is over its session's limit waits in the store, and is not lost.

        Args:
            topic: what occurred, such as "order.created".
            payload: what there is to say of it, as JSON, up to 256 KiB.
            key: what tells it from others of the topic, such as the id of an order or of a delivery.

        Raises:
            ProcessError: the key was used for another payload ("conflict"), or something is not usable.
        """
        self._require_open()
        return await self._processes.occur(topic, payload, key)

    async def resolve(self, key: str, value: Any = None) -> Resolved:
        """Complete the call or event that a key was taken for. The first to resolve it wins.

        Raises:
            KeyRefused: the key is forged, its call is not known or over, or its session was revoked.
        """
        return await self._inbox.resolve(key, value)

    async def reject(
        self,
        key: str,
        *,
        code: str = "rejected",
        message: str = "It was rejected from outside",
        category: str = "external",
    ) -> Resolved:
        """Complete the call or event that a key was taken for with an error, which the model reads.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.reject(key, code, message, category)

    async def cancel(self, key: str, *, reason: str = "it was cancelled from outside") -> Resolved:
        """Cancel the call or event that a key was taken for.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.cancel(key, reason)

    async def signal(self, key: str, payload: Any = None) -> int:
        """Send a signal to a call, and return how many of this name it was sent so far.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.signal(key, payload)

    async def approvals(self, session: str | None = None) -> list[Approval]:
        """The calls that wait for a person, oldest first: to be approved or denied by their keys."""
        return await self._inbox.approvals(session)

    async def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Resolved:
        """Let exactly the call that asked run, once; with other arguments if they are given. The first to decide wins.

        `always` remembers the decision for later calls of the tool in the same session: `{}` for all of them, or
        `{"path": "/tmp/*"}` for those whose arguments match, text by a shell-style pattern.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.approve(key, arguments, always, by)

    async def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Resolved:
        """Keep the call that asked from running; the model reads the reason. `always` as in `approve`.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._inbox.deny(key, reason, always, by)

    async def rotate_secrets(self) -> int:
        """Move the secrets of every session to the current master key, and return how many that were.

        It may be stopped and done again; values are not decrypted for it, only their keys.

        Raises:
            SecretsError: some are sealed with a key that is not known; all others were moved.
        """
        self._require_open()
        return await rotate(self._shared.stores().secrets, self._shared.vault)

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch the events of every session; close the subscription when done."""
        self._require_open()
        return self._shared.hub.subscribe(None, limit)

    async def close(self) -> None:
        """Cancel what runs, wait for it to stop within its grace, and end threads and processes."""
        shared = self._shared
        if shared.closed:
            await self._ended.wait()
            return
        shared.closed = True
        try:
            await self._close()
        finally:
            self._ended.set()

    async def _close(self) -> None:
        shared = self._shared
        await self._processes.close()
        if self._journal is not None:
            self._journal.close()
        sessions = {*self._sessions.values(), *self._children.values()}
        batches = [batch for session in sessions for batch in session.batches]
        try:
            for session in sessions:
                session.cancel("the runtime was closed")
            if batches:
                await asyncio.gather(*(batch.settled() for batch in batches))
            for run in list(shared.lingering):
                if run.task is not None:
                    run.task.cancel()
                    shared.tasks.add(run.task)
            if shared.tasks:
                await asyncio.wait(shared.tasks, timeout=1.0)
        finally:
            for task in shared.tasks:
                task.cancel()
            await shared.effects.close()
            shared.processes.close()
            shared.threads.close()
            shared.deadlines.close()
            shared.hub.close()
            for session in self._sessions.values():
                session.close()
        for sink in self._sinks:
            await sink.close()
        if self._memory_stores is not None:
            await self._memory_stores.close()
        if self._store is not None:
            await self._store.close()

    def _use_memory(self) -> None:
        """Keep what happens for the life of the runtime."""
        shared, memory = self._shared, MemoryStore()
        shared.effects = JournaledController(memory, memory, self.clock, alone=True)
        shared.journal = lambda: MemoryJournal(memory)
        shared.stores = self._stores_in_memory
        self._keep_secrets(None)

    def _use(self, place: str | Path | Store, sync: Literal["full", "normal"]) -> None:
        """Keep what happens in the store that a place names."""
        shared = self._shared
        self._store = store = open_store(place, sync)
        self._journal = journal = StoreJournal(store.journal, self.clock)
        shared.effects = JournaledController(store.journal, store.waits, self.clock)
        shared.journal = lambda: journal
        # A store that keeps only calls leaves the services of its sessions in memory.
        services: ServiceStores | None = getattr(store, "services", None)
        shared.stores = self._stores_in_memory if services is None else lambda: services
        self._keep_secrets(None if services is None else getattr(store, "path", None))
        shared.kept_before = services is not None

    def _keep_secrets(self, path: Path | None) -> None:
        self._shared.vault = Vault(self._master_key or default_keys(path))
        self._shared.kept_before = False

    def _stores_in_memory(self) -> ServiceStores:
        """The services of a runtime without a file: made when one is first used, for most never are."""
        if self._memory_stores is None:
            from toolwright.stores.sqlite.services import SqliteServiceStores

            self._memory_stores = SqliteServiceStores.in_memory()
        return self._memory_stores

    @property
    def _inbox(self) -> Inbox:
        self._require_open()
        return Inbox(self._shared.effects, self.clock)

    def _require_open(self) -> None:
        self._shared.require_open()


class _Place:
    """What the processes of a runtime need of it, when they need it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.clock = runtime.clock
        self.policy = runtime.policy

    @property
    def process_store(self) -> ProcessStore:
        stores: Any = self._runtime._shared.stores()
        store: ProcessStore = stores.processes
        return store

    @property
    def trigger_store(self) -> TriggerStore:
        stores: Any = self._runtime._shared.stores()
        store: TriggerStore = stores.triggers
        return store

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

    def tool_names(self) -> list[str]:
        runtime = self._runtime
        names = set(runtime._shared.tools.snapshot())
        for session in runtime._sessions.values():
            names.update(session.tools.snapshot())
        return sorted(names)


class Opening:
    """A runtime about to open: `async with` it, or await it."""

    def __init__(
        self,
        runtime: Runtime,
        store: str | Path | Store,
        sync: Literal["full", "normal"],
        recover: bool,
        events_file: str | Path | None,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._sync: Literal["full", "normal"] = sync
        self._recover = recover
        self._events_file = events_file

    async def _open(self) -> Runtime:
        runtime = self._runtime
        try:
            if str(self._store) != ":memory:":
                runtime._use(self._store, self._sync)
            if self._events_file is not None:
                runtime._sinks.append(JsonLinesSink(runtime.subscribe(), self._events_file))
            if self._recover:
                await runtime.recover()
            runtime._processes.open()
        except BaseException:
            await runtime.close()
            raise
        return runtime

    def __await__(self) -> Generator[Any, None, Runtime]:
        return self._open().__await__()

    async def __aenter__(self) -> Runtime:
        return await self._open()

    async def __aexit__(self, *exc: Any) -> None:
        await self._runtime.close()


def _active(
    tools: Any, asked: Iterable[str | Capability], automatic: Iterable[Capability] | None
) -> tuple[Capability, ...]:
    from toolwright.builtin import capabilities

    return activate(
        asked,
        capabilities.capability,
        automatic=capabilities.automatic() if automatic is None else automatic,
        tools=lambda: [tool.definition for tool in tools.snapshot().values()],
    )


def open_store(place: str | Path | Store, sync: Literal["full", "normal"]) -> Store:
    """Open the store a place names: a path, or `sqlite:///` and a path. One that is open already is used as it is."""
    if not isinstance(place, (str, Path)) and hasattr(place, "journal") and hasattr(place, "waits"):
        return place
    text = str(place)
    if not isinstance(place, (str, Path)) or not text or "\0" in text:
        raise StoreError(f"The store {place!r} is not usable; use the path of a file, ':memory:', or a Store")
    scheme, found, rest = text.partition("://")
    if found and scheme != "sqlite":
        raise StoreError(f"The store {text!r} is of a kind that is not known; use a path, or sqlite:///path")
    from toolwright.stores.sqlite.store import SqliteStore

    return SqliteStore(Path(rest.removeprefix("/") if found else text), sync=sync)
