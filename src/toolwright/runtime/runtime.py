"""The one place that opens, wires and closes everything. Owns `Runtime`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast
from weakref import WeakValueDictionary

from toolwright.app import APP_OPTIONS, OPEN_OPTIONS, App, activated, arrange
from toolwright.app_options import AppOptions, OpenOptions, RuntimeOptions, check_options, require_known
from toolwright.calls.hooks import Hooks, Projector
from toolwright.calls.policy import Policy
from toolwright.calls.record import MemoryCallLog
from toolwright.calls.redact import Redactor
from toolwright.clock import Clock, SystemClock
from toolwright.errors import ToolwrightError
from toolwright.event_bus import Subscription
from toolwright.event_file import JsonLinesSink
from toolwright.runtime.archives import Archiving
from toolwright.runtime.background import Working
from toolwright.runtime.inbox import Listening
from toolwright.runtime.lifespan import LifespanTask
from toolwright.runtime.opening import Opening
from toolwright.runtime.requirements import require_met, require_readable_secrets
from toolwright.runtime.stores import Keeping
from toolwright.session.parts import Shared
from toolwright.session.recovery import Recovered, Unfinished, recover, unfinished
from toolwright.session.session import Session, require_session_id
from toolwright.session.tool_catalogue import Offer
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import Store
from toolwright.tools.capability import Capability
from toolwright.tools.registry import Snapshot, ToolRegistry, ToolSource
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from toolwright.blocking import BlockingRuntime


class Runtime(Working, Listening, Archiving, Keeping):
    """Runs tools. Open one, take sessions from it, and close it; `async with Runtime.open(...)` does all three."""

    def __init__(self, app: App, options: OpenOptions) -> None:
        own, all_tools, active = arrange(app)
        self.app = app
        self.tools = own
        self._active = active
        self._late: tuple[Snapshot | None, tuple[Capability, ...]] = None, ()
        self.policy = policy = app.policy or Policy()
        self.clock: Clock = options.get("clock") or SystemClock()
        call_log = options.get("call_log")
        self.log: Any = MemoryCallLog() if call_log is None else call_log
        self._options = options
        self._hooks = app.hooks.and_those_of(active)
        self._shared = Shared(all_tools, policy, self.clock, self.log, app.quotas or Quotas())
        self._shared.model = app.model
        self._shared.late_capabilities = self._late_capabilities
        self._shared.open_child = self._open_child
        self._shared.redacted = self._redacted
        self._shared.redactor = self._redactor
        self._shared.tool_of = self._tool_of
        self._wire_work(options.get("worker"))
        self._sessions: dict[str, Session] = {}
        self._worked: set[str] = set()  # those that nobody but the worker has asked for yet
        # They live as long as their calls, or whoever else has taken one of them.
        self._children: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._sinks: list[JsonLinesSink] = []
        self._closing: asyncio.Task[None] | None = None
        self._master_key = options.get("master_key") or app.master_key
        self._lifespan: LifespanTask | None = None
        self._use_memory()

    @staticmethod
    def open(store: str | Path | Store = ":memory:", **options: Unpack[RuntimeOptions]) -> Opening[Runtime]:
        """Open a runtime in one line: `App(...).open(store, ...)`, which explain the options.

        `async with` the result, or await it and close the runtime later.
        """
        app, opening = _split("Runtime.open()", options)
        return app.open(store, **opening)

    @staticmethod
    def open_blocking(store: str | Path | Store = ":memory:", **options: Unpack[RuntimeOptions]) -> BlockingRuntime:
        """Open a runtime for code that is not async: the same methods, each waiting for its result."""
        app, opening = _split("Runtime.open_blocking()", options)
        return app.open_blocking(store, **opening)

    def _require_met(self, tools: Snapshot) -> None:
        """Refuse tools that need something which is not here."""
        # The offer adds the search of tools where some are deferred, and the search has needs, too.
        require_met(self.app, Offer(self.policy.defer_tools_from).complete(tools).values())

    async def _open(self, store: str | Path | Store) -> Runtime:
        options, shared = self._options, self._shared
        shared.loop = asyncio.get_running_loop()
        try:
            if self.app.lifespan is not None:
                self._lifespan = LifespanTask(self.app.lifespan)
                shared.deps = await self._lifespan.enter()
            if str(store) != ":memory:":
                await self._use(store, options.get("sync", "full"))
                if shared.kept_before and shared.tools.snapshot():
                    await require_readable_secrets(shared.stores().secrets, shared.vault.keys)
            events_file = options.get("events_file")
            if events_file is not None:
                self._sinks.append(JsonLinesSink(self.subscribe(), events_file))
            if options.get("recover"):
                await self.recover()
            self._processes.open()
        except BaseException as error:
            try:
                await self.close()
            except Exception as second:  # of the lifespan's closing: the first error is the reason
                error.add_note(f"Closing failed, too: {type(second).__name__}: {second}")
            raise
        return self

    def session(
        self,
        session_id: str,
        *,
        tools: Iterable[Any] | ToolSource = (),
        policy: Policy | None = None,
        projector: Projector | None = None,
    ) -> Session:
        """The session of this id, made when it is first asked for; later calls give the same one.

        Args:
            session_id: the name of the session, in every process.
            tools: tools that only this session has, over those of the app: one of the same name takes its place.
                Other processes do not know them, so that a background run cannot use them where a store is shared.
            policy: the policy of this session, in place of the app's.
            projector: turns an outcome into the text that the model reads, in place of the app's.
        """
        self._require_open()
        require_session_id(session_id)
        check_options(tools=tools, policy=policy, projector=projector)
        has_own = tools != ()
        if has_own:
            tools = tools if hasattr(tools, "snapshot") else ToolRegistry(tools)
            self._require_met(tools.snapshot())
        session = self._sessions.get(session_id) or self._children.get(session_id)
        if session is None:
            hooks = self._hooks if projector is None else Hooks(self._hooks.before, self._hooks.after, projector)
            session = Session(self._shared, session_id, policy or self.policy, hooks)
            if has_own:
                session.tools.push(tools)
        elif has_own or policy is not None or projector is not None:
            if session_id not in self._worked:
                raise ToolwrightError(
                    f"The session {session_id!r} is open already; give its tools and its policy when it is first made"
                )
            session.set_up(policy or session.policy, projector)
            if has_own:
                session.tools.push(tools)
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

    def _tool_of(self, session_id: str, name: str) -> Tool | None:
        session = self._sessions.get(session_id) or self._children.get(session_id)
        return (self._shared.tools if session is None else session.tools).snapshot().get(name)

    async def _redacted(self, session_id: str, text: str) -> str:
        session = self._children.get(session_id) or self._session_to_work(session_id)
        return await session.redacted(text)

    async def _redactor(self, session_id: str) -> Redactor | None:
        session = self._children.get(session_id) or self._session_to_work(session_id)
        return await session.redactor()

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """The active capabilities, with those that tools called for which were registered since the opening."""
        return (*self._active, *self._late_capabilities(self._shared.tools.snapshot()))

    def _late_capabilities(self, tools: Snapshot) -> tuple[Capability, ...]:
        """The capabilities that these tools call for beyond those that were active at the opening."""
        seen, late = self._late
        if seen is not tools:
            late = tuple(one for one in activated(self.app, tools, self._active) if one not in self._active)
            self._late = tools, late  # most sessions have the same tools
        return late

    @property
    def prompt(self) -> str:
        """What a model should be told of the active capabilities."""
        return "\n\n".join(one.prompt.strip() for one in self.capabilities if one.prompt.strip())

    async def unfinished(self, session: str | None = None, *, scope: str | None = None) -> list[Unfinished]:
        """The calls that a crash cut off and that nobody continued yet, of a session and a scope or of all."""
        self._require_open()
        if session is not None:
            require_session_id(session)
        return [] if self._store is None else await unfinished(self._store.journal, session, scope)

    async def recover(self, session: str | None = None, *, scope: str | None = None) -> list[Recovered]:
        """Finish what a crash cut off, each call by its tool's crash policy; say what was done for each.

        Without a session and a scope, all of it. The same happens to a call when its batch is run again. It returns
        when every call has its outcome or waits for something outside; those that wait continue in this process.
        """
        self._require_open()
        if session is not None:
            require_session_id(session)
        return [] if self._store is None else await recover(self._store.journal, self.session, session, scope)

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch the events of every session; close the subscription when done."""
        self._require_open()
        return self._shared.hub.subscribe(None, limit)

    async def close(self) -> None:
        """Cancel what runs, wait for it to stop within its grace, and end threads and processes.

        One that is cancelled goes on without its caller; the next one waits until everything is closed.
        """
        if self._closing is None or (self._closing.done() and not _succeeded(self._closing)):
            self._closing = asyncio.ensure_future(self._close_all())
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        # Not before this task runs: a call that began in between would be refused what it asks for, and not be stopped.
        self._shared.closed = True
        try:
            await self._close()
        finally:
            if self._lifespan is not None:
                await self._lifespan.exit()

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


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None


def _split(owner: str, options: RuntimeOptions) -> tuple[App, OpenOptions]:
    """The app that the options describe, and the options of opening it."""
    require_known(owner, options, APP_OPTIONS | OPEN_OPTIONS)
    of_app = {name: value for name, value in options.items() if name in APP_OPTIONS}
    of_opening = {name: value for name, value in options.items() if name not in APP_OPTIONS}
    return App(**cast("AppOptions", of_app)), cast("OpenOptions", of_opening)
