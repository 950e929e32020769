"""What the batches of a session under one policy share, and the plan of each tool. Owns making both once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Generic

from msgspec import UNSET, UnsetType

from toolwright import jsonx
from toolwright.calls.around import SentAround
from toolwright.calls.authorise.authorise import Judge
from toolwright.calls.authorise.authority import restrict
from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.hooks import Hooks
from toolwright.calls.journal_contract import CallT
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog, Recorder
from toolwright.calls.schedule.admission import Limit
from toolwright.clock import DeadlineBucket, Deadlines
from toolwright.crash_seams import crash_seams
from toolwright.event_bus import Channel
from toolwright.tools.tool import Tool


class ToolPlan:
    """What all calls of one tool under one policy have in common; made once, not for each call."""

    __slots__ = (
        "allowed_by",
        "around",
        "attempts",
        "bucket",
        "claims",
        "direct",
        "invoke",
        "limit",
        "mode",
        "needs_context",
        "repeats",
        "rerun",
        "tool",
    )

    def __init__(
        self, tool: Tool, bucket: DeadlineBucket, limit: Limit | None, allowed_by: str | None, waits: bool
    ) -> None:
        self.tool = tool
        self.mode = tool.mode
        self.invoke = tool.invoke
        self.direct = tool.direct
        self.needs_context = tool.needs_context
        # None where they depend on the arguments.
        self.claims = tool.claims if isinstance(tool.claims, tuple) else None
        self.attempts = tool.definition.retry.attempts
        # True where a call may run again in this process, and each attempt gets arguments of its own.
        self.repeats = waits or self.attempts > 1
        self.rerun = tool.definition.on_crash == "rerun"
        self.bucket = bucket
        self.limit = limit
        self.allowed_by = allowed_by
        self.around: tuple[SentAround, ...] = ()
        if crash_seams.tool_code is not None and self.mode != "process":
            self.direct, self.invoke = None, crash_seams.tool_code(self.invoke, self.mode)

    def with_timeout(self, deadlines: Deadlines, seconds: float) -> ToolPlan:
        """The same plan for calls with a timeout of their own."""
        plan = copy.copy(self)
        plan.bucket = deadlines.bucket(seconds)
        return plan


class BatchContext(Generic[CallT]):
    """The parts that a batch and its calls use, one of each stage, made for one policy."""

    __slots__ = (
        "_authority",
        "_enclose",
        "_tool_limit",
        "_write_authority",
        "_written_authority",
        "env",
        "hooked",
        "hooks",
        "judge",
        "loops",
        "outer_limits",
        "plans",
        "policy",
        "recorder",
        "restrictions",
        "unchecked_argument_bytes",
        "unchecked_bytes",
    )

    def __init__(
        self,
        *,
        env: CallEnvironment[CallT],
        policy: Policy,
        hooks: Hooks,
        loops: LoopWatch,
        call_log: CallLog,
        outer_limits: tuple[Limit, ...],
        tool_limit: Callable[[Tool], Limit | None],
        restrictions: tuple[Policy, ...] = (),
        write_authority: Callable[[tuple[Policy, ...]], bytes | None] = lambda authority: None,
        channel: Channel | None = None,
        enclose: Callable[[ToolPlan], None] | None = None,
    ) -> None:
        """`channel` gets the beginning and end of batches and calls; by default the channel of the environment.

        `enclose` puts context managers of the host around the code of each plan that is made.
        """
        self.env = env
        self.policy = policy
        self.hooks = hooks
        # The restrictions of the batch's starter: its calls need the permission of these and of the policy.
        self.restrictions = restrictions
        self._authority: tuple[Policy, ...] | None = None
        self._write_authority = write_authority
        self._written_authority: bytes | UnsetType | None = UNSET
        self.judge = Judge(policy, env.session_id, restrictions)
        self.loops = loops
        self.outer_limits = outer_limits
        self._tool_limit = tool_limit
        self._enclose = enclose
        self.plans: dict[Tool, ToolPlan] = {}
        # True when the host has code that sees each outcome.
        self.hooked = bool(hooks.after or hooks.project)
        # A value of so few bytes is neither nested too deeply nor too long, and has not too many lines.
        self.unchecked_bytes = min(jsonx.SHALLOW, policy.plain_bytes, 2 * policy.max_lines)
        self.unchecked_argument_bytes = min(jsonx.SHALLOW, policy.max_argument_bytes)
        self.recorder = Recorder(channel or env.channel, env.clock, call_log, policy.record_bytes)

    @property
    def authority(self) -> tuple[Policy, ...]:
        """The restrictions of whatever a call of these batches starts."""
        if self._authority is None:
            self._authority = restrict(self.restrictions, self.policy)
        return self._authority

    @property
    def written_authority(self) -> bytes | None:
        """The authority as the journal stores it for a recovery; None where it is no less than the program's."""
        if self._written_authority is UNSET:
            self._written_authority = self._write_authority(self.authority)
        return self._written_authority

    def plan(self, tool: Tool, timeout: float) -> ToolPlan:
        """Make the plan of a tool, whose attempts have so many seconds; it is in `plans` from then on."""
        bucket = self.env.deadlines.bucket(timeout)
        waits = self.policy.on_connection == "wait"
        plan = ToolPlan(tool, bucket, self._tool_limit(tool), self.judge.allows_always(tool), waits)
        self.plans[tool] = plan
        if self._enclose is not None:
            self._enclose(plan)
        return plan
