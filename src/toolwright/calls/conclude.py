"""The end of a call. Owns that it has exactly one outcome, and that the journal has it before anybody sees it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import CONCLUDED, LATE, ActiveCall, Past, about, identity, nesting_of
from toolwright.calls.failures import Cancelled
from toolwright.calls.finalise.finalise import finish, settle
from toolwright.calls.redact import rest_of_output
from toolwright.effects.wait_keys import failure_of
from toolwright.errors import StoreError
from toolwright.stores.contracts.waits import Resolution, WaitKey
from toolwright.tools.outcome import CUT_OFF_EARLIER, NOT_KNOWN, RUN_BY_ANOTHER, Failure, ToolOutcome

ENDED_WITHOUT = "its call ended without it"


def end_now(call: ActiveCall, result: object) -> None:
    """End a call from outside its task."""
    if call.concluded:
        return
    call.phase = CONCLUDED
    outcome = settle(call, result)
    if outcome is not None:
        give(call, outcome)
    else:
        call.phase = LATE
        call.late = call.env.loop.create_task(_finish_late(call, result))
        call.env.hold_task(call.late)


async def _finish_late(call: ActiveCall, result: object) -> None:
    outcome = await finish(call, result)
    if call.late is not None:
        call.late, call.phase = None, CONCLUDED
        give(call, outcome)


def give(call: ActiveCall, outcome: ToolOutcome) -> None:
    """Give a call its outcome and release its claims and slots, once the journal has it."""
    env, ticket = call.env, call.ticket
    if call.suspension is not None or call.past is not None or call.nesting is not None:
        ending = _ends_first(call, outcome)
        if ending is not None:
            env.hold_task(env.loop.create_task(ending))
            return
    if ticket is not None and call in env.lingering:
        ticket = None  # Code that was given up, and still runs, holds its claims.
    if not env.journal.concluded(call, outcome, _recorded):
        if ticket is not None:
            # Its code has ended: others may have its claims and slots. The journal lets a call that conflicts begin
            # when this outcome is written: after a crash, what came first must have come first.
            env.admission.finish(ticket)
        return
    if call.sharers:
        _recorded(call, outcome, None)
        return
    if call.reports is not None:
        _publish_rest(call)
    call.owner.call_concluded(call, outcome, env.monotonic())
    if ticket is not None:
        env.admission.finish(ticket)
        if ticket.parent is None:
            call.ticket = None  # The two know each other, and nobody asks for either any more.


def _ends_first(call: ActiveCall, outcome: ToolOutcome) -> Coroutine[Any, Any, None] | None:
    """What must be ended outside before a call may have its outcome, which is given again then: its completion key, or
    the turns of its sub-agents."""
    suspension, past = call.suspension, call.past
    taken = suspension is not None and suspension.key_taken
    key_out = taken or (past is not None and _may_have_key_out(call, past, outcome))
    if key_out and call.env.journal.will_record(call, outcome):
        if suspension is not None:
            suspension.key_taken = False
        if past is not None:
            past.key_out = False
        return _end_completion(call, outcome)
    asked_agents = call.nesting is not None and bool(call.nesting.agents)
    if (past is not None or asked_agents) and _may_leave_agents(call, outcome):
        return _end_agents(call, outcome)
    return None


def _may_have_key_out(call: ActiveCall, past: Past, outcome: ToolOutcome) -> bool:
    """True when a call ends whose completion key an earlier execution may have handed out, before a crash.

    A call that is only stopped, or lacks a connection, and runs another time, can still be completed.
    """
    takes_keys = call.tool is not None and call.tool.needs_context
    ends = call.ran if outcome.status == "cancelled" else outcome.status != "connection_required"
    return past.key_out and takes_keys and ends


async def _end_completion(call: ActiveCall, outcome: ToolOutcome) -> None:
    """End a call that had handed out its completion key.

    The key may have been used, and the answer acknowledged: then that decides, and not the call's own end.
    """
    try:
        # A call that is cancelled stays so after a crash, which may come before its outcome is written.
        reason = outcome.reason or ENDED_WITHOUT
        resolution = await call.env.effects.end_wait(WaitKey(identity(call), "completion"), reason)
    except StoreError as fault:
        call.fault = fault
        call.owner.store_failed(fault)
        resolution = None
    if resolution is not None:
        result = completion_result(resolution)
        settled = settle(call, result)
        outcome = await finish(call, result) if settled is None else settled
    give(call, outcome)


def _may_leave_agents(call: ActiveCall, outcome: ToolOutcome) -> bool:
    """True when a call ends whose sub-agents may have unfinished turns: nobody would continue them after it.

    A call that is only stopped, and runs another time, continues them itself.
    """
    ends = outcome.status != "cancelled" or call.ran
    return ends and not nesting_of(call).agents_ended and call.env.journal.will_record(call, outcome)


async def _end_agents(call: ActiveCall, outcome: ToolOutcome) -> None:
    """End the unfinished turns of the sub-agents of a call, and then the call: a crash in between ends neither."""
    nesting_of(call).agents_ended = True
    failure = outcome.failure
    why = outcome.reason if failure is None else failure.code or failure.category
    try:
        await call.env.end_agents(identity(call), f"its call ended without it: {why}" if why else ENDED_WITHOUT)
    except StoreError as fault:
        call.fault = fault
        call.owner.store_failed(fault)
    give(call, outcome)


def completion_result(resolution: Resolution) -> object:
    """The end of a call whose completion has come."""
    if resolution.status == "ok":
        return jsonx.decode(resolution.payload)
    if resolution.status == "cancelled":
        return Cancelled(resolution.reason or "its completion was cancelled", may_have_run=True)
    return failure_of(resolution, "its completion")


def _recorded(call: ActiveCall, outcome: ToolOutcome, fault: Exception | None) -> None:
    fault = fault or call.fault
    if outcome.status == "cancelled" and outcome.may_have_run:
        fault = fault or call.owner.fault  # It was released: this outcome is not recorded.
    if fault is not None:
        call.owner.store_failed(fault)
    if call.reports is not None:
        _publish_rest(call)
    call.owner.call_concluded(call, outcome, call.env.monotonic())
    ticket = call.ticket
    if ticket is not None and call not in call.env.lingering:
        call.env.admission.finish(ticket)
        if ticket.parent is None:
            call.ticket = None
    for sharer in call.sharers:
        if fault is not None:
            sharer.owner.store_failed(fault)
        elif outcome.status == "cancelled" and not (outcome.may_have_run and call.ran) and not sharer.concluded:
            sharer.owner.start_over(sharer)
            continue
        end_now(sharer, replace(outcome, replayed=True))


def _publish_rest(call: ActiveCall) -> None:
    for output in rest_of_output(call, about(call)):
        call.env.channel.publish(output)


def cancelled(call: ActiveCall) -> Cancelled:
    """The end of a call that is stopped. A readonly call has had no effect, however far it came."""
    reads = call.tool is not None and call.tool.definition.hints.readonly
    reason = call.cancel_reason or "the program is stopping"
    if call.ran:
        return Cancelled(reason, may_have_run=not reads)
    if _has_unknown_past(call):
        return Cancelled(reason + NOT_KNOWN, may_have_run=not reads)
    if call.shares is not None:
        other = call.shares.ran and not reads
        return Cancelled(reason + RUN_BY_ANOTHER if other else reason, may_have_run=other)
    if has_run_before(call):
        call.attempt = call.attempt or 1  # the attempt that was cut off
        return Cancelled(reason + CUT_OFF_EARLIER, may_have_run=not reads)
    return Cancelled(reason, may_have_run=False)


def _has_unknown_past(call: ActiveCall) -> bool:
    """True when a call that may have come before is stopped before the journal said so."""
    comes_again = call.named or call.parent_id is not None
    return comes_again and not call.env.journal.is_known(call)


def has_run_before(call: ActiveCall) -> bool:
    """True when a crash cut the call off where it may have run, and it has not run since."""
    past = call.past
    if past is None:
        return False
    if past.recovered == "left":
        may_run_again = call.tool is not None and call.tool.definition.on_crash == "rerun"  # its start is not written
        return may_run_again or past.pending or past.started_at is not None
    return past.recovered not in ("again", "run")


def lose(call: ActiveCall, fault: Exception) -> None:
    """The call cannot be recorded: it must not have an outcome that claims more than is known."""
    if call.fault is None and not call.concluded:  # A call that was given up has its outcome: nothing is lost.
        call.fault = fault
        call.owner.store_failed(fault)


def give_up(call: ActiveCall, failure: Failure) -> None:
    """Let a call that had begun end by this failure: it was tried once, and may have run."""
    call.attempt, call.ran, call.answer = 1, True, failure
