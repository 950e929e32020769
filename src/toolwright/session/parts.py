"""What a runtime lends to its sessions. Owns the pools, limits and makers that all of them share, and their end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from toolwright.calls.authorise.authority import Origin, RuleBook
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.execute.execute import ActiveCall
from toolwright.calls.execute.process_pool import ProcessPool
from toolwright.calls.execute.thread_pool import ThreadPool
from toolwright.calls.journal.contract import CallJournal
from toolwright.calls.policy import Policy
from toolwright.calls.redact import Redactor
from toolwright.calls.schedule.deadlock import RuntimeOrder
from toolwright.calls.schedule.tickets import Limit
from toolwright.clock import Clock, Deadlines
from toolwright.effects.journal_controller import JournaledController
from toolwright.errors import RuntimeClosed, ToolwrightError
from toolwright.event_bus import EventHub
from toolwright.limited_children import ChildPool
from toolwright.session.secrets.vault import Vault
from toolwright.session.services.quotas import Marker
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import ServiceStores
from toolwright.tools.background_protocols import RunsClient, SchedulesClient, TriggersClient
from toolwright.tools.capability import Capability
from toolwright.tools.registry import Snapshot
from toolwright.tools.session_protocols import ModelClient
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from toolwright.session.session import Session


class Starter(Protocol):
    """A session, as those see it that start work in its name."""

    id: str

    def all_tools(self) -> Snapshot: ...

    def require_in_every_process(self, tool: Tool) -> None: ...

    def enter(self, call: CallKey) -> None: ...

    async def know_secrets(self) -> None: ...

    def hides(self, data: bytes) -> bool: ...


class Shared:
    """What a runtime lends to all of its sessions."""

    effects: JournaledController
    journal: Callable[[], CallJournal[ActiveCall]]
    stores: Callable[[], ServiceStores]
    vault: Vault
    kept_before: bool
    """True when sessions may have secrets that an earlier process wrote."""
    redacted: Callable[[str, str], Awaitable[str]]
    """Takes the secrets of the session of an id out of a text that somebody outside wrote."""
    redactor: Callable[[str], Awaitable[Redactor | None]]
    """Gives what takes the secrets of the session of an id out of values; None where it has none."""
    tool_of: Callable[[str, str], Tool | None]
    """Finds the tool that the session of an id has here under a name."""
    open_child: Callable[[Session, str, Policy, tuple[Policy, ...]], Session]
    runs: Callable[[Starter, Marker, Origin, Callable[[Any], Any]], RunsClient]
    """Makes the runs client of a session, for its host or for a call."""
    schedules: Callable[[Starter, Marker, Origin, Callable[[Any], Any]], SchedulesClient]
    """The same for its schedules."""
    triggers: Callable[[Starter, Marker, Origin, Callable[[Any], Any]], TriggersClient]
    """Makes the client of a session's triggers."""
    late_capabilities: Callable[[Snapshot], tuple[Capability, ...]]
    """The capabilities that tools call for, and that were not active when the runtime was opened."""
    model: ModelClient | None = None
    deps: Any = NO_LIFESPAN
    """The value of the app's lifespan in this process."""

    def __init__(self, tools: Any, policy: Policy, clock: Clock, log: Any, quotas: Quotas) -> None:
        self.tools = tools
        self.quotas = quotas
        self.clock = clock
        self.log = log
        self.hub = EventHub()
        self.deadlines = Deadlines(clock)
        self.threads = ThreadPool(policy.runtime_concurrency)
        self.processes = ProcessPool()
        self.limited_children = ChildPool()
        self.running = RuntimeOrder()
        self.limit = Limit("a slot of the runtime", policy.runtime_concurrency)
        self.processors = Limit("a processor", os.cpu_count() or 1)
        self.lingering: set[ActiveCall] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.rules = RuleBook()
        self.policy = policy
        self._authority = policy.authority
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._tool_limits: dict[tuple[str, int], Limit] = {}

    def write_authority(self, authority: tuple[Policy, ...]) -> bytes | None:
        """What a batch may do as the journal keeps it; None where that is what the program's policy says."""
        own = tuple(policy for policy in authority if policy != self._authority)
        return self.rules.write(Origin("host", self.policy, own)) if own else None

    def tool_limit(self, tool: Tool) -> Limit | None:
        """The limit of a tool that has one, the same for every session."""
        capacity = tool.definition.concurrency.limit
        if capacity is None:
            return self.processors if tool.definition.hints.cpu_bound else None
        # A view may show a tool with another limit: each limit counts its own calls.
        key = (tool.definition.id, capacity)
        limit = self._tool_limits.get(key)
        if limit is None:
            limit = self._tool_limits[key] = Limit(f"a slot of tool {tool.name!r}", capacity)
        return limit

    def require_open(self) -> None:
        """Refuse work once the runtime is closed, and work of another event loop.

        Raises:
            RuntimeClosed: it is.
            ToolwrightError: the loop that runs now is not the one that the runtime was opened in.
        """
        if self.closed:
            raise RuntimeClosed("The runtime is closed; open another")
        running = asyncio._get_running_loop()
        if running is not self.loop and running is not None and self.loop is not None:
            raise ToolwrightError(
                "The runtime was opened in another event loop, which alone can run its calls; use it there "
                "(asyncio.run_coroutine_threadsafe hands work over), or open one for each loop"
            )

    async def stop_lingering(self) -> None:
        """Give what does not want to stop a last moment to do so."""
        for run in list(self.lingering):
            if run.task is not None:
                run.task.cancel()
                self.tasks.add(run.task)
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=1.0)

    async def close(self) -> None:
        """End threads, child processes, waits and events; nothing is lent any more."""
        for task in self.tasks:
            task.cancel()
        await self.effects.close()
        self.processes.close()
        await self.limited_children.close()
        self.threads.close()
        self.deadlines.close()
        self.hub.close()
