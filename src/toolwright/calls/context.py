"""What the batches of a session under one policy have in common. Owns making it once, and the plan of each tool."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from toolwright.calls.authorise.authorise import Judge
from toolwright.calls.authorise.authority import restrict
from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.environment import CallHost
from toolwright.calls.finalise.finalise import Finaliser
from toolwright.calls.hooks import Hooks
from toolwright.calls.journal.store import StoreJournal
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog
from toolwright.calls.report import Report
from toolwright.calls.schedule.tickets import Limit
from toolwright.calls.tool_plan import Plan
from toolwright.event_bus import Channel
from toolwright.tools.tool import Tool


class BatchSetting:
    """The parts that a batch and its calls use, one of each stage, made for one policy."""

    __slots__ = (
        "_authority",
        "_keep",
        "_kept_authority",
        "_tool_limit",
        "finaliser",
        "hooks",
        "host",
        "judge",
        "loops",
        "outer_limits",
        "plans",
        "policy",
        "report",
        "restrictions",
        "store",
    )

    def __init__(
        self,
        *,
        host: CallHost,
        policy: Policy,
        hooks: Hooks,
        loops: LoopWatch,
        call_log: CallLog,
        outer_limits: tuple[Limit, ...],
        tool_limit: Callable[[Tool], Limit | None],
        restrictions: tuple[Policy, ...] = (),
        keep: Callable[[tuple[Policy, ...]], bytes | None] = lambda authority: None,
        channel: Channel | None = None,
    ) -> None:
        """`channel` is told when batches and calls begin and end; by default that of the host."""
        self.host = host
        self.policy = policy
        self.hooks = hooks
        self.store = host.journal if isinstance(host.journal, StoreJournal) else None
        # Of whoever started the batch: its calls may do what both these and the policy let them.
        self.restrictions = restrictions
        self._authority: tuple[Policy, ...] | None = None
        self._keep = keep
        self._kept_authority: bytes | UnsetType | None = UNSET
        self.judge = Judge(policy, host.session_id, restrictions)
        self.loops = loops
        self.outer_limits = outer_limits
        self._tool_limit = tool_limit
        self.plans: dict[Tool, Plan] = {}
        self.finaliser = Finaliser(host, policy, hooks)
        self.report = Report(channel or host.channel, host.clock, call_log, policy.record_bytes)

    @property
    def authority(self) -> tuple[Policy, ...]:
        """The restrictions of whatever a call of these batches starts."""
        if self._authority is None:
            self._authority = restrict(self.restrictions, self.policy)
        return self._authority

    @property
    def kept_authority(self) -> bytes | None:
        """The authority as the journal keeps it for a recovery; None where it is no less than the program's."""
        if self._kept_authority is UNSET:
            self._kept_authority = self._keep(self.authority)
        return self._kept_authority

    def plan(self, tool: Tool) -> Plan:
        """Make the plan of a tool, to be found in `plans` from then on."""
        policy, definition = self.policy, tool.definition
        usual = policy.long_timeout if definition.hints.long_running else policy.timeout
        bucket = self.host.deadlines.bucket(definition.timeout or usual)
        plan = self.plans[tool] = Plan(tool, bucket, self._tool_limit(tool), self.judge.allows_always(tool))
        return plan
