"""The plan of a tool's calls. Owns `ToolPlan`, and the protocols of the batch that a call belongs to."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Protocol

from toolwright.calls.execute.task_reuse import Lane
from toolwright.calls.policy import Policy
from toolwright.calls.schedule.tickets import Limit
from toolwright.clock import DeadlineBucket
from toolwright.crash_seams import crash_seams
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import ActiveCall


class ToolPlan:
    """The common parts of all calls of one tool under one policy; made once, not for each call."""

    __slots__ = (
        "allowed_by",
        "attempts",
        "bucket",
        "direct",
        "invoke",
        "limit",
        "mode",
        "needs_context",
        "rerun",
        "tool",
    )

    def __init__(self, tool: Tool, bucket: DeadlineBucket, limit: Limit | None, allowed_by: str | None) -> None:
        self.tool = tool
        self.mode = tool.mode
        self.invoke = tool.invoke
        self.direct = tool.direct
        self.needs_context = tool.needs_context
        self.attempts = tool.definition.retry.attempts
        self.rerun = tool.definition.on_crash == "rerun"
        self.bucket = bucket
        self.limit = limit
        self.allowed_by = allowed_by
        if crash_seams.tool_code is not None and self.mode != "process":
            self.direct, self.invoke = None, crash_seams.tool_code(self.invoke, self.mode)

    def with_timeout(self, bucket: DeadlineBucket) -> ToolPlan:
        """The same plan for calls with a timeout of their own."""
        plan = copy.copy(self)
        plan.bucket = bucket
        return plan


class RunReport(Protocol):
    """Gets the beginning of a call."""

    def call_started(self, run: ActiveCall, started: float | None) -> None: ...


class RunFinaliser(Protocol):
    """Makes the outcome of a tool's result: `settle` without waiting if that is possible, else it returns None and
    `finish` does."""

    def settle(self, run: ActiveCall, result: object) -> ToolOutcome | None: ...

    async def finish(self, run: ActiveCall, result: object) -> ToolOutcome: ...


class RunOwner(Protocol):
    """The batch, as one of its running calls sees it."""

    id: str
    scope: str
    policy: Policy
    lane: Lane
    context: Any

    @property
    def report(self) -> RunReport: ...

    @property
    def finaliser(self) -> RunFinaliser: ...

    @property
    def fault(self) -> Exception | None: ...

    def store_failed(self, fault: Exception) -> None: ...

    def machine_failed(self, fault: Exception) -> None: ...

    def start_over(self, run: ActiveCall) -> None: ...

    def call_waits(self, run: ActiveCall) -> None: ...

    def call_resumes(self, run: ActiveCall) -> None: ...

    def call_concluded(self, run: ActiveCall, outcome: ToolOutcome, finished: float) -> None: ...
