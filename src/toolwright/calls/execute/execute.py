"""Stage 4: execute. Owns running one call, from its first step to the end of its code; hands on the tool's result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any

from msgspec.structs import replace

from toolwright.calls.active_call import RunState, call_fields
from toolwright.calls.conclude import cancelled, end_now, give
from toolwright.calls.execute.cancel import interrupt, meaning, released
from toolwright.calls.execute.executors import ChildProcessExecutor, ThreadExecutor
from toolwright.calls.execute.failures import deadlocked, internal
from toolwright.calls.execute.retry import before_another
from toolwright.calls.execute.task_reuse import CURRENT
from toolwright.calls.suspend.context_services import make_context
from toolwright.calls.suspend.suspend import complete, park
from toolwright.calls.tool_plan import ToolPlan
from toolwright.stores.contracts.waits import Resolution
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending

log = logging.getLogger("toolwright.calls")

NOT_THE_LAST = (Failure, ConnectionRequired)
"""The result of an attempt that may be followed by another."""


class ActiveCall(RunState):
    """One call from its submission to its outcome. It has exactly one outcome, whatever happens.

    The tool's code runs in a task of its own.
    """

    # --- called by the schedule

    def start(self) -> None:
        """Run the call now; the schedule admitted it."""
        env = self.env
        self.started = started = env.monotonic()
        if self.queue_deadline is not None:
            env.deadlines.bucket(self.queue_deadline.seconds).discard(self.queue_deadline)
            self.queue_deadline = None
        self.owner.report.call_started(self, started)
        if env.journal.started(self, _start_written):
            self.owner.lane.add(self)

    def refuse_deadlock(self, others: list[str]) -> None:
        """End a nested call that could only wait for a call that waits for it."""
        end_now(self, deadlocked(others))

    # --- the run

    def begin(self) -> Coroutine[Any, Any, None] | None:
        """Take the tool's first step, in the call's context. None when that ended it, else the awaitable that is
        left."""
        CURRENT.set(self)
        if self.cancel_reason is not None:
            end_now(self, cancelled(self))
            return None
        plan = self.plan
        if plan.mode != "async":
            self.attempt = 1
            return self._rest(self._elsewhere(plan))
        self.attempt = 1
        self.in_tool = self.ran = True
        try:
            if plan.direct is not None:
                made = plan.direct(**self.arguments)  # type: ignore[arg-type]
            else:
                made = plan.invoke(self.arguments, make_context(self) if plan.needs_context else None)  # type: ignore[arg-type]
            waiting = made.send(None) if type(made) is CoroutineType else None
        except StopIteration as ended:
            result = ended.value
        except BaseException as error:  # the tool's code: whatever it raises ends only this call
            result = meaning(self, error)
            if isinstance(error, KeyboardInterrupt):
                end_now(self, result)
                raise
        else:
            if not self.waits:  # else it is outside already, where its time does not run
                plan.bucket.add(self, self.started)
            return self._rest(resume(made, waiting) if type(made) is CoroutineType else made)
        self.in_tool = False
        if (type(result) is Failure and result.retry) or type(result) is ConnectionRequired:
            return self._finish(result)
        outcome = self.owner.finaliser.settle(self, result)
        if outcome is None:
            return self._finish(result)
        self.task = None  # The task's context holds this run.
        self.concluded = True
        give(self, outcome)
        return None

    async def _rest(self, attempt: Any) -> None:
        """Wait for the first attempt to end, and finish the call."""
        if self.cancel_reason is not None and not self.ran:
            attempt.close()
            await self._finish(cancelled(self))
        else:
            await self._finish(await self._attempt(attempt))

    async def _attempt(self, attempt: Awaitable[Any]) -> Any:
        self.in_tool = True
        try:
            result = await attempt
        except BaseException as error:  # the tool's code: whatever it raises ends only this call
            result = meaning(self, error)
            if isinstance(error, KeyboardInterrupt):
                end_now(self, result)
                raise
        self.in_tool = False
        self.plan.bucket.discard(self)
        return result

    async def _finish(self, result: Any) -> None:
        """Try again where that helps, then give the call its outcome, unless that comes later."""
        while type(result) in NOT_THE_LAST and (pause := before_another(self, result)) is not None:
            ended = await pause
            if ended is not None:
                result = ended
                break
            self.attempt += 1
            result = await self._attempt(self._again())
        if self.concluded:
            released(self)
            return
        if type(result) is Pending and self.key_taken:
            if self.cancel_reason is None:
                self.task = None
                self.admission.finish(self)  # Its code has ended: no other call needs to wait for the rest.
                park(self, result.deadline)
                return
            result = cancelled(self)
        outcome = self.owner.finaliser.settle(self, result)
        if outcome is None:
            self.finishing = True
            try:
                outcome = await self.owner.finaliser.finish(self, result)
            except asyncio.CancelledError:
                end_now(self, cancelled(self))
                return
        self.task = None
        if not self.concluded:
            self.concluded = True
            give(self, outcome)

    async def _again(self) -> Any:
        plan = self.plan
        if plan.mode != "async":
            return await self._elsewhere(plan)
        plan.bucket.add(self)
        return await plan.invoke(self.arguments, make_context(self) if plan.needs_context else None)  # type: ignore[arg-type]

    def _elsewhere(self, plan: ToolPlan) -> Coroutine[Any, Any, Any]:
        """Run a tool that is not async: on a thread, or in a process."""
        self.executor = ThreadExecutor(self) if plan.mode == "thread" else ChildProcessExecutor(self)
        return self.executor.run()

    def code_begins(self) -> None:
        """The tool's code has its thread or process, and begins now: so does its time."""
        self.ran = True
        self.plan.bucket.add(self)

    # --- its waits for something outside

    def completed(self, news: Resolution | Exception) -> None:
        """The completion that the call waited for after its code has come."""
        complete(self, news)

    def rejoined(self) -> None:
        """The call has its slots again, and its time starts again."""
        slot, self.slot = self.slot, None
        if slot is not None and not slot.done():
            slot.set_result(None)
        self.plan.bucket.add(self)

    # --- how it may end otherwise

    def expire(self) -> None:
        """The time of this attempt is up."""
        if self.in_tool and not self.concluded and self.cancel_reason is None:
            self.expired = True
            interrupt(self)

    def broke(self, error: Exception) -> None:
        """The runtime itself failed: log it, and end the call, for the tasks that wait for it."""
        log.critical(
            "Call %r met a fault of the runtime",
            self.call_id,
            exc_info=error,
            extra=call_fields(self, "call.runtime_fault"),
        )
        end_now(self, replace(internal(error), source="runtime", code="runtime_fault"))

    @property
    def stopping(self) -> bool:
        """True once the call should stop."""
        return self.expired or self.cancel_reason is not None or self.concluded


def _start_written(call: ActiveCall, fault: Exception | None) -> None:
    if fault is not None:
        call.owner.store_failed(fault)
    call.owner.lane.add(call)


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
