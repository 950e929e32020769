"""The parts of a runtime that all of its sessions use: pools, limits, the store, the clock. Owns them and their end;
knows nothing of a session.

`runtime/wiring.py` makes them, once. Nothing is assigned to them afterwards.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.authorise.authority import Origin, RuleBook
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.journal_contract import CallJournal
from toolwright.calls.policy import Policy
from toolwright.calls.pools.process_pool import ProcessPool
from toolwright.calls.pools.thread_pool import ThreadPool
from toolwright.calls.record import CallLog
from toolwright.calls.schedule.admission import Limit, RuntimeOrder
from toolwright.clock import Clock, Deadlines
from toolwright.effects.step_replay import JournaledController
from toolwright.effects.store_news import StoreNews
from toolwright.errors import RuntimeClosed, ToolwrightError
from toolwright.event_bus import EventHub
from toolwright.limited_children import ChildPool
from toolwright.session.secrets.vault import Vault
from toolwright.session.tool_catalogue import Late
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import BackgroundStores
from toolwright.tools.model import ModelClient
from toolwright.tools.registry import ToolSource
from toolwright.tools.tool import Tool
from toolwright.tools.tracing import Tracing
from toolwright.tools.turn_protocols import Budget, ContextWindow


class Lifetime:
    """Whether a runtime is open, and the event loop that it was opened in."""

    __slots__ = ("closed", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = False
        self.loop = loop

    def require_open(self) -> None:
        """Refuse work once the runtime is closed, and work of another event loop.

        Raises:
            RuntimeClosed: it is closed.
            ToolwrightError: the running loop is not the one in which the runtime was opened.
        """
        if self.closed:
            raise RuntimeClosed("The runtime is closed; open another")
        running = asyncio._get_running_loop()
        if running is not self.loop and running is not None:
            raise ToolwrightError(
                "The runtime was opened in another event loop, which alone can run its calls; use it there "
                "(asyncio.run_coroutine_threadsafe hands work over), or open one for each loop"
            )


class ToolLimits:
    """The limits of tools, each the same for every session."""

    def __init__(self) -> None:
        self.processors = Limit("a processor", os.cpu_count() or 1)
        self.by_tool: dict[tuple[str, int], Limit] = {}

    def of(self, tool: Tool) -> Limit | None:
        """The limit of a tool that has one."""
        capacity = tool.definition.concurrency.limit
        if capacity is None:
            return self.processors if tool.definition.hints.cpu_bound else None
        # A view may show a tool with another limit: each limit counts its own calls.
        key = (tool.definition.id, capacity)
        limit = self.by_tool.get(key)
        if limit is None:
            limit = self.by_tool[key] = Limit(f"a slot of tool {tool.name!r}", capacity)
        return limit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnDefaults:
    """The options of an app that turns use where `ask` gives none."""

    budget: Budget
    instructions: Callable[[], str]
    context: ContextWindow
    model: ModelClient | None = None
    """The own model of a sub-agent. One without it is asked through the model of the turn above it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedParts:
    """The parts of a runtime that all of its sessions use. The sessions of a sub-agent have the same with the model,
    the dependencies, the policy and the other options of its app."""

    lifetime: Lifetime
    tools: ToolSource
    """The tools of every session."""
    late_capabilities: Late
    policy: Policy
    authority: Policy
    """The part of the policy that decides which calls may run."""
    quotas: Quotas
    clock: Clock
    call_log: CallLog
    model: ModelClient | None = None
    turn_defaults: TurnDefaults
    tracing: Tracing | None = None
    """Makes the spans of calls, turns and requests to models, where the app has telemetry."""
    deps: Any = NO_LIFESPAN
    """The value of the app's lifespan in this process."""

    effects: JournaledController
    news: StoreNews
    """Tells that another process has written to the store."""
    new_journal: Callable[[], CallJournal[ActiveCall]]
    """Gives the journal of a new session."""
    stores: Callable[[], BackgroundStores]
    """Gives the stores of the services and of background work. In memory they are made at the first use."""
    forget_session: Callable[[str], None]
    """Removes what is in memory, and not in these stores, about a session that is deleted."""
    alone: bool
    """True when no other process can see the calls and the background work of this one."""
    durable: bool
    """True when these stores outlive the process, so that others read and write them, too."""
    vault: Vault

    deadlines: Deadlines
    threads: ThreadPool
    processes: ProcessPool
    limit: Limit
    """The slots of the runtime."""
    tool_limits: ToolLimits = field(default_factory=ToolLimits)
    events: EventHub = field(default_factory=EventHub)
    limited_children: ChildPool = field(default_factory=ChildPool)
    running: RuntimeOrder = field(default_factory=RuntimeOrder)
    rules: RuleBook = field(default_factory=RuleBook)
    lingering: set[ActiveCall] = field(default_factory=set)
    """Calls that were given up, and whose code still runs."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def write_authority(self, authority: tuple[Policy, ...]) -> bytes | None:
        """The permissions of a batch, as the journal stores them; None for those of the program's policy."""
        own = tuple(policy for policy in authority if policy != self.authority)
        return self.rules.write(Origin("host", self.policy, own)) if own else None

    async def stop_lingering(self) -> None:
        """Give code that does not stop one more second to do so."""
        for run in list(self.lingering):
            if run.task is not None:
                run.task.cancel()
                self.tasks.add(run.task)
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=1.0)

    async def close(self) -> None:
        """End threads, child processes, waits and events."""
        for task in self.tasks:
            task.cancel()
        await self.effects.close()
        self.processes.close()
        await self.limited_children.close()
        self.threads.close()
        self.deadlines.close()
        self.events.close()
