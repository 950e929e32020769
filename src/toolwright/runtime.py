"""The one place that opens, wires and closes everything. Owns `Runtime`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from toolwright.calls.hooks import AfterHook, BeforeHook, Hooks, Projector
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog, MemoryCallLog
from toolwright.clock import Clock, SystemClock
from toolwright.effects.store import Store
from toolwright.errors import ToolwrightError
from toolwright.hub import Subscription
from toolwright.keeping import Keeping
from toolwright.opening import Opening
from toolwright.options import check_options
from toolwright.schedules.working import Working
from toolwright.session.archiving import Archiving
from toolwright.session.keys import KeyProvider
from toolwright.session.listening import Listening
from toolwright.session.recovery import Recovered, recover
from toolwright.session.session import Session, require_session_id
from toolwright.session.shared import Shared
from toolwright.session.store import Quotas
from toolwright.sinks import JsonLinesSink
from toolwright.tools.capability import Beneath, Capability, activate, add_tools
from toolwright.tools.clients import ModelClient
from toolwright.tools.registry import ToolRegistry, ToolSource

if TYPE_CHECKING:
    from toolwright.blocking import BlockingRuntime


class Runtime(Working, Listening, Archiving, Keeping):
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
        self._shared.redacted = self._redacted
        self._wire_work(worker)
        self._sessions: dict[str, Session] = {}
        self._worked: set[str] = set()  # those that nobody but the worker has asked for yet
        # They live as long as their calls, or whoever else has taken one of them.
        self._children: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._sinks: list[JsonLinesSink] = []
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
    ) -> Opening[Runtime]:
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
        check_options(
            tools=tools,
            policy=policy,
            before=before,
            after=after,
            projector=projector,
            call_log=call_log,
            events_file=events_file,
            clock=clock,
            sync=sync,
            recover=recover,
            quotas=quotas,
            master_key=master_key,
            capabilities=capabilities,
            automatic=automatic,
            model=model,
            worker=worker,
        )
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
        return Opening(lambda: runtime._open(store, sync, recover, events_file), runtime.close)

    @staticmethod
    def open_blocking(store: str | Path | Store = ":memory:", **options: Any) -> BlockingRuntime:
        """Open a runtime for code that is not async: the same methods, each waiting for its result."""
        from toolwright.blocking import BlockingRuntime

        return BlockingRuntime(lambda: Runtime.open(store, **options))

    async def _open(
        self, store: str | Path | Store, sync: Literal["full", "normal"], recover: bool, events_file: str | Path | None
    ) -> Runtime:
        try:
            if str(store) != ":memory:":
                self._use(store, sync)
            if events_file is not None:
                self._sinks.append(JsonLinesSink(self.subscribe(), events_file))
            if recover:
                await self.recover()
            self._processes.open()
        except BaseException:
            await self.close()
            raise
        return self

    def session(self, session_id: str, *, policy: Policy | None = None, projector: Projector | None = None) -> Session:
        """The session of this id, made when it is first asked for; later calls give the same one."""
        self._require_open()
        require_session_id(session_id)
        check_options(policy=policy, projector=projector)
        session = self._sessions.get(session_id) or self._children.get(session_id)
        if session is None:
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

    def _open_child(
        self, parent: Session, session_id: str, policy: Policy, restrictions: tuple[Policy, ...]
    ) -> Session:
        session = self._sessions.get(session_id) or self._children.get(session_id)
        if session is None:
            session = self._children[session_id] = parent.child(session_id, policy)
        session.follow(policy, restrictions)
        return session

    async def _redacted(self, session_id: str, text: str) -> str:
        session = self._children.get(session_id) or self._session_to_work(session_id)
        return await session.redacted(text)

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
            await shared.stop_lingering()
        finally:
            await shared.close()
            for session in self._sessions.values():
                session.close()
        for sink in self._sinks:
            await sink.close()
        await self._close_stores()

    def _require_open(self) -> None:
        self._shared.require_open()


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
