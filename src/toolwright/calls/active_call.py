"""The state of a call while it is processed. Owns the fields; the stages own their meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolwright.calls.environment import CallEnvironment
from toolwright.calls.prepare.prepare import EMPTY
from toolwright.calls.redact import Stream
from toolwright.calls.schedule.tickets import Ticket
from toolwright.calls.tool_plan import RunOwner, ToolPlan
from toolwright.effects.controller import CallEffects, Watch
from toolwright.log_fields import log_fields
from toolwright.stores.contracts.journal import CallKey, Intent
from toolwright.stores.contracts.waits import Wait
from toolwright.tools.outcome import Decision, ToolOutcome

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import ActiveCall
    from toolwright.calls.execute.executors import Executor
    from toolwright.calls.execute.timeout import QueueDeadline


class RunState(Ticket):
    """The fields of a `CallRun`."""

    # Fields that every call reads or writes. The others have their default in the class, and take space only in the few
    # calls that write them.
    __slots__ = (
        "admission",
        "answer",
        "arguments",
        "attempt",
        "call_id",
        "cancel_reason",
        "claims",
        "concluded",
        "decided_by",
        "done",
        "entered",
        "env",
        "expired",
        "handed_over",
        "in_tool",
        "index",
        "key",
        "key_taken",
        "limits",
        "name",
        "named",
        "order",
        "outcome",
        "owner",
        "parent",
        "parent_id",
        "plan",
        "position",
        "queue_deadline",
        "ran",
        "raw",
        "record",
        "rejoins",
        "remembered",
        "reserved",
        "sharers",
        "shares",
        "source",
        "started",
        "state",
        "task",
        "tool",
        "waited_for",
        "waiting",
        "waiting_in",
        "watch",
    )

    executor: Executor | None = None
    pausing = False
    finishing = False
    late: asyncio.Task[None] | None = None
    streams: dict[str, Stream] | None = None
    warned_of_report = False
    record: Any
    plan: ToolPlan
    # Its identity in the journal of a store; True where the memory of this process has it; the calls that share its
    # execution.
    key: CallKey | None
    remembered: bool
    shares: ActiveCall | None
    sharers: tuple[ActiveCall, ...]
    recovered: str | None = None
    made: dict[str, int] | None = None
    cut_off_after_start: float | None = None
    crashes = 0
    # How many calls are above it, of which each made the next.
    depth = 0
    # The intent of a call that was refused before it could run, to be written together with its outcome.
    refused: Intent | None = None
    pending_before = False
    doubt: str | None = None
    # The outcome that is taken back while a call is run again for it, and the state of its connections: by provider,
    # how often it waited, and the instant of the connection that it was last run with.
    before: ToolOutcome | None = None
    parked_for: str | None = None
    connecting: Mapping[str, tuple[int, float | None]] = MappingProxyType({})
    reruns = 0
    # How many events it told that were given no key.
    emitted = 0
    # The child sessions that it opened, by name.
    opened: Mapping[str, Any] = MappingProxyType({})
    # Its durable effects, and its wait for something outside.
    effects: CallEffects | None = None
    waits = 0
    slot: asyncio.Future[None] | None = None
    asking: asyncio.Task[None] | None = None
    asked = False
    # The last request about it to a person, where a crash cut it off after one was made.
    asked_before: Wait | None = None
    # The decision of a person about it, where one was asked or had decided for always.
    decision: Decision | None = None
    fault: Exception | None = None

    def __init__(self, env: CallEnvironment, owner: RunOwner, position: int) -> None:
        self.env = env
        self.owner = owner
        self.position = position
        self.raw = EMPTY
        self.source = "model"
        self.state = "new"
        self.tool = self.arguments = self.outcome = self.answer = self.decided_by = self.parent_id = None
        self.order = self.attempt = 0
        self.parent = self.waiting_in = self.key = self.shares = None
        self.waited_for = self.reserved = self.sharers = ()
        self.named = self.done = self.concluded = self.in_tool = self.ran = self.expired = False
        self.rejoins = self.remembered = self.entered = self.waiting = self.key_taken = self.handed_over = False
        self.started: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.watch: Watch | None = None
        self.queue_deadline: QueueDeadline | None = None
        self.cancel_reason: str | None = None


def identity(run: ActiveCall) -> CallKey:
    """The identity of this execution."""
    # The journal's own, where it has one: many calls may wait for long, and each field of theirs counts.
    return run.key or CallKey(run.env.session_id, run.owner.scope, run.call_id)


def about(run: ActiveCall) -> tuple[str, str, float, str, str, str]:
    """The fields that every event of a running call begins with."""
    return run.env.session_id, run.owner.id, run.env.clock.now(), run.call_id, run.name, run.owner.scope


def call_fields(run: ActiveCall, action: str, waits_for: str | None = None) -> dict[str, str]:
    """The fields of a log line about a running call."""
    return log_fields(
        action,
        session=run.env.session_id,
        batch=run.owner.id,
        call_id=run.call_id,
        tool=run.name,
        waits_for=waits_for,
    )
