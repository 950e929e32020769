"""The end of a call. Owns that it has exactly one outcome, and that the journal has it before anybody sees it."""

from __future__ import annotations

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import CONCLUDED, LATE, ActiveCall, about, identity
from toolwright.calls.execute.failures import Cancelled
from toolwright.calls.finalise.finalise import finish, settle
from toolwright.calls.journal.replay import AGAIN, LEFT
from toolwright.calls.redact import rest_of_output
from toolwright.effects.wait_keys import failure_of
from toolwright.errors import StoreError
from toolwright.stores.contracts.waits import Resolution, WaitKey
from toolwright.tools.claims import PARALLEL
from toolwright.tools.outcome import CUT_OFF_EARLIER, NOT_KNOWN, RUN_BY_ANOTHER, ToolOutcome


def end_now(run: ActiveCall, result: object) -> None:
    """End a call from outside its task."""
    if run.concluded:
        return
    run.phase = CONCLUDED
    outcome = settle(run, result)
    if outcome is not None:
        give(run, outcome)
    else:
        run.phase = LATE
        run.late = run.env.loop.create_task(_finish_late(run, result))
        run.env.hold_task(run.late)


async def _finish_late(run: ActiveCall, result: object) -> None:
    outcome = await finish(run, result)
    if run.late is not None:
        run.late, run.phase = None, CONCLUDED
        give(run, outcome)


def give(run: ActiveCall, outcome: ToolOutcome) -> None:
    """Give a call its outcome and release its claims and slots, once the journal has it."""
    if run.key_taken and run.env.journal.will_record(run, outcome):
        run.key_taken = False
        run.env.hold_task(run.env.loop.create_task(_end_completion(run, outcome)))
        return
    env, ticket = run.env, run.ticket
    if env.journal.concluded(run, outcome, _recorded):
        if run.sharers:
            _recorded(run, outcome, None)
            return
        if run.streams is not None:
            _publish_rest(run)
        run.owner.call_concluded(run, outcome, env.monotonic())
        if ticket is not None and not ticket.done and run not in env.lingering:
            env.admission.finish(ticket)
            if ticket.parent is None:
                run.ticket = None  # The two know each other, and nobody asks for either any more.
    elif ticket is not None and not ticket.done and run not in env.lingering:
        # Others may run meanwhile, but none that conflicts: after a crash, what came first must have come first.
        (env.admission.finish if ticket.claims is PARALLEL else env.admission.free_slots)(ticket)


async def _end_completion(run: ActiveCall, outcome: ToolOutcome) -> None:
    """End a call that had handed out its completion key.

    The key may have been used, and the answer acknowledged: then that decides, and not the call's own end.
    """
    try:
        # A call that is cancelled stays so after a crash, which may come before its outcome is written.
        reason = outcome.reason or "its call ended without it"
        resolution = await run.env.effects.end_wait(WaitKey(identity(run), "completion"), reason)
    except StoreError as fault:
        run.fault = fault
        run.owner.store_failed(fault)
        resolution = None
    if resolution is not None:
        result = completion_result(resolution)
        settled = settle(run, result)
        outcome = await finish(run, result) if settled is None else settled
    give(run, outcome)


def completion_result(resolution: Resolution) -> object:
    """The end of a call whose completion has come."""
    if resolution.status == "ok":
        return jsonx.decode(resolution.payload)
    if resolution.status == "cancelled":
        return Cancelled(resolution.reason or "its completion was cancelled", may_have_run=True)
    return failure_of(resolution, "its completion")


def _recorded(run: ActiveCall, outcome: ToolOutcome, fault: Exception | None) -> None:
    fault = fault or run.fault
    if outcome.status == "cancelled" and outcome.may_have_run:
        fault = fault or run.owner.fault  # It was released: this outcome is not recorded.
    if fault is not None:
        run.owner.store_failed(fault)
    if run.streams is not None:
        _publish_rest(run)
    run.owner.call_concluded(run, outcome, run.env.monotonic())
    ticket = run.ticket
    if ticket is not None and run not in run.env.lingering:
        run.env.admission.finish(ticket)
        if ticket.parent is None:
            run.ticket = None
    for sharer in run.sharers:
        if fault is not None:
            sharer.owner.store_failed(fault)
        elif outcome.status == "cancelled" and not (outcome.may_have_run and run.ran) and not sharer.concluded:
            sharer.owner.start_over(sharer)
            continue
        end_now(sharer, replace(outcome, replayed=True))


def _publish_rest(run: ActiveCall) -> None:
    for output in rest_of_output(run, about(run)):
        run.env.channel.publish(output)


def cancelled(run: ActiveCall) -> Cancelled:
    """The end of a call that is stopped. A readonly call has had no effect, however far it came."""
    reads = run.tool is not None and run.tool.definition.hints.readonly
    reason = run.cancel_reason or "the program is stopping"
    if run.ran:
        return Cancelled(reason, may_have_run=not reads)
    if _has_unknown_past(run):
        return Cancelled(reason + NOT_KNOWN, may_have_run=not reads)
    if run.shares is not None:
        other = run.shares.ran and not reads
        return Cancelled(reason + RUN_BY_ANOTHER if other else reason, may_have_run=other)
    if has_run_before(run):
        run.attempt = run.attempt or 1  # the attempt that was cut off
        return Cancelled(reason + CUT_OFF_EARLIER, may_have_run=not reads)
    return Cancelled(reason, may_have_run=False)


def _has_unknown_past(run: ActiveCall) -> bool:
    """True when a call that may have come before is stopped before the journal said so."""
    comes_again = run.named or run.parent_id is not None
    return comes_again and not run.env.journal.is_known(run)


def has_run_before(run: ActiveCall) -> bool:
    """True when a crash cut the call off where it may have run, and it has not run since."""
    if run.recovered == LEFT:
        may_run_again = run.tool is not None and run.tool.definition.on_crash == "rerun"  # its start is not written
        return may_run_again or run.pending_before or run.cut_off_after_start is not None
    return run.recovered not in (None, AGAIN, "run")


def lose(run: ActiveCall, fault: Exception) -> None:
    """The call cannot be recorded: it must not have an outcome that claims more than is known."""
    if run.fault is None and not run.concluded:  # A call that was given up has its outcome: nothing is lost.
        run.fault = fault
        run.owner.store_failed(fault)
