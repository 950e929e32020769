"""Timeouts. Owns which timeout applies to a call, and the failure of a call that exceeded it.

An attempt has the timeout of its tool, or else of its policy; it begins with the tool's code. `queue_timeout` of the
policy limits the wait for a slot. Stopping code after a timeout is in `cancel`; timers are in `toolwright.clock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolwright.calls.conclude import end_now
from toolwright.calls.execute.failures import is_retried
from toolwright.calls.policy import Policy
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Failure

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import ActiveCall


LONGEST = 366 * 24 * 3600.0
"""Seconds of an attempt without a timeout: a timer needs some instant, and no process lives to see this one."""


def timeout_of(definition: ToolDefinition, policy: Policy) -> float:
    """The seconds that one attempt of a tool has: its own timeout, or the one that its policy gives such tools."""
    usual = policy.long_timeout if definition.hints.long_running else policy.timeout
    return min(definition.timeout or usual, LONGEST)


def time_is_up(run: ActiveCall) -> Failure:
    """The failure of an attempt that took longer than its timeout."""
    tool, seconds = run.plan.tool, run.plan.bucket.seconds
    doubt = "" if tool.definition.hints.readonly else "; it may have had an effect"
    return Failure(
        category="timeout",
        code="timeout",
        message=f"Tool {run.name!r} did not finish within {seconds:g} s and was stopped{doubt}",
        source="runtime",
        retry=is_retried(TimeoutError(), tool),
        data={"seconds": seconds},
    )


class QueueDeadline:
    """The end of a call's time to wait for admission."""

    __slots__ = ("_run", "seconds")

    def __init__(self, run: ActiveCall, seconds: float) -> None:
        self._run = run
        self.seconds = seconds

    def expire(self) -> None:
        run = self._run
        if run.started is None and not run.concluded:
            run.admission.withdraw(run)
            end_now(run, _queued_too_long(run.name, self.seconds))


def limit_queue(run: ActiveCall, seconds: float) -> None:
    """Fail a call unless it starts within this time."""
    if run.started is None and not run.concluded:
        run.queue_deadline = QueueDeadline(run, seconds)
        run.env.deadlines.bucket(seconds).add(run.queue_deadline)


def _queued_too_long(name: str, seconds: float) -> Failure:
    """The failure of a call that waited longer for admission than its policy allows."""
    return Failure(
        category="timeout",
        code="queue_timeout",
        message=f"Tool {name!r} waited {seconds:g} s for admission and never ran",
        source="runtime",
        data={"seconds": seconds},
    )
