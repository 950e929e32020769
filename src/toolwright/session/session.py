"""A session. Owns making its batches and what they share; does not own the way of a call."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from toolwright import jsonx
from toolwright.calls.batch import Batch
from toolwright.calls.connecting import provider_of
from toolwright.calls.deadlock import Running
from toolwright.calls.execute import CallRun
from toolwright.calls.hooks import Hooks, Projector
from toolwright.calls.host import CallHost, KeepEvent
from toolwright.calls.isolate import ProcessPool
from toolwright.calls.lanes import CURRENT
from toolwright.calls.loops import LoopWatch
from toolwright.calls.memory_journal import MemoryJournal
from toolwright.calls.outside import enter
from toolwright.calls.policy import Policy
from toolwright.calls.redact import Redactor
from toolwright.calls.schedule import Schedule
from toolwright.calls.setting import BatchSetting
from toolwright.calls.threads import ThreadPool
from toolwright.calls.tickets import Limit
from toolwright.clock import Clock, Deadlines
from toolwright.effects.effect import PROCESS_SCOPE, CallKey
from toolwright.effects.journal import Intent
from toolwright.effects.journaled import JournaledController
from toolwright.effects.waits import Resolution
from toolwright.errors import KeyRefused, RuntimeClosed, ToolwrightError
from toolwright.events import AnyEvent
from toolwright.hub import Channel, EventHub, Subscription
from toolwright.session.attachments import Attachments
from toolwright.session.children import SENDERS, ChildSession, SessionState, child_id
from toolwright.session.connections import MOST, require_provider, to_detail
from toolwright.session.files import Files
from toolwright.session.idle import wait_for_idle
from toolwright.session.keyvalue import KeyValue
from toolwright.session.known import KnownSecrets
from toolwright.session.logs import unguard_logs
from toolwright.session.messages import Messages
from toolwright.session.offer import Offer, SessionCatalogue
from toolwright.session.outputs import keep_output
from toolwright.session.resources import Resources
from toolwright.session.secrets import Secrets
from toolwright.session.services import ServiceStores, SessionServices
from toolwright.session.store import Marker, Marks, Quotas, Unmarked
from toolwright.session.vault import Vault
from toolwright.tools.background import RunClient, RunsClient, ScheduleClient, SchedulesClient, Trigger, TriggersClient
from toolwright.tools.call import ToolCall
from toolwright.tools.clients import ModelClient
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import Snapshot, ToolSource, find
from toolwright.tools.scopes import ScopedRegistry
from toolwright.tools.services import Connection
from toolwright.tools.tool import Tool

Calls = Iterable[ToolCall | Mapping[str, Any]]


def require_session_id(session_id: Any) -> None:
    """Refuse what can not be the id of a session.

    Raises:
        ToolwrightError: it is not text, or has no form in UTF-8.
    """
    if not isinstance(session_id, str) or not session_id or encodable(session_id) != session_id:
        raise ToolwrightError(f"The session id {session_id!r:.200} is not usable; use non-empty text")


class Shared:
    """What a runtime lends to all of its sessions."""

    effects: JournaledController
    journal: Callable[[], Any]
    stores: Callable[[], ServiceStores]
    vault: Vault
    kept_before: bool
    """True when sessions may have secrets that an earlier process wrote."""
    open_child: Callable[[Session, str, Policy], Session]
    runs: Callable[[Session, Marker, CallKey | None, Policy, Callable[[Any], Any]], RunsClient]
    """Makes the runs client of a session, for its host or for a call."""
    schedules: Callable[[Session, Marker, CallKey | None, Policy, Callable[[Any], Any]], SchedulesClient]
    """The same for its schedules."""
    triggers: Callable[[Session], TriggersClient]
    """Makes the client of a session's triggers."""
    model: ModelClient | None = None

    def __init__(self, tools: Any, policy: Policy, clock: Clock, log: Any, quotas: Quotas) -> None:
        self.tools = tools
        self.quotas = quotas
        self.clock = clock
        self.log = log
        self.hub = EventHub()
        self.deadlines = Deadlines(clock)
        self.threads = ThreadPool(policy.runtime_concurrency)
        self.processes = ProcessPool()
        self.running = Running()
        self.limit = Limit("a slot of the runtime", policy.runtime_concurrency)
        self.lingering: set[CallRun] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.closed = False
        self._tool_limits: dict[tuple[str, int], Limit] = {}

    def tool_limit(self, tool: Tool) -> Limit | None:
        """The limit of a tool that has one, the same for every session."""
        capacity = tool.definition.concurrency.limit
        if capacity is None:
            return None
        # A view may show a tool with another limit: each limit counts its own calls.
        key = (tool.definition.id, capacity)
        limit = self._tool_limits.get(key)
        if limit is None:
            limit = self._tool_limits[key] = Limit(f"a slot of tool {tool.name!r}", capacity)
        return limit

    def require_open(self) -> None:
        """Refuse work once the runtime is closed.

        Raises:
            RuntimeClosed: it is.
        """
        if self.closed:
            raise RuntimeClosed("The runtime is closed; open another")


class Session:
    """One conversation's calls: they keep their order among each other, in and across batches."""

    def __init__(
        self, shared: Shared, session_id: str, policy: Policy, hooks: Hooks, tools: ToolSource | None = None
    ) -> None:
        self.id = session_id
        self.policy = policy
        self.tools = ScopedRegistry(shared.tools if tools is None else tools)
        self._offer = Offer(policy.defer_tools_from)
        self._shared = shared
        self._hooks = hooks
        self._limit = Limit(f"a slot of session {session_id!r}", policy.session_concurrency)
        self._known = KnownSecrets(session_id, shared.vault, self._redact)
        self._host = CallHost(
            session_id=session_id,
            clock=shared.clock,
            deadlines=shared.deadlines,
            channel=shared.hub.channel(session_id),
            threads=shared.threads,
            processes=shared.processes,
            schedule=Schedule(shared.running),
            lingering=shared.lingering,
            tasks=shared.tasks,
            journal=shared.journal(),
            effects=shared.effects,
            connected_since=self._connected_since,
            services=self._call_services,
            keep_output=self._keep_output,
            run_nested=self._run_nested,
            keeper=self._known,
            know=self._know if shared.kept_before else None,
            open_child=self._open_child,
            model=shared.model,
        )
        # Those of processes, each apart from the others; they redact what the session's own redacts.
        self._hosts: list[CallHost] = [self._host]
        self._loops = LoopWatch()
        self._setting = self._make_setting(policy)
        self._batches: dict[Batch, None] = {}  # in the order they were started
        # Of background runs and what they call: nobody who waits for the session, or cancels it, means these.
        self._apart: dict[Batch, None] = {}

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
        self._shared.require_open()
        return self._shared.hub.subscribe(self.id, limit)

    def cancel(self, reason: str = "the session was cancelled") -> None:
        """Cancel every batch of the session that is still running. Background runs go on; each has its own `cancel`."""
        for batch in list(self._batches):
            batch.cancel(reason)

    async def cancel_waits(self, reason: str = "the waits of the session were cancelled") -> int:
        """Cancel whatever the session's calls wait for outside, in every process; return how many waits there were."""
        self._shared.require_open()
        return await self._shared.effects.room.cancel_all(self.id, reason, revoke=False)

    async def revoke(self, reason: str = "the session was revoked") -> int:
        """Cancel the waits of the session, and refuse its keys and waits from now on, for good."""
        self._shared.require_open()
        return await self._shared.effects.room.cancel_all(self.id, reason, revoke=True)

    @property
    def files(self) -> Files:
        """The files of the session."""
        return self._services.files

    @property
    def kv(self) -> KeyValue:
        """What the session keeps under names it chose."""
        return self._services.kv

    @property
    def secrets(self) -> Secrets:
        """Values that tools may use and models never see."""
        return self._services.secrets

    @property
    def catalogue(self) -> SessionCatalogue:
        """The tools of the session, and which of them the model sees in full."""
        return self._catalogue(self.kv)

    async def offered(self) -> list[ToolDefinition]:
        """The definitions to give to the model for its next answer: a deferred tool is a stub until it was revealed."""
        return await self.catalogue.offered()

    @property
    def messages(self) -> Messages:
        """The conversation of the session."""
        return self._services.messages

    @property
    def attachments(self) -> Attachments:
        """Content that travels with messages and outcomes."""
        return self._services.attachments

    @property
    def resources(self) -> Resources:
        """What the session uses or made outside."""
        return self._services.resources

    # --- work that outlives the batch

    async def spawn(self, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> RunClient:
        """Start a tool that supports it in the background, and return the handle of its run.

        `options` are those of `toolwright.processes.Runs.spawn`: title, timeout, signal_on_completion, disposition, id.

        Raises:
            ProcessError: the tool can not run in the background, there are too many runs, or something is not usable.
        """
        await self.know_secrets()
        return await self._runs.spawn(tool, args, **options)

    async def runs(self, *, active: bool = False) -> list[RunClient]:
        """The background runs of the session, the newest first: all, or those that are not over."""
        return await self._runs.list(active=active)

    async def run(self, id: str) -> RunClient:
        """The handle of a background run of this session, or of one that was granted to it.

        Raises:
            ProcessError: there is none, or it is another session's.
        """
        return await self._runs.get(id)

    async def schedule(self, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again; return the schedule's handle.

        `options` are those of `toolwright.schedules.Schedules.add`: cron or at, timezone, title, timeout,
        signal_on_completion, misfire, overlap.

        Raises:
            ScheduleError: the timing or a policy is not usable, or the session has as many schedules as it may.
            ProcessError: the tool can not run in the background, or its arguments are not usable.
        """
        return await self._schedules.add(tool, args, **options)

    async def schedules(self, *, active: bool = False) -> list[ScheduleClient]:
        """The schedules of the session, the oldest first: all, or those that are not over."""
        return await self._schedules.list(active=active)

    async def scheduled(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session.

        Raises:
            ScheduleError: there is none, or it is another session's.
        """
        return await self._schedules.get(id)

    @property
    def _schedules(self) -> SchedulesClient:
        self._shared.require_open()
        return self._shared.schedules(self, Unmarked(), None, self.policy, lambda store: store)

    async def on(self, topic: str, tool: str, args: Mapping[str, Any] | None = None, **options: Any) -> Trigger:
        """Start a tool in the background each time something occurs under a topic, as `runtime.occur` says.

        `options` are those of `toolwright.processes.Triggers.add`: match, payload_as, title, timeout,
        signal_on_completion, id.

        Raises:
            ProcessError: the tool can not run in the background, there are too many triggers, or something is not
                usable.
        """
        return await self._triggers.add(topic, tool, args, **options)

    async def off(self, trigger: Trigger | str) -> bool:
        """Start nothing more by a trigger, or the one of an id; what it started goes on. False when there was none."""
        return await self._triggers.remove(trigger.id if isinstance(trigger, Trigger) else trigger)

    async def triggers(self) -> list[Trigger]:
        """The triggers of the session, the oldest first."""
        return await self._triggers.list()

    async def know_secrets(self) -> None:
        """Read the secrets that an earlier process wrote, once, so that `hides` knows them."""
        if self._shared.kept_before:
            await self._know()

    @property
    def _triggers(self) -> TriggersClient:
        self._shared.require_open()
        return self._shared.triggers(self)

    @property
    def _runs(self) -> RunsClient:
        self._shared.require_open()
        return self._shared.runs(self, Unmarked(), None, self.policy, lambda store: store)

    def enter(self, call: CallKey) -> None:
        """The call of a process may be spoken to from now on, also before it begins."""
        self._host.journal.enter(call)

    def all_tools(self) -> Snapshot:
        """The tools of the session."""
        return self._all_tools()

    # --- connections

    async def connect(self, provider: str, *, detail: Any = None) -> Connection:
        """Say that the session is connected to a provider. Calls that wait for it go on, in every process.

        A call that ended for want of the connection is run again when it is asked for again.

        Args:
            provider: its name, as tools give it in `ConnectionRequired`.
            detail: what tools may read of the connection, as JSON. A token belongs among the secrets.

        Raises:
            ServiceError: one of the two is not usable.
        """
        self._shared.require_open()
        data, now = to_detail(require_provider(provider), detail), self._shared.clock.now()
        await self._shared.stores().connections.set_connection(self.id, provider, data, now, MOST)
        self._host.connected.add(provider)
        await self._tell_connected(provider)
        return Connection(provider, jsonx.decode(data), now)

    async def disconnect(self, provider: str) -> bool:
        """Say that the session is no longer connected to a provider; False when it was not."""
        self._shared.require_open()
        self._host.connected.discard(require_provider(provider))
        return await self._shared.stores().connections.delete_connection(self.id, provider)

    async def connections(self) -> list[Connection]:
        """The providers that the session is connected to, by name."""
        return await self._services.connections.list()

    def forget_calls(self) -> None:
        """Let calls that are over run again, where only this process remembers them."""
        if isinstance(self._host.journal, MemoryJournal):
            self._host.journal.clear()

    async def connections_changed(self) -> None:
        """Look at the connections anew: they came, or went, with the session as a whole."""
        connected = {connection.provider for connection in await self.connections()}
        self._host.connected.clear()
        self._host.connected.update(connected)
        for provider in connected:
            await self._tell_connected(provider)

    async def _tell_connected(self, provider: str) -> None:
        effects = self._shared.effects
        for wait in await effects.waits.waiting(self.id, ("connection",)):
            if provider_of(wait.key) == provider:
                with contextlib.suppress(KeyRefused):  # its call ended meanwhile
                    await effects.resolve(wait.key, Resolution("ok", self._shared.clock.now()))

    async def _connected_since(self, provider: str) -> float | None:
        found = await self._shared.stores().connections.get_connection(self.id, provider)
        return None if found is None else found[1]

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until no batch of the session runs, or those that do only wait for something outside.

        False when that is not so after `timeout` seconds. Calls of other processes and background runs are not seen.
        """
        return await wait_for_idle(self._batches, self._shared.clock, timeout)

    @cached_property
    def _services(self) -> SessionServices:
        self._shared.require_open()
        shared = self._shared
        return SessionServices(
            shared.stores(),
            self.id,
            Unmarked(),
            shared.clock,
            shared.quotas,
            self.policy.grep_timeout,
            self._known,
            catalogue=self._catalogue,
        )

    def _call_services(self, call: CallKey, policy: Policy, guard: Callable[[Any], Any]) -> SessionServices:
        shared, marks = self._shared, Marks(call)
        services = SessionServices(
            shared.stores(),
            self.id,
            marks,
            shared.clock,
            shared.quotas,
            policy.grep_timeout,
            self._known,
            guard,
            self._catalogue,
        )
        services.session = SessionState(self.id, self.definitions, services)
        services.make_runs = lambda: shared.runs(self, marks, call, policy, guard)
        services.make_schedules = lambda: shared.schedules(self, marks, call, policy, guard)
        return services

    async def _keep_output(self, call: CallKey, text: str, known: bool) -> str:
        files = self._call_services(call, self.policy, lambda store: store).files if known else self._services.files
        return await keep_output(files, call, text)

    async def _know(self) -> None:
        await self._known.load(self._shared.stores().secrets)

    def _redact(self, redactor: Redactor) -> None:
        for host in self._hosts:
            host.redactor = redactor

    def hides(self, data: bytes) -> bool:
        """True when some JSON holds a secret of the session's in clear."""
        redactor = self._host.redactor
        return redactor is not None and redactor.json(data) != data

    def close(self) -> None:
        """The runtime closes: nothing of the session is written to a log any more."""
        unguard_logs(self._known)

    def _catalogue(self, kv: KeyValue) -> SessionCatalogue:
        return SessionCatalogue(self._offer, self._all_tools(), kv)

    def _all_tools(self) -> Snapshot:
        return self._offer.complete(self.tools.snapshot())

    def definitions(self) -> list[ToolDefinition]:
        """What the tools of the session say of themselves, by name."""
        return self.tools.definitions()

    def _open_child(self, run: CallRun, name: str, guard: Callable[[Any], Any]) -> ChildSession:
        """The child session of a call, under the policy of its batch."""
        shared, call = self._shared, enter(run)
        known = run.opened.get(name)
        if known is None:
            known = shared.open_child(self, child_id(call, name, len(run.opened)), run.owner.policy)
            run.opened = {**run.opened, name: known}
        stores, marks = shared.stores(), Marks(call, known.id)
        services = SessionServices(
            stores,
            known.id,
            marks,
            shared.clock,
            shared.quotas,
            run.owner.policy.grep_timeout,
            known._known,
            guard,
            known._catalogue,
            SENDERS,
        )
        return ChildSession(known, services)

    def child(self, session_id: str, policy: Policy) -> Session:
        """A session of its own that begins with the tools and hooks of this one."""
        return Session(self._shared, session_id, policy, self._hooks, self.tools)

    def set_up(self, policy: Policy, projector: Projector | None) -> None:
        """Be as whoever first asks for the session wants it; background runs that began before stay as they are."""
        self._limit = Limit(f"a slot of session {self.id!r}", policy.session_concurrency)
        if projector is not None:
            self._hooks = Hooks(self._hooks.before, self._hooks.after, projector)
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Go on under another policy; what runs stays under the old one."""
        self.policy = policy
        self._setting = self._make_setting(policy)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that still run, those of background runs among them."""
        return (*self._batches, *self._apart)

    def _make(self, calls: Calls, scope: str, changes: dict[str, Any], parent: CallRun | None) -> Batch:
        self._shared.require_open()
        if scope != "" and (not isinstance(scope, str) or encodable(scope) != scope):
            raise ToolwrightError(f"The scope {scope!r:.200} is not usable; use text")
        if scope.startswith(PROCESS_SCOPE) and parent is None:
            raise ToolwrightError(f"The scope {scope!r:.200} is that of a process; use another")
        # What a batch may do holds for the calls that its tools make, in this session.
        above = parent.owner if parent is not None and parent.host in self._hosts else None
        setting = self._setting if above is None else above.setting
        if changes:
            policy = setting.policy.but(**changes)
            if above is not None and above.policy.read_only:
                policy = policy.but(read_only=True)
            setting = self._make_setting(policy)
        batch = Batch(calls, self._all_tools(), setting, scope=scope, parent=parent, ended=self._ended)
        if setting.host is self._host:
            self._batches[batch] = None
        else:
            self._apart[batch] = None
        return batch

    def start_apart(
        self,
        call: ToolCall,
        scope: str,
        push: Callable[[AnyEvent], None],
        keep_event: KeepEvent,
        timeout: Callable[[float | None], float],
    ) -> Batch:
        """Start the call of a process, which `push` is told about: it takes no slots of the session's, and no other
        call waits for it. `timeout` gives its seconds, from those that its tool says.
        """
        self._shared.require_open()
        host, shared = copy.copy(self._host), self._shared
        host.schedule = Schedule(shared.running)
        host.keep_event = keep_event
        host.channel = Channel(self.id)
        host.channel.pushes = (shared.hub.channel(self.id).publish, push)
        self._hosts.append(host)

        def ended(batch: Batch) -> None:
            self._ended(batch)
            self._hosts.remove(host)
            host.schedule.close()

        tools = dict(self._all_tools())
        tool = find(tools, call.name)
        if tool is not None:
            tools[tool.name] = tool.with_definition(timeout=timeout(tool.definition.timeout))
        setting = self._make_setting(self.policy.but(continue_on_failure=True), host, ())
        batch = Batch([call], tools, setting, scope=scope, parent=None, ended=ended)
        self._apart[batch] = None
        return batch.start()

    def _ended(self, batch: Batch) -> None:
        self._batches.pop(batch, None)
        self._apart.pop(batch, None)

    def recovering(self, intents: list[Intent], scope: str) -> Batch:
        """A batch of calls that a crash cut off, to be started."""
        tools = self._all_tools()
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

    def _make_setting(
        self, policy: Policy, host: CallHost | None = None, limits: tuple[Limit, ...] | None = None
    ) -> BatchSetting:
        return BatchSetting(
            host=host or self._host,
            policy=policy,
            hooks=self._hooks,
            loops=self._loops,
            call_log=self._shared.log,
            outer_limits=(self._limit, self._shared.limit) if limits is None else limits,
            tool_limit=self._shared.tool_limit,
        )
