"""The one place that opens, wires and closes everything. Owns `Runtime` and `Session`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolwright.calls.batch import Batch, BatchSetting
from toolwright.calls.execute import CallRun
from toolwright.calls.hooks import AfterHook, BeforeHook, Hooks, Projector
from toolwright.calls.host import CallHost
from toolwright.calls.isolate import ProcessPool
from toolwright.calls.lanes import CURRENT
from toolwright.calls.loops import LoopWatch
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog, MemoryCallLog
from toolwright.calls.remember import MemoryJournal, StoreJournal
from toolwright.calls.schedule import Limit, Running, Schedule
from toolwright.calls.threads import ThreadPool
from toolwright.clock import Clock, Deadlines, SystemClock
from toolwright.effects.journal import CallKey, Intent, JournalStore
from toolwright.errors import RuntimeClosed, StoreError, ToolwrightError
from toolwright.hub import EventHub, Subscription
from toolwright.sinks import JsonLinesSink
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import ToolRegistry, ToolSource, find
from toolwright.tools.scopes import ScopedRegistry
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from toolwright.blocking import BlockingRuntime

Calls = Iterable[ToolCall | Mapping[str, Any]]


class Session:
    """One conversation's calls: they keep their order among each other, in and across batches."""

    def __init__(self, runtime: Runtime, session_id: str, policy: Policy, hooks: Hooks) -> None:
        self.id = session_id
        self.policy = policy
        self.tools = ScopedRegistry(runtime.tools)
        self._runtime = runtime
        self._hooks = hooks
        self._limit = Limit(f"a slot of session {session_id!r}", policy.session_concurrency)
        self._host = CallHost(
            session_id=session_id,
            clock=runtime.clock,
            deadlines=runtime._deadlines,
            channel=runtime._hub.channel(session_id),
            threads=runtime._threads,
            processes=runtime._processes,
            schedule=Schedule(runtime._running),
            lingering=runtime._lingering,
            tasks=runtime._tasks,
            journal=MemoryJournal() if runtime._journal is None else runtime._journal,
            run_nested=self._run_nested,
        )
        self._loops = LoopWatch()
        self._setting = self._make_setting(policy)
        self._batches: set[Batch] = set()

    def start_batch(self, calls: Calls, *, scope: str = "", **changes: Any) -> Batch:
        """Start a batch and return it: await it for its outcomes, or cancel it.

        `changes` are settings of the policy that hold for this batch, such as `read_only=True`.
        """
        return self._make(calls, scope, changes, CURRENT.get()).start()

    async def run_batch(self, calls: Calls, *, scope: str = "", **changes: Any) -> list[ToolOutcome]:
        """Run calls and return one outcome for each, in call order.

        Raises:
            BatchFailed: with `continue_on_failure=False`, a call failed.
        """
        parent = CURRENT.get()
        # Nested calls take their steps in tasks of their own, or tools that call tools would exhaust the stack.
        return await self._make(calls, scope, changes, parent).start(at_once=parent is None).wait()

    async def call(self, name: str, /, **arguments: Any) -> ToolOutcome:
        """Run one tool with these arguments."""
        (outcome,) = await self.run_batch([ToolCall(name=name, arguments=arguments, source="host")])
        return outcome

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch this session's events; close the subscription when done."""
        self._runtime._require_open()
        return self._runtime._hub.subscribe(self.id, limit)

    def cancel(self, reason: str = "the session was cancelled") -> None:
        """Cancel every batch of the session that is still running."""
        for batch in list(self._batches):
            batch.cancel(reason)

    def _make(self, calls: Calls, scope: str, changes: dict[str, Any], parent: CallRun | None) -> Batch:
        self._runtime._require_open()
        if scope != "" and (not isinstance(scope, str) or encodable(scope) != scope):
            raise ToolwrightError(f"The scope {scope!r:.200} is not usable; use text")
        # What a batch may do holds for the calls that its tools make, in this session.
        above = parent.owner if parent is not None and parent.host is self._host else None
        setting = self._setting if above is None else above.setting
        if changes:
            policy = setting.policy.but(**changes)
            if above is not None and above.policy.read_only:
                policy = policy.but(read_only=True)
            setting = self._make_setting(policy)
        batch = Batch(calls, self.tools.snapshot(), setting, scope=scope, parent=parent, ended=self._batches.discard)
        self._batches.add(batch)
        return batch

    def _recovering(self, intents: list[Intent], scope: str) -> Batch:
        tools = self.tools.snapshot()
        calls = [
            ToolCall(
                id=intent.key.call_id,
                name=intent.tool if find(tools, intent.tool_id) is None else intent.tool_id,
                arguments=intent.arguments,
                source=intent.source,  # type: ignore[arg-type]
            )
            for intent in intents
        ]
        return self._make(calls, scope, {"continue_on_failure": True}, None)

    async def _run_nested(self, run: CallRun, calls: Calls) -> list[ToolOutcome]:
        return await self._make(calls, run.owner.scope, {}, run).start().wait()

    def _make_setting(self, policy: Policy) -> BatchSetting:
        return BatchSetting(
            host=self._host,
            policy=policy,
            hooks=self._hooks,
            loops=self._loops,
            call_log=self._runtime.log,
            outer_limits=(self._limit, self._runtime._limit),
            tool_limit=self._runtime._tool_limit,
        )


class Recovered(NamedTuple):
    """What recovery did for one call: "rerun", "run" where it had not begun, "interrupted", "probed", or "left".

    It is left where its tool is not known, or its arguments no longer fit.
    """

    session: str
    scope: str
    call_id: str
    tool: str
    action: str
    outcome: ToolOutcome


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
    ) -> None:
        self.tools: Any = tools if hasattr(tools, "snapshot") else ToolRegistry(tools)
        self.policy = policy
        self.clock: Clock = clock or SystemClock()
        self.log: Any = MemoryCallLog() if call_log is None else call_log
        self._hooks = hooks
        self._hub = EventHub()
        self._deadlines = Deadlines(self.clock)
        self._threads = ThreadPool(policy.runtime_concurrency)
        self._processes = ProcessPool()
        self._running = Running()
        self._limit = Limit("a slot of the runtime", policy.runtime_concurrency)
        self._tool_limits: dict[tuple[str, int], Limit] = {}
        self._lingering: set[CallRun] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sessions: dict[str, Session] = {}
        self._sinks: list[JsonLinesSink] = []
        self._store: JournalStore | None = None
        self._journal: StoreJournal | None = None
        self._closed = False
        self._ended = asyncio.Event()

    @staticmethod
    def open(
        store: str | Path = ":memory:",
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
    ) -> Opening:
        """Open a runtime: `async with` the result, or await it and close the runtime later.

        Args:
            store: where what happened is kept: the path of a file, or ":memory:" for the life of the runtime.
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
        """
        runtime = Runtime(
            tools=tools,
            policy=policy or Policy(),
            hooks=Hooks(tuple(before), tuple(after), projector),
            call_log=call_log,
            clock=clock,
        )
        return Opening(runtime, store, sync, recover, events_file)

    @staticmethod
    def open_blocking(store: str | Path = ":memory:", **options: Any) -> BlockingRuntime:
        """Open a runtime for code that is not async: the same methods, each waiting for its result."""
        from toolwright.blocking import BlockingRuntime

        return BlockingRuntime(lambda: Runtime.open(store, **options))

    def session(self, session_id: str, *, policy: Policy | None = None, projector: Projector | None = None) -> Session:
        """The session of this id, made when it is first asked for; later calls give the same one."""
        self._require_open()
        session = self._sessions.get(session_id)
        if session is None:
            if not isinstance(session_id, str) or not session_id or encodable(session_id) != session_id:
                raise ToolwrightError(f"The session id {session_id!r:.200} is not usable; use non-empty text")
            hooks = self._hooks if projector is None else Hooks(self._hooks.before, self._hooks.after, projector)
            session = self._sessions[session_id] = Session(self, session_id, policy or self.policy, hooks)
        elif policy is not None or projector is not None:
            raise ToolwrightError(f"The session {session_id!r} is open already; give its policy when it is first made")
        return session

    async def recover(self) -> list[Recovered]:
        """Finish what a crash cut off, each call by its tool's crash policy; say what was done for each.

        The same happens to a call when its batch is run again.
        """
        self._require_open()
        if self._store is None:
            return []
        done: list[Recovered] = []
        seen: set[CallKey] = set()
        while entries := [entry for entry in await self._store.unfinished() if entry.intent.key not in seen]:
            # A call of an unfinished call comes after it: run again, it makes the call itself.
            cut_off = {entry.intent.key for entry in entries}
            groups: dict[tuple[str, str], list[Intent]] = {}
            for intent in [entry.intent for entry in entries]:
                session, scope, _ = intent.key
                if intent.parent is None or CallKey(session, scope, intent.parent) not in cut_off:
                    groups.setdefault((session, scope), []).append(intent)
            if not groups:
                break
            for (session, scope), intents in groups.items():
                seen.update(intent.key for intent in intents)
                done += await self._recover(self.session(session)._recovering(intents, scope), session, scope)
        return done

    async def _recover(self, batch: Batch, session: str, scope: str) -> list[Recovered]:
        runs = batch.runs
        outcomes = await batch.start().wait()
        return [
            Recovered(session, scope, run.call_id, run.name, run.recovered or "left", outcome)
            for run, outcome in zip(runs, outcomes, strict=True)
            if not outcome.replayed  # else another process was first
        ]

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch the events of every session; close the subscription when done."""
        self._require_open()
        return self._hub.subscribe(None, limit)

    async def close(self) -> None:
        """Cancel what runs, wait for it to stop within its grace, and end threads and processes."""
        if self._closed:
            await self._ended.wait()
            return
        self._closed = True
        try:
            await self._close()
        finally:
            self._ended.set()

    async def _close(self) -> None:
        if self._journal is not None:
            self._journal.closing = True
        batches = [batch for session in self._sessions.values() for batch in session._batches]
        try:
            for session in self._sessions.values():
                session.cancel("the runtime was closed")
            if batches:
                await asyncio.gather(*(batch.settled() for batch in batches))
            for run in list(self._lingering):
                if run.task is not None:
                    run.task.cancel()
                    self._tasks.add(run.task)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=1.0)
        finally:
            for task in self._tasks:
                task.cancel()
            self._processes.close()
            self._threads.close()
            self._deadlines.close()
            self._hub.close()
        for sink in self._sinks:
            await sink.close()
        if self._store is not None:
            await self._store.close()

    def _tool_limit(self, tool: Tool) -> Limit | None:
        capacity = tool.definition.concurrency.limit
        if capacity is None:
            return None
        # A view may show a tool with another limit: each limit counts its own calls.
        key = (tool.definition.id, capacity)
        limit = self._tool_limits.get(key)
        if limit is None:
            limit = self._tool_limits[key] = Limit(f"a slot of tool {tool.name!r}", capacity)
        return limit

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("The runtime is closed; open another")


class Opening:
    """A runtime about to open: `async with` it, or await it."""

    def __init__(
        self,
        runtime: Runtime,
        store: str | Path,
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
                runtime._store = open_store(self._store, self._sync)
                runtime._journal = StoreJournal(runtime._store, runtime.clock)
            if self._events_file is not None:
                runtime._sinks.append(JsonLinesSink(runtime.subscribe(), self._events_file))
            if self._recover:
                await runtime.recover()
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


def open_store(place: str | Path, sync: Literal["full", "normal"]) -> JournalStore:
    """Open the store a place names: a path, or `sqlite:///` and a path."""
    text = str(place)
    if not isinstance(place, (str, Path)) or not text or "\0" in text:
        raise StoreError(f"The store {place!r} is not usable; use the path of a file, or ':memory:'")
    scheme, found, rest = text.partition("://")
    if found and scheme != "sqlite":
        raise StoreError(f"The store {text!r} is of a kind that is not known; use a path, or sqlite:///path")
    from toolwright.stores.sqlite.journal import SqliteJournalStore

    return SqliteJournalStore(Path(rest.removeprefix("/") if found else text), sync=sync)
