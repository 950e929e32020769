"""Retry: between two attempts of a call. Owns whether there is another, and the wait before it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from toolwright.calls.active_call import RETRYING, STARTED, ActiveCall, about
from toolwright.calls.conclude import cancelled
from toolwright.calls.execute.cancel import meaning
from toolwright.calls.redact import publish
from toolwright.calls.suspend.connection_wait import wait_for_connection
from toolwright.calls.suspend.steps import Unrecorded, outside, recording
from toolwright.calls.suspend.suspend import regain_slot
from toolwright.events import CallRetrying
from toolwright.tools.outcome import ConnectionRequired, Failure


def before_another(call: ActiveCall, ended: Failure | ConnectionRequired) -> Coroutine[Any, Any, Any] | None:
    """The awaitable before the next attempt, if there is one: it gives None to continue, else the end of the call."""
    if call.concluded:
        return None
    if call.cancel_reason is not None:
        # Stopped between two attempts, as in the pause: the failure of the last one is not its outcome.
        left = type(ended) is Failure and ended.retry and call.attempt - call.reruns < call.plan.attempts
        return _stop(call) if left else None
    if type(ended) is ConnectionRequired:
        waits = call.owner.policy.on_connection == "wait" and isinstance(ended.provider, str)
        return _connect(call, ended.provider) if waits else None
    if isinstance(ended, Failure) and ended.retry and call.attempt - call.reruns < call.plan.attempts:
        return _pause(call, ended)
    return None


async def _stop(call: ActiveCall) -> object:
    return cancelled(call)


async def _pause(call: ActiveCall, failure: Failure) -> object:
    """Wait for the time of the retry policy, or of the failure itself."""
    delay = failure.retry_after
    if delay is None:
        delay = call.plan.tool.definition.retry.delay(call.attempt)
    publish(call.env, call, CallRetrying(*about(call), call.attempt, delay, failure.code))
    call.expired = False
    call.phase = RETRYING
    try:
        await call.env.clock.sleep(delay)
        if call.suspension is not None:
            await regain_slot(call)  # A wait in the grace of an attempt ends without them.
    except asyncio.CancelledError as error:
        return meaning(call, error)
    finally:
        _pause_ended(call)
    return None


async def _connect(call: ActiveCall, provider: str) -> object:
    """Wait for a connection, without a slot."""
    call.expired = False
    call.phase = RETRYING
    try:
        async with recording(call), outside(call, "connection", provider) as opened:
            ended = await wait_for_connection(call, provider, opened)
    except (asyncio.CancelledError, Unrecorded) as error:
        return meaning(call, error)
    finally:
        _pause_ended(call)
        if call.deadline is not None:
            call.plan.bucket.discard(call.deadline)  # Its time begins with its code.
    call.reruns += 1
    return ended


def _pause_ended(call: ActiveCall) -> None:
    if call.phase is RETRYING:  # else it was given up meanwhile
        call.phase = STARTED
