"""Suspension: a call that waits for something outside. Owns releasing its slots, its time and its task, and taking them
again."""

from __future__ import annotations

import asyncio
import functools
import logging

from toolwright.calls.active_call import SUSPENDED, ActiveCall, about, call_fields, identity
from toolwright.calls.conclude import cancelled, completion_result, end_now, lose
from toolwright.calls.redact import publish
from toolwright.events import CallWaiting
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey

log = logging.getLogger("toolwright.calls")

_FOR_A_PERSON = {"approval": "approval", "crash": "a decision after a crash"}


def enter(run: ActiveCall) -> CallKey:
    """Let the journal know that a call uses effects, and return its identity."""
    key = identity(run)
    if not run.entered:
        run.entered = True
        run.env.journal.uses_effects(key)
    return key


def park(run: ActiveCall, seconds: float | None) -> None:
    """Wait for the call's completion, without a task."""
    now = run.env.clock.now()
    run.ran = run.key_taken = True
    deadline = None if seconds is None else now + seconds
    wait = Wait(WaitKey(enter(run), "completion"), now, deadline)
    run.arguments = None  # Nobody needs them any more, and it may wait for long beside many others.
    run.phase = SUSPENDED
    run.watch = run.env.effects.watch(
        wait, functools.partial(complete, run), functools.partial(say_waiting, run, "completion", "")
    )


def say_waiting(run: ActiveCall, what: str, name: str, deadline: float | None) -> None:
    """Tell the world that the call waits for something outside."""
    run.owner.call_waits(run, True)
    if what in _FOR_A_PERSON:
        log.info(
            "Call %r of tool %r waits for %s; `toolwright approvals` and runtime.approvals() list the waiting calls",
            run.call_id,
            run.name,
            _FOR_A_PERSON[what],
            extra=call_fields(run, "call.waiting", waits_for=what),
        )
    publish(run.env, run, CallWaiting(*about(run), what, name, deadline))


def complete(run: ActiveCall, news: Resolution | Exception) -> None:
    """The call's completion has come, or cannot be waited for."""
    run.watch = None
    run.owner.call_waits(run, False)
    if isinstance(news, Exception):
        lose(run, news)
        end_now(run, cancelled(run))
    else:
        run.key_taken = False  # Its completion decides: nothing is left to be asked of it.
        end_now(run, completion_result(news))


def step_out(run: ActiveCall, what: str, name: str, deadline: float | None) -> None:
    """The tool's code waits for something outside: release the slots, and stop its time."""
    run.waits += 1
    if run.waits == 1 and run.slot is None:
        if run.deadline is not None:
            run.plan.bucket.discard(run.deadline)
        if run.ticket is not None:
            run.env.admission.pause(run.ticket)
    say_waiting(run, what, name, deadline)


async def step_in(run: ActiveCall) -> None:
    """The tool's wait is resolved: continue once there is a slot."""
    run.waits -= 1
    if run.stopping:
        return
    if run.waits == 0 and run.slot is None:
        run.owner.call_waits(run, False)
        if run.ticket is not None and run.ticket.state == "paused":
            run.slot = run.env.loop.create_future()
            run.env.admission.rejoin(run.ticket)
    if run.slot is not None:
        try:
            await asyncio.wait((run.slot,))
        except asyncio.CancelledError:
            if run.ticket is not None:
                run.env.admission.stop_waiting_for_slots(run.ticket)
            raise
