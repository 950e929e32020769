"""Calls that wait before they run. Owns the wait for a person, and continuing a wait after a crash."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from toolwright.calls.active_call import ASKING, NEW, UNRECORDED, ActiveCall, Past
from toolwright.calls.authorise.approvals import Question, about_arguments, ask_approval, asked_by
from toolwright.calls.authorise.authorise import Verdict
from toolwright.calls.conclude import lose
from toolwright.calls.execute.cancel import cancel
from toolwright.calls.journal.crash_policy import give_up
from toolwright.calls.redact import written_arguments
from toolwright.calls.suspend.connection_wait import wait_for_connection
from toolwright.calls.suspend.suspend import park, say_waiting

Resume = Callable[[ActiveCall], None]
"""Sets a call on its way, once it waits no longer."""


def wait_for_approval(call: ActiveCall, verdict: Verdict, resume: Resume) -> None:
    """Ask a person whether a call may run; if so, it continues."""
    name = about_arguments(written_arguments(call))
    seconds = call.owner.policy.approval_timeout
    _wait(call, _asked(call, Question("approval", name, verdict.rule, verdict.reason, seconds), resume))


def wait_again(call: ActiveCall, past: Past, resume: Resume) -> bool:
    """True for a call that a crash cut off where it waits again: for its completion, a connection, or a person."""
    if not past.waited:
        return False
    waited = past.waited.pop(0)
    if waited.kind == "completion":
        call.attempt = 1
        park(call, None)
    elif waited.kind == "connection":
        call.attempt, call.ran = 1, True
        _wait(call, _connected(call, waited.name, resume))
    elif waited.kind == "crash":
        reason = "it was cut off by a crash and may have run; approve to run it again"
        question = Question("crash", waited.name, "on_crash", reason, call.owner.policy.approval_timeout)
        _wait(call, _asked(call, question, resume))
    else:
        assert waited.request is not None
        # By which rule it was asked, perhaps only its batch knew: it does not run without the answer.
        call.decided_by, why = asked_by(waited.request)
        wait_for_approval(call, Verdict("ask", call.decided_by, why), resume)
    return True


def _wait(call: ActiveCall, until: Coroutine[Any, Any, None]) -> None:
    call.phase = ASKING
    call.asking = call.env.loop.create_task(until)
    call.env.hold_task(call.asking)


async def _asked(call: ActiveCall, question: Question, resume: Resume) -> None:
    try:
        failure = await ask_approval(call, question)
    except Exception as fault:  # the journal's: a call that could not be asked about must not run
        _stop_for(call, fault)
        return
    _stop_asking(call)
    if question.kind == "approval":
        call.asked = True
    if failure is not None and question.kind == "crash":
        give_up(call, failure)
    elif failure is not None:
        call.fail(failure)
    resume(call)


async def _connected(call: ActiveCall, provider: str, resume: Resume) -> None:
    """Continue the wait for a connection of a call that was cut off, then let it run."""
    try:
        ended = await wait_for_connection(call, provider, functools.partial(say_waiting, call, "connection", provider))
    except Exception as fault:  # the journal's: a call that could not be recorded must not run
        _stop_for(call, fault)
        return
    finally:
        call.owner.call_waits(call, False)
    _stop_asking(call)
    call.answer = ended
    resume(call)


def _stop_for(call: ActiveCall, fault: Exception) -> None:
    _stop_asking(call)
    lose(call, fault)
    cancel(call, UNRECORDED)


def _stop_asking(call: ActiveCall) -> None:
    call.asking = None
    if call.phase is ASKING:  # else it was stopped meanwhile
        call.phase = NEW
