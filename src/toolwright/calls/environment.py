"""The environment of a call. Owns the names of a session's shared parts; does not own any behaviour."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol

from toolwright.calls.authorise.authority import Origin
from toolwright.calls.journal_contract import CallJournal, CallT
from toolwright.calls.pools.process_pool import ProcessPool
from toolwright.calls.pools.thread_pool import ThreadPool
from toolwright.calls.redactor import Keeper, Redactor
from toolwright.calls.schedule.admission import Admission
from toolwright.clock import Clock, Deadlines
from toolwright.effects.step_replay import JournaledController
from toolwright.event_bus import Channel
from toolwright.limited_children import ChildPool
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.call import ToolCall
from toolwright.tools.model import ModelClient
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.session_protocols import ChildSessionClient, SessionView
from toolwright.tools.tracing import Tracing

NO_LIFESPAN: Any = object()
"""In the place of dependencies, where the app has no lifespan: None may be the value of one."""
MOST_CALLS_BEFORE_YIELD = 64
"""How many calls batches may have that ended without waiting, until one lets other tasks of the loop run: about a
millisecond."""
SaveOutput = Callable[[CallKey, str, bool], Awaitable[str]]
"""Stores the whole output of a call in a file of its session, once if the journal knows the call, and returns the
path."""


SaveEvent = Callable[[str, bytes, str | None], Awaitable[None]]
"""Stores an event that a tool declares: its name, its payload as JSON, and the key by which it is stored once."""


class OpenedChild(ChildSessionClient, Protocol):
    """A session that a call opened, with the keeper of what is secret in it."""

    @property
    def _keeper(self) -> object: ...


class CallEnvironment(Generic[CallT]):
    """What a session lends to its calls."""

    __slots__ = (
        "admission",
        "calls_since_yield",
        "channel",
        "clock",
        "connected_since",
        "deadlines",
        "deps",
        "effects",
        "end_agents",
        "journal",
        "keeper",
        "know",
        "limited_children",
        "lingering",
        "loan",
        "loop",
        "model",
        "monotonic",
        "open_agent",
        "open_child",
        "processes",
        "redactor",
        "run_nested",
        "save_event",
        "save_output",
        "secret_names",
        "services",
        "session_id",
        "spawn",
        "tasks",
        "thread_id",
        "threads",
        "tracing",
        "view",
    )

    def __init__(
        self,
        *,
        session_id: str,
        clock: Clock,
        deadlines: Deadlines,
        channel: Channel,
        threads: ThreadPool,
        processes: ProcessPool,
        limited_children: ChildPool,
        admission: Admission,
        lingering: set[CallT],
        tasks: set[asyncio.Task[Any]],
        journal: CallJournal[CallT],
        effects: JournaledController,
        services: Callable[[Origin, Callable[[Any], Any]], Any],
        save_output: SaveOutput,
        connected_since: Callable[[str], Awaitable[float | None]],
        open_child: Callable[[CallT, str, Callable[[Any], Any]], OpenedChild],
        open_agent: Callable[[CallT, object, Callable[[Any], Any]], Awaitable[OpenedChild]],
        end_agents: Callable[[CallKey, str], Awaitable[None]],
        model: ModelClient | None,
        run_nested: Callable[[CallT, Iterable[ToolCall | Mapping[str, Any]]], Awaitable[list[ToolOutcome]]],
        keeper: Keeper,
        secret_names: Callable[[], Awaitable[Sequence[str]]],
        view: SessionView,
        know: Callable[[], Awaitable[None]] | None = None,
        deps: object = NO_LIFESPAN,
        tracing: Tracing | None = None,
    ) -> None:
        self.session_id = session_id
        self.clock = clock
        self.monotonic = clock.monotonic
        self.deadlines = deadlines
        self.channel = channel
        self.threads = threads
        self.processes = processes
        self.limited_children = limited_children
        self.admission = admission
        self.lingering = lingering
        self.tasks = tasks
        self.journal = journal
        self.effects = effects
        self.connected_since = connected_since
        self.services = services
        self.save_output = save_output
        # For the calls of a background run, whose events are stored.
        self.save_event: SaveEvent | None = None
        self.run_nested = run_nested
        self.keeper = keeper
        self.secret_names = secret_names
        # The session for prepare steps, which may only read.
        self.view = view
        # To be awaited before the first batch, to know the secrets that must be redacted; None from then on.
        self.know = know
        # None for as long as there is nothing to redact, and then all that it costs is to look at it.
        self.redactor: Redactor | None = None
        self.open_child = open_child
        self.open_agent = open_agent
        # Ends the turns of a call's sub-agents that are unfinished when the call ends, and says why.
        self.end_agents = end_agents
        self.model = model
        self.deps = deps
        self.tracing = tracing
        self.loop = loop = asyncio.get_running_loop()
        self.spawn: Callable[..., asyncio.Task[None]] = (
            # The same as create_task without a task factory, without the layers around it.
            functools.partial(asyncio.Task, loop=loop) if loop.get_task_factory() is None else loop.create_task
        )
        self.thread_id = threading.get_ident()
        self.calls_since_yield = 0
        # The task that was lent to calls in this turn of the loop, and that the next call may use.
        self.loan: Any = None

    def hold_task(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it ends, so that closing the runtime can wait for it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
