"""Timeouts. Owns which timeout applies to a call, and the failure of a call that exceeded it.

An attempt has the timeout of its tool, or else of its policy; it begins with the tool's code. `queue_timeout` of the
policy limits the wait for a slot. Stopping code after a timeout is in `cancel`; timers are in `toolwright.clock`.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolwright.calls.active_call import QUEUED, ActiveCall
from toolwright.calls.conclude import end_now
from toolwright.calls.failures import is_retried
from toolwright.calls.policy import Policy
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Failure

LONGEST = 366 * 24 * 3600.0
"""Seconds of an attempt without a timeout: a timer needs some instant, and no process lives to see this one."""


def timeout_of(definition: ToolDefinition, policy: Policy) -> float:
    """The seconds that one attempt of a tool has: its own timeout, or the one that its policy gives such tools."""
    usual = policy.long_timeout if definition.hints.long_running else policy.timeout
    return min(definition.timeout or usual, LONGEST)


def time_is_up(call: ActiveCall) -> Failure:
    """The failure of an attempt that took longer than its timeout."""
    tool, seconds = call.plan.tool, call.plan.bucket.seconds
    doubt = "" if tool.definition.hints.readonly else "; it may have had an effect"
    return Failure(
        category="timeout",
        code="timeout",
        message=f"Tool {call.name!r} did not finish within {seconds:g} s and was stopped{doubt}",
        source="runtime",
        retry=is_retried(TimeoutError(), tool),
        data={"seconds": seconds},
    )


class QueueDeadline:
    """The end of a call's time to wait for admission."""

    __slots__ = ("_call", "seconds")

    def __init__(self, call: ActiveCall, seconds: float) -> None:
        self._call = call
        self.seconds = seconds

    def expire(self) -> None:
        call = self._call
        call.queue_deadline = None  # It has another one, if it waits for calls of other processes after this.
        if call.phase is QUEUED and call.ticket is not None:
            call.env.admission.withdraw(call.ticket)
            end_now(call, _queued_too_long(call.name, self.seconds))


def limit_queue(calls: Iterable[ActiveCall], seconds: float) -> None:
    """Fail those of the calls that are queued, unless they start within this time."""
    for call in calls:
        if call.phase is QUEUED and call.queue_deadline is None:
            call.queue_deadline = QueueDeadline(call, seconds)
            call.env.deadlines.bucket(seconds).add(call.queue_deadline)


def end_queue_time(call: ActiveCall) -> None:
    """The call starts: it waits no longer."""
    seconds = call.owner.policy.queue_timeout
    if call.queue_deadline is not None and seconds is not None:
        call.env.deadlines.bucket(seconds).discard(call.queue_deadline)
        call.queue_deadline = None


def _queued_too_long(name: str, seconds: float) -> Failure:
    """The failure of a call that waited longer for admission than its policy allows."""
    return Failure(
        category="timeout",
        code="queue_timeout",
        message=f"Tool {name!r} waited {seconds:g} s for admission and never ran",
        source="runtime",
        data={"seconds": seconds},
    )
