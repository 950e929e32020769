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
from toolwright.events import CallRetrying
from toolwright.tools.outcome import ConnectionRequired, Failure


def before_another(run: ActiveCall, ended: Failure | ConnectionRequired) -> Coroutine[Any, Any, Any] | None:
    """The awaitable before the next attempt, if there is one: it gives None to continue, else the end of the call."""
    if run.concluded:
        return None
    if run.cancel_reason is not None:
        # Stopped between two attempts, as in the pause: the failure of the last one is not its outcome.
        left = type(ended) is Failure and ended.retry and run.attempt - run.reruns < run.plan.attempts
        return _stop(run) if left else None
    if type(ended) is ConnectionRequired:
        waits = run.owner.policy.on_connection == "wait" and isinstance(ended.provider, str)
        return _connect(run, ended.provider) if waits else None
    if isinstance(ended, Failure) and ended.retry and run.attempt - run.reruns < run.plan.attempts:
        return _pause(run, ended)
    return None


async def _stop(run: ActiveCall) -> object:
    return cancelled(run)


async def _pause(run: ActiveCall, failure: Failure) -> object:
    """Wait for the time of the retry policy, or of the failure itself."""
    delay = failure.retry_after
    if delay is None:
        delay = run.plan.tool.definition.retry.delay(run.attempt)
    publish(run.env, run, CallRetrying(*about(run), run.attempt, delay, failure.code))
    run.expired = False
    run.phase = RETRYING
    try:
        await run.env.clock.sleep(delay)
    except asyncio.CancelledError as error:
        return meaning(run, error)
    finally:
        _pause_ended(run)
    return None


async def _connect(run: ActiveCall, provider: str) -> object:
    """Wait for a connection, without a slot."""
    run.expired = False
    run.phase = RETRYING
    try:
        async with recording(run), outside(run, "connection", provider) as opened:
            ended = await wait_for_connection(run, provider, opened)
    except (asyncio.CancelledError, Unrecorded) as error:
        return meaning(run, error)
    finally:
        _pause_ended(run)
        if run.deadline is not None:
            run.plan.bucket.discard(run.deadline)  # Its time begins with its code.
    run.reruns += 1
    return ended


def _pause_ended(run: ActiveCall) -> None:
    if run.phase is RETRYING:  # else it was given up meanwhile
        run.phase = STARTED
