"""The workflows of runs, turns and schedules. Owns the order of their steps, which Temporal replays.

Each brings one piece of work to a worker until it has ended: an activity claims it in the store and works on it there.
Their history has ids, states and instants only. A workflow here may change only so that histories of the version before
can still be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

WORK = "toolwright.work"
"""The activity that works on a run or a turn, and the one that fires a schedule."""
FIRE = "toolwright.fire"
CANCEL = "toolwright.cancel"
"""The activity that writes into the store that the workflow was cancelled."""
CANCELLED_LOCALLY = "cancelled-locally"
"""The mark of histories in which the latter is a local activity."""
LONGEST = timedelta(days=3_650)
"""How long one attempt of an activity may take: a tool may wait for weeks, and its heartbeats show that it lives."""
FIRST_CHECK, LAST_CHECK = 600.0, 86_400.0
"""Seconds after which work that waits is looked at without being woken; each time twice as many."""
CANCELLING = 5.0
"""Seconds for which a workflow whose work was cancelled waits to be cancelled, too, so that it is shown so."""
MOST_STEPS = 200
"""How many times work is brought before the workflow begins a new history."""
RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=0.2),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=0,
)
"""Again without end: what of the work is repeated is decided by the journal of the store."""
FIRE_RETRY = replace(RETRY, maximum_interval=timedelta(seconds=300))
"""The same for a schedule, more rarely in the end: each of its later tries is an event of the history."""


@dataclass(frozen=True)
class Brought:
    """Work on its way to a worker: its kind and id, the name of its store, and when it is to be brought."""

    kind: str
    id: str
    store: str
    heartbeat: float
    not_before: float | None = None


@dataclass(frozen=True)
class Came:
    """How far it came: `state` and `again_at` as in `WorkResult`."""

    state: str
    status: str = ""
    again_at: float | None = None


class Bringing:
    """Brings one piece of work to workers until it has ended."""

    def __init__(self) -> None:
        self.woken = False

    async def go(self, work: Brought) -> str:
        """The end of the work, as the store has it.

        Raises:
            ApplicationError: it failed.
            CancelledError: it was cancelled.
        """
        check, again_at = FIRST_CHECK, work.not_before
        try:
            if again_at is not None:
                await self._sleep(again_at - workflow.time())
            for _ in range(MOST_STEPS):
                self.woken = False
                came = await self._bring(work)
                if came.state == "ended":
                    return await _end(work, came.status)
                if came.again_at is None:
                    await self._sleep(check)
                    check = FIRST_CHECK if self.woken else min(2 * check, LAST_CHECK)
                else:
                    again_at = came.again_at
                    await self._sleep(again_at - workflow.time())
        except BaseException as error:
            # Also where no worker was told: the activity had not begun, or the work only waited.
            if is_cancelled_exception(error):
                await self._cancel(work)
            elif isinstance(error, ActivityError) and workflow.cancellation_reason() is not None:
                # The worker that was told could not write it, or died: an activity that is cancelled is not retried.
                await self._cancel(work)
                raise asyncio.CancelledError from error
            raise
        workflow.continue_as_new(replace(work, not_before=again_at))

    async def _bring(self, work: Brought) -> Came:
        if work.kind == "schedule":
            # Short, and so without a place among the activities, which long runs may have all taken.
            came: Came = await workflow.execute_local_activity(
                FIRE, work, result_type=Came, start_to_close_timeout=timedelta(seconds=60), retry_policy=FIRE_RETRY
            )
            return came
        came = await workflow.execute_activity(
            WORK,
            work,
            result_type=Came,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=work.heartbeat),
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return came

    async def _cancel(self, work: Brought) -> None:
        short = timedelta(seconds=60)
        if workflow.patched(CANCELLED_LOCALLY):
            # Without a place among the activities, as above.
            await workflow.execute_local_activity(CANCEL, work, start_to_close_timeout=short, retry_policy=FIRE_RETRY)
        else:
            await workflow.execute_activity(CANCEL, work, start_to_close_timeout=short, retry_policy=RETRY)

    async def _sleep(self, seconds: float) -> None:
        """Wait for some time, or until somebody wakes it."""
        if seconds > 0 and not self.woken:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: self.woken, timeout=seconds)


async def _end(work: Brought, status: str) -> str:
    if status == "cancelled":
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError
        await workflow.sleep(CANCELLING)  # the process that cancelled it in the store cancels this workflow next
    if status in ("failed", "abandoned"):
        raise ApplicationError(
            f"The {work.kind} {work.id!r} has ended as {status!r}; its outcome is in the store",
            type=f"toolwright.{status}",
            non_retryable=True,
        )
    return status


@workflow.defn(name="toolwright.run", sandboxed=False)
class RunWorkflow:
    """A background run."""

    def __init__(self) -> None:
        self._bringing = Bringing()

    @workflow.run
    async def run(self, work: Brought) -> str:
        return await self._bringing.go(work)

    @workflow.signal
    def wake(self) -> None:
        """What it waits for has come."""
        self._bringing.woken = True


@workflow.defn(name="toolwright.turn", sandboxed=False)
class TurnWorkflow:
    """A turn."""

    def __init__(self) -> None:
        self._bringing = Bringing()

    @workflow.run
    async def run(self, work: Brought) -> str:
        return await self._bringing.go(work)

    @workflow.signal
    def wake(self) -> None:
        """What it waits for has come."""
        self._bringing.woken = True


@workflow.defn(name="toolwright.schedule", sandboxed=False)
class ScheduleWorkflow:
    """A schedule: it fires at each of its instants."""

    def __init__(self) -> None:
        self._bringing = Bringing()

    @workflow.run
    async def run(self, work: Brought) -> str:
        return await self._bringing.go(work)

    @workflow.signal
    def wake(self) -> None:
        """Look at its next instant again."""
        self._bringing.woken = True


WORKFLOWS = (RunWorkflow, TurnWorkflow, ScheduleWorkflow)
