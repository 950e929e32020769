"""A runtime, as its owner uses it. Owns opening and closing; each of its methods asks one part, which `wiring` made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack, cast

from toolwright.app_options import (
    APP_OPTIONS,
    OPEN_OPTIONS,
    AppOptions,
    AppSettings,
    OpenOptions,
    RuntimeOptions,
    check_options,
    require_known,
)
from toolwright.argument_checks import require_count, require_seconds, require_text
from toolwright.background.handle import Run, find_run
from toolwright.background.triggers import occur
from toolwright.background.worker import Worker
from toolwright.blocking import open_blocking
from toolwright.blocking_types import BlockingRuntime
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.hooks import Projector
from toolwright.calls.policy import Policy
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.clock import Clock, SystemClock
from toolwright.drivers.opening import open_driver
from toolwright.effects.store_news import StoreNews
from toolwright.effects.wait_keys import derived_key
from toolwright.errors import DriverError, ToolwrightError
from toolwright.event_bus import Subscription
from toolwright.event_file import EventFile
from toolwright.runtime.agents import release_model
from toolwright.runtime.call_history import MemoryCallHistory
from toolwright.runtime.capabilities import arrange
from toolwright.runtime.lifespan import LifespanTask
from toolwright.runtime.opening import Opening
from toolwright.runtime.requirements import require_met, require_readable_secrets
from toolwright.runtime.stores import open_storage
from toolwright.runtime.wiring import Parts, prompt_of, wire
from toolwright.schedules.schedules import ScheduleHandle, find_schedule, list_schedules
from toolwright.session.archive.format import Exported, Imported
from toolwright.session.open_sessions import require_session_id
from toolwright.session.open_waits import Resolved
from toolwright.session.recovery import Recovered, Unfinished, continued, recover, unfinished
from toolwright.session.secrets.secrets import rotate
from toolwright.session.session import Session
from toolwright.session.tool_catalogue import Offer
from toolwright.stores.contracts.archives import SessionInfo
from toolwright.stores.contracts.call_history import CallHistory
from toolwright.stores.contracts.event_log import EventPage
from toolwright.stores.contracts.store import BackgroundStores, Store
from toolwright.stores.contracts.tokens import TokenStore
from toolwright.stores.contracts.waits import WaitStore
from toolwright.stores.opening import MEMORY
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import Snapshot, ToolRegistry, ToolSource
from toolwright.tools.remote_tools import RemoteStatus
from toolwright.tools.turn_protocols import TurnClient, TurnInfo


class Runtime:
    """Runs tools. Open one, take sessions from it, and close it; `async with Runtime.open(...)` does all three."""

    def __init__(self, parts: Parts) -> None:
        """For `open_app`; use `Runtime.open` or `App.open`."""
        self._parts = parts
        self._closing: asyncio.Task[None] | None = None
        self.app = parts.app
        self.tools: ToolRegistry = parts.arranged.own
        """The tools that the app was given. A registry that is made for this runtime takes more tools."""
        self.policy = parts.shared.policy
        self.clock = parts.shared.clock
        self.log: Any = parts.shared.call_log
        """The records of calls."""

    def __repr__(self) -> str:
        parts = self._parts
        store = "in memory" if parts.storage.store is None else f"over {type(parts.storage.store).__name__}"
        closed = ", closed" if parts.shared.lifetime.closed else ""
        return f"<Runtime {store}: {len(self.tools.snapshot())} tools, {len(parts.sessions.all())} sessions{closed}>"

    # --- opening and closing

    @staticmethod
    def open(store: str | Path | Store = ":memory:", **options: Unpack[RuntimeOptions]) -> Opening[Runtime]:
        """Open a runtime in one line: `App(...).open(store, ...)`, which explain the options.

        `async with` the result, or await it and close the runtime later.
        """
        app, opening = _split("Runtime.open()", options)
        return open_app(app, store, opening)

    @staticmethod
    def open_blocking(store: str | Path | Store = ":memory:", **options: Unpack[RuntimeOptions]) -> BlockingRuntime:
        """Open a runtime for code that is not async: the same methods, each waiting for its result."""
        app, opening = _split("Runtime.open_blocking()", options)
        return open_blocking(lambda: open_app(app, store, opening))

    async def close(self) -> None:
        """Cancel running work, wait for it to stop within its grace, and end threads and processes.

        When this is cancelled the closing continues; the next `close` waits until everything is closed.
        """
        if self._closing is None or (self._closing.done() and not _succeeded(self._closing)):
            self._closing = asyncio.ensure_future(_close(self._parts))
        await asyncio.shield(self._closing)

    # --- sessions

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
        parts = self._open_parts()
        require_session_id(session_id)
        check_options(tools=tools, policy=policy, projector=projector)
        own = None
        if tools != ():
            own = cast("ToolSource", tools) if hasattr(tools, "snapshot") else ToolRegistry(tools)
            _require_met(parts.app, own.snapshot())
        session = parts.sessions.session(session_id, own, policy, projector)
        session.opened_by = self
        return session

    async def sessions(
        self, only: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[SessionInfo]:
        """Every session that has records, calls or turns in the store, by id; in memory calls are not counted.

        With `only`, the one of this id, if there is one. With a `limit`, at most so many, those after the id `after`: a
        page costs no more when there are many sessions.
        """
        if only is not None:
            require_session_id(only)
        if limit is not None:
            require_count("limit", limit)
        after = encodable(require_text("after", after))
        return await self._open_parts().archives.list_sessions(only, after=after, limit=limit)

    async def export_session(self, session_id: str, path: str | Path, *, replace: bool = False) -> Exported:
        """Write the contents of a session into one archive, as they are at one moment; secrets stay sealed in it.

        Its calls, turns, runs and schedules are not part of it: a session that was imported does nothing by itself.
        Its history is, so that it can be asked on.

        Raises:
            ArchiveError: the file exists and is not to be replaced, or cannot be written.
            ServiceError: there is no such session.
        """
        return await self._open_parts().archives.export(session_id, path, replace)

    async def import_session(self, path: str | Path, *, as_id: str | None = None, replace: bool = False) -> Imported:
        """Make a session of an archive, all of it or nothing, under its own id or another.

        Secrets come with it only under its own id, and where the secrets of this store are sealed by the same master
        key: the others are left out, and named in the result. `replace` removes a session of this id first, with its
        calls.

        Raises:
            ArchiveError: it is not an archive of a session, or its content does not match its index.
            ServiceError: the session exists, or something in the archive is not usable or too much.
        """
        return await self._open_parts().archives.import_(path, as_id, replace)

    async def delete_session(self, session_id: str) -> bool:
        """Remove a session that has nothing unfinished, with its calls, turns and contents; False when there is none.

        Sessions that its tools opened stay.

        Raises:
            ServiceError: something of it is unfinished.
        """
        return await self._open_parts().archives.delete(session_id)

    async def rotate_secrets(self) -> int:
        """Move the secrets of every session to the current master key, and return how many that were.

        It may be stopped and done again; values are not decrypted for it, only their keys.

        Raises:
            SecretsError: some are sealed with a key that is not known; all others were moved.
        """
        shared = self._open_parts().shared
        return await rotate(shared.stores().secrets, shared.vault)

    def derive_key(self, purpose: str) -> bytes:
        """A secret key of 32 bytes for a purpose, such as to seal the state of a protocol. Every process that has the
        store open derives the same; in memory it lasts as long as the runtime."""
        return derived_key(self._open_parts().shared.effects.waits.secret, purpose)

    # --- after a crash

    async def unfinished(self, session: str | None = None, *, scope: str | None = None) -> list[Unfinished]:
        """The calls that a crash cut off and that were not continued yet, of a session and a scope or of all."""
        store = self._open_parts().storage.store
        if session is not None:
            require_session_id(session)
        return [] if store is None else await unfinished(store.journal, session, scope)

    async def recover(self, session: str | None = None, *, scope: str | None = None) -> list[Recovered]:
        """Finish the calls that a crash cut off, each by its tool's crash policy; return the action for each.

        Turns that a crash cut off are continued, too, and are among what is returned, by their ids:
        `session.wait_for_idle()` waits for them.

        Without a session and a scope, all of them. The same happens to a call when its batch is run again. It returns
        when every call has its outcome or waits for something outside; waiting calls continue in this process.
        """
        parts = self._open_parts()
        if session is not None:
            require_session_id(session)
        store = parts.storage.store
        if store is None:
            return []
        recovered = await recover(store.journal, parts.sessions, session, scope)
        if scope is None:
            recovered += map(continued, await self.recover_turns(session))
        return recovered

    async def recover_turns(self, session: str | None = None) -> list[TurnClient]:
        """Continue the turns that a crash cut off, of a session or of all; return their handles, to await or follow.

        `recover` does the same, and finishes calls that belong to no turn as well.
        """
        parts = self._open_parts()
        if session is not None:
            require_session_id(session)
        return [] if not parts.shared.durable else list(await parts.turns.recover(session))

    # --- waiting calls: decisions of a person or another program

    async def resolve(self, key: str, value: object = None) -> Resolved:
        """Complete the call or event that a key was taken for. The first to resolve it wins.

        Raises:
            KeyRefused: the key is forged, its call is not known or finished, or its session was revoked.
        """
        return await self._open_parts().inbox.resolve(key, value)

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
        return await self._open_parts().inbox.reject(key, code, message, category)

    async def cancel(self, key: str, *, reason: str = "it was cancelled from outside") -> Resolved:
        """Cancel the call or event that a key was taken for.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._open_parts().inbox.cancel(key, reason)

    async def expire(self, key: str) -> Resolved:
        """Let the wait of the call or event that a key was taken for come to its deadline now: it fails as "expired".

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._open_parts().inbox.expire(key)

    async def signal(self, key: str, payload: object = None) -> int:
        """Send a signal to a call, and return how many of this name it was sent so far.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._open_parts().inbox.signal(key, payload)

    async def approvals(self, session: str | None = None) -> list[Approval]:
        """The calls that wait for a person, oldest first: to be approved or denied by their keys."""
        return await self._open_parts().inbox.approvals(session)

    async def decisions(
        self, session: str | None = None, *, limit: int = 100, before: int | None = None
    ) -> list[Approval]:
        """Approvals that were decided, expired or cancelled, the newest first, each with its `decision`.

        For the next page, pass the `number` of the last one as `before`. They are stored as long as their calls.
        """
        return await self._open_parts().inbox.decisions(session, limit, before)

    async def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved:
        """Let exactly the call that asked run, once; with other arguments if they are given. The first to decide wins.

        `always` remembers the decision for later calls of the tool in the same session: `{}` for all of them, or
        `{"path": "/tmp/*"}` for calls whose arguments match, text by a shell-style pattern. A path parameter, declared
        by the tool's `reads=`, `writes=` or type, is matched by its resolved path: `/tmp/../etc` is not in `/tmp`.

        `by` names the person who decides, and `via` tells from where, such as an address. Both are stored, and are in
        `decisions` and in the `decision` of the outcome.

        Raises:
            KeyRefused: as for `resolve`.
            ToolwrightError: the other arguments do not fit the tool, where this runtime has it. The request stays open.
        """
        return await self._open_parts().inbox.approve(key, arguments, always, by, via)

    async def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved:
        """Deny the call; the model reads the reason. `always` as in `approve`.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._open_parts().inbox.deny(key, reason, always, by, via)

    async def questions(
        self, session: str | None = None, *, decided: bool = False, limit: int = 100, before: int | None = None
    ) -> list[Question]:
        """The questions of tools that wait for a person, oldest first: to be answered or declined by their keys.

        With `decided`, those that were answered or declined, expired or were cancelled, the newest first, each with its
        `decision` and `answer`; `limit` and `before` are as in `decisions`, and hold for these only.
        """
        return await self._open_parts().inbox.questions(session, decided, limit, before)

    async def answer(self, key: str, value: object, *, by: str | None = None, via: str | None = None) -> Resolved:
        """Answer a question of a tool. The first to answer or decline it wins.

        `by` names the person who answers, and `via` tells from where, such as an address. Both are stored, and are in
        the `decision` of the question.

        Raises:
            KeyRefused: as for `resolve`.
            ToolwrightError: the answer does not fit the schema of the question, or has no JSON form. The question stays
                open.
        """
        return await self._open_parts().inbox.answer(key, value, by, via)

    async def decline(
        self, key: str, reason: str | None = None, *, by: str | None = None, via: str | None = None
    ) -> Resolved:
        """Decline a question of a tool: it fails there as "declined", and the tool reads the reason.

        Raises:
            KeyRefused: as for `resolve`.
        """
        return await self._open_parts().inbox.decline(key, reason, by, via)

    # --- turns

    async def turns(
        self, session: str | None = None, *, active: bool = False, limit: int = 100, prefix: str = ""
    ) -> list[TurnInfo]:
        """The turns of the store, or of one of its sessions, the newest first: all, or those not finished.

        With a `prefix`, only those whose id begins with it.
        """
        turns = self._open_parts().turns
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        prefix = encodable(require_text("prefix", prefix))
        return await turns.list(session, active=active, limit=limit, prefix=prefix)

    async def turn(self, id: str) -> TurnClient:
        """The handle of a turn of any session.

        Raises:
            TurnError: there is none.
        """
        return await self._open_parts().turns.get(id)

    # --- the background work of the whole store

    async def runs(self, session: str | None = None, *, active: bool = False, limit: int = 1_000) -> list[Run]:
        """The background runs of the store, or of one of its sessions, the newest first: all, or those not finished."""
        background = self._open_parts().background
        if session is not None:
            require_session_id(session)
        require_count("limit", limit)
        return [Run(background, run) for run in await background.store.list(session, active=active, limit=limit)]

    async def run(self, id: str) -> Run:
        """The handle of a background run of any session.

        Raises:
            RunError: there is none.
        """
        return await find_run(self._open_parts().background, id)

    async def schedules(self, session: str | None = None, *, active: bool = False) -> list[ScheduleHandle]:
        """The schedules of the store, or of one of its sessions, the oldest first: all, or those not finished."""
        background = self._open_parts().background
        if session is not None:
            require_session_id(session)
        return await list_schedules(background, session, active=active)

    async def scheduled(self, id: str) -> ScheduleHandle:
        """The handle of a schedule of any session.

        Raises:
            ScheduleError: there is none.
        """
        return await find_schedule(self._open_parts().background, id)

    async def occur(self, topic: str, payload: object = None, *, key: str | None = None) -> list[Run]:
        """Report an occurrence: every trigger of its topic that matches starts its tool. Return these runs.

        With a key it occurs once: said again with the same payload, nothing starts, and the same runs are returned.
        A run beyond the limits of its session waits in the store, and is not lost.

        Args:
            topic: the kind of occurrence, such as "order.created".
            payload: its data, as JSON, up to 256 KiB.
            key: its identity within the topic, such as the id of an order or of a delivery.

        Raises:
            RunError: the key was used for another payload ("conflict"), or something is not usable.
        """
        return await occur(self._open_parts().background, topic, payload, key)

    @property
    def worker(self) -> Worker | None:
        """The worker of this runtime, if it has one."""
        return self._parts.background.worker

    async def drain(self, bound: float) -> None:
        """Stop background work: active runs and turns may end within `bound` seconds; other workers get the rest.

        A turn that waits for something outside is not waited for. One that is still at work then continues here until
        the runtime is closed, and after that on another worker.
        """
        require_seconds("bound", bound)
        await asyncio.gather(self._parts.background.drain(bound), self._parts.turns.drain(bound))

    # --- information for the model and the owner

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """The active capabilities, with those of tools that were registered since the opening."""
        parts = self._parts
        return (*parts.arranged.active, *parts.late_capabilities.of(parts.shared.tools.snapshot()))

    def definitions(self) -> list[ToolDefinition]:
        """The definitions of the tools that every session has, by name: those of the app and of its capabilities."""
        return [tool.definition for _, tool in sorted(self._open_parts().shared.tools.snapshot().items())]

    def servers(self) -> list[RemoteStatus]:
        """The servers among the tools of the app, such as MCP servers: whether each is connected, and its tools."""
        return self._open_parts().remote.status()

    @property
    def prompt(self) -> str:
        """The prompt of the active capabilities, for the model."""
        parts = self._parts
        return prompt_of(parts.arranged, parts.late_capabilities, parts.shared.tools)

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch the events of every session; close the subscription when done."""
        return self._open_parts().shared.events.subscribe(None, limit)

    async def event_log(self, after: int | None = None, *, limit: int = 1_000) -> EventPage:
        """The next events of every process on the store beyond a number, in one order; `last` of a page is the number
        to continue from, also in another process and after a restart.

        Without a number there are no events in the page, and its `last` is that of the newest. Progress and output of a
        call are among them if it belongs to a turn or is a background run. In memory, the log begins with the first
        look at it, and has the latest 10,000 events of this runtime.
        """
        parts = self._open_parts()
        if after is not None:
            require_count("number of an event", after, 0)
        require_count("limit", limit)
        return await parts.event_log.after(after, limit)

    def _open_parts(self) -> Parts:
        lifetime = self._parts.shared.lifetime
        if lifetime.closed or asyncio._get_running_loop() is not lifetime.loop:
            lifetime.require_open()
        return self._parts


def news_of(runtime: Runtime) -> StoreNews:
    """The news of the store of a runtime."""
    return runtime._parts.storage.news


def runtime_of(session: Session) -> Runtime:
    """The runtime that a session was taken from.

    Raises:
        ToolwrightError: the session was not taken from a runtime.
    """
    if not isinstance(session.opened_by, Runtime):
        raise ToolwrightError(f"{session!r} was not taken from a runtime; use runtime.session(...)")
    return session.opened_by


def history_of(runtime: Runtime) -> CallHistory:
    """The batches and calls of the store of a runtime, or those that a runtime in memory remembers."""
    parts = runtime._open_parts()
    return parts.storage.stores().history if parts.storage.durable else MemoryCallHistory(runtime.log)


def session_of_key(runtime: Runtime, key: str) -> str:
    """The session of the call that a key was taken for.

    Raises:
        KeyRefused: it was not made by this store.
    """
    return runtime._open_parts().shared.effects.read_key(key).call.session


def leave_session(runtime: Runtime, session_id: str) -> bool:
    """Hold a session in memory only as long as other code does; False where it must stay for now, for its work or its
    secrets."""
    return runtime._open_parts().sessions.leave_idle(session_id)


def stores_of(runtime: Runtime) -> BackgroundStores:
    """The stores of a runtime, for the rooms above it that keep records of their own."""
    return runtime._open_parts().storage.stores()


def waits_of(runtime: Runtime) -> WaitStore:
    """What calls of the store wait for, and the signals that were sent to them."""
    return runtime._open_parts().shared.effects.waits


def is_durable(runtime: Runtime) -> bool:
    """True when other processes can open the store of a runtime, and continue its work."""
    return runtime._open_parts().storage.durable


def tokens_of(runtime: Runtime) -> TokenStore:
    """The tokens by which callers of the HTTP service are known."""
    return runtime._open_parts().shared.stores().tokens


def open_app(app: AppSettings, store: str | Path | Store, options: OpenOptions) -> Opening[Runtime]:
    """Open an app over a store. Missing requirements are refused at once, before anything is opened.

    Raises:
        CapabilityError: a capability cannot be used.
        MissingRequirement: a tool needs something that is not here.
    """
    check_options(**options)
    arranged = arrange(app)
    _require_met(app, arranged.tools.snapshot())

    async def open_runtime() -> Runtime:
        clock: Clock = options.get("clock") or SystemClock()
        driver = open_driver(options.get("driver"), clock)
        if not driver.claims and str(store) == MEMORY:
            raise DriverError(
                "A driver brings work to the workers of a store that they share, and this runtime is in memory; "
                "give it a file or the URL of a store"
            )
        lifespan, storage = None if app.lifespan is None else LifespanTask(app.lifespan), None
        try:
            deps = NO_LIFESPAN if lifespan is None else await lifespan.enter()
            keys = options.get("master_key") or app.master_key
            storage = await open_storage(store, options.get("sync", "full"), clock, keys)
            runtime = Runtime(wire(app, arranged, options, storage, clock, lifespan, deps, driver))
        except BaseException as error:
            if storage is not None:  # such as when the model has no key
                await _close_after(error, storage.close)
            if lifespan is not None:
                await _close_after(error, lifespan.exit)
            raise
        try:
            await _start(runtime, runtime._parts, options)
        except BaseException as error:
            await _close_after(error, runtime.close)
            raise
        return runtime

    return Opening(open_runtime)


async def _start(runtime: Runtime, parts: Parts, options: OpenOptions) -> None:
    shared = parts.shared
    if shared.durable and shared.tools.snapshot():
        await require_readable_secrets(shared.stores().secrets, shared.vault.keys)
    events_file = options.get("events_file")
    if events_file is not None:
        parts.event_files.append(EventFile(runtime.subscribe(), events_file))
    # Before the recovery, which runs calls of their tools.
    await parts.remote.open(parts.app, parts.arranged, parts.sessions)
    if parts.app.telemetry is not None:
        parts.closing.append(parts.app.telemetry.opened(lambda: _state_of(runtime.worker)))
    if options.get("recover"):
        parts.late_recovery.watch(await runtime.recover(), lambda session, scope: runtime.recover(session, scope=scope))
    parts.background.open()


def _state_of(worker: Worker | None) -> Mapping[str, Any] | None:
    return None if worker is None else worker.state()


async def _close_after(error: BaseException, close: Callable[[], Awaitable[None]]) -> None:
    """Close the parts that were opened before an error, which stays the reason."""
    try:
        await close()
    except Exception as second:  # such as an error of the lifespan
        error.add_note(f"Closing failed, too: {type(second).__name__}: {second}")


async def _close(parts: Parts) -> None:
    # Not before this task runs: a call that began in between would get refusals, and not be stopped.
    parts.shared.lifetime.closed = True
    try:
        await _stop(parts)
    finally:
        await parts.agents.close()
        if parts.lifespan is not None:
            await parts.lifespan.exit()


async def _stop(parts: Parts) -> None:
    parts.late_recovery.close()
    await parts.background.close()
    await parts.turns.close()
    await parts.background.driver.close()
    if parts.storage.journal is not None:
        parts.storage.journal.close()
    sessions = parts.sessions.all()
    batches = [batch for session in sessions for batch in session.batches]
    try:
        for session in sessions:
            session.cancel("the runtime was closed")
        if batches:
            await asyncio.gather(*(batch.settled() for batch in batches))
        await parts.shared.stop_lingering()
    finally:
        await parts.remote.close()
        await parts.shared.close()
        parts.sessions.close()
        await release_model(parts.shared.model)
    for file in parts.event_files:
        await file.close()
    for close in parts.closing:
        close()
    await parts.storage.close()


def _require_met(app: AppSettings, tools: Snapshot) -> None:
    """Refuse tools that need something which is not here."""
    # The offer adds the search of tools where some are deferred, and the search has needs, too.
    require_met(app, Offer((app.policy or Policy()).defer_tools_from).complete(tools).values())


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None


def _split(owner: str, options: RuntimeOptions) -> tuple[AppSettings, OpenOptions]:
    """The app that the options describe, and the options of opening it."""
    require_known(owner, options, APP_OPTIONS | OPEN_OPTIONS)
    of_app = {name: value for name, value in options.items() if name in APP_OPTIONS}
    of_opening = {name: value for name, value in options.items() if name not in APP_OPTIONS}
    return AppSettings(**cast("AppOptions", of_app)), cast("OpenOptions", of_opening)
