"""How a call is stopped. Owns its cancellation and its grace; its outcome is made in `conclude`.

A call that has not started is stopped at once. Code that runs is asked to stop and has its grace; then the call is
given up: it gets its outcome, its slots are freed, and its claims stay until the code ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING

from toolwright.calls.active_call import call_fields
from toolwright.calls.conclude import cancelled, end_now, give
from toolwright.calls.execute.executors import NotBegun
from toolwright.calls.execute.failures import Cancelled, raised
from toolwright.calls.execute.timeout import time_is_up
from toolwright.tools.outcome import Failure

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import ActiveCall

log = logging.getLogger("toolwright.calls")


def cancel(run: ActiveCall, reason: str) -> None:
    """Stop a call: at once when it has not started, else after its grace."""
    if run.cancel_reason is not None or (run.concluded and run.late is None):
        return
    run.cancel_reason = reason
    if run.late is not None:
        _start_grace(run)
        return
    if run.watch is not None:
        run.watch.leave()
        run.watch = None
        end_now(run, cancelled(run))
        return
    if run.asking is not None:
        run.asking.cancel()
    if run.started is None:
        if run.order:
            run.admission.withdraw(run)
        end_now(run, cancelled(run))
    else:
        if run.task is not None:
            run.task.add_done_callback(functools.partial(_ended, run))
        if run.pausing and run.task is not None:
            run.task.cancel()
        elif run.in_tool and not run.expired:
            interrupt(run)
        elif run.finishing:
            _start_grace(run)


def _ended(run: ActiveCall, task: asyncio.Task[None]) -> None:
    """The task is finished; a call that was cancelled before its first step has no outcome yet."""
    if not run.concluded:
        end_now(run, cancelled(run))


def interrupt(run: ActiveCall) -> None:
    """Ask the tool's code to stop."""
    if run.executor is not None:
        run.executor.stop()
    elif run.task is not None:
        run.task.cancel()
    _start_grace(run)


class Grace:
    """The end of a call's grace."""

    __slots__ = ("_attempt", "_run")

    def __init__(self, run: ActiveCall, attempt: int) -> None:
        self._run = run
        self._attempt = attempt

    def expire(self) -> None:
        if self._run.attempt == self._attempt:
            _give_up(self._run)


def _start_grace(run: ActiveCall) -> None:
    run.env.deadlines.bucket(run.owner.policy.grace).add(Grace(run, run.attempt))


def _give_up(run: ActiveCall) -> None:
    """End a call without waiting for its code."""
    if run.late is not None:
        # A hook hangs, after the call was given up.
        late, run.late = run.late, None
        late.cancel()
        outcome = run.owner.finaliser.settle(run, cancelled(run))
        assert outcome is not None
        give(run, outcome)
        return
    if run.finishing and not run.concluded:
        # A hook hangs. The tool's code has ended, so its claims are free.
        end_now(run, cancelled(run))
        if run.task is not None:
            run.task.cancel()
        return
    if run.concluded or not run.in_tool:
        return
    if run.executor is not None and run.executor.abandon():
        return
    run.env.lingering.add(run)
    log.warning(
        "Call %r of tool %r does not stop; it is given up",
        run.call_id,
        run.name,
        extra=call_fields(run, "call.does_not_stop"),
    )
    end_now(run, time_is_up(run) if run.expired else cancelled(run))
    run.admission.free_slots(run)


def released(run: ActiveCall) -> None:
    """The code of a call that was given up has ended at last."""
    run.env.lingering.discard(run)
    if run.executor is not None:
        run.executor.released()
    run.admission.finish(run)


def meaning(run: ActiveCall, error: BaseException) -> Failure | Cancelled:
    """The meaning of an exception of the tool's code for its call: that it was stopped, or that it failed."""
    task = run.task
    asked = task is not None and task.cancelling() > 0
    while task is not None and task.cancelling() > 0:
        task.uncancel()
    if run.fault is not None:
        return Cancelled("the call could not be recorded", may_have_run=True)
    if isinstance(error, NotBegun):
        log.error(
            "Call %r of tool %r could not run: %s",
            run.call_id,
            run.name,
            error.fault,
            extra=call_fields(run, "call.not_run"),
        )
        run.owner.machine_failed(error.fault)
        return Cancelled("the machine could not run it", may_have_run=run.ran)
    if run.expired:
        return time_is_up(run)
    if run.cancel_reason is not None:
        return cancelled(run)
    if asked and isinstance(error, asyncio.CancelledError):
        if not _loop_is_ending(task):
            run.cancel_reason = "the tool cancelled its own task"
        return cancelled(run)
    return raised(run.plan.tool, run.name, run.call_id, error, call_fields(run, "call.raised"))


def _loop_is_ending(task: asyncio.Task[None] | None) -> bool:
    """True when every other task of the loop is being cancelled too, as at the end of `asyncio.run`."""
    return all(other.cancelling() for other in asyncio.all_tasks() if other is not task)
