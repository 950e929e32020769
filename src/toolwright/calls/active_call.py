"""A call on its way, from its submission to its outcome. Owns what is known of it; each stage owns what it does.

`ActiveCall` is a `PreparedCall` with a phase and parts: its ticket, which admission writes, and its record. Fields that
few calls need have their default in the class, and a value of their own only in the calls that write it. What the calls
of one batch share is its `BatchState`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol

from toolwright.calls.context import BatchContext, ToolPlan
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.policy import Policy
from toolwright.calls.prepare.prepare import EMPTY, PreparedCall
from toolwright.calls.record import CallRecord
from toolwright.calls.redactor import Stream
from toolwright.calls.schedule.admission import Ticket
from toolwright.clock import Expiring
from toolwright.effects.controller import CallEffects, Watch
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.contracts.waits import Wait
from toolwright.tools.outcome import ToolOutcome

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

    async def run(self) -> Any: ...

    def stop(self) -> None: ...

    def abandon(self) -> bool: ...

    def released(self) -> None: ...


class BatchState:
    """What the calls of one batch share, and what they tell it. `Batch` is the one that there is."""

    __slots__ = ("context", "env", "failed", "id", "parent", "policy", "scope", "stop_reason", "timeout")

    id: str
    scope: str
    context: BatchContext[ActiveCall]
    env: CallEnvironment[ActiveCall]
    policy: Policy
    parent: ActiveCall | None
    """The call that made these calls, if one did."""
    timeout: float | None
    """Seconds for each of its calls, in place of those that its tool or the policy says."""
    stop_reason: str | None
    """Why no call may start any more."""
    failed: Exception | None
    """Raised where the batch is awaited."""

    @property
    def fault(self) -> Exception | None:
        """Why the calls, or the call that made them, could not be recorded or run."""
        batch: BatchState = self
        while batch.failed is None and batch.parent is not None:
            batch = batch.parent.owner
        return batch.failed

    def store_failed(self, fault: Exception) -> None:
        """What happened cannot be written down: raise that where the batch is awaited, and start no more."""
        self.machine_failed(fault)
        self.cancel(UNRECORDED)

    def machine_failed(self, fault: Exception) -> None:
        """The machine could not run a call: raise that where the batch is awaited, when the other calls are done."""
        if self.failed is None:
            self.failed = fault

    def cancel(self, reason: str = "the batch was cancelled") -> None:
        """Stop every call of the batch."""
        raise NotImplementedError

    def call_concluded(self, call: ActiveCall, outcome: ToolOutcome, finished: float) -> None:
        """A call has its outcome; perhaps the batch is done."""
        raise NotImplementedError

    def call_waits(self, call: ActiveCall, waits: bool) -> None:
        """A call begins or ends to wait for something outside."""
        raise NotImplementedError

    def start_over(self, call: ActiveCall) -> None:
        """The execution that a call shared was stopped before it ran: let the call run itself."""
        raise NotImplementedError


class ActiveCall(PreparedCall):
    """One call from its submission to its outcome. It has exactly one outcome, whatever happens."""

    # What every call is asked for: to find the default of a class takes ten times as long as to read one of these.
    __slots__ = (
        "answer",
        "arguments",
        "attempt",
        "call_id",
        "cancel_reason",
        "decided_by",
        "decision",
        "entered",
        "env",
        "handed_over",
        "key",
        "key_taken",
        "name",
        "named",
        "outcome",
        "owner",
        "parent_id",
        "phase",
        "plan",
        "position",
        "queue_deadline",
        "ran",
        "raw",
        "record",
        "recovered",
        "remembered",
        "repeated",
        "sharers",
        "shares",
        "source",
        "started",
        "streams",
        "task",
        "ticket",
        "tool",
        "waiting",
    )

    record: CallRecord
    plan: ToolPlan
    ticket: Ticket | None
    phase: Phase
    # --- execute
    expired = False
    cancel_reason: str | None
    deadline: Expiring | None = None
    queue_deadline: Expiring | None
    executor: Executor | None = None
    late: asyncio.Task[None] | None = None
    reruns = 0
    # Why nothing that it does can be recorded any more.
    fault: Exception | None = None
    # --- journal: its identity in a store; True where the memory of this process has it; who shares its execution.
    key: CallKey | None
    remembered: bool
    shares: ActiveCall | None
    sharers: tuple[ActiveCall, ...]
    recovered: str | None
    cut_off_after_start: float | None = None
    crashes = 0
    # The intent of a call that was refused before it could run, to be written together with its outcome.
    refused: Intent | None = None
    pending_before = False
    doubt: str | None = None
    # The outcome that is taken back while a call is run again for it, and the state of its connections: by provider,
    # how often it waited, and the instant of the connection that it was last run with.
    before: ToolOutcome | None = None
    parked_for: str | None = None
    # The last request about it to a person, where a crash cut it off after one was made.
    asked_before: Wait | None = None
    # --- suspend: what it does durably, and what it waits for outside
    connecting: Mapping[str, tuple[int, float | None]] = MappingProxyType({})
    effects: CallEffects | None = None
    entered: bool
    key_taken: bool
    waiting: bool
    waits = 0
    slot: asyncio.Future[None] | None = None
    watch: Watch | None = None
    asking: asyncio.Task[None] | None = None
    asked = False
    # Its live output, where secrets are taken out of it; how many events it told without a key; its child sessions.
    streams: dict[str, Stream] | None
    emitted = 0
    warned_of_report = False
    opened: Mapping[str, Any] = MappingProxyType({})
    # --- nesting: how many calls are above it, of which each made the next; the ids of those that it made.
    depth = 0
    made: dict[str, int] | None = None

    def __init__(self, env: CallEnvironment[ActiveCall], owner: BatchState, position: int) -> None:
        self.env = env
        self.owner = owner
        self.position = position
        self.phase = NEW
        self.raw = EMPTY
        self.source = "model"
        self.tool = self.arguments = self.outcome = self.answer = self.parent_id = None
        self.decided_by = self.decision = self.ticket = self.key = self.shares = self.recovered = None
        self.cancel_reason = self.queue_deadline = self.streams = None
        self.sharers = ()
        self.attempt = 0
        self.named = self.repeated = self.ran = self.remembered = self.handed_over = False
        self.entered = self.key_taken = self.waiting = False
        self.started: float | None = None
        self.task: asyncio.Task[None] | None = None

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
    """The identity of this execution."""
    # The journal's own, where it has one: many calls may wait for long, and each field of theirs counts.
    return call.key or CallKey(call.env.session_id, call.owner.scope, call.call_id)


def about(call: ActiveCall) -> tuple[str, str, float, str, str, str]:
    """The fields that every event of a running call begins with."""
    return call.env.session_id, call.owner.id, call.env.clock.now(), call.call_id, call.name, call.owner.scope


def call_fields(call: ActiveCall, action: str, waits_for: str | None = None) -> dict[str, str]:
    """The fields of a log line about a running call."""
    return log_fields(
        action,
        session=call.env.session_id,
        batch=call.owner.id,
        call_id=call.call_id,
        tool=call.name,
        waits_for=waits_for,
    )
