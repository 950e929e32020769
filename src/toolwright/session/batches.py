"""The batches of a session. Owns making and counting them; does not own the way of a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.batch import Batch
from toolwright.calls.context import BatchContext
from toolwright.calls.environment import CallEnvironment, SaveEvent
from toolwright.calls.execute.execute import ActiveCall
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.calls.hooks import Hooks
from toolwright.calls.policy import Policy, PolicySettings
from toolwright.calls.redact import learn_secrets
from toolwright.calls.schedule.admission import Admission
from toolwright.calls.schedule.tickets import Limit
from toolwright.errors import ToolwrightError
from toolwright.event_bus import Channel
from toolwright.events import AnyEvent
from toolwright.session.core import Belongings
from toolwright.session.idle import wait_for_idle
from toolwright.stores.contracts.journal import RUN_SCOPE, Intent
from toolwright.tools.call import ToolCall
from toolwright.tools.capability import Capability
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.registry import find

MOST_SETTINGS = 32
"""How many settings for calls of other sessions are kept."""
Calls = Iterable[ToolCall | Mapping[str, Any]]


class Batching(Belongings):
    """The part of a session that runs batches."""

    _hooks: Hooks
    _limit: Limit
    _loops: LoopWatch
    _setting: BatchContext
    _late: tuple[Capability, ...]
    _batches: dict[Batch, None]
    _apart: dict[Batch, None]
    _under: dict[int, tuple[tuple[Policy, ...], BatchContext]]
    """Settings for the batches of calls of other sessions, by the id of the restrictions of these."""

    def start_batch(self, calls: Calls, *, scope: str = "", **changes: Unpack[PolicySettings]) -> Batch:
        """Start a batch and return it: await it for its outcomes, or cancel it.

        `changes` are settings of the policy that hold for this batch, such as `read_only=True`.
        """
        return self._make(calls, scope, changes, CURRENT.get()).start()

    async def run_batch(self, calls: Calls, *, scope: str = "", **changes: Unpack[PolicySettings]) -> list[ToolOutcome]:
        """Run calls and return one outcome for each, in call order.

        Raises:
            BatchFailed: with `continue_on_failure=False`, a call failed.
        """
        parent = CURRENT.get()
        if parent is not None and type(calls) is list:
            await learn_secrets(self._host, calls, self.all_tools(), self.policy.max_argument_bytes)
        # Nested calls take their steps in tasks of their own, or tools that call tools would exhaust the stack.
        return await self._make(calls, scope, changes, parent).start(at_once=parent is None).wait()

    async def call(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Run one tool with these arguments."""
        (outcome,) = await self.run_batch([ToolCall(name=name, arguments=arguments, source="host")])
        return outcome

    def cancel(self, reason: str = "the session was cancelled") -> None:
        """Cancel every batch of the session that is still running. Background runs go on; each has its own `cancel`."""
        for batch in list(self._batches):
            batch.cancel(reason)

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until no batch of the session runs, or those that do only wait for something outside.

        False when that is not so after `timeout` seconds. Calls of other processes and background runs are not seen.

        Raises:
            ToolwrightError: a call of the session asks, and would wait for itself.
        """
        self._require_outside("wait for its session to be idle: it would wait for itself")
        return await wait_for_idle(self._batches, self._shared.clock, timeout)

    async def close_batches(self, reason: str) -> None:
        """Cancel every batch, and wait until all have stopped.

        Raises:
            ToolwrightError: a call of the session asks, and would wait for itself.
        """
        self._require_outside("close its own session")
        self.cancel(reason)
        for batch in list(self._batches):
            await batch.settled()

    def _require_outside(self, what: str) -> None:
        """Refuse something that a call of this session asks for, or one that such a call made."""
        run = CURRENT.get()
        while run is not None:
            owner: Any = run.owner
            if owner in self._batches:
                raise ToolwrightError(
                    f"The call {run.call_id!r} of session {self.id!r} cannot {what}; do it outside of its calls, or "
                    "let the tool that opened the session do it"
                )
            run = owner.parent

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that still run, those of background runs among them."""
        return (*self._batches, *self._apart)

    @property
    def batches_apart(self) -> tuple[Batch, ...]:
        """Those of background runs, which `cancel` leaves alone."""
        return tuple(self._apart)

    def _make(
        self,
        calls: Calls,
        scope: str,
        changes: PolicySettings,
        parent: ActiveCall | None,
        under: tuple[Policy, ...] = (),
    ) -> Batch:
        self._shared.require_open()
        if scope != "" and (not isinstance(scope, str) or encodable(scope) != scope):
            raise ToolwrightError(f"The scope {scope!r:.200} is not usable; use text")
        if parent is None and scope.startswith(RUN_SCOPE):
            raise ToolwrightError(f"The scope {scope!r:.200} is that of a process; use another")
        tools = self.all_tools()
        if self._offer.late != self._late:
            self._heed_late_capabilities()
        # What a batch may do holds for the calls that its tools make, in this session and in others: they may do less.
        above = parent.owner if parent is not None and parent.env in self._hosts else None
        if parent is None:
            setting, restrictions = self._setting, self._restrictions + under
        elif above is not None:
            setting, restrictions = above.context, above.context.authority
        else:
            setting = self._setting_under(parent.owner.context.authority)
            restrictions = setting.restrictions
        if changes:
            host, limits = (None, None) if above is None else (setting.env, setting.outer_limits)
            setting = self._make_setting(setting.policy.but(**changes), host, limits, restrictions)
        own = setting.env is self._host
        batch = Batch(
            calls, tools if own else self.tools_of_runs(), setting, scope=scope, parent=parent, ended=self._ended
        )
        if own:
            self._batches[batch] = None
        else:
            self._apart[batch] = None
        return batch

    def start_apart(
        self,
        call: ToolCall,
        scope: str,
        push: Callable[[AnyEvent], None],
        save_event: SaveEvent,
        timeout: Callable[[float | None], float],
        restrictions: tuple[Policy, ...] = (),
        started_by: str | None = None,
    ) -> Batch:
        """Start the call of a process, which `push` is told about: it takes no slots of the session's, and no other
        call waits for it. `timeout` gives its seconds, from those that its tool says. It is under the policy of the
        session and under `restrictions`, those of its starter; `started_by` is the call that started it, if one did.
        """
        self._shared.require_open()
        host, shared = copy.copy(self._host), self._shared
        host.loan = None
        host.admission = Admission(shared.running)
        host.save_event = save_event
        host.channel = Channel(self.id)
        host.channel.pushes = (shared.hub.channel(self.id).publish, push)
        self._hosts.append(host)

        def ended(batch: Batch) -> None:
            self._ended(batch)
            self._hosts.remove(host)
            host.admission.close()

        tools = dict(self.tools_of_runs())
        tool = find(tools, call.name)
        if tool is not None:
            tools[tool.name] = tool.in_background().with_definition(timeout=timeout(tool.definition.timeout))
        under = (*self._restrictions, *restrictions)
        setting = self._make_setting(self.policy.but(continue_on_failure=True), host, (), under)
        batch = Batch([call], tools, setting, scope=scope, parent=None, started_by=started_by, ended=ended)
        self._apart[batch] = None
        return batch.start()

    def _ended(self, batch: Batch) -> None:
        self._batches.pop(batch, None)
        self._apart.pop(batch, None)

    def recovering(self, intents: list[Intent], scope: str, authority: bytes | None) -> Batch:
        """A batch of calls that a crash cut off, to be started under the authority of the batch that they were in.

        Raises:
            PolicyError: the authority cannot be read, such as for want of a rule with a function.
        """
        under = self._shared.rules.read(authority, (self.policy, self._shared.policy))
        tools = self.all_tools()
        calls = [
            ToolCall(
                id=intent.key.call_id,
                name=intent.tool if find(tools, intent.tool_id) is None else intent.tool_id,
                arguments=intent.arguments,
                source=intent.source,  # type: ignore[arg-type]
            )
            for intent in intents
        ]
        return self._make(calls, scope, {"continue_on_failure": True}, None, under)

    async def _run_nested(self, run: ActiveCall, calls: Calls) -> list[ToolOutcome]:
        if type(calls) is list:
            await learn_secrets(self._host, calls, self.all_tools(), self.policy.max_argument_bytes)
        return await self._make(calls, run.owner.scope, {}, run).start().wait()

    def _setting_under(self, restrictions: tuple[Policy, ...]) -> BatchContext:
        """The setting of batches that calls of another session start here, under the restrictions of these."""
        own = self._setting.authority
        if all(each in own for each in restrictions):
            return self._setting
        known = self._under.get(id(restrictions))
        if known is None:
            if len(self._under) >= MOST_SETTINGS:
                self._under.clear()
            setting = self._make_setting(self.policy, None, None, (*self._restrictions, *restrictions))
            known = self._under[id(restrictions)] = restrictions, setting
        return known[1]

    def _heed_late_capabilities(self) -> None:
        """Run calls from now on with the hooks of capabilities that tools called for which were registered later."""
        self._late = self._offer.late
        self._under.clear()
        self._setting = self._make_setting(self.policy)

    def _make_setting(
        self,
        policy: Policy,
        host: CallEnvironment | None = None,
        limits: tuple[Limit, ...] | None = None,
        restrictions: tuple[Policy, ...] | None = None,
    ) -> BatchContext:
        return BatchContext(
            env=host or self._host,
            policy=policy,
            hooks=self._hooks.and_those_of(self._late) if self._late else self._hooks,
            loops=self._loops,
            call_log=self._shared.log,
            outer_limits=(self._limit, self._shared.limit) if limits is None else limits,
            tool_limit=self._shared.tool_limit,
            restrictions=self._restrictions if restrictions is None else restrictions,
            write_authority=self._shared.write_authority,
        )
