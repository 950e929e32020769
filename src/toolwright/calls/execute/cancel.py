"""How a call is stopped: cancelled, or because its time is up. Owns its grace; its outcome is made in `conclude`.

A call that has not started is stopped at once. Code that runs is asked to stop and has its grace; then the call is
given up: it gets its outcome, its slots are freed, and its claims stay until the code ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from toolwright.calls.active_call import (
    ASKING,
    CONCLUDED,
    FINISHING,
    LATE,
    NEW,
    QUEUED,
    RETRYING,
    RUNNING,
    STARTED,
    SUSPENDED,
    ActiveCall,
    Phase,
    call_fields,
)
from toolwright.calls.conclude import cancelled, end_now, give
from toolwright.calls.execute.timeout import time_is_up
from toolwright.calls.failures import Cancelled, NotBegun, raised
from toolwright.calls.finalise.finalise import settle
from toolwright.calls.hooks import loop_is_ending
from toolwright.calls.suspend.suspend import stop_watching
from toolwright.tools.outcome import Failure

log = logging.getLogger("toolwright.calls")


def cancel(call: ActiveCall, reason: str) -> None:
    """Stop a call: at once when it has not started, else after its grace."""
    if call.cancel_reason is None and call.phase is not CONCLUDED:
        call.cancel_reason = reason
        if call.task is not None:
            call.task.add_done_callback(functools.partial(_task_ended, call))
        _CANCEL[call.phase](call)


def _end(call: ActiveCall) -> None:
    end_now(call, cancelled(call))


def _stop_asking(call: ActiveCall) -> None:
    if call.asking is not None:
        call.asking.cancel()
    _end(call)


def _withdraw(call: ActiveCall) -> None:
    if call.ticket is not None:
        call.env.admission.withdraw(call.ticket)
    _end(call)


def _wait_for_execution(call: ActiveCall) -> None:
    """Its code does not run at this moment: the next step of its execution sees that it is cancelled."""


def _stop_code(call: ActiveCall) -> None:
    if not call.expired:
        interrupt(call)


def _stop_pause(call: ActiveCall) -> None:
    if call.task is not None:
        call.task.cancel()


def _stop_watching(call: ActiveCall) -> None:
    stop_watching(call)
    _end(call)


def _start_grace(call: ActiveCall) -> None:
    call.env.deadlines.bucket(call.owner.policy.grace).add(Grace(call, call.attempt))


_CANCEL: dict[Phase, Callable[[ActiveCall], None]] = {
    NEW: _end,
    ASKING: _stop_asking,
    QUEUED: _withdraw,
    STARTED: _wait_for_execution,
    RUNNING: _stop_code,
    RETRYING: _stop_pause,
    SUSPENDED: _stop_watching,
    FINISHING: _start_grace,
    LATE: _start_grace,
}
"""What cancelling means in each phase. A call that is concluded cannot be cancelled."""


def _task_ended(call: ActiveCall, task: asyncio.Task[None]) -> None:
    """The task has ended; a call that was cancelled before its first step has no outcome yet."""
    if not call.concluded:
        _end(call)


def interrupt(call: ActiveCall) -> None:
    """Ask the tool's code to stop."""
    if call.executor is not None:
        call.executor.stop()
    elif call.task is not None:
        call.task.cancel()
    _start_grace(call)


class AttemptDeadline:
    """The end of the time of a call's attempt."""

    __slots__ = ("_call",)

    def __init__(self, call: ActiveCall) -> None:
        self._call = call

    def expire(self) -> None:
        call = self._call
        if call.phase is RUNNING and call.cancel_reason is None:
            call.expired = True
            interrupt(call)


def start_time(call: ActiveCall, now: float | None = None) -> None:
    """The code of an attempt begins now, or continues after a wait: so does its time."""
    if call.deadline is None:
        call.deadline = AttemptDeadline(call)
    call.plan.bucket.add(call.deadline, now)


class Grace:
    """The end of a call's grace."""

    __slots__ = ("_attempt", "_call")

    def __init__(self, call: ActiveCall, attempt: int) -> None:
        self._call = call
        self._attempt = attempt

    def expire(self) -> None:
        if self._call.attempt == self._attempt:
            _give_up(self._call)


def _give_up(call: ActiveCall) -> None:
    """End a call without waiting for its code."""
    if call.phase is LATE:
        # A hook hangs, after the call was given up.
        late, call.late, call.phase = call.late, None, CONCLUDED
        if late is not None:
            late.cancel()
        outcome = settle(call, cancelled(call))
        assert outcome is not None
        give(call, outcome)
    elif call.phase is FINISHING:
        if call.cancel_reason is None:
            return  # Its code ended in the grace of a timeout: the outcome of that may take longer.
        # A hook hangs. The tool's code has ended, so its claims are free.
        _end(call)
        if call.task is not None:
            call.task.cancel()
    elif call.phase is RUNNING and not (call.executor is not None and call.executor.abandon()):
        call.env.lingering.add(call)
        log.warning(
            "Call %r of tool %r does not stop; it is given up",
            call.call_id,
            call.name,
            extra=call_fields(call, "call.does_not_stop"),
        )
        end_now(call, time_is_up(call) if call.expired else cancelled(call))
        if call.ticket is not None:
            call.env.admission.free_slots(call.ticket)


def released(call: ActiveCall) -> None:
    """The code of a call that was given up has ended at last."""
    call.env.lingering.discard(call)
    if call.executor is not None:
        call.executor.released()
    if call.ticket is not None:
        call.env.admission.finish(call.ticket)


def meaning(call: ActiveCall, error: BaseException) -> Failure | Cancelled:
    """What an exception of the tool's code means for its call: that it was stopped, or that it failed."""
    task = call.task
    asked = task is not None and task.cancelling() > 0
    while task is not None and task.cancelling() > 0:
        task.uncancel()
    if call.fault is not None:
        return Cancelled("the call could not be recorded", may_have_run=True)
    if isinstance(error, NotBegun):
        log.error(
            "Call %r of tool %r could not run: %s",
            call.call_id,
            call.name,
            error.fault,
            extra=call_fields(call, "call.not_run"),
        )
        call.owner.machine_failed(error.fault)
        return Cancelled("the machine could not run it", may_have_run=call.ran)
    if call.expired:
        return time_is_up(call)
    if call.cancel_reason is not None:
        return cancelled(call)
    if asked and isinstance(error, asyncio.CancelledError):
        if not loop_is_ending(task):
            call.cancel_reason = "the tool cancelled its own task"
        return cancelled(call)
    return raised(call.plan.tool, call.name, call.call_id, error, call_fields(call, "call.raised"))
