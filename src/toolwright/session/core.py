"""The inside of a session, for its calls, background runs and schedules. Owns its batches, its tools, its services, its
secrets and its policy. Users have a `Session`, which shows none of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

from toolwright.argument_checks import require_text
from toolwright.calls.active_call import CURRENT, ActiveCall, identity, nesting_of
from toolwright.calls.authorise.authority import Origin, restrict
from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.batch import Batch
from toolwright.calls.context import BatchContext
from toolwright.calls.environment import CallEnvironment, SaveEvent
from toolwright.calls.execute.enclose import enclose
from toolwright.calls.hooks import Hooks, Projector
from toolwright.calls.judgement import Judgement, judge
from toolwright.calls.policy import Policy, PolicySettings
from toolwright.calls.prepare.prepare import named
from toolwright.calls.redact import learn_secrets, off_loop
from toolwright.calls.redactor import Redactor
from toolwright.calls.schedule.admission import Admission, Limit
from toolwright.calls.suspend.connection_wait import provider_of
from toolwright.calls.suspend.context_services import origin_of
from toolwright.calls.suspend.suspend import enter
from toolwright.errors import KeyRefused, RunError, ToolwrightError
from toolwright.event_bus import Channel
from toolwright.events import AnyEvent
from toolwright.session.children import AGENT, SENDERS, Calls, SessionState, child_id
from toolwright.session.idle import OtherWork, wait_for_idle
from toolwright.session.open_waits import InboxClient
from toolwright.session.parts import SharedParts
from toolwright.session.read_only import ReadOnlySession
from toolwright.session.secrets.log_filter import unguard_logs
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.quotas import Marker, Marks, Unmarked
from toolwright.session.services.session_services import SessionServices
from toolwright.session.services.spilled_outputs import save_output
from toolwright.session.tool_catalogue import Offer, SessionCatalogue
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey, Intent
from toolwright.stores.contracts.turns import TURN_SCOPE
from toolwright.stores.contracts.waits import Resolution
from toolwright.tools.background_protocols import RunsClient, SchedulesClient, TriggersClient
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import ModelClient
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import ScopedRegistry, Snapshot, ToolRegistry, ToolSource, find
from toolwright.tools.tool import Tool
from toolwright.tools.turn_protocols import AskOptions, Budget, TurnOutcome, TurnsClient

MOST_CONTEXTS = 32
"""How many contexts for calls of other sessions are remembered."""
Guard: TypeAlias = Callable[[Any], Any]
"""Wraps a store for one attempt of a call, so that a fault of the store stops the call."""


class BackgroundClients(NamedTuple):
    """Make the clients by which a session starts work that outlives its batches, for the program or for one call.

    The rooms of that work are above this one, so that the session is given these functions.
    """

    runs: Callable[[SessionCore, Marker, Origin, Guard | None], RunsClient]
    schedules: Callable[[SessionCore, Marker, Origin, Guard | None], SchedulesClient]
    triggers: Callable[[SessionCore, Marker, Origin, Guard | None], TriggersClient]
    turns: Callable[[SessionCore], TurnsClient]
    left_turn: Callable[[str], OtherWork | None]
    """Gives the turn of a session that this process left while it waits for something outside, if there is one."""
    agent: Callable[[Any, SharedParts], Awaitable[AgentParts]]
    """Gives the parts of an app that runs as a sub-agent of a session with these shared parts."""
    end_agents: Callable[[CallKey, str], Awaitable[None]]
    """Ends the turns of a call's sub-agents that are unfinished when the call ends; the text says why."""
    inbox: Callable[[], InboxClient]
    """Gives the inbox of the store."""


class AgentParts(NamedTuple):
    """What the sessions of an app have that runs as the sub-agent of another."""

    shared: SharedParts
    tools: ToolSource
    hooks: Hooks
    policy: Policy | None


class RunBatch(NamedTuple):
    """How the batch of a background run differs from other batches of its session."""

    scope: str
    push: Callable[[AnyEvent], None]
    """Gets the events of its calls, beside the subscribers."""
    save_event: SaveEvent
    tools: Snapshot
    """The tools that it may call: the tools of the session's background runs."""
    tool: Tool | None
    """The tool of its call, if it is among them."""
    timeout: float
    """Seconds for its call, in place of the timeout of its tool or the policy."""
    restrictions: tuple[Policy, ...] = ()
    """Of the program or call that started the run."""
    started_by: str | None = None
    """The id of the call that started the run, if one did."""


def program_origin(policy: Policy, restrictions: tuple[Policy, ...]) -> Origin:
    """The program, under a policy and restrictions; or the calling tool, if a tool uses an object of the program."""
    run = CURRENT.get()
    if run is None:
        return Origin("host", policy, restrict(restrictions, policy))
    asking = origin_of(run, identity(run))
    return Origin(asking.source, policy, restrict(asking.restrictions, policy), asking.call)


class SessionCore:
    """A session, as calls, background runs and schedules use it."""

    def __init__(
        self,
        shared: SharedParts,
        session_id: str,
        policy: Policy,
        hooks: Hooks,
        *,
        background: BackgroundClients,
        open_child: Callable[[SessionCore, str, Policy, tuple[Policy, ...], AgentParts | None], SessionCore],
        tools: ToolSource | None = None,
    ) -> None:
        self.id = session_id
        self.policy = policy
        self.shared = shared
        self.background = background
        self.hooks = hooks
        self.tools = ScopedRegistry(shared.tools if tools is None else tools)
        self.limit = Limit(f"a slot of session {session_id!r}", policy.session_concurrency)
        self._asked = asked = _AskedByCalls(self)
        self.known_secrets = KnownSecrets(
            session_id, shared.vault, asked.redact, shared.stores().secrets if shared.durable else None
        )
        self.environment = CallEnvironment(
            session_id=session_id,
            clock=shared.clock,
            deadlines=shared.deadlines,
            channel=shared.events.channel(session_id),
            threads=shared.threads,
            processes=shared.processes,
            limited_children=shared.limited_children,
            admission=Admission(shared.running),
            lingering=shared.lingering,
            tasks=shared.tasks,
            journal=shared.new_journal(),
            effects=shared.effects,
            connected_since=asked.connected_since,
            services=asked.services,
            save_output=asked.save_output,
            run_nested=asked.run_nested,
            keeper=self.known_secrets,
            secret_names=asked.secret_names,
            view=ReadOnlySession(session_id, asked.definitions, asked.own_services),
            know=asked.know if shared.durable else None,
            open_child=asked.open_child,
            open_agent=asked.open_agent,
            end_agents=asked.end_agents,
            model=shared.model,
            deps=shared.deps,
            tracing=shared.tracing,
        )
        # Each background run has an environment of its own; all redact the secrets of the session.
        self._environments: list[CallEnvironment[ActiveCall]] = [self.environment]
        self._open_child = open_child
        self._restrictions: tuple[Policy, ...] = ()  # of the call that opened the session; they hold beside its policy
        self._offer = Offer(policy.defer_tools_from, shared.late_capabilities)
        self._run_offer = Offer(policy.defer_tools_from, shared.late_capabilities)
        self._late: tuple[Capability, ...] = ()
        self.has_own_tools = False
        """True when the session has tools that other processes on the same store do not have; `all_tools` looks."""
        self._secrets_read = False
        self._bodies: dict[str, tuple[Tool, Tool]] = {}  # tools with a body for runs, and as runs run them
        self._loops = LoopWatch()
        # Contexts for the batches of calls of other sessions, by the id of the restrictions of these.
        self._contexts_under: dict[int, tuple[tuple[Policy, ...], BatchContext[ActiveCall]]] = {}
        self._bounds: dict[int, tuple[Policy, tuple[Policy, ...]]] = {}  # by the id of the policy
        self.own_batches: dict[Batch, None] = {}
        """The batches that run, in the order in which they were started."""
        self.run_batches: dict[Batch, None] = {}
        """The batches of background runs and of their calls: waiting for the session, or cancelling it, does not
        include them."""
        self.opened_by: ActiveCall | None = None
        """The call that opened the session, for a child session: its turns are part of this call."""
        self.working_turns: OtherWork | None = None
        """The turns of the session that this process works on, while there are some."""
        self._use_policy(policy)

    @property
    def turns(self) -> OtherWork | None:
        """The turns of the session that this process works on, or the one that it left while it waits."""
        return self.working_turns or self.background.left_turn(self.id)

    @property
    def is_plain(self) -> bool:
        """True when nothing of the session is in this process alone: it can be forgotten, and opened by its id."""
        return (
            self.shared.durable
            and self.opened_by is None
            and self.policy is self.shared.policy
            and self.tools.snapshot() is self.shared.tools.snapshot()
            and self.tools.depth == 0
            and self.environment.redactor is None
            and not self._restrictions
            and not self.own_batches
            and not self.run_batches
            and self.working_turns is None
        )

    # --- its policy

    def set_up(self, policy: Policy, projector: Projector | None) -> None:
        """Take the policy that the program gives to a session which a background run opened before."""
        self.limit = Limit(f"a slot of session {self.id!r}", policy.session_concurrency)
        if projector is not None:
            self.hooks = self.hooks.with_projector(projector)
        self.follow(policy)

    def follow(self, policy: Policy, restrictions: tuple[Policy, ...] = ()) -> None:
        """Use another policy and the restrictions of the call that opened it; running batches keep theirs."""
        self._restrictions = restrictions
        self._use_policy(policy)

    def _use_policy(self, policy: Policy) -> None:
        self.policy = policy
        self._program_origin: Origin | None = None
        self._program_authority = b""
        self._authorities: dict[bytes, tuple[Policy, ...]] = {}
        self._run_policy = policy if policy.continue_on_failure else policy.but(continue_on_failure=True)
        self._contexts_under.clear()
        self._context = self._make_context(policy)

    # --- its batches

    def make_batch(
        self,
        calls: Calls,
        scope: str,
        changes: PolicySettings,
        parent: ActiveCall | None,
        under: tuple[Policy, ...] = (),
    ) -> Batch:
        """A batch to be started. `parent` is the call that makes it; `under` are restrictions beside the policy."""
        lifetime = self.shared.lifetime
        if lifetime.closed or asyncio._get_running_loop() is not lifetime.loop:
            lifetime.require_open()
        if scope != "":
            if not isinstance(scope, str) or encodable(scope) != scope:
                raise ToolwrightError(f"The scope {scope!r:.200} is not usable; use text")
            if parent is None and scope.startswith((RUN_SCOPE, TURN_SCOPE)):
                raise ToolwrightError(f"The scope {scope!r:.200} is that of a background run or a turn; use another")
        return self._make_batch(calls, scope, changes, parent, under)

    def start_turn_batch(self, calls: Calls, scope: str, *, was_left: bool = False) -> Batch:
        """Start the calls of one answer of a turn; inside of a call, as calls of that call.

        `was_left`: this process left them before, while they waited for a person.
        """
        parent = CURRENT.get()
        changes: PolicySettings = {} if self.policy.continue_on_failure else {"continue_on_failure": True}
        return self._make_batch(calls, scope, changes, parent, (), "model").start(
            at_once=parent is None, was_left=was_left
        )

    def _make_batch(
        self,
        calls: Calls,
        scope: str,
        changes: PolicySettings,
        parent: ActiveCall | None,
        under: tuple[Policy, ...],
        nested_source: CallSource = "tool",
    ) -> Batch:
        tools = self.all_tools()
        if self._offer.late != self._late:
            self._use_late_capabilities()
        context = self._context
        if parent is not None or under or changes:
            context = self._context_of(changes, parent, under)
        own = context.env is self.environment
        batch = Batch.prepared(
            calls,
            tools if own else self.tools_of_runs(),
            context,
            scope=scope,
            parent=parent,
            nested_source=nested_source,
            ended=self._ended if own else self._nested_in_run_ended,
        )
        if own:
            self.own_batches[batch] = None
        else:
            self.run_batches[batch] = None
        return batch

    def _context_of(
        self, changes: PolicySettings, parent: ActiveCall | None, under: tuple[Policy, ...]
    ) -> BatchContext[ActiveCall]:
        """The context of a batch under a changed policy or restrictions, or of one that a call makes.

        The permissions of a batch apply to the calls that its tools make, in this session and in others: these have the
        same or fewer.
        """
        above = parent.owner if parent is not None and parent.env in self._environments else None
        if parent is None:
            context = self._context_under(under) if under else self._context
            restrictions = self._restrictions + under
        elif above is not None:
            context, restrictions = above.context, above.context.authority
        else:
            context = self._context_under(parent.owner.context.authority)
            restrictions = context.restrictions
        if not changes:
            return context
        environment, limits = (None, None) if above is None else (context.env, context.outer_limits)
        return self._make_context(context.policy.but(**changes), environment, limits, restrictions)

    def bounds(self, under: Policy | None) -> tuple[Policy, ...]:
        """The restrictions that a policy means for a caller; the same object each time, by which contexts are found."""
        if under is None:
            return ()
        known = self._bounds.get(id(under))
        if known is None:
            if len(self._bounds) >= MOST_CONTEXTS:
                self._bounds.clear()
            known = self._bounds[id(under)] = under, (under.authority,)
        return known[1]

    async def run_batch(self, calls: Calls, scope: str, changes: PolicySettings) -> list[ToolOutcome]:
        """Run calls and return one outcome for each, in call order."""
        parent = CURRENT.get()
        if parent is not None and type(calls) is list:
            await learn_secrets(self.environment, calls, self.all_tools(), self.policy.max_argument_bytes)
        # Nested calls take their steps in tasks of their own, or tools that call tools would exhaust the stack.
        return await self.make_batch(calls, scope, changes, parent).start(at_once=parent is None).wait()

    def may_ask_about(self, name: str) -> bool:
        """Whether the policy may ask a person about a call of a tool."""
        tool, judge = find(self.all_tools(), name), self._context.judge
        if tool is None or not judge.may_ask:
            return False
        return judge.allows_always(tool) is None and judge.denies_always(tool) is None

    async def would(self, call: ToolCall | Mapping[str, Any], changes: PolicySettings) -> Judgement:
        """Judge a call as a batch would that is started now."""
        await self.know_secrets()
        # With an id, a call of a tool does not count among those that the tool makes: these are named by their number.
        calls, parent = [named(call)], CURRENT.get()
        await learn_secrets(self.environment, calls, self.all_tools(), self.policy.max_argument_bytes)
        batch = self.make_batch(calls, "", changes, parent)
        self.own_batches.pop(batch, None)  # it is never started
        self.run_batches.pop(batch, None)
        return await judge(*batch.calls)

    def start_run(self, call: ToolCall, run: RunBatch) -> Batch:
        """Start the call of a background run. It takes no slots of the session, and no other call waits for it."""
        lifetime = self.shared.lifetime
        if lifetime.closed or asyncio._get_running_loop() is not lifetime.loop:
            lifetime.require_open()
        environment = copy.copy(self.environment)
        environment.loan = None
        environment.admission = Admission(self.shared.running)
        environment.save_event = run.save_event
        environment.channel = Channel(self.id)
        environment.channel.connect((self.environment.channel.publish, run.push))
        self._environments.append(environment)
        # Only subscribers get the events of its batch; the run itself takes the reports of its calls, and not their
        # beginning.
        restrictions = (*self._restrictions, *run.restrictions)
        context = self._make_context(self._run_policy, environment, (), restrictions, self.environment.channel)
        batch = Batch.prepared(
            [call],
            run.tools if run.tool is None or run.tool.background_body is None else self._with_body(run.tools, run.tool),
            context,
            scope=run.scope,
            started_by=run.started_by,
            timeout=run.timeout,
            ended=partial(self._run_ended, environment),
        )
        self.run_batches[batch] = None
        return batch.start()

    def read_authority(self, stored: bytes) -> tuple[Policy, ...]:
        """The restrictions that were stored with a background run of the session, beside those of its policy.

        Raises:
            PolicyError: they cannot be read, such as when a rule with a function is not known here.
        """
        found = self._authorities.get(stored)
        if found is None:
            if len(self._authorities) >= MOST_CONTEXTS:
                self._authorities.clear()
            own = self.policy.authority
            read = self.shared.rules.read(stored, (self.policy, self.shared.policy))
            # The policy of the session holds for its runs anyway.
            found = self._authorities[stored] = tuple(policy for policy in read if policy != own)
        return found

    def recovering(self, intents: list[Intent], scope: str, authority: bytes | None) -> Batch:
        """A batch of calls that a crash cut off, to be started under the authority of the batch that they were in.

        Raises:
            PolicyError: the authority cannot be read, such as when a rule with a function is not known here.
        """
        under = self.shared.rules.read(authority, (self.policy, self.shared.policy))
        tools = self.all_tools()
        calls = [
            ToolCall(
                id=intent.key.call_id,
                name=intent.tool if find(tools, intent.tool_id) is None else intent.tool_id,
                arguments=intent.arguments,
                source=intent.source,
            )
            for intent in intents
        ]
        return self.make_batch(calls, scope, {"continue_on_failure": True}, None, under)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The running batches, those of background runs among them."""
        return (*self.own_batches, *self.run_batches)

    async def wait_for_idle(self, timeout: float | None) -> bool:
        """Wait until no batch of the session runs, or the running ones only wait for something outside.

        Raises:
            ToolwrightError: a call of the session asks, and would wait for itself.
        """
        self.require_outside("wait for its session to be idle: it would wait for itself")
        return await wait_for_idle(self.own_batches, self.turns, self.shared.clock, timeout)

    async def close_batches(self, reason: str) -> None:
        """Cancel every batch, except those of background runs, and wait until all have stopped.

        Raises:
            ToolwrightError: a call of the session asks, and would wait for itself.
        """
        self.require_outside("close its own session")
        self.cancel(reason)
        for batch in list(self.own_batches):
            await batch.settled()

    def require_outside(self, what: str) -> None:
        """Refuse an operation that a call of this session requests, or a call below it."""
        run = CURRENT.get()
        while run is not None:
            owner: Any = run.owner
            if owner in self.own_batches:
                raise ToolwrightError(
                    f"The call {run.call_id!r} of session {self.id!r} cannot {what}; do it outside of its calls, or "
                    "let the tool that opened the session do it"
                )
            run = owner.parent

    def cancel(self, reason: str) -> None:
        """Cancel the turn that is worked on, and every running batch, except those of background runs."""
        if self.turns is not None:
            self.turns.cancel(reason)
        for batch in list(self.own_batches):
            batch.cancel(reason)

    def forget_calls(self) -> None:
        """Let finished calls run again, where only this process remembers them."""
        self.environment.journal.forget_finished()

    def enter(self, call: CallKey) -> None:
        """Let the call of a background run be sent signals, also before it begins."""
        self.environment.journal.uses_effects(call)

    async def _run_nested(self, run: ActiveCall, calls: Calls) -> list[ToolOutcome]:
        if type(calls) is list:
            await learn_secrets(self.environment, calls, self.all_tools(), self.policy.max_argument_bytes)
        return await self.make_batch(calls, run.owner.scope, {}, run).start().wait()

    def _ended(self, batch: Batch) -> None:
        self.own_batches.pop(batch, None)

    def _nested_in_run_ended(self, batch: Batch) -> None:
        self.run_batches.pop(batch, None)

    def _run_ended(self, environment: CallEnvironment[ActiveCall], batch: Batch) -> None:
        self.run_batches.pop(batch, None)
        self._environments.remove(environment)
        environment.admission.close()

    def _context_under(self, restrictions: tuple[Policy, ...]) -> BatchContext[ActiveCall]:
        """The context of batches that calls of another session start here, under the restrictions of these."""
        own = self._context.authority
        if all(each in own for each in restrictions):
            return self._context
        known = self._contexts_under.get(id(restrictions))
        if known is None:
            if len(self._contexts_under) >= MOST_CONTEXTS:
                self._contexts_under.clear()
            context = self._make_context(self.policy, None, None, (*self._restrictions, *restrictions))
            known = self._contexts_under[id(restrictions)] = restrictions, context
        return known[1]

    def _use_late_capabilities(self) -> None:
        """Run calls from now on with the hooks of capabilities that came with tools which were registered later."""
        self._late = self._offer.late
        self._use_policy(self.policy)

    def _make_context(
        self,
        policy: Policy,
        environment: CallEnvironment[ActiveCall] | None = None,
        limits: tuple[Limit, ...] | None = None,
        restrictions: tuple[Policy, ...] | None = None,
        channel: Channel | None = None,
    ) -> BatchContext[ActiveCall]:
        shared, hooks = self.shared, self.hooks.and_those_of(self._late) if self._late else self.hooks
        return BatchContext(
            env=environment or self.environment,
            policy=policy,
            hooks=hooks,
            loops=self._loops,
            call_log=shared.call_log,
            outer_limits=(self.limit, shared.limit) if limits is None else limits,
            tool_limit=shared.tool_limits.of,
            restrictions=self._restrictions if restrictions is None else restrictions,
            write_authority=shared.write_authority,
            channel=channel,
            enclose=partial(enclose, factories=hooks.around) if hooks.around else None,
        )

    # --- its tools

    def use_tools(self, tools: ToolSource) -> None:
        """Have these tools from now on, in place of all others."""
        self.tools = ScopedRegistry(tools)

    def all_tools(self) -> Snapshot:
        """The tools of the session."""
        offer, tools = self._offer, self.tools.snapshot()
        if tools is not offer.seen:
            self.has_own_tools = self.shared.durable and tools is not self.shared.tools.snapshot()
            offer.complete(tools)
        return offer.completed

    def tools_of_runs(self) -> Snapshot:
        """The tools of its background runs: those of the app, where another process may run them."""
        tools = self.all_tools()
        return self._run_offer.complete(self.shared.tools.snapshot()) if self.has_own_tools else tools

    def _with_body(self, tools: Snapshot, tool: Tool) -> Snapshot:
        """Tools with one of them as a background run runs it; the calls that it makes run the tools as they are."""
        known = self._bodies.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._bodies[tool.name] = tool, tool.in_background()
        return {**tools, tool.name: known[1]}

    def definitions(self) -> list[ToolDefinition]:
        """The definitions of its tools, by name."""
        return [tool.definition for _, tool in sorted(self.all_tools().items())]

    def defers_tools(self) -> bool:
        """True when the model sees some of its tools in full only after they were revealed."""
        return bool(self._offer.deferred(self.all_tools()))

    def catalogue(self, kv: KeyValue) -> SessionCatalogue:
        """Its tools, and which of them the model sees in full, as `kv` remembers that."""
        return SessionCatalogue(self._offer, self.all_tools(), kv)

    def require_in_every_process(self, tool: Tool) -> None:
        """Refuse a background run of a tool that only this process has, in a session that has such tools.

        Raises:
            RunError: the tool is the session's own, and the store is shared.
        """
        found = self.shared.tools.snapshot().get(tool.definition.name)
        if self.has_own_tools and (found is None or found.definition.id != tool.definition.id):
            raise RunError(
                f"Tool {tool.name!r} belongs to session {self.id!r} in this process only, and a run may continue "
                "in another; give the tool to the app: App(tools=[...])",
                "own_tool",
            )

    # --- its services

    @cached_property
    def services(self) -> SessionServices:
        """The services of the session, for the program."""
        self.shared.lifetime.require_open()
        return self._services(Unmarked(), self.policy)

    def _call_services(self, origin: Origin, guard: Guard) -> SessionServices:
        """The same for one attempt of a call."""
        assert origin.call is not None
        marks, background = Marks(origin.call), self.background
        return self._services(
            marks,
            origin.policy,
            guard,
            runs=lambda: background.runs(self, marks, origin, guard),
            schedules=lambda: background.schedules(self, marks, origin, guard),
            triggers=lambda: background.triggers(self, marks, origin, guard),
            state=partial(SessionState, self.id, self.definitions),
        )

    def _services(self, marker: Marker, policy: Policy, guard: Guard | None = None, **more: Any) -> SessionServices:
        shared = self.shared
        return SessionServices(
            shared.stores(),
            self.id,
            marker,
            shared.clock,
            shared.quotas,
            policy.grep_timeout,
            self.known_secrets,
            guard,
            self._asked.catalogue,
            **more,
        )

    async def _save_output(self, call: CallKey, text: str, known: bool) -> str:
        files = self._services(Marks(call), self.policy).files if known else self.services.files
        return await save_output(files, call, text)

    def runs(self, under: Policy | None = None) -> RunsClient:
        """The client of its background runs, for the program; `under` is a policy for a caller that may do less."""
        return self.background.runs(self, Unmarked(), self.origin(under), None)

    def origin(self, under: Policy | None = None) -> Origin:
        """The program, under the policy of the session; or the call that asks, if a tool uses the session."""
        lifetime = self.shared.lifetime
        if lifetime.closed or asyncio._get_running_loop() is not lifetime.loop:
            lifetime.require_open()
        if CURRENT.get() is not None or under is not None:
            return program_origin(self.policy, restrict(self._restrictions, *self.bounds(under)))
        if self._program_origin is None:
            self._program_origin = program_origin(self.policy, self._restrictions)
            self._program_authority = self.shared.rules.write(self._program_origin)
        return self._program_origin

    def written_authority(self, origin: Origin) -> bytes:
        """The authority that what an origin starts in the session is stored with."""
        return self._program_authority if origin is self._program_origin else self.shared.rules.write(origin)

    # --- sessions that its calls open

    def _child_of_call(self, run: ActiveCall, name: str, guard: Guard, agent: AgentParts | None = None) -> ChildSession:
        """The child session of a call, under the policy of its batch; for a sub-agent, under that of its app, too."""
        call, opened = enter(run).key, nesting_of(run).sessions
        child: SessionCore | None = opened.get(name)
        if child is None:
            id, context = child_id(call, name, len(opened)), run.owner.context
            policy = run.owner.policy if agent is None or agent.policy is None else agent.policy
            child = self._open_child(self, id, policy, context.authority, agent)
            child.opened_by = run
            opened[name] = child
        services = child._services(Marks(call, child.id), child.policy, guard, senders=SENDERS)
        return ChildSession(child, services)

    async def _agent_of_call(self, run: ActiveCall, app: object, guard: Guard) -> ChildSession:
        """The session in which an app runs as the sub-agent of a call."""
        return self._child_of_call(run, AGENT, guard, await self.background.agent(app, self.shared))

    # --- its connections

    async def connections_changed(self) -> None:
        """Read the connections again: they were imported with the session."""
        connected = {connection.provider for connection in await self.services.connections.list()}
        for provider in connected:
            await self.tell_connected(provider)

    async def tell_connected(self, provider: str) -> None:
        """Let the calls continue that wait for a connection to a provider."""
        effects = self.shared.effects
        for wait in await effects.waits.waiting(self.id, ("connection",)):
            if provider_of(wait.key) == provider:
                with contextlib.suppress(KeyRefused):  # its call ended meanwhile
                    await effects.resolve(wait.key, Resolution("ok", self.shared.clock.now()))

    async def _connected_since(self, provider: str) -> float | None:
        found = await self.shared.stores().connections.get_connection(self.id, provider)
        return None if found is None else found[1]

    # --- its secrets

    async def know_secrets(self) -> None:
        """Read the secrets that an earlier process wrote, once, so that `hides` knows them."""
        if self.shared.durable and (not self._secrets_read or self.known_secrets.behind):
            await self._know()

    async def secrets_changed(self) -> None:
        """Read the secrets again: they were imported with the session."""
        await self.known_secrets.reload(self.shared.stores().secrets)

    def hides(self, data: bytes) -> bool:
        """True when some JSON holds a secret of the session in clear."""
        redactor = self.environment.redactor
        return redactor is not None and redactor.json(data) != data

    async def redacted(self, text: str, what: str = "reason") -> str:
        """A text that somebody outside wrote about the session, without its secrets; `what` names it in an error."""
        await self.know_secrets()
        redactor, text = self.environment.redactor, encodable(require_text(what, text))
        return text if redactor is None else await off_loop(len(text), redactor.text, text)

    async def redactor(self) -> Redactor | None:
        """Removes the secrets of the session from values; None where it has none."""
        await self.know_secrets()
        return self.environment.redactor

    def close(self) -> None:
        """The runtime closes: log records are no longer searched for the secrets of the session."""
        unguard_logs(self.known_secrets)

    async def _secret_names(self) -> list[str]:
        return [info.key for info in await self.services.secrets.list()]

    async def _know(self) -> None:
        await self.known_secrets.load(self.shared.stores().secrets)
        await self.known_secrets.catch_up()
        self._secrets_read = True
        if not self.known_secrets.behind:
            self.environment.know = (
                None  # a batch of the session, or a background run of it, need not wait for it again
            )

    def _redact(self, redactor: Redactor) -> None:
        for environment in self._environments:
            environment.redactor = redactor


class _AskedByCalls:
    """What the environment of a session asks it for. It does not hold the session, or both would wait for the garbage
    collector when nobody uses them any more: the batches of a session hold it, and so does the code that uses one."""

    __slots__ = ("_core",)

    def __init__(self, core: SessionCore) -> None:
        self._core = weakref.ref(core)

    def _session(self) -> SessionCore:
        core = self._core()
        if core is None:
            raise ToolwrightError("The session is no longer open, since nobody used it; open it again by its id")
        return core

    def redact(self, redactor: Redactor) -> None:
        core = self._core()
        if core is not None:
            core._redact(redactor)

    def connected_since(self, provider: str) -> Coroutine[Any, Any, float | None]:
        return self._session()._connected_since(provider)

    def services(self, origin: Origin, guard: Guard) -> SessionServices:
        return self._session()._call_services(origin, guard)

    def own_services(self) -> SessionServices:
        return self._session().services

    def save_output(self, call: CallKey, text: str, known: bool) -> Coroutine[Any, Any, str]:
        return self._session()._save_output(call, text, known)

    def run_nested(self, run: ActiveCall, calls: Calls) -> Coroutine[Any, Any, list[ToolOutcome]]:
        return self._session()._run_nested(run, calls)

    def secret_names(self) -> Coroutine[Any, Any, list[str]]:
        return self._session()._secret_names()

    def definitions(self) -> list[ToolDefinition]:
        return self._session().definitions()

    def catalogue(self, kv: KeyValue) -> SessionCatalogue:
        return self._session().catalogue(kv)

    def know(self) -> Coroutine[Any, Any, None]:
        return self._session()._know()

    def open_child(self, run: ActiveCall, name: str, guard: Guard, agent: AgentParts | None = None) -> ChildSession:
        return self._session()._child_of_call(run, name, guard, agent)

    def open_agent(self, run: ActiveCall, app: object, guard: Guard) -> Coroutine[Any, Any, ChildSession]:
        return self._session()._agent_of_call(run, app, guard)

    def end_agents(self, call: CallKey, reason: str) -> Awaitable[None]:
        return self._session().background.end_agents(call, reason)


class ChildSession(SessionState):
    """A session that a tool opened, as that tool sees it."""

    def __init__(self, core: SessionCore, services: SessionServices) -> None:
        super().__init__(core.id, core.definitions, services)
        self._core = core
        self._closed = False
        self._keeper = core.known_secrets

    async def run_batch(self, calls: Calls, *, scope: str = "") -> list[ToolOutcome]:
        """Run tools in the child, under the policy of the call that opened it: one outcome each, in order."""
        if self._closed:
            raise ToolwrightError(
                f"The session {self.id!r} was closed; run its calls before, or open it again by ctx.open_child(...)"
            )
        return await self._core.run_batch(calls, scope, {})

    async def call(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Run one tool in the child."""
        (outcome,) = await self.run_batch([ToolCall(name=name, arguments=arguments)])
        return outcome

    async def ask(
        self,
        message: str,
        *,
        tools: Iterable[Any] | None = None,
        model: str | ModelClient | None = None,
        budget: Budget | None = None,
        answer: object = None,
    ) -> TurnOutcome:
        """Run a turn in the child, as a sub-agent of the call that opened it; see `ChildSessionClient.ask`."""
        run = CURRENT.get()
        if self._closed or run is None or run is not self._core.opened_by:
            raise ToolwrightError(
                f"The session {self.id!r} is not one of this call, or was closed; open one by ctx.open_child(...)"
            )
        if tools is not None:
            self._core.use_tools(ToolRegistry(tools))
        options: AskOptions = {"model": model, "budget": budget, "answer": answer}
        return await self._core.background.turns(self._core).ask_in_call(run, message, options)

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing in the child runs, or only waits for something outside; False when that takes too long.

        Raises:
            ToolwrightError: the call that waits is part of the child, and would wait for itself.
        """
        return await self._core.wait_for_idle(timeout)

    async def close(self, reason: str = "its tool closed the session") -> None:
        """Cancel the child's running work, wait until that has stopped, and start nothing in it any more.

        Its stored data stays, for a call that is run again after a crash; `runtime.delete_session` removes it.

        Raises:
            ToolwrightError: the call that closes it is part of it.
        """
        await self._core.close_batches(reason)
        self._closed = True
