"""Suspension: a call that waits for something outside. Owns releasing its slots, its time and its task, and taking them
again."""

from __future__ import annotations

import asyncio
import functools
import logging

from toolwright.calls.active_call import SUSPENDED, ActiveCall, Suspension, about, call_fields, identity
from toolwright.calls.conclude import cancelled, completion_result, end_now, lose
from toolwright.calls.redact import publish
from toolwright.events import CallWaiting
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey

log = logging.getLogger("toolwright.calls")

_FOR_A_PERSON = {
    "approval": ("approval", "approvals"),
    "crash": ("a decision after a crash", "approvals"),
    "question": ("an answer", "questions"),
}
"""By the kind of the wait: what the call waits for, and the method of the runtime that lists it."""


def enter(call: ActiveCall) -> Suspension:
    """The suspension of a call. Where it has none so far, the journal gets to know that the call uses effects."""
    suspension = call.suspension
    if suspension is None:
        suspension = call.suspension = Suspension(call.key or identity(call))
        if call.key is None:  # else the store has the intent of the call, and that is enough
            call.env.journal.uses_effects(suspension.key)
    return suspension


def suspend_until_completed(call: ActiveCall, seconds: float | None) -> None:
    """Wait for the call's completion, without a task."""
    now, suspension = call.env.clock.now(), enter(call)
    call.ran = suspension.key_taken = True
    deadline = None if seconds is None else now + seconds
    wait = Wait(WaitKey(suspension.key, "completion"), now, deadline)
    call.arguments = None  # Nobody needs them any more, and it may wait for long beside many others.
    call.phase = SUSPENDED
    opened = functools.partial(say_waiting, call, "completion", "")
    suspension.watch = call.env.effects.watch(wait, call, complete, opened)


def say_waiting(call: ActiveCall, what: str, name: str, deadline: float | None) -> None:
    """Tell the world that the call waits for something outside."""
    event = CallWaiting(*about(call), what, name, deadline)
    if what in _FOR_A_PERSON and log.isEnabledFor(logging.INFO):
        awaited, listed_by = _FOR_A_PERSON[what]
        log.info(
            "Call %r of tool %r waits for %s; `toolwright approvals` and runtime.%s() list the waiting calls",
            call.call_id,
            call.name,
            awaited,
            listed_by,
            extra=call_fields(call, "call.waiting", waits_for=what),
        )
    publish(call.env, call, event)
    call.owner.call_waits(call, True)


def complete(call: ActiveCall, news: Resolution | Exception) -> None:
    """The call's completion has come, or cannot be waited for."""
    suspension = enter(call)
    suspension.watch = None
    call.owner.call_waits(call, False)
    if isinstance(news, Exception):
        lose(call, news)
        end_now(call, cancelled(call))
    else:
        suspension.key_taken = False  # Its completion decides: nothing is left to be asked of it.
        if call.past is not None:
            call.past.key_out = False
        end_now(call, completion_result(news))


def step_out(call: ActiveCall, what: str, name: str, deadline: float | None) -> None:
    """The tool's code waits for something outside: release the slots, and stop its time."""
    suspension = enter(call)
    suspension.waits += 1
    if suspension.waits == 1:
        if call.deadline is not None:
            call.plan.bucket.discard(call.deadline)
        if call.ticket is not None:
            if suspension.slot is None:
                call.env.admission.pause(call.ticket)
            else:  # Another task of it waits to continue, which needs no slot as long as the call is outside.
                call.env.admission.stop_waiting_for_slots(call.ticket)
                rejoined(call)
    say_waiting(call, what, name, deadline)


async def step_in(call: ActiveCall) -> None:
    """The tool's wait is resolved: continue once there is a slot."""
    enter(call).waits -= 1
    if not call.stopping:
        await regain_slot(call)


async def regain_slot(call: ActiveCall) -> None:
    """Wait until a call that is outside no longer has its slots again."""
    suspension = enter(call)
    if suspension.waits == 0 and suspension.slot is None:
        call.owner.call_waits(call, False)
        if call.ticket is not None and call.ticket.state == "paused":
            suspension.slot = call.env.loop.create_future()
            call.env.admission.rejoin(call.ticket)
    if suspension.slot is not None:
        try:
            await asyncio.wait((suspension.slot,))
        except asyncio.CancelledError:
            # Else only a task of it was cancelled, such as by a timeout of the tool's own: the call goes on.
            if call.ticket is not None and call.stopping:
                call.env.admission.stop_waiting_for_slots(call.ticket)
            raise


def rejoined(call: ActiveCall) -> None:
    """The call has its slots again: its code continues."""
    suspension = enter(call)
    slot, suspension.slot = suspension.slot, None
    if slot is not None and not slot.done():
        slot.set_result(None)


def stop_watching(call: ActiveCall) -> None:
    """Wait for its completion no longer: the call is stopped."""
    suspension = enter(call)
    if suspension.watch is not None:
        suspension.watch.leave()
        suspension.watch = None
