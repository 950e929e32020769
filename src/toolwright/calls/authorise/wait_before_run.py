"""Calls that wait before they run. Owns the wait for a person, and continuing a wait after a crash."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from toolwright.calls.active_call import ASKING, NEW, UNRECORDED, ActiveCall
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


def wait_for_approval(run: ActiveCall, verdict: Verdict, resume: Resume) -> None:
    """Ask a person whether a call may run; if so, it continues."""
    name = about_arguments(written_arguments(run))
    seconds = run.owner.policy.approval_timeout
    _wait(run, _asked(run, Question("approval", name, verdict.rule, verdict.reason, seconds), resume))


def wait_again(run: ActiveCall, resume: Resume) -> bool:
    """True for a call that a crash cut off where it waits again: for its completion, a connection, or a person."""
    if run.pending_before:
        run.pending_before = False
        run.attempt = 1
        park(run, None)
        return True
    if run.parked_for is not None:
        provider, run.parked_for = run.parked_for, None
        run.attempt, run.ran = 1, True
        _wait(run, _connected(run, provider, resume))
        return True
    if run.doubt is not None:
        doubt, run.doubt = run.doubt, None
        reason = "it was cut off by a crash and may have run; approve to run it again"
        _wait(run, _asked(run, Question("crash", doubt, "on_crash", reason, run.owner.policy.approval_timeout), resume))
        return True
    if run.asked_before is not None and not run.asked:
        # By which rule it was asked, perhaps only its batch knew: it does not run without the answer.
        run.decided_by, why = asked_by(run.asked_before)
        wait_for_approval(run, Verdict("ask", run.decided_by, why), resume)
        return True
    return False


def _wait(run: ActiveCall, until: Coroutine[Any, Any, None]) -> None:
    run.phase = ASKING
    run.asking = run.env.loop.create_task(until)
    run.env.hold_task(run.asking)


async def _asked(run: ActiveCall, question: Question, resume: Resume) -> None:
    try:
        failure = await ask_approval(run, question)
    except Exception as fault:  # the journal's: a call that could not be asked about must not run
        _stop_for(run, fault)
        return
    _stop_asking(run)
    if question.kind == "approval":
        run.asked = True
    if failure is not None and question.kind == "crash":
        give_up(run, failure)
    elif failure is not None:
        run.fail(failure)
    resume(run)


async def _connected(run: ActiveCall, provider: str, resume: Resume) -> None:
    """Continue the wait for a connection of a call that was cut off, then let it run."""
    try:
        ended = await wait_for_connection(run, provider, functools.partial(say_waiting, run, "connection", provider))
    except Exception as fault:  # the journal's: a call that could not be recorded must not run
        _stop_for(run, fault)
        return
    finally:
        run.owner.call_waits(run, False)
    _stop_asking(run)
    run.answer = ended
    resume(run)


def _stop_for(run: ActiveCall, fault: Exception) -> None:
    _stop_asking(run)
    lose(run, fault)
    cancel(run, UNRECORDED)


def _stop_asking(run: ActiveCall) -> None:
    run.asking = None
    if run.phase is ASKING:  # else it was stopped meanwhile
        run.phase = NEW
