"""A call on its way, from its submission to its outcome. Owns what is known of it; each stage owns what it does.

`ActiveCall` is a `PreparedCall` with a phase and parts, each of which one stage writes: its ticket (admission), its
record, its `Past` (journal) and its `Suspension` (steps and waits). Parts that few calls need are made when they are
used. The batch of a call is an `OwnerBatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from toolwright.calls.context import BatchContext, ToolPlan
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.policy import Policy
from toolwright.calls.prepare.prepare import PreparedCall
from toolwright.calls.quick_fields import quick_fields
from toolwright.calls.record import CallRecord
from toolwright.calls.redactor import Stream
from toolwright.calls.schedule.admission import Ticket
from toolwright.clock import Expiring
from toolwright.effects.controller import CallEffects, Watch
from toolwright.log_fields import LogFields, log_fields
from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.contracts.waits import Wait, WaitKey
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.tracing import CallSpan

UNRECORDED = "the calls could not be recorded"
"""Why calls are stopped when the journal cannot be written."""


class Phase(Enum):
    """Where a call is on its way. `execute/cancel.py` has a table of what cancelling means in each."""

    NEW = "new"  # prepared, and not yet in the order of admission; or it shares the execution of another call
    ASKING = "asking"  # waits for a person or a connection before it runs
    QUEUED = "queued"  # waits for claims or slots
    STARTED = "started"  # has its slots; its code does not run at this moment
    RUNNING = "running"  # the code of its tool runs
    RETRYING = "retrying"  # waits for the next attempt
    SUSPENDED = "suspended"  # its code has ended, and its completion is to come from outside
    FINISHING = "finishing"  # its outcome is being made, which takes time
    CONCLUDED = "concluded"  # it has its outcome; code that was given up may still run
    LATE = "late"  # it was given up, and its outcome is still being made


NEW, ASKING, QUEUED, STARTED, RUNNING = Phase.NEW, Phase.ASKING, Phase.QUEUED, Phase.STARTED, Phase.RUNNING
RETRYING, SUSPENDED, FINISHING = Phase.RETRYING, Phase.SUSPENDED, Phase.FINISHING
CONCLUDED, LATE = Phase.CONCLUDED, Phase.LATE
OVER = (CONCLUDED, LATE)
"""The phases of a call that has its outcome, or what its outcome will be made of."""


class Executor(Protocol):
    """One attempt of a call outside the event loop: `ThreadExecutor` and `ChildProcessExecutor` in `executors.py`.

    `stop` asks the code to end. `abandon`, after the grace, ends it by force where that can be done: True means that
    it will end now. `released` is called when code that could not be ended has come to its end after all.
    """

    async def run(self) -> object: ...

    def stop(self) -> None: ...

    def abandon(self) -> bool: ...

    def released(self) -> None: ...


class OwnerBatch(Protocol):
    """The batch of a call, as the call sees it: what its calls share, and what they tell it. `Batch` is the one that
    there is."""

    id: str
    scope: str
    context: BatchContext[ActiveCall]
    env: CallEnvironment[ActiveCall]
    policy: Policy
    parent: ActiveCall | None
    """The call that made these calls, if one did."""
    depth: int
    """How many calls are above these, of which each made the next."""
    timeout: float | None
    """Seconds for each of its calls, in place of those that its tool or the policy says."""
    stop_reason: str | None
    """Why no call may start any more."""
    failed: Exception | None
    """Raised where the batch is awaited."""

    @property
    def fault(self) -> Exception | None:
        """Why the calls, or the call that made them, could not be recorded or run."""
        ...

    def store_failed(self, fault: Exception) -> None:
        """What happened cannot be written down: raise that where the batch is awaited, and start no more."""
        ...

    def machine_failed(self, fault: Exception) -> None:
        """The machine could not run a call: raise that where the batch is awaited, when the other calls are done."""
        ...

    def call_concluded(self, call: ActiveCall, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome; perhaps the batch is done."""
        ...

    def call_waits(self, call: ActiveCall, waits: bool) -> None:
        """A call begins or ends to wait for something outside."""
        ...

    def nested_changed(self) -> None:
        """A call that one of its calls made has its outcome, or begins or ends to wait for something outside."""
        ...

    def leave_queue(self, calls: Sequence[ActiveCall]) -> None:
        """These calls wait for another process, and hold nothing that others wait for meanwhile."""
        ...

    def start_over(self, call: ActiveCall) -> None:
        """The execution that a call shared was stopped before it ran: let the call run itself."""
        ...


Recovery = Literal["left", "again", "run", "rerun", "waiting", "probed", "asked", "interrupted", "given_up"]
"""What is done about a call that came before: `left` is nothing so far, `again` a call that ended because a connection
was missing and is run with its effects done. The others are what its crash policy led to."""


class Waited(NamedTuple):
    """A wait of a call that was cut off, which it must wait for again before it may run.

    `name` is the provider of a connection, or names the question about a crash; `request` is that of an approval.
    """

    kind: Literal["completion", "connection", "crash", "approval"]
    name: str = ""
    request: Wait | None = None


class Past(Struct):
    """What the journal knew of a call that came before and goes on here. `journal/` makes and writes it; a wait that
    begins again is taken from `waited`."""

    recovered: Recovery
    started_at: float | None = None
    """When the execution that was cut off had started, if it had."""
    pending: bool = False
    """True when its code had ended then, and its completion was to come."""
    crashes: int = 0
    before: ToolOutcome | None = None
    """The outcome that is taken back while the call is run again for it."""
    waited: list[Waited] = field(default_factory=list)
    """The waits that it must go through again, the first one first."""
    key_out: bool = False
    """True while somebody may have the key of its completion from the execution that was cut off."""


@quick_fields
class Remembered(Struct, gc=False):
    """A call that was given an id, as it was given: a hook may replace its arguments later. `journal/memory.py` alone
    makes and writes it.

    `end` is the call until it has an outcome. The garbage collector never sees it, so the end must come.
    """

    tool_id: str
    arguments: bytes
    end: ActiveCall | ToolOutcome
    span: object = ""
    """The mark of the span of the call that has the outcome."""


class Suspension(Struct):
    """What a call does durably, and what it waits for outside. `suspend/` makes it at the first step, wait or key, and
    writes it; its batch writes `waiting`, and the end of the call takes the key back."""

    key: CallKey
    effects: CallEffects | None = None
    key_taken: bool = False
    """True once its completion key was handed out, until its completion has come."""
    waiting: bool = False
    """True while its batch counts it among the waiting calls."""
    waits: int = 0
    """How many waits its code is in."""
    slot: asyncio.Future[None] | None = None
    """Done when it has its slots again."""
    watch: Watch | None = None
    request: WaitKey | None = None
    """The request for approval that it waits for before it runs."""
    connecting: Mapping[str, tuple[int, float | None]] = MappingProxyType({})
    """By provider, how often it waited for a connection, and the instant of the one that it was last run with."""
    questions: int = 0
    """How many questions it asked people."""


class Reports(Struct):
    """What a call told while it runs: its live output, where secrets are taken out of it; how many events without a
    key; whether a report that cannot be shown was logged."""

    streams: dict[str, Stream] = field(default_factory=dict)
    emitted: int = 0
    warned: bool = False


class Nesting(Struct):
    """What a call made: calls, sub-agents and sessions. Made when it makes the first of them."""

    calls: dict[str, int] = field(default_factory=dict)
    """The ids of the calls that it made and that were given none, each with how often."""
    batches: tuple[Any, ...] = ()
    """The batches that it made and that run."""
    agents: dict[str, int] = field(default_factory=dict)
    """How often it asked sub-agents, by attempt and question."""
    agents_ended: bool = False
    """True once their unfinished turns were ended, at the end of the call."""
    sessions: dict[str, Any] = field(default_factory=dict)
    """The sessions that it opened, by name."""


_LATER: Any = None
"""In the place of a part that a later stage makes, before anybody asks for it."""


@quick_fields
class ActiveCall(PreparedCall, eq=False):
    """One call from its submission to its outcome. It has exactly one outcome, whatever happens."""

    env: CallEnvironment[ActiveCall]
    owner: OwnerBatch
    position: int
    record: CallRecord = _LATER
    plan: ToolPlan = _LATER
    ticket: Ticket | None = None
    phase: Phase = NEW
    # --- journal/: its identity in a store; its entry in the memory of this process; the call whose execution it
    # shares, and those that share its own; the intent of a call that was refused before it could run, to be written
    # together with its outcome; what was known of it before.
    key: CallKey | None = None
    remembered: Remembered | None = None
    shares: ActiveCall | None = None
    sharers: tuple[ActiveCall, ...] = ()
    refused: Intent | None = None
    past: Past | None = None
    # True once the journal has written, together with its intent, that it starts.
    start_written: bool = False
    # The calls of other processes that it must wait for; empty while the journal is asked for them, None without any.
    elsewhere: AbstractSet[Any] | None = None
    # --- authorise/: the task that asks a person about it; True once a person approved it.
    asking: asyncio.Task[None] | None = None
    asked: bool = False
    # --- execute/: how often it was tried, and whether its code ran; why it stops, its time, and where its code runs.
    attempt: int = 0
    ran: bool = False
    started: float | None = None
    # True once its code waits, and so has a task of its own, which `task` is until the call ends.
    in_task: bool = False
    task: asyncio.Task[None] | None = None
    handed_over: bool = False
    expired: bool = False
    cancel_reason: str | None = None
    deadline: Expiring | None = None
    queue_deadline: Expiring | None = None
    executor: Executor | None = None
    late: asyncio.Task[None] | None = None
    reruns: int = 0
    # Why nothing that it does can be recorded any more.
    fault: Exception | None = None
    # The span of the call, where the runtime is traced.
    span: CallSpan | None = None
    # --- suspend/
    suspension: Suspension | None = None
    reports: Reports | None = None
    nesting: Nesting | None = None

    @property
    def waiting(self) -> bool:
        """True while it waits for something outside."""
        return self.suspension is not None and self.suspension.waiting

    @property
    def nested(self) -> tuple[Any, ...]:
        """The batches that it made and that run."""
        return () if self.nesting is None else self.nesting.batches

    @property
    def concluded(self) -> bool:
        """True once it has its outcome, or what its outcome will be made of."""
        return self.phase in OVER

    @property
    def stopping(self) -> bool:
        """True once the call should stop."""
        return self.expired or self.cancel_reason is not None or self.concluded


CURRENT: ContextVar[ActiveCall | None] = ContextVar("toolwright_call", default=None)
"""The call whose code is running; child tasks inherit it."""


def identity(call: ActiveCall) -> CallKey:
    """The identity of this execution: the key of the journal, where it has one."""
    return call.key or CallKey(call.env.session_id, call.owner.scope, call.call_id)


def nesting_of(call: ActiveCall) -> Nesting:
    """What a call made so far."""
    if call.nesting is None:
        call.nesting = Nesting()
    return call.nesting


def reports_of(call: ActiveCall) -> Reports:
    """What a call told so far."""
    if call.reports is None:
        call.reports = Reports()
    return call.reports


def about(call: ActiveCall) -> tuple[str, str, float, str, str, str]:
    """The fields that every event of a running call begins with."""
    return call.env.session_id, call.owner.id, call.env.clock.now(), call.call_id, call.name, call.owner.scope


def call_fields(call: ActiveCall, action: str, waits_for: str | None = None) -> LogFields:
    """The fields of a log line about a running call."""
    return log_fields(
        action,
        session=call.env.session_id,
        batch=call.owner.id,
        call_id=call.call_id,
        tool=call.name,
        waits_for=waits_for,
    )
