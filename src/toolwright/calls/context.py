"""The common parts of a session's batches under one policy. Owns making them once, and the plan of each tool."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from toolwright.calls.authorise.authorise import Judge
from toolwright.calls.authorise.authority import restrict
from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.execute.timeout import timeout_of
from toolwright.calls.finalise.finalise import Finaliser
from toolwright.calls.hooks import Hooks
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog, Report
from toolwright.calls.schedule.tickets import Limit
from toolwright.calls.tool_plan import ToolPlan
from toolwright.event_bus import Channel
from toolwright.tools.tool import Tool


class BatchContext:
    """The parts that a batch and its calls use, one of each stage, made for one policy."""

    __slots__ = (
        "_authority",
        "_tool_limit",
        "_write_authority",
        "_written_authority",
        "env",
        "finaliser",
        "hooks",
        "judge",
        "loops",
        "outer_limits",
        "plans",
        "policy",
        "report",
        "restrictions",
    )

    def __init__(
        self,
        *,
        env: CallEnvironment,
        policy: Policy,
        hooks: Hooks,
        loops: LoopWatch,
        call_log: CallLog,
        outer_limits: tuple[Limit, ...],
        tool_limit: Callable[[Tool], Limit | None],
        restrictions: tuple[Policy, ...] = (),
        write_authority: Callable[[tuple[Policy, ...]], bytes | None] = lambda authority: None,
        channel: Channel | None = None,
    ) -> None:
        """`channel` gets the beginning and end of batches and calls; by default the channel of the environment."""
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
        self.plans: dict[Tool, ToolPlan] = {}
        self.finaliser = Finaliser(env, policy, hooks)
        self.report = Report(channel or env.channel, env.clock, call_log, policy.record_bytes)

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

    def plan(self, tool: Tool) -> ToolPlan:
        """Make the plan of a tool, to be found in `plans` from then on."""
        bucket = self.env.deadlines.bucket(timeout_of(tool.definition, self.policy))
        plan = self.plans[tool] = ToolPlan(tool, bucket, self._tool_limit(tool), self.judge.allows_always(tool))
        return plan
