"""Stage 4: execute. Owns running one call, from its first step to the end of its code; hands on the tool's result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any

from msgspec.structs import replace

from toolwright.calls.active_call import CONCLUDED, CURRENT, FINISHING, OVER, RUNNING, STARTED, ActiveCall, call_fields
from toolwright.calls.conclude import cancelled, end_now, give
from toolwright.calls.execute.cancel import meaning, released, start_time
from toolwright.calls.execute.executors import ChildProcessExecutor, ThreadExecutor
from toolwright.calls.execute.retry import before_another
from toolwright.calls.failures import internal
from toolwright.calls.finalise.finalise import finish, settle
from toolwright.calls.suspend.context_services import make_context
from toolwright.calls.suspend.suspend import park
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending

log = logging.getLogger("toolwright.calls")

NOT_THE_LAST = (Failure, ConnectionRequired)
"""The result of an attempt that may be followed by another."""


def begin(call: ActiveCall) -> Coroutine[Any, Any, None] | None:
    """Take the tool's first step, in the call's context. None when that ended it, else what must be awaited."""
    CURRENT.set(call)
    if call.cancel_reason is not None:
        end_now(call, cancelled(call))
        return None
    plan = call.plan
    call.attempt = 1
    if plan.mode != "async":
        return _rest(call, _run_outside_the_loop(call))
    call.phase = RUNNING
    call.ran = True
    try:
        if plan.direct is not None:
            made = plan.direct(**call.arguments)  # type: ignore[arg-type]
        else:
            made = plan.invoke(call.arguments, make_context(call) if plan.needs_context else None)  # type: ignore[arg-type]
        waiting = made.send(None) if type(made) is CoroutineType else None
    except StopIteration as ended:
        result = ended.value
    except BaseException as error:  # the tool's code: whatever it raises ends only this call
        result = meaning(call, error)
        if isinstance(error, KeyboardInterrupt):
            end_now(call, result)
            raise
    else:
        if (
            call.suspension is None or not call.suspension.waits
        ):  # else it is outside already, where its time does not run
            start_time(call, call.started)
        return _rest(call, resume(made, waiting) if type(made) is CoroutineType else made)
    outcome = None
    if not (type(result) is Failure and result.retry) and type(result) is not ConnectionRequired:
        outcome = settle(call, result)
    if outcome is None:
        call.phase = STARTED
        return _finish(call, result)
    call.task = None  # The task's context holds this call.
    call.phase = CONCLUDED
    give(call, outcome)
    return None


def _code_ended(call: ActiveCall) -> None:
    if call.phase is RUNNING:  # else it was given up meanwhile
        call.phase = STARTED


async def _rest(call: ActiveCall, attempt: Any) -> None:
    """Wait for the first attempt to end, and finish the call."""
    if call.cancel_reason is not None and not call.ran:
        attempt.close()
        await _finish(call, cancelled(call))
    else:
        await _finish(call, await _attempt(call, attempt))


async def _attempt(call: ActiveCall, attempt: Awaitable[Any]) -> Any:
    if call.phase is STARTED:
        call.phase = RUNNING
    try:
        result = await attempt
    except BaseException as error:  # the tool's code: whatever it raises ends only this call
        result = meaning(call, error)
        if isinstance(error, KeyboardInterrupt):
            end_now(call, result)
            raise
    _code_ended(call)
    if call.deadline is not None:
        call.plan.bucket.discard(call.deadline)
        call.deadline = None
    return result


async def _finish(call: ActiveCall, result: Any) -> None:
    """Try again where that helps, then give the call its outcome, unless that comes later."""
    while type(result) in NOT_THE_LAST and (pause := before_another(call, result)) is not None:
        ended = await pause
        if ended is not None:
            result = ended
            break
        call.attempt += 1
        result = await _attempt(call, _run_again(call))
    if call.phase in OVER:
        released(call)
        return
    if type(result) is Pending and call.suspension is not None and call.suspension.key_taken:
        if call.cancel_reason is None:
            call.task = None
            ticket = call.ticket
            if ticket is not None:
                call.env.admission.finish(ticket)  # Its code has ended: nobody needs to wait for its completion.
                if ticket.parent is None:
                    call.record.waited_for = ticket.waited_for
                    call.ticket = None  # It may wait for long beside many others.
            park(call, result.deadline)
            return
        result = cancelled(call)
    outcome = settle(call, result)
    if outcome is None:
        call.phase = FINISHING
        try:
            outcome = await finish(call, result)
        except asyncio.CancelledError:
            end_now(call, cancelled(call))
            return
    call.task = None
    if call.phase not in OVER:
        call.phase = CONCLUDED
        give(call, outcome)


async def _run_again(call: ActiveCall) -> Any:
    plan = call.plan
    if plan.mode != "async":
        return await _run_outside_the_loop(call)
    start_time(call)
    return await plan.invoke(call.arguments, make_context(call) if plan.needs_context else None)  # type: ignore[arg-type]


def _run_outside_the_loop(call: ActiveCall) -> Coroutine[Any, Any, Any]:
    """Run a tool that is not async: on a thread, or in a process."""
    call.executor = ThreadExecutor(call) if call.plan.mode == "thread" else ChildProcessExecutor(call)
    return call.executor.run()


def broke(call: ActiveCall, error: Exception) -> None:
    """The runtime itself failed: log it, and end the call, for it is waited for."""
    log.critical(
        "Call %r met a fault of the runtime",
        call.call_id,
        exc_info=error,
        extra=call_fields(call, "call.runtime_fault"),
    )
    end_now(call, replace(internal(error), source="runtime", code="runtime_fault"))


@coroutine
def resume(started: Coroutine[Any, Any, Any], waiting: object) -> Generator[Any, Any, Any]:
    """Await a coroutine whose first step was taken already and that waits for `waiting`."""
    while True:
        try:
            yield waiting
        except BaseException as error:
            try:
                waiting = started.throw(error)
            except StopIteration as ended:
                return ended.value
        else:
            return (yield from started)
