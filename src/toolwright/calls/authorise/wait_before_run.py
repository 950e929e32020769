"""Calls that wait before they run. Owns letting one wait for a person, or go on waiting where a crash cut it off."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from toolwright.calls.authorise.approvals import Question, about_arguments, ask_leave, asked_by
from toolwright.calls.authorise.authorise import Verdict
from toolwright.calls.conclude import UNRECORDED, lose
from toolwright.calls.execute.cancel import cancel
from toolwright.calls.execute.execute import CallRun
from toolwright.calls.journal.crash_policy import give_up
from toolwright.calls.redact import written_arguments
from toolwright.calls.suspend.connection_wait import wait_for_connection
from toolwright.calls.suspend.suspend import park, say_waiting

GoOn = Callable[[CallRun], None]
"""Sets a call on its way, once it waits no longer."""


def ask_first(run: CallRun, verdict: Verdict, go_on: GoOn) -> None:
    """Ask a person whether a call may run; if so, it goes on."""
    name = about_arguments(written_arguments(run))
    seconds = run.owner.policy.approval_timeout
    _wait(run, _asked(run, Question("approval", name, verdict.rule, verdict.reason, seconds), go_on))


def goes_on_waiting(run: CallRun, go_on: GoOn) -> bool:
    """True for a call that a crash cut off where it waits again: for its completion, a connection, or a person."""
    if run.pending_before:
        run.pending_before = False
        run.attempt = 1
        park(run, None)
        return True
    if run.parked_for is not None:
        provider, run.parked_for = run.parked_for, None
        run.attempt, run.ran = 1, True
        _wait(run, _connected(run, provider, go_on))
        return True
    if run.doubt is not None:
        doubt, run.doubt = run.doubt, None
        reason = "it was cut off by a crash and may have run; approve to run it again"
        _wait(run, _asked(run, Question("crash", doubt, "on_crash", reason, run.owner.policy.approval_timeout), go_on))
        return True
    if run.asked_before is not None and not run.asked:
        # By which rule it was asked, perhaps only its batch knew: it does not run without the answer.
        run.decided_by, why = asked_by(run.asked_before)
        ask_first(run, Verdict("ask", run.decided_by, why), go_on)
        return True
    return False


def _wait(run: CallRun, until: Coroutine[Any, Any, None]) -> None:
    run.asking = run.host.loop.create_task(until)
    run.host.keep(run.asking)


async def _asked(run: CallRun, question: Question, go_on: GoOn) -> None:
    try:
        failure = await ask_leave(run, question)
    except Exception as fault:  # the journal's: what could not be asked must not run
        _stop_for(run, fault)
        return
    run.asking = None
    if question.kind == "approval":
        run.asked = True
    if failure is not None and question.kind == "crash":
        give_up(run, failure)
    elif failure is not None:
        run.fail(failure)
    go_on(run)


async def _connected(run: CallRun, provider: str, go_on: GoOn) -> None:
    """Go on waiting for the connection that a call waited for when it was cut off, then let it run."""
    try:
        ended = await wait_for_connection(run, provider, functools.partial(say_waiting, run, "connection", provider))
    except Exception as fault:  # the journal's: what could not be written down must not run
        _stop_for(run, fault)
        return
    finally:
        run.owner.call_goes_on(run)
    run.asking = None
    run.answer = ended
    go_on(run)


def _stop_for(run: CallRun, fault: Exception) -> None:
    run.asking = None
    lose(run, fault)
    cancel(run, UNRECORDED)
